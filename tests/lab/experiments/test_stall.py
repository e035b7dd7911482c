"""Which tasks stall: what the experiment shows, and that shipped runs come out again."""

import math

import numpy as np
import pytest

from pe_lab.lab import load, run
from pe_lab.lab.experiments import EXPERIMENTS

ABC = ["permuted-abc/sinusoidal", "fixed-abc/none"]


def test_shipped_runs_come_out_again():
    stored, again = load("stall"), run("stall", variants=ABC, seeds=1, text="topics")
    for variant in ABC:
        assert again.of(variant)[0].config == stored.of(variant)[0].config
        _, want = stored.curve(variant, "held_out_loss")
        _, got = again.curve(variant, "held_out_loss")
        # other processors round differently; 200 steps let that grow
        np.testing.assert_allclose(got[0], want[0], atol=5e-3)


def test_every_model_starts_from_an_even_guess():
    stored = load("stall")
    assert stored.at("position/none", "held_out_loss", 0) == pytest.approx(math.log(16))
    assert stored.at("fixed-abc/none", "held_out_loss", 0) == pytest.approx(math.log(3))


def test_a_quick_run_needs_no_text_but_the_standard_librarys():
    experiment = EXPERIMENTS["stall"]
    for variant in experiment.quick_variants:
        config = experiment.config(variant, "quick", "topics")
        assert config.get("text", "topics") == "topics"
        assert config["recipe"]["steps"] == 100
