"""The doctor on Hugging Face configs: mutants named, released models left in peace."""

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_lab import hf
from pe_lab.doctor import Report, diagnose
from pe_lab.doctor.confusion import outcomes, rates
from pe_lab.doctor.mutants import healthy, mutants

torch.set_num_threads(1)
LLAMA = next(h for h in healthy("config") if h.name == "Llama 3.1 8B").make()


@pytest.mark.parametrize("mutant", mutants("config"), ids=lambda m: m.name)
def test_mutant_is_found_and_named(mutant):
    """An alarm, and the first finding is of the check that names the bug."""
    (outcome,) = outcomes([mutant])
    assert outcome.alarm, outcome
    assert outcome.named, outcome


@pytest.mark.parametrize("patient", healthy("config"), ids=lambda h: h.name)
def test_a_released_config_is_left_in_peace_and_recognised(patient):
    report = diagnose(patient.make(), **patient.options)
    assert report.kind == "config"
    assert report.severity not in ("wrong", "risky"), report
    for name, value in patient.identity.items():
        assert report.identity[name] == value, report


def test_rates_of_the_whole_catalogue():
    """The targets: 95 % found, 90 % named, no false alarm."""
    found = rates(outcomes([*mutants("config"), *healthy("config")]))
    assert found["detected"] >= 0.95 and found["named"] >= 0.9
    assert found["false alarms"] == 0


def test_default_configs_of_transformers_give_no_alarm_but_two_of_its_own():
    """RoBERTa's classes default to 512 rows, 510 tokens; GLM-4-MoE's to 4096 / 96."""
    transformers = pytest.importorskip("transformers")
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    alarmed = {}
    for name in hf.FAMILIES.keys() & set(known):
        report = diagnose(known[name](), kind="config")
        if report.severity in ("wrong", "risky"):
            alarmed[name] = report.findings[0].check
    short = {
        n for n, f in hf.FAMILIES.items() if f.scheme == "learned" and f.offset < 0
    }
    assert alarmed.pop("glm4_moe", "D-DIM") == "D-DIM"
    assert set(alarmed) <= short and set(alarmed.values()) <= {"D-LEN"}, alarmed


@pytest.mark.parametrize(
    "form", ["dict", "text", "path", "folder", "object", "to_dict"]
)
def test_every_form_gives_the_same_report(form, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA), encoding="utf-8")
    subject = {
        "dict": LLAMA,
        "text": str(file),
        "path": file,
        "folder": tmp_path,
        "object": SimpleNamespace(**LLAMA),
        "to_dict": SimpleNamespace(to_dict=lambda: LLAMA),
    }[form]
    report = diagnose(subject)
    assert report.kind == "config"
    assert report.identity == diagnose(LLAMA).identity
    assert report.verdicts == diagnose(LLAMA).verdicts


def test_a_config_is_left_as_it_was():
    before = copy.deepcopy(LLAMA)
    diagnose(LLAMA)
    assert before == LLAMA


def test_a_note_becomes_a_finding_of_its_severity_under_its_check():
    report = diagnose(LLAMA | {"head_dim": None, "partial_rotary_factor": 0.5})
    (worst, *others) = report.findings
    assert (worst.check, worst.severity) == ("D-DIM", "wrong")
    assert "partial_rotary_factor 0.5 is ignored" in worst.message
    assert worst.remedy and worst.chapter == "05 Rotate by k"
    assert ("D-DIM", "note") in {(f.check, f.severity) for f in others}


def test_both_numbers_of_deepseeks_corrections_are_told():
    """B45: gain 1 on cos and sin, 1.87385 on the softmax scale, and it is no alarm."""
    patient = next(h for h in healthy("config") if h.name == "DeepSeek V3")
    report = diagnose(patient.make())
    assert report.identity["gain"] == 1.0
    assert report.identity["softmax_scale"] == pytest.approx(1.87385, abs=1e-5)
    assert any("softmax scale × 1.87385" in f.message for f in report.findings)


