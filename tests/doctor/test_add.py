"""The doctor on modules that add positions: bugs named, peers judged, correct code left."""

import importlib.util
import math

import pytest
import torch
from torch import nn

import pe_lab
from pe_lab.doctor import diagnose
from pe_lab.doctor.confusion import outcomes, rates
from pe_lab.doctor.mutants import healthy, mutants
from pe_lab.doctor.mutants.add import _Learned, _Module, _right

torch.set_num_threads(1)

MUTANTS, HEALTHY = mutants("add"), healthy("add")


def peer(name):
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed")


def alarms(report):
    return [f.check for f in report.findings if f.severity in ("wrong", "risky")]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_is_found_and_named(mutant):
    """An alarm, and the first finding names the bug."""
    (outcome,) = outcomes([mutant])
    assert outcome.alarm, outcome
    assert outcome.named, outcome


@pytest.mark.parametrize("patient", HEALTHY, ids=lambda h: h.name)
def test_correct_module_is_left_in_peace(patient):
    report = diagnose(patient.make(), kind="add", **patient.options)
    assert report.severity not in ("wrong", "risky"), report
    for name, value in patient.identity.items():
        assert report.identity[name] == value, report


def test_rates_of_the_whole_catalogue():
    """The targets: 95 % found, 90 % named, no false alarm."""
    found = rates(outcomes([*MUTANTS, *HEALTHY]))
    assert found["detected"] >= 0.95
    assert found["named"] >= 0.9
    assert found["false alarms"] == 0


@peer("positional_encodings")
def test_positional_encodings_cache_is_found():
    """Its cache knows shapes only, and its positions follow .to(bfloat16)."""
    from positional_encodings.torch_encodings import PositionalEncoding1D, Summer

    alone = diagnose(PositionalEncoding1D(32), kind="add")
    assert alarms(alone) == ["D-HISTORY", "D-STATE", "D-DTYPE"], alone
    assert "edit" in alone.findings[0].message
    summed = diagnose(Summer(PositionalEncoding1D(32)), kind="add")
    assert alarms(summed) == ["D-HISTORY", "D-DTYPE"], summed
    assert "bfloat16" in summed.findings[0].message


@peer("positional_encodings")
@pytest.mark.parametrize(
    "name", ["PositionalEncoding2D", "PositionalEncodingPermute2D"]
)
def test_both_forms_of_a_grid_are_called_rightly(name):
    """(B, h, w, d) and (B, d, h, w) are told apart by which axes the code follows."""
    from positional_encodings import torch_encodings

    module = torch_encodings.Summer(getattr(torch_encodings, name)(32))
    report = diagnose(module, kind="add", axes=(5, 9))
    assert report.identity["axes"] == "row first"
    assert not {"D-GRID", "D-BASE", "D-LAYOUT"} & set(alarms(report)), report


@peer("x_transformers")
def test_x_transformers_frequencies_follow_the_cast():
    """Its positions take the dtype of nothing, its frequencies that of the module."""
    from x_transformers.x_transformers import ScaledSinusoidalEmbedding

    report = diagnose(ScaledSinusoidalEmbedding(32), kind="add")
    assert alarms(report) == ["D-DTYPE"], report
    assert report.identity["gain"] == pytest.approx(32**-0.5, rel=1e-3)
    assert report.identity["order"] == "halves"


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("width", [16, 512])
def test_dropout_is_counted(rate, width):
    """Once is right and twice is not, at every rate: 65 536 entries or more count
    a share of 5 % to ±0.1 %.
    """
    once = _Module(_right, rate=rate, width=width)
    twice = _Module(lambda s, x: s.dropout(_right(s, x)), rate=rate, width=width)
    assert alarms(diagnose(once, kind="add")) == []
    assert alarms(diagnose(twice, kind="add")) == ["D-SCALE"]


