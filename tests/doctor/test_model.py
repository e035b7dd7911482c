"""The doctor on models: mutants named, correct ones left in peace."""

from functools import cache

import pytest
import torch

import pe_lab
from pe_lab.doctor import diagnose
from pe_lab.doctor.confusion import judged, rates
from pe_lab.doctor.mutants import healthy, mutants
from pe_lab.doctor.mutants.model import StartsAgain
from pe_lab.doctor.mutants.toy import Attend, Toy, turn

torch.set_num_threads(1)
SICK, WELL = mutants("model"), healthy("model")


@cache
def examined(name):
    """The report on a patient, made once for all tests."""
    pe_lab.seed(0)
    patient = next(p for p in (*SICK, *WELL) if p.name == name)
    return diagnose(patient.make(), kind="model", seconds=60, **patient.options)


def outcome(patient):
    return judged(patient, examined(patient.name))


def test_names_are_told_apart():
    assert len({p.name for p in (*SICK, *WELL)}) == len(SICK) + len(WELL)


@pytest.mark.parametrize("mutant", SICK, ids=lambda m: m.name)
def test_mutant_is_found_and_named(mutant):
    """An alarm, and the first finding names the bug."""
    assert outcome(mutant).named, examined(mutant.name)


@pytest.mark.parametrize("patient", WELL, ids=lambda h: h.name)
def test_correct_model_is_left_in_peace(patient):
    report = examined(patient.name)
    assert not outcome(patient).alarm, report
    for name, value in patient.identity.items():
        assert report.identity[name] == value, report


def test_rates_of_the_whole_catalogue():
    """The targets: 95 % found, 90 % named, no false alarm."""
    found = rates(outcome(p) for p in (*SICK, *WELL))
    assert found["detected"] >= 0.95
    assert found["named"] >= 0.9
    assert found["false alarms"] == 0


def test_toy_is_the_attention_of_the_package():
    """The base of the mutants is right: its rotation is that of `pe_lab.RoPE`.

    Both round float64 angles once to float32: 1e-5 is a hundred roundings.
    """
    x, steps = torch.randn(2, 4, 9, 8), torch.arange(9)
    ours, _ = pe_lab.RoPE(8).rotate(x, x, steps, steps)
    assert torch.allclose(turn(x, steps[None]), ours, atol=1e-5)
    layer, h = Attend(), torch.randn(2, 9, 32)
    q, k, v = (layer.split(w(h)) for w in (layer.w_q, layer.w_k, layer.w_v))
    out = pe_lab.attention(q, k, v, causal=True, encoding=pe_lab.RoPE(8))
    assert torch.allclose(layer(h)[0], layer.w_o(layer.join(out)), atol=1e-5)


def test_a_decoding_bug_is_told_with_the_position_that_it_has():
    """The first decode step after 5 tokens is at 0: the message says it."""
    (found,) = [f for f in diagnose(StartsAgain("rope"), kind="model").findings
                if f.check == "D-CACHE"]  # fmt: skip
    assert "output 5 is the first" in found.message
    assert "what token 5 gives at position 0" in found.message
    assert found.value > 100 * found.tolerance


def test_the_callers_own_way_to_decode_is_used():
    def step(model, ids, state):
        return model.extend(ids, state)

    def late(model, ids, state):
        start = 0 if state is None else state[0].k.shape[2] + 1
        steps = start + torch.arange(ids.shape[1]).expand(len(ids), -1)
        return model.extend(ids, state, positions=steps)

    pe_lab.seed(0)
    model = pe_lab.Transformer(29, 32, 4, 2, encoding=pe_lab.Sinusoidal(32))
    right, wrong = (diagnose(model, kind="model", step=s) for s in (step, late))
    assert "D-CACHE" in [p.check for p in right.passed]
    assert wrong.findings[0].check == "D-CACHE"


def test_a_mask_may_be_given_by_an_adapter():
    """A model that takes lengths instead of a mask."""
    toy = Toy("rope", causal=False)

    def model(ids, lengths=None):
        mask = (
            None if lengths is None else torch.arange(ids.shape[1]) < lengths[:, None]
        )
        return toy(ids, mask)[0]

    report = diagnose(
        model, kind="model", expected={"causal": False},
        mask=lambda mask: {"lengths": (mask * torch.arange(1, mask.shape[-1] + 1)).amax(-1)},
    )  # fmt: skip
    assert "mask" in report.identity["takes"]


def test_nothing_is_changed():
    """Weights, mode and random state are what they were."""
    pe_lab.seed(0)
    model = pe_lab.Transformer(29, 32, 4, 2, encoding=pe_lab.Learned(20, 32)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    diagnose(model, kind="model")
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())


def test_what_is_no_model_is_refused_with_its_own_words():
    for subject, words in (
        (lambda ids: ids.float(), "it gives"),
        (lambda ids: 1 / 0, "ZeroDivisionError"),
        (3, "cannot be called"),
    ):
        with pytest.raises(ValueError, match=words):
            diagnose(subject, kind="model")


def test_a_model_that_fails_on_everything_but_the_plain_call_is_examined():
    """What raises with a mask, with positions and while decoding is not applicable."""

    class Brittle(Toy):
        def forward(self, ids, mask=None, positions=None, cache=None):
            if mask is not None or positions is not None or cache is not None:
                raise RuntimeError("no")
            return super().forward(ids)

    report = diagnose(Brittle(), kind="model")
    assert report.severity in (None, "note"), report
    assert {"D-PAD", "D-CACHE"} <= {n.check for n in report.not_applicable}