def test_one_bug_gives_one_alarm():
    """A value that makes the config unreadable is not told a second time."""
    report = diagnose(LLAMA | {"rope_theta": -1})
    alarms = [f for f in report.findings if f.severity in ("wrong", "risky")]
    assert len(alarms) == 1 and "finite number above 1" in alarms[0].message
    assert any("explained by D-BASE" in n.why for n in report.not_applicable)


def test_layers_that_differ_are_told_apart():
    patient = next(h for h in healthy("config") if h.name == "Gemma 3 1B")
    layers = diagnose(patient.make()).identity["layers"]
    assert layers.startswith("22 of 26: RoPE, base 10000") and "4 of 26" in layers


@pytest.mark.parametrize(
    ("expected", "check"),
    [
        ({"base": 1e4}, "D-BASE"),
        ({"scaling": "linear 4"}, "D-BASE"),
        ({"layout": "interleaved"}, "D-LAYOUT"),
        ({"rotary_dim": 64}, "D-DIM"),
        ({"offset": 2}, "D-LEN"),
        ({"scheme": "ALiBi"}, "D-CONFIG"),
    ],
)
def test_what_is_expected_and_not_there_is_wrong(expected, check):
    report = diagnose(LLAMA, expected=expected)
    assert [f.check for f in report.findings if f.severity == "wrong"] == [check]


def test_what_is_expected_and_there_passes():
    expected = {
        "base": 500000,
        "scaling": "llama3 8",
        "layout": "half",
        "scheme": "rope",
    }
    report = diagnose(LLAMA, expected=expected)
    assert report.severity == "note"
    assert any("what was expected" in p.message for p in report.passed)


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ({}, "config needs a known model_type"),
        ({"model_type": "mamba", "d_model": 8}, "config needs a known model_type"),
        ("nowhere/config.json", "cannot be read"),
        (Path("nowhere"), "cannot be read"),
        (3, "int holds no keys"),
        ({1: 2}, "config needs a dict of keys"),
        (torch.nn.Linear(2, 2), "it is called, and a config is not"),
    ],
)
def test_what_is_no_config_is_refused_in_words(subject, words):
    with pytest.raises((TypeError, ValueError), match=words):
        diagnose(subject, kind="config")


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2**70), st.floats(), st.text(max_size=4),
    st.lists(st.floats(0, 9), max_size=3), st.just({}), st.just({"factor": -1}),
    st.just({"full_attention": {"rope_type": 3}}), st.just([[]]),
)  # fmt: skip
KEYS = st.sampled_from(
    [
        *LLAMA, "head_dim", "partial_rotary_factor", "rope_parameters", "layer_types",
        "rope_interleave", "rotary_dim", "alibi", "position_embedding_type", "text_config",
        "sliding_window", "pad_token_id", "rope_ratio", "original_max_position_embeddings",
    ]
)  # fmt: skip
RULES = st.dictionaries(
    st.sampled_from([*LLAMA["rope_scaling"], "type", "short_factor", "long_factor", "mscale",
                     "mscale_all_dim", "rope_theta", "attention_factor", "beta_fast"]),
    JUNK | st.sampled_from(["yarn", "longrope", "dynamic", "linear", 2.0, 64]),
)  # fmt: skip
TYPES = st.sampled_from(
    ["llama", "gemma3", "phi3", "roberta", "deepseek_v3", "mpt", "t5"]
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, JUNK, max_size=4), RULES, TYPES)
def test_whatever_the_values_are_there_is_a_report_or_a_sentence(changes, rule, family):
    """Layers are few, so that sizes are not what is examined here."""
    config = LLAMA | {
        "rope_scaling": rule,
        "model_type": family,
        "num_hidden_layers": 2,
    }
    try:
        report = diagnose(config | changes)
    except (TypeError, ValueError) as refusal:
        assert "subject needs to be of a kind" in str(refusal)
        return
    assert isinstance(report, Report) and json.dumps(report.to_dict())
    assert report.to_html() and str(report)