@pytest.mark.parametrize("width", [16, 64, 512])
def test_root_of_the_width_against_the_embeddings(width):
    """For N(0, 1/d): √d missing, once, and twice."""
    small = width**-0.5
    for power, verdict in ((0.0, ["D-SCALE"]), (0.5, []), (1.0, ["D-SCALE"])):
        module = _Module(
            lambda s, x, p=power: x * s.d_model**p + s.pe[: x.shape[1]], width=width
        )
        report = diagnose(module, kind="add", embedding_std=small)
        assert alarms(report) == verdict, (power, report)
    assert "0.707" in report.findings[0].message


def test_the_subject_is_what_it_was():
    """Buffers, parameters, mode, gradients and hooks of the original are untouched."""
    module = _Module(_right, rate=0.1).train()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    random = torch.get_rng_state()
    diagnose(module, kind="add")
    assert module.training and module.dropout.training
    assert module.kept == {}
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(before[n], t) for n, t in module.state_dict().items())
    learned = _Learned(lambda t, x: t.weight[: x.shape[1]])
    diagnose(learned, kind="add")
    assert learned.table.weight.grad is None


def test_zero_gradient_is_told_from_a_zero_start():
    """A table of zeros that gets gradients learns; gradcheck would pass both."""
    zero = _Learned(lambda t, x: t.weight[: x.shape[1]], zero=True)
    assert alarms(diagnose(zero, kind="add")) == []
    dead = _Learned(lambda t, x: t.weight[: x.shape[1]].detach(), zero=True)
    assert alarms(diagnose(dead, kind="add")) != []


def test_attention_is_no_added_encoding():
    """It mixes tokens; a feed-forward layer mixes channels; both are refused."""
    layer = nn.MultiheadAttention(32, 4, batch_first=True)
    for subject, words in (
        (lambda x: layer(x, x, x)[0], "attention|linear"),
        (nn.Linear(32, 32), "channel"),
        (nn.GELU(), "linear"),
        (nn.LayerNorm(32), "linear|channel"),
    ):
        with pytest.raises(ValueError, match=words):
            diagnose(subject, kind="add", d_model=32)


def test_modules_are_recognised_without_their_kind():
    for subject in (_Module(_right), pe_lab.Sinusoidal(16), pe_lab.Learned(64, 16)):
        assert diagnose(subject).kind == "add"


@pytest.mark.parametrize(
    "act",
    [
        lambda s, x: x * math.nan,
        lambda s, x: x + 1 / 0 if x.shape[1] > 7 else x + s.pe[: x.shape[1]],
        lambda s, x: x if s.training else x.expand(2, -1, -1)[:1].repeat(len(x), 1, 1),
        lambda s, x: (x + s.pe[: x.shape[1]]) if x.dtype == torch.float32 else None,
        lambda s, x: (x + s.pe[: x.shape[1]])[: len(x) // 2 + 1],
        lambda s, x: x + torch.rand_like(x),
    ],
)
def test_hostile_modules_get_a_report(act):
    """Whatever comes back, the doctor does not fall over it."""
    report = diagnose(_Module(act), kind="add", seconds=10)
    assert report.kind == "add"
    assert str(report)


def test_along_the_batch_is_seen_in_every_shape():
    """B = L hides it from a shape check, B = 1 from the eye."""
    for act in (
        lambda s, x: x + s.pe[: x.shape[0], None],
        lambda s, x: x + s.pe[None, : x.shape[0]],
        lambda s, x: x + s.pe[: x.shape[0]],
    ):
        report = diagnose(_Module(act), kind="add")
        assert report.findings[0].check in ("D-ORDER", "D-SHAPE"), report
        assert report.severity == "wrong"
    right = _Module(lambda s, x: x + s.pe[: x.shape[0], None])
    assert alarms(diagnose(right, kind="add", batch_first=False)) == []


def test_examination_is_short():
    assert diagnose(_Module(_right, width=512), kind="add").seconds < 2
