"""A run is checked entry by entry, and what is wrong is said by its name."""

import copy
import math
from dataclasses import asdict

import pytest

from pe_lab.lab.results import Curve, Profile, Run
from pe_lab.lab.schema import run_from

GOOD = Run(
    "a/x",
    1,
    {"recipe": {"steps": 3}, "text": None},
    {"loss": Curve([0, 3], [2.5, 1])},
    {"bleu": 0.5, "parameters": 7},
    {"commit": "1234567890", "cpu_seconds": 0.5},
    {"loss": Profile([32, 64], [1.5, 2.5])},
)


def test_a_run_comes_back_as_it_was():
    assert run_from(asdict(GOOD)) == GOOD


@pytest.mark.parametrize("name", ["profiles", "provenance"])
def test_older_runs_lack_what_was_added_later(name):
    content = asdict(GOOD)
    del content[name]
    assert getattr(run_from(content), name) == {}


def set_at(content, path, value):
    *way, last = path.split(".")
    for key in way:
        content = content[key]
    content[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("variant", 3, "has 3 as variant, where a text is needed"),
        ("seed", "0", "has '0' as seed, where a whole number is needed"),
        ("seed", True, "has True as seed, where a whole number"),
        ("config", [], r"has \[\] as config, where an object is needed"),
        ("curves", None, "has None as curves, where an object is needed"),
        ("final.bleu", "0.5", "has '0.5' as final bleu, where a number is needed"),
        ("final.bleu", None, "has None as final bleu, where a number is needed"),
        ("final.bleu", True, "has True as final bleu, where a number is needed"),
        ("final.bleu", math.nan, "has nan as final bleu, where a finite number"),
        ("config.recipe.rate", math.inf, "has inf as config recipe rate, where a fin"),
        ("curves.loss", [1, 2], r"has \[1, 2\] as loss, where an object is needed"),
        ("curves.loss.values", 3, "has 3 as values of loss, where a list is needed"),
        ("curves.loss.values", [1.0], "has 2 steps and 1 values of loss"),
        ("curves.loss.values", [1, "2"], "has '2' as values of loss, where a number"),
        (
            "curves.loss.values",
            [1, -math.inf],
            "has -inf as values of loss, where a finite",
        ),
        ("curves.loss.steps", [0, 1.5], "has 1.5 as steps of loss, where a whole"),
        ("curves.loss.at", [0, 1], "has loss without steps and values"),
        ("profiles.loss.at", [32], "has 1 at and 2 values of loss"),
        ("profiles.loss", {"at": [1]}, "has loss without at and values"),
        (
            "profiles.loss.values",
            [1, math.nan],
            "has nan as values of loss, where a finite",
        ),
        ("speed", 3, "has an entry 'speed' that no run has"),
    ],
)
def test_what_is_wrong_is_named(path, value, message):
    content = copy.deepcopy(asdict(GOOD))
    set_at(content, path, value)
    with pytest.raises(ValueError, match=f"^{message}"):
        run_from(content)


@pytest.mark.parametrize("name", ["variant", "seed", "config", "curves", "final"])
def test_what_is_missing_is_named(name):
    content = asdict(GOOD)
    del content[name]
    with pytest.raises(ValueError, match=f"^lacks the entry '{name}' of a run"):
        run_from(content)


def test_what_is_no_run_at_all_is_refused():
    with pytest.raises(ValueError, match="has 3 as run, where an object is needed"):
        run_from(3)
