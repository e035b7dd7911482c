"""An experiment stores each run when it is done, and goes on where it was stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from pe_lab.lab import read_result, run, runner
from pe_lab.lab.experiments import EXPERIMENTS, Experiment
from pe_lab.lab.results import Curve, read_run


class Toy:
    """An experiment of no cost that counts its runs and can be interrupted."""

    def __init__(self):
        self.steps, self.calls, self.stop_before = 3, [], None

    def config(self, variant, size, text):
        steps = 1 if size == "quick" else self.steps
        return {"variant": variant, "text": text, "recipe": {"steps": steps}}

    def measure(self, config, seed, session):
        if len(self.calls) == self.stop_before:
            raise KeyboardInterrupt
        self.calls.append((config["variant"], seed))
        for _ in range(config["recipe"]["steps"]):
            session.progress(1, 8)
        loss = round(float(torch.rand(())), 6)
        return {"loss": Curve([0], [loss])}, {"loss": loss}


@pytest.fixture
def toy(monkeypatch):
    toy = Toy()
    names = ("a/x", "b")
    made = Experiment("toy", "?", names, ("b",), 2, toy.config, toy.measure)
    monkeypatch.setitem(EXPERIMENTS, "toy", made)
    return toy


def test_every_variant_meets_every_seed(toy):
    result = run("toy")
    assert toy.calls == [("a/x", 0), ("a/x", 1), ("b", 0), ("b", 1)]
    assert (result.experiment, result.mode) == ("toy", "full")
    # a seed decides the outcome, whatever ran before it
    assert result.final("a/x", "loss").tolist() == result.final("b", "loss").tolist()
    assert result.final("b", "loss")[0] != result.final("b", "loss")[1]


def test_a_quick_run_takes_one_seed_few_variants_and_the_text_at_hand(toy):
    result = run("toy", size="quick", text="kjv")
    assert toy.calls == [("b", 0)]
    assert result.mode == "quick"
    assert result.runs[0].config["text"] == "topics"


def test_an_interrupted_experiment_goes_on_where_it_was(toy, tmp_path):
    toy.stop_before = 3
    with pytest.raises(KeyboardInterrupt):
        run("toy", out=tmp_path)
    kept = {f.name: f.read_text() for f in (tmp_path / "toy-full").iterdir()}
    assert sorted(kept) == ["a.x-0.json", "a.x-1.json", "b-0.json"]
    toy.stop_before = None
    result = run("toy", out=tmp_path)
    assert toy.calls == [("a/x", 0), ("a/x", 1), ("b", 0), ("b", 1)]
    for name, text in kept.items():
        assert (tmp_path / "toy-full" / name).read_text() == text
    assert read_result(tmp_path / "toy-full.json") == result
    strip = [(r.variant, r.seed, r.config, r.curves, r.final) for r in result.runs]
    whole = run("toy")  # never interrupted
    assert strip == [
        (r.variant, r.seed, r.config, r.curves, r.final) for r in whole.runs
    ]


def test_a_part_adds_to_what_is_stored(toy, tmp_path):
    run("toy", out=tmp_path)
    part = run("toy", variants=["b"], seeds=3, out=tmp_path)
    assert toy.calls[4:] == [("b", 2)]
    assert part.variants == ["b"]
    stored = read_result(tmp_path / "toy-full.json")
    assert [(r.variant, r.seed) for r in stored.runs] == [
        ("a/x", 0), ("a/x", 1), ("b", 0), ("b", 1), ("b", 2)
    ]  # fmt: skip


def test_a_run_made_otherwise_is_never_mixed_in_or_overwritten(toy, tmp_path):
    run("toy", out=tmp_path)
    before = (tmp_path / "toy-full" / "b-0.json").read_text()
    toy.steps = 4
    with pytest.raises(ValueError, match=r"recipe\.steps = 3, .* now has 4; .*--out"):
        run("toy", out=tmp_path)
    assert (tmp_path / "toy-full" / "b-0.json").read_text() == before


def test_a_damaged_run_is_named_and_never_overwritten(toy, tmp_path):
    run("toy", out=tmp_path)
    path = tmp_path / "toy-full" / "b-1.json"
    path.write_text(path.read_text()[:50])
    with pytest.raises(ValueError, match=r"b-1\.json is not a whole JSON file"):
        run("toy", out=tmp_path)
    assert len(path.read_text()) == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "sqrt"}, "no experiment is called 'sqrt'; there are: stall"),
        ({"name": "toy", "variants": ["c"]}, "no variant 'c'; it has: a/x, b"),
        ({"name": "toy", "seeds": 0}, "need at least 1, got 0 and 1"),
        ({"name": "toy", "jobs": 0}, "need at least 1, got 2 and 0"),
    ],
)
def test_a_wrong_order_is_refused_before_anything_runs(toy, arguments, message):
    with pytest.raises(ValueError, match=message):
        run(**arguments)
    assert toy.calls == []


def test_two_processes_give_what_one_gives(tmp_path):
    arguments = {"size": "quick", "variants": ["permuted-abc/none", "fixed-abc/none"]}
    two = run("stall", jobs=2, out=tmp_path, **arguments)
    one = run("stall", **arguments)
    for a, b in zip(two.runs, one.runs, strict=True):
        assert (a.variant, a.curves, a.final) == (b.variant, b.curves, b.final)
    files = sorted(f.name for f in (tmp_path / "stall-quick").iterdir())
    assert files == ["fixed-abc.none-0.json", "permuted-abc.none-0.json"]


def test_the_bar_counts_steps_and_goes_to_stderr(toy, capsys):
    run("toy", progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "12/12" in captured.err and "b:" in captured.err
    run("toy")
    assert capsys.readouterr().err == ""


def test_runs_carry_where_they_come_from(toy, tmp_path):
    run("toy", out=tmp_path)
    content = json.loads((tmp_path / "toy-full" / "b-1.json").read_text())
    provenance = content["run"]["provenance"]
    assert provenance["seed"] == 1
    assert provenance["threads"] == 1  # while it ran, whatever it is now
    assert provenance["wall_seconds"] >= 0 and provenance["cpu_seconds"] >= 0
    assert runner.experiment("toy").question == "?"


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process group")
def test_ctrl_c_stops_every_process_and_keeps_whole_files_only(tmp_path):
    command = [sys.executable, "-m", "pe_lab.cli", "run", "stall", "--quick"]
    process = subprocess.Popen(
        [*command, "--jobs", "2", "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    deadline = time.monotonic() + 300  # starting takes seconds, minutes on a busy box
    while not list(tmp_path.glob("*/*.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on there" in told and "Traceback" not in told
    stored = list((tmp_path / "stall-quick").iterdir())
    assert 1 <= len(stored) < 8  # eight would be all
    assert all(read_run(file).curves["train_loss"].steps[-1] == 100 for file in stored)
    assert _group_is_gone(process.pid)


def _group_is_gone(group):
    """Whether nobody of a process group is left, after some seconds to leave."""
    for _ in range(300):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
