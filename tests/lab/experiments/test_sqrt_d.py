"""The √d experiment: scales are what their names say, and a shipped run comes out again."""

import math

import numpy as np
import pytest

from pe_lab.lab import load
from pe_lab.lab.experiments import EXPERIMENTS
from pe_lab.lab.results import Curve
from pe_lab.lab.training import LOCAL, reproducible

EXPERIMENT = EXPERIMENTS["sqrt-d"]
NORMS = {  # expected norm of a word, norm of a sinusoid, at d = 128
    "right": (math.sqrt(128), 8.0),
    "forgotten": (1.0, 8.0),
    "default": (math.sqrt(128), 8.0),
    "both": (128.0, 8.0),
    "small": (1.0, 8.0 / math.sqrt(128)),
    "large": (128.0, 8.0 * math.sqrt(128)),
    "none": (math.sqrt(128), 0.0),
}


@pytest.mark.parametrize("variant", NORMS)
def test_words_and_sinusoids_have_the_size_their_name_says(variant):
    result = load("sqrt-d")
    word, position = NORMS[variant]
    # 34 words of 128 random numbers: the mean norm varies by about 1.1 %
    assert result.final(variant, "word_norm") == pytest.approx(word, rel=0.04)
    assert result.final(variant, "position_norm") == pytest.approx(position, rel=1e-4)


def test_the_first_steps_of_a_shipped_run_come_out_again():
    stored = load("sqrt-d").of("right")[0]
    config = EXPERIMENT.config("right", "full", "topics")
    assert stored.config["data"] == config["data"]
    # the warm-up of 100 steps is the same however long the run; 20 are enough
    config["recipe"] |= {"steps": 20, "measure_at": (0,)}
    config["scored"] = 4
    with reproducible(0):
        curves, final, _ = EXPERIMENT.measure(config, 0, LOCAL)
    want = Curve(*(part[:2] for part in vars(stored.curves["train_loss"]).values()))
    assert curves["train_loss"].steps == want.steps
    # other processors round differently: 1e-7 per step grows to some 1e-5 in 20 steps
    np.testing.assert_allclose(curves["train_loss"].values, want.values, rtol=1e-3)
    assert final["word_norm"] == pytest.approx(stored.final["word_norm"], rel=1e-4)


def test_long_runs_differ_from_short_ones_in_their_length_only():
    short, long = (EXPERIMENT.config(v, "full", "") for v in ("right", "right-long"))
    assert (short["recipe"]["steps"], long["recipe"]["steps"]) == (300, 900)
    for config in (short, long):
        config["recipe"] |= {"steps": 0, "measure_at": ()}
    assert short == long
