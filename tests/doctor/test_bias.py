"""The doctor on biases: mutants named, correct ones left in peace."""

import pytest
import torch
from torch import nn

import pe_lab
from pe_lab.doctor import diagnose, load
from pe_lab.doctor.bias.profile import deberta_rule, rounded_up, t5_rule, t5_starts
from pe_lab.doctor.confusion import outcomes, rates
from pe_lab.doctor.guard import Guard
from pe_lab.doctor.mutants import healthy, mutants

torch.set_num_threads(1)


@pytest.mark.parametrize("mutant", mutants("bias"), ids=lambda m: m.name)
def test_mutant_is_found_and_named(mutant):
    """An alarm, and the first finding names the bug."""
    (outcome,) = outcomes([mutant])
    assert outcome.alarm, outcome
    assert outcome.named, outcome


@pytest.mark.parametrize("patient", healthy("bias"), ids=lambda h: h.name)
def test_correct_bias_is_left_in_peace(patient):
    """No alarm, the right scheme, and well below the 2 s that a diagnosis may take."""
    report = diagnose(patient.make(), kind="bias", **patient.options)
    assert report.severity not in ("wrong", "risky"), report
    assert report.seconds < 10, report
    for name, value in patient.identity.items():
        assert report.identity[name] == value, report


def test_rates_of_the_whole_catalogue():
    """The targets: 95 % found, 90 % named, no false alarm."""
    results = list(outcomes([*mutants("bias"), *healthy("bias")]))
    found = rates(results)
    assert found["detected"] >= 0.95
    assert found["named"] >= 0.9
    assert [r for r in results if r.alarm and not r.sick] == []


def recognised(subject, **options):
    return load("bias").recognise(subject, options, Guard(5))


def distance(q, k):
    return torch.arange(k - q, k)[:, None] - torch.arange(k)


def test_forms_and_orders_are_recognised():
    slopes = pe_lab.alibi_slopes(4)[:, None, None]
    lengths = recognised(lambda q, k: -slopes * distance(q, k))
    assert (lengths.form, lengths.swapped, lengths.axes) == ("lengths", False, "hqk")
    swapped = recognised(lambda k, q: -slopes * distance(q, k))
    assert (swapped.form, swapped.swapped, swapped.axes) == ("lengths", True, "hqk")
    ids = recognised(lambda q, k: -slopes * (q[:, None] - k))
    assert (ids.form, ids.axes) == ("positions", "hqk")
    door = recognised(pe_lab.ALiBi(4))
    assert (door.form, door.heads) == ("encoding", 4)


def test_what_is_no_bias_is_refused_in_words():
    """Tables, rotations, and biases that read tokens."""
    assert "table" in recognised(pe_lab.sinusoidal)
    assert "table" in recognised(torch.eye)
    assert "queries and keys" in recognised(pe_lab.Shaw(8, 4), num_heads=2)
    assert isinstance(recognised(pe_lab.RoPE(8)), str)
    assert isinstance(recognised(nn.Linear(3, 3)), str)
    assert isinstance(recognised(lambda x: x), str)
    assert isinstance(recognised(3), str)


def test_slopes_of_a_report_are_in_the_message():
    """ml-explore/mlx#343, as a bias."""
    slopes = 2.0 ** (-8 * torch.arange(1, 7) / 6)
    report = diagnose(lambda q, k: -slopes[:, None, None] * distance(q, k), kind="bias")
    assert report.findings[0].check == "D-BIAS"
    assert "0.25, 0.0625, 0.01562, 0.003906, 0.5, 0.125" in report.findings[0].remedy


def test_bias_that_vanishes_while_decoding_is_named():
    """keras-team/keras-hub#2861: slope · arange(q_len)."""
    slopes = pe_lab.alibi_slopes(4)[:, None, None]
    report = diagnose(lambda q, k: slopes * torch.arange(q), kind="bias")
    assert report.findings[0].check == "D-CACHE"
    assert "no bias" in report.findings[0].message


@pytest.mark.parametrize(
    ("buckets", "far"), [(32, 128), (16, 64), (16, 100), (160, 800)]
)
def test_bucket_rules_are_read_back(buckets, far):
    """Exactly, also for sizes that no list holds; one boundary off by one is seen."""
    steps = list(t5_starts(buckets, far))
    rule = t5_rule(steps)
    assert (rule.buckets, rule.off) == (buckets, None)
    assert t5_starts(buckets, rule.max_distance) == tuple(steps)
    steps[buckets // 2 + 3] += 1
    moved = t5_rule(steps)
    assert moved is None or moved.off is not None
    assert not rounded_up(list(t5_starts(buckets, far)))
    assert deberta_rule(list(t5_starts(buckets, far))) is None


def test_identity_gives_the_numbers_of_a_scheme():
    kerple = pe_lab.Kerple(3)
    with torch.no_grad():
        kerple.weight.copy_(torch.tensor([[1.0, 0.5, 2.0], [0.3, 0.9, 0.05]]))
    said = diagnose(kerple, kind="bias").identity
    # r₂ is read off ratios of float32 numbers, good to some 1e-5 of its size
    assert (
        torch.tensor(said["r1"]).sub(torch.tensor([1.0, 0.5, 2.0])).abs().max() < 1e-3
    )
    assert (
        torch.tensor(said["r2"]).sub(torch.tensor([0.3, 0.9, 0.05])).abs().max() < 1e-3
    )
    said = diagnose(
        pe_lab.T5Bias(2, bidirectional=True, max_distance=64), kind="bias"
    ).identity
    assert (said["buckets"], said["max_distance"]) == (32, 64)
    said = diagnose(pe_lab.ALiBi(6), kind="bias").identity
    assert said["slopes"] == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]


def test_the_subject_keeps_its_weights_and_mode():
    module = pe_lab.T5Bias(2).train()
    before = module.weight.detach().clone()
    diagnose(module, kind="bias")
    assert torch.equal(before, module.weight)
    assert module.training
    assert module.weight.requires_grad


@pytest.mark.parametrize(
    "hostile",
    [
        lambda q, k: torch.full((2, q, k), float("nan")),
        lambda q, k: torch.zeros(2, q, k),
        lambda q, k: torch.full((2, q, k), float("-inf")),
        lambda q, k: torch.ones(2, q, k, dtype=torch.long),
        lambda q, k: torch.randn(2, q, k),
        lambda q, k: torch.ones(2, q, k) if k < 20 else 1 / 0,
    ],
    ids=["NaN", "zeros", "−∞", "whole", "noise", "raises"],
)
def test_hostile_subjects_give_an_alarm(hostile):
    """A report with an alarm, never a crash."""
    assert diagnose(hostile, kind="bias").severity in ("wrong", "risky")
