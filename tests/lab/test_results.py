"""Results answer questions, and their files are whole, versioned and never half written."""

import json
import math
import os

import numpy as np
import pytest

from pe_lab.lab import load, mean_spread, read_result
from pe_lab.lab.experiments import EXPERIMENTS
from pe_lab.lab.results import (
    Curve,
    Result,
    Run,
    read_run,
    shipped,
    surroundings,
    table,
    write_json,
    write_result,
    write_run,
)


def made(variant, seed, losses, score):
    curve = Curve([0, 10, 20], losses)
    return Run(variant, seed, {"n": 3}, {"loss": curve}, {"score": score}, {"cpu": 1})


RESULT = Result(
    "toy",
    "full",
    (
        made("b", 1, [3.0, 2.0, 1.0], 0.5),
        made("b", 0, [3.0, 1.0, 0.5], 0.7),
        made("a", 0, [3.0, 3.0, 3.0], 0.0),
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


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: RESULT.of("c"), "no variant 'c'; it has: b, a"),
        (lambda: RESULT.final("a", "bleu"), "no 'bleu' here; it has: score"),
        (lambda: RESULT.curve("a", "bleu"), "no 'bleu' here; it has: loss"),
        (
            lambda: RESULT.at("a", "loss", 5),
            "not measured at step 5, only at 0, 10, 20",
        ),
        (
            lambda: load("sqrt"),
            "no shipped result is called 'sqrt'; there are: .*sqrt-d",
        ),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


def test_the_spread_is_the_sample_deviation():
    assert mean_spread(np.array([1.0, 2.0, 3.0])) == (2.0, 1.0)
    assert mean_spread(np.array([4.0])) == (4.0, 0.0)


def test_the_table_has_a_row_for_each_variant():
    lines = table(RESULT).splitlines()
    assert lines[0].split() == ["variant", "seeds", "score"]
    assert lines[1].split() == ["b", "2", "0.6", "±", "0.14"]
    assert lines[2].split() == ["a", "1", "0"]


def test_files_give_back_what_was_written(tmp_path):
    write_result(tmp_path / "new" / "toy.json", RESULT)
    assert read_result(tmp_path / "new" / "toy.json") == RESULT
    write_run(tmp_path / "run.json", "toy", RESULT.runs[0])
    assert read_run(tmp_path / "run.json") == RESULT.runs[0]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_file_that_was_cut_short_is_refused(tmp_path, share):
    path = tmp_path / "toy.json"
    write_result(path, RESULT)
    whole = path.read_text()
    path.write_text(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"toy\.json is not a whole JSON file"):
        read_result(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "not a result"),
        ({"runs": []}, "not a result"),
        ({"format": 99, "runs": []}, "has format 99, this version reads 1"),
        ({"format": 1, "experiment": "toy"}, "lacks the entry 'runs'"),
    ],
)
def test_other_files_are_refused_by_what_is_wrong_with_them(tmp_path, content, message):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        read_result(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_result(tmp_path / "nowhere.json")


def test_others_may_read_the_file_as_the_umask_says(tmp_path):
    write_json(tmp_path / "toy.json", {"format": 1})
    (tmp_path / "plain").write_text("")
    modes = [(tmp_path / name).stat().st_mode for name in ("toy.json", "plain")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch, where
):
    path = tmp_path / "toy.json"
    write_json(path, {"format": 1})

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, where, fail)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"format": 2})
    assert json.loads(path.read_text()) == {"format": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["toy.json"]


def test_a_value_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "toy.json", {"loss": math.nan})
    assert list(tmp_path.iterdir()) == []


def test_surroundings_name_code_libraries_and_processor():
    found = surroundings(7)
    assert found["seed"] == 7
    assert found["device"] == "cpu"
    assert found["libraries"].keys() == {"num2words", "cn2an"}
    assert {"commit", "torch", "cpu", "threads", "date"} <= found.keys()
    json.dumps(found)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_full_result_is_shipped_for_every_experiment(name):
    assert name in shipped()
    result, experiment = load(name), EXPERIMENTS[name]
    assert (result.experiment, result.mode) == (name, "full")
    assert result.variants == list(experiment.variants)
    for variant in result.variants:
        runs = result.of(variant)
        assert [run.seed for run in runs] == list(range(experiment.seeds))
        for run in runs:
            assert run.provenance["threads"] == 1
            assert len(run.provenance["commit"]) == 10  # a commit, and no edits
            assert run.provenance["cpu_seconds"] > 0
