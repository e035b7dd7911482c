"""Reports: the worst first, and the same facts in every form."""

import json

import pytest
import torch

from pe_lab.doctor import Finding, NotApplicable, Passed, Report

VERDICTS = (
    Finding("D-A", "note", "a <b> note", value=1.5),
    Passed("D-B", "fine", 1e-9, 1e-6),
    Finding("D-C", "wrong", "first cause", 0.5, 1e-6, "Mend it.", "05 Rotate by k"),
    NotApplicable("D-D", "no <positions>"),
    Finding("D-E", "wrong", "its effect"),
)


def report():
    identity = {"scheme": "rope", "base": 10000.0, "slopes": torch.ones(2)}
    return Report("mine", "rope", identity, VERDICTS, 1.25)


def test_findings_are_sorted_by_severity_and_causes_stay_before_effects():
    assert [f.check for f in report().findings] == ["D-C", "D-E", "D-A"]
    assert report().severity == "wrong"
    assert Report("x", "rope").severity is None


def test_every_verdict_is_in_its_place():
    assert [p.check for p in report().passed] == ["D-B"]
    assert [n.check for n in report().not_applicable] == ["D-D"]


def test_as_values_for_json():
    content = json.loads(json.dumps(report().to_dict()))
    assert content["severity"] == "wrong" and content["kind"] == "rope"
    assert content["identity"]["base"] == 10000.0
    assert content["findings"][0]["remedy"] == "Mend it."
    assert content["passed"][0]["value"] == 1e-9


def test_as_text_in_a_terminal():
    text = str(report())
    assert "mine, examined as 'rope' in 1.2 s" in text
    assert "✗ wrong: first cause" in text
    assert "measured 0.5, allowed 1e-06" in text
    assert "Mend: Mend it." in text and "chapter 05 Rotate by k" in text
    assert "Not applicable: D-D (no <positions>)" in text
    assert "Nothing found." in str(Report("x", "rope"))


def test_as_html_nothing_of_the_subject_is_markup():
    page = report()._repr_html_()
    assert "a &lt;b&gt; note" in page and "<b> note" not in page
    assert "no &lt;positions&gt;" in page


def test_an_unknown_severity_is_refused():
    with pytest.raises(ValueError, match="severity needs one of"):
        Finding("D-A", "bad", "")
