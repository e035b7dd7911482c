"""What is shipped is complete, was made by committed code, and is made by one command."""

from dataclasses import replace

import pytest

from book.tools import ship
from pe_lab.lab import Curve, Run, read_result, store
from pe_lab.lab.experiments import EXPERIMENTS, Experiment


class Toy:
    """An experiment of no cost."""

    def config(self, variant, size, text):
        return {"text": text, "recipe": {"steps": 1}}

    def measure(self, config, seed, session):
        return {"loss": Curve([0], [float(seed)])}, {"loss": float(seed)}


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """A folder for shipped results, and two experiments that cost nothing."""
    toy = Toy()
    experiments = {
        name: Experiment(name, "?", ("b", "a"), ("b",), 2, toy.config, toy.measure)
        for name in ("toy", "other")
    }
    for name in list(EXPERIMENTS):
        monkeypatch.delitem(EXPERIMENTS, name)
    for name, experiment in experiments.items():
        monkeypatch.setitem(EXPERIMENTS, name, experiment)
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(ship, "committed", lambda: None)
    monkeypatch.setattr(ship, "complete", by_a_commit(ship.complete))
    return tmp_path / "shipped"


def by_a_commit(check):
    """The check of a result as if its code had been committed."""

    def checked(result):
        runs = [replace(r, provenance={"commit": "1234567890"}) for r in result.runs]
        check(replace(result, runs=tuple(runs)))

    return checked


def test_every_experiment_is_run_in_full_and_shipped(shipped, tmp_path, capsys):
    assert ship.main(["--jobs", "1", "--out", str(tmp_path / "results")]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [str(shipped / f"{name}.json") for name in ("toy", "other")]
    found = read_result(shipped / "toy.json")
    assert found == read_result(tmp_path / "results" / "toy-full.json")
    assert [(run.variant, run.seed) for run in found.runs] == [
        ("b", 0), ("b", 1), ("a", 0), ("a", 1)
    ]  # fmt: skip
    assert {run.config["text"] for run in found.runs} == {"kjv"}


def test_one_can_be_made_alone(shipped, tmp_path):
    assert ship.main(["other", "--jobs", "1", "--out", str(tmp_path / "results")]) == 0
    assert [file.name for file in shipped.iterdir()] == ["other.json"]


def test_what_is_not_complete_is_not_shipped(shipped, tmp_path):
    run = Run("b", 0, {}, {}, {}, {"commit": "1234567890"})
    store.write_run(tmp_path / "toy-full" / "b-0.json", "toy", run)
    with pytest.raises(ValueError, match="toy has 1 of 4 runs; run it again"):
        ship.ship("toy", tmp_path)
    assert not shipped.exists()


@pytest.mark.parametrize("commit", ["1234567890+", None])
def test_what_no_commit_made_is_not_shipped(tmp_path, monkeypatch, commit):
    shipped = tmp_path / "shipped"
    monkeypatch.setattr(store, "SHIPPED", shipped)
    for variant in EXPERIMENTS["sqrt-d"].variants:
        for seed in range(3):
            run = Run(variant, seed, {}, {}, {}, {"commit": commit})
            file = tmp_path / "sqrt-d-full" / f"{variant}-{seed}.json"
            store.write_run(file, "sqrt-d", run)
    with pytest.raises(
        ValueError, match="right of sqrt-d with seed 0 was made by code"
    ):
        ship.ship("sqrt-d", tmp_path)
    assert not shipped.exists()


def test_edited_code_is_refused_before_anything_runs(monkeypatch, tmp_path, capsys):
    edited = replace(ship.provenance(), commit="1234567890+")
    monkeypatch.setattr(ship, "provenance", lambda: edited)
    assert ship.main(["--out", str(tmp_path / "results")]) == 1
    assert "commit your changes first" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_an_unknown_name_is_answered_with_the_known_ones(shipped, tmp_path, capsys):
    assert ship.main(["sqrt", "--out", str(tmp_path)]) == 1
    assert "no experiment is called 'sqrt'; there are: toy" in capsys.readouterr().err
