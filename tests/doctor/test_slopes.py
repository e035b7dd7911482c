"""The doctor on ALiBi's slopes: mutants named, correct ones left in peace."""

import pytest
import torch

import pe_lab
from pe_lab.doctor import diagnose
from pe_lab.doctor.confusion import outcomes, rates
from pe_lab.doctor.mutants import healthy, mutants
from pe_lab.doctor.slopes import name_slopes

torch.set_num_threads(1)


@pytest.mark.parametrize("mutant", mutants("slopes"), ids=lambda m: m.name)
def test_mutant_is_found_and_named(mutant):
    """An alarm, and the first finding names the bug."""
    (outcome,) = outcomes([mutant])
    assert outcome.alarm, outcome
    assert outcome.named, outcome


@pytest.mark.parametrize("patient", healthy("slopes"), ids=lambda h: h.name)
def test_correct_slopes_are_left_in_peace(patient):
    report = diagnose(patient.make(), kind="slopes", **patient.options)
    assert report.severity not in ("wrong", "risky"), report
    for name, value in patient.identity.items():
        assert report.identity[name] == value, report


def test_rates_of_the_whole_catalogue():
    """The targets: 95 % found, 90 % named, no false alarm."""
    found = rates(outcomes([*mutants("slopes"), *healthy("slopes")]))
    assert found["detected"] >= 0.95
    assert found["named"] >= 0.9
    assert found["false alarms"] == 0


def test_slopes_are_recognised_without_their_kind():
    assert pe_lab.doctor.slopes.KIND.recognise.__name__ == "_recognise"
    guard = pe_lab.doctor.guard.Guard(5)
    adapt = pe_lab.doctor.slopes.KIND.recognise
    assert callable(adapt(pe_lab.alibi_slopes, {}, guard))
    assert isinstance(adapt(torch.zeros(3), {}, guard), str)
    assert isinstance(
        adapt(lambda length, width: torch.zeros(length, width), {}, guard), str
    )
    assert isinstance(adapt(lambda dim: torch.ones(dim // 2), {}, guard), str)


def test_six_heads_are_named_with_their_right_values():
    """ml-explore/mlx#343: the report says what they should be."""
    report = diagnose(
        lambda h: [2 ** (-8 * (i + 1) / h) for i in range(h)], kind="slopes"
    )
    assert report.findings[0].remedy.startswith(
        "For 6 heads the slopes are 0.25, 0.0625"
    )
    assert "2^(−8h/H)" in report.identity["order"]


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20, 64])
def test_the_released_slopes_have_that_name(heads):
    assert name_slopes(pe_lab.alibi_slopes(heads)).severity is None
    assert name_slopes(1.01 * pe_lab.alibi_slopes(heads)).severity == "differs"


def test_hostile_subjects_give_a_report_or_a_refusal():
    def nan(heads):
        return torch.full((heads,), float("nan"))

    assert diagnose(nan, kind="slopes").severity == "wrong"
    with pytest.raises(ValueError, match="slopes"):
        diagnose(lambda heads: 1 / 0, kind="slopes")
