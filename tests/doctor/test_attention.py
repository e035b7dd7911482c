"""The doctor on attention layers: mutants named, correct ones left in peace."""

from functools import cache

import pytest
import torch
from torch import nn

import pe_lab
from pe_lab.doctor import diagnose
from pe_lab.doctor.confusion import judged, rates
from pe_lab.doctor.guard import Guard, fresh
from pe_lab.doctor.mutants import healthy, mutants
from pe_lab.doctor.mutants.toy import Attend
from pe_lab.doctor.sequence import gap, loud, modules_of, recognise

torch.set_num_threads(1)
SICK, WELL = mutants("attention"), healthy("attention")


@cache
def examined(name):
    """The report on a patient, made once for all tests."""
    pe_lab.seed(0)
    patient = next(p for p in (*SICK, *WELL) if p.name == name)
    return diagnose(patient.make(), kind="attention", seconds=60, **patient.options)


def outcome(patient):
    return judged(patient, examined(patient.name))


@pytest.mark.parametrize("mutant", SICK, ids=lambda m: m.name)
def test_mutant_is_found_and_named(mutant):
    """An alarm, and the first finding names the bug."""
    assert outcome(mutant).named, examined(mutant.name)


@pytest.mark.parametrize("patient", WELL, ids=lambda h: h.name)
def test_correct_layer_is_left_in_peace(patient):
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


def test_quiet_weights_do_not_hide_the_scheme():
    """Weights of 1e-3 make attention a plain mean, whatever turns queries and keys."""
    layer = Attend("rope")
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(1e-3)
    assert diagnose(layer, kind="attention").identity["scheme"] == "relative"


def test_loud_keeps_weights_that_are_loud():
    """Such as those of a trained layer; a table of zeros is not."""
    layer = nn.ModuleDict({"a": nn.Linear(32, 32), "b": nn.Embedding(9, 32)})
    nn.init.normal_(layer["a"].weight)
    nn.init.zeros_(layer["b"].weight)
    kept = layer["a"].weight.clone()
    loud(layer)
    assert torch.equal(layer["a"].weight, kept)
    assert layer["b"].weight.std() > 0.1


def mask_of(subject, **options):
    found = recognise("attention", subject, options, Guard(20))
    return found(subject).plan


def test_the_form_of_a_mask_is_found_by_what_it_does():
    """Shapes, dtypes and both readings; the name alone would not tell."""
    toy = Attend("rope", causal=False)

    def shows(x, mask=None):
        return toy(x, mask)[0]

    def hides(x, mask=None):
        return toy(x, None if mask is None else ~mask)[0]

    def adds(x, mask=None):
        return toy(x, None if mask is None else mask[:, 0, 0] > -1)[0]

    plans = [mask_of(f, d_model=32) for f in (shows, hides, adds)]
    assert [p.form.hides for p in plans] == [False, True, False]
    assert plans[2].form.dtype == torch.float32 and plans[2].form.shape == "head"
    assert [p.width for p in plans] == [32] * 3


def test_query_key_value_and_length_first_are_seen():
    plan = mask_of(nn.MultiheadAttention(24, 3))
    assert (plan.times, plan.turned, plan.width) == (3, True, 24)
    assert plan.mask == "key_padding_mask" and plan.form.hides


def test_a_function_is_copied_with_its_modules():
    """Its closure, its defaults, and the modules that it calls by name."""
    inner, other = nn.Linear(3, 3), nn.Linear(3, 3)

    def run(x, add=other):
        return inner(x) + add(x)

    twin, x = fresh(run), torch.ones(1, 3)
    before = run(x)
    with torch.no_grad():
        for module in modules_of(run):
            module.weight.zero_()
    assert len(modules_of(run)) == 2
    assert torch.equal(twin(x), before)
    assert not torch.equal(run(x), before)


def test_a_gap_says_when_two_results_cannot_be_compared():
    one = torch.ones(2, 2)
    assert gap(one, one) == 0
    assert gap(1.5 * one, one) == pytest.approx(0.5)
    for other in (torch.ones(3), one * torch.nan, None):
        assert gap(other, one) == float("inf")
