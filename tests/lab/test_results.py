"""Results answer questions by variant, metric and seed, and refuse wrong ones."""

import json

import numpy as np
import pytest

from pe_lab.lab import load, mean_spread
from pe_lab.lab.results import Curve, Profile, Result, Run, surroundings


def made(variant, seed, losses, score, steps=(0, 10, 20), **profiles):
    curve = Curve(list(steps), losses)
    return Run(
        variant, seed, {"n": 3}, {"loss": curve}, {"score": score}, {"cpu": 1}, profiles
    )


RESULT = Result(
    "toy",
    "full",
    (
        made("b", 1, [3.0, 2.0, 1.0], 0.5, short=Profile([4, 8], [2.0, 3.0])),
        made("b", 0, [3.0, 1.0, 0.5], 0.7, short=Profile([4, 8], [1.0, 5.0])),
        made("a", 0, [3.0, 3.0, 3.0], 0.0, other=Profile([4], [1.0])),
    ),
)


def test_values_come_out_by_variant_metric_and_seed():
    assert RESULT.variants == ["b", "a"]
    assert RESULT.final("b", "score").tolist() == [0.7, 0.5]
    steps, losses = RESULT.curve("b", "loss")
    assert steps.tolist() == [0, 10, 20]
    assert losses.tolist() == [[3.0, 1.0, 0.5], [3.0, 2.0, 1.0]]
    assert RESULT.at("b", "loss", 10).tolist() == [1.0, 2.0]
    assert RESULT.first_below("b", "loss", 1.5).tolist() == [10, 20]
    assert np.isnan(RESULT.first_below("a", "loss", 1.5)).all()
    places, values = RESULT.profile("b", "short")
    assert places.tolist() == [4, 8]
    assert values.tolist() == [[1.0, 5.0], [2.0, 3.0]]


def test_a_result_knows_what_was_measured_of_whom():
    assert RESULT.metrics("final") == ["score"]
    assert RESULT.metrics("curve") == ["loss"]
    assert RESULT.metrics("profile") == ["short", "other"]
    assert RESULT.having("profile", "other") == ["a"]
    assert RESULT.having("curve", "loss") == ["b", "a"]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: RESULT.of("c"), "no variant 'c'; it has: b, a"),
        (lambda: RESULT.final("a", "bleu"), "no 'bleu' here; it has: score"),
        (lambda: RESULT.curve("a", "bleu"), "no 'bleu' here; it has: loss"),
        (lambda: RESULT.profile("a", "short"), "no 'short' here; it has: other"),
        (
            lambda: RESULT.at("a", "loss", 5),
            "not measured at step 5, only at 0, 10, 20",
        ),
        (
            lambda: RESULT.having("profile", "bleu"),
            "toy has no profile 'bleu'; it has: short, other",
        ),
        (lambda: RESULT.metrics("curves"), "kind needs 'final' or 'curve' or"),
        (
            lambda: load("sqrt"),
            "no shipped result is called 'sqrt'; there are: .*sqrt-d",
        ),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


def test_seeds_that_were_measured_at_other_places_are_not_put_together():
    """An array of both would be ragged, or put values side by side that are not."""
    other = made("a", 1, [3.0, 2.0], 0.0, (0, 5), other=Profile([5], [1.0]))
    mixed = Result("toy", "full", (*RESULT.runs, other))
    for ask, metric in ((mixed.curve, "loss"), (mixed.profile, "other")):
        with pytest.raises(ValueError, match=f"{metric} of a was not measured at the"):
            ask("a", metric)


def test_the_spread_is_the_sample_deviation():
    assert mean_spread(np.array([1.0, 2.0, 3.0])) == (2.0, 1.0)
    assert mean_spread(np.array([4.0])) == (4.0, 0.0)


def test_surroundings_name_code_libraries_and_processor():
    found = surroundings(7)
    assert found["seed"] == 7
    assert found["device"] == "cpu"
    assert found["libraries"].keys() == {"num2words", "cn2an"}
    assert {"commit", "torch", "cpu", "threads", "date"} <= found.keys()
    json.dumps(found)
