"""Anchors: a constant token stands in front, is not asked, and changes who can count."""

import numpy as np
import pytest
import torch

from pe_lab.lab import load, run, tasks
from pe_lab.lab.experiments import EXPERIMENTS, anchors
from pe_lab.lab.experiments.base import transformer
from pe_lab.lab.tasks import IGNORE
from pe_lab.lab.training import LOCAL, reproducible

EXPERIMENT = EXPERIMENTS["anchors"]
CHANCE = 1 / anchors.LENGTH


def test_an_anchor_is_one_token_of_its_own_that_is_not_asked():
    bare, behind = (
        task.draw(5, torch.Generator().manual_seed(3))
        for task in (tasks.position(16), anchors.anchored(tasks.position(16)))
    )
    assert torch.equal(behind.inputs[:, 1:], bare.inputs)
    assert torch.equal(behind.targets[:, 1:], bare.targets)
    assert (behind.inputs[:, 0] == 50).all() and (bare.inputs < 50).all()
    assert (behind.targets[:, 0] == IGNORE).all()


@pytest.mark.parametrize("variant", EXPERIMENT.variants)
def test_every_variant_reads_and_answers_its_task(variant):
    config = EXPERIMENT.config(variant, "quick", "topics")
    task = anchors.task_of(config)
    encoding = anchors.SCHEMES[config["scheme"]](config["kind"] == "both-ways")
    model = transformer(task, config["sizes"], encoding)
    share = anchors.right_answers(model, task, 4)
    assert share.shape == (16,)
    assert ((share >= 0) & (share <= 1)).all()
    assert model.kind == anchors.KINDS[config["kind"]]


def test_right_answers_are_counted_at_their_place():
    task = anchors.task_of({"kind": "causal", "start": "anchored"})

    class Parrot(torch.nn.Module):
        """Says 3 at every slot."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, ids):
            said = torch.full(ids.shape, 3)
            return torch.nn.functional.one_hot(said, 16).float()

    want = [0.0] * 3 + [1.0] + [0.0] * 12
    assert anchors.right_answers(Parrot(), task, 9).tolist() == want


def test_the_first_steps_of_a_shipped_run_come_out_again():
    stored = load("anchors").of("causal/none/anchored")[0]
    config = EXPERIMENT.config("causal/none/anchored", "full", "")
    config["recipe"] |= {"steps": 50, "measure_at": (0,)}
    with reproducible(0):
        made = EXPERIMENT.measure(config, 0, LOCAL)
    # the rate of the first 50 steps is the same however long the run
    want = stored.curves["train_loss"].values[:5]
    np.testing.assert_allclose(made.curves["train_loss"].values, want, rtol=1e-3)


def test_shipped_runs_say_who_can_count():
    result = load("anchors")

    def accuracy(variant):
        return result.final(variant, "accuracy")

    # shift-invariant or blind, and no mask: nothing to go by
    for scheme in ("none", "alibi"):
        assert (abs(accuracy(f"both-ways/{scheme}/bare") - CHANCE) < 0.02).all()
    assert (abs(accuracy("both-ways/none/anchored") - CHANCE) < 0.02).all()
    assert (accuracy("causal/none/bare") > 2 * CHANCE).all()
    assert (accuracy("causal/none/anchored") > accuracy("causal/none/bare")).all()
    for start in anchors.STARTS:
        assert (accuracy(f"both-ways/learned/{start}") > 0.99).all()


def test_a_quick_run_shows_the_leak_of_the_mask():
    result = run("anchors", size="quick")
    bare, anchored = result.variants
    assert result.final(bare, "accuracy")[0] > 2 * CHANCE
    assert result.final(anchored, "accuracy")[0] > result.final(bare, "accuracy")[0]
