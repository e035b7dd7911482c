"""Stored examinations are read as they were written, and say when and with what."""

import json
from datetime import date

import pytest

from pe_lab.doctor import results
from pe_lab.doctor.confusion import Outcome, rates

SICK = Outcome("sorted", "slopes", True, True, "D-BIAS", True)
WELL = Outcome("released", "slopes", False, False, "", False)


def test_outcomes_come_back(tmp_path):
    path = results.save_outcomes([SICK, WELL], tmp_path / "some.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    assert [Outcome(**row) for row in content["outcomes"]] == [SICK, WELL]
    assert date.fromisoformat(content["date"])
    assert {"pe_lab", "torch"} <= set(content["versions"])


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"name needs .*'confusion'.*got 'none'"):
        results.load("none")


def test_the_shipped_matrix_holds_what_the_book_promises():
    """At least 95 % found, 90 % named, no false alarm: the doctor's own targets."""
    found = rates(Outcome(**row) for row in results.load("confusion")["outcomes"])
    assert found["detected"] >= 0.95
    assert found["named"] >= 0.90
    assert found["false alarms"] == 0
