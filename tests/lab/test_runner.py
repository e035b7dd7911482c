"""An experiment stores each run when it is done, and goes on where it was stopped."""

import itertools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
import torch

from pe_lab.lab import read_result, run, runner
from pe_lab.lab.experiments import EXPERIMENTS, Experiment
from pe_lab.lab.jobs import Job
from pe_lab.lab.results import Curve
from pe_lab.lab.store import read_run

from .tiny import EVERY, EXPERIMENT, RECIPE


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
        ({"name": "toy", "every": 0}, "every needs at least 1 update, got 0"),
        ({"name": "toy", "shard": (3, 3)}, "K from 0 to N-1, got 3/3; .*--array=0-"),
        ({"name": "toy", "shard": (-1, 3)}, "K from 0 to N-1, got -1/3"),
        ({"name": "toy", "shard": (0, 0)}, "K from 0 to N-1, got 0/0"),
        ({"name": "toy", "device": "tpu"}, "device needs 'cpu' or 'cuda', got 'tpu'"),
        ({"name": "toy", "device": "cuda:x"}, "device needs 'cpu' or 'cuda'"),
        ({"name": "toy", "device": "cuda"}, "sees no CUDA device here; take cpu"),
    ],
)
def test_a_wrong_order_is_refused_before_anything_runs(
    toy, monkeypatch, tmp_path, arguments, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arguments = {"out": tmp_path / "out"} | arguments
    with pytest.raises(ValueError, match=message):
        run(**arguments)
    assert toy.calls == []
    assert not (tmp_path / "out").exists()


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


def test_the_bar_says_tokens_for_each_second(toy, capsys):
    """And counts what was found in a checkpoint, but not as read."""
    run("toy", progress=True)
    assert re.search(r"12/12 .*step.* [\d,]+ tokens/s\]", capsys.readouterr().err)
    with runner._bar(100, True) as advance:
        advance(40, 0, "b")
    told = capsys.readouterr().err
    assert "40/100" in told and "tokens" not in told
    with runner._bar(100, True) as advance:
        advance(130, 8, "b")  # more updates than were announced
    assert "130/130" in capsys.readouterr().err


def test_no_resume_refuses_what_is_there_and_runs_what_is_not(toy, tmp_path):
    run("toy", variants=["b"], out=tmp_path, resume=False)
    with pytest.raises(ValueError, match=r"b-0\.json is there already; .*--no-resume"):
        run("toy", out=tmp_path, resume=False)
    run("toy", variants=["a/x"], out=tmp_path, resume=False)
    assert len(toy.calls) == 4
    (tmp_path / "new" / "toy-full" / "b-1.checkpoints").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"b-1\.checkpoints is there already"):
        run("toy", out=tmp_path / "new", resume=False)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_shards_make_each_run_once_whichever_ends_last(toy, tmp_path, order):
    for k in order:
        part = run("toy", seeds=2, shard=(k, 3), out=tmp_path)
        assert len(part.runs) == (2, 1, 1)[k]
    assert sorted(toy.calls) == [("a/x", 0), ("a/x", 1), ("b", 0), ("b", 1)]
    assert read_result(tmp_path / "toy-full.json").runs == tuple(
        run("toy", out=tmp_path).runs
    )
    assert len(toy.calls) == 4


def test_a_shard_without_runs_leaves_no_file(toy, tmp_path):
    assert run("toy", shard=(7, 9), out=tmp_path).runs == ()
    assert not list(tmp_path.glob("*.json"))


def test_a_folder_that_cannot_be_made_or_written_to_is_told_first(toy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot be made .*choose another with --out"):
        run("toy", out=tmp_path / "file")
    assert toy.calls == []


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write")
def test_a_folder_that_may_only_be_read_is_told_first(toy, tmp_path):
    (tmp_path / "toy-full").mkdir()
    (tmp_path / "toy-full").chmod(0o500)
    with pytest.raises(OSError, match="may not be written to; choose another"):
        run("toy", out=tmp_path)
    assert toy.calls == []


def test_processes_of_torchrun_do_not_start_more(toy, monkeypatch):
    monkeypatch.setattr(runner.parallel, "launched", lambda: True)
    with pytest.raises(ValueError, match="torchrun starts the processes already"):
        run("toy", jobs=2)


def test_a_job_counts_the_steps_of_all_its_recipes(toy, tmp_path):
    config = {"recipe": {"steps": 30}, "tuning": {"steps": 5}, "sizes": {"d_model": 4}}
    job = Job("toy", "b", 0, config, None, torch.device("cpu"), 200)
    assert job.steps == 35
    assert job.checkpoints is None and job.started() is None


def test_what_is_left_of_a_stored_run_is_cleared_away(toy, tmp_path):
    """It was killed between storing the run and deleting its checkpoints."""
    run("toy", out=tmp_path)
    left = tmp_path / "toy-full" / "b-0.checkpoints"
    left.mkdir()
    (left / "train.safetensors").write_bytes(b"whatever")
    run("toy", out=tmp_path)
    assert not left.exists() and len(toy.calls) == 4


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
    stored = list((tmp_path / "stall-quick").glob("*.json"))  # beside checkpoints
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


def tiny_process(out, log, shard="0/2"):
    command = [sys.executable, "-m", "tests.lab.tiny", str(out), str(log), shard]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def lines(log):
    return log.read_text().splitlines() if log.exists() else []


def outcome(folder):
    result = read_result(folder / "tiny-full.json")
    return [(r.variant, r.seed, r.config, r.curves, r.final) for r in result.runs]


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """What an experiment gives that is never stopped."""
    monkeypatch.setitem(EXPERIMENTS, "tiny", EXPERIMENT)
    run("tiny", variants=["a"], seeds=1, out=tmp_path / "whole")
    return outcome(tmp_path / "whole")


@pytest.mark.skipif(os.name != "posix", reason="sends SIGKILL")
def test_a_run_killed_again_and_again_ends_as_if_it_was_not(tiny, tmp_path):
    """SIGKILL at random moments; each time at most one interval is made again."""
    out, log, kills = tmp_path / "killed", tmp_path / "log", 0
    sittings, draw = [], random.Random()
    while not (out / "tiny-full.json").exists():
        before = len(lines(log))
        process = tiny_process(out, log)
        enough = before + draw.randrange(4, 25) if kills < 3 else math.inf
        while process.poll() is None and len(lines(log)) < enough:
            time.sleep(draw.random() / 100)
        process.kill()
        _, told = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), told
        kills += process.returncode != 0
        sittings.append(lines(log)[before:])
    assert kills  # three, unless this process was held up for a second
    assert outcome(out) == tiny
    assert not list(out.rglob("*.checkpoints"))
    reached = 0
    for sitting in sittings:
        start = sum(int(found.split()[2]) for found in sitting if "found" in found)
        assert reached - EVERY <= start <= reached
        reached = start + sum("made" in line for line in sitting)
    assert reached == 2 * RECIPE.steps


def test_two_processes_that_make_the_same_run_leave_one_whole_file(tiny, tmp_path):
    """And one that makes another run beside them."""
    out = tmp_path / "shared"
    shards = ("0/2", "0/2", "1/2")
    processes = [tiny_process(out, tmp_path / f"{i}", s) for i, s in enumerate(shards)]
    for process in processes:
        _, told = process.communicate()
        assert process.returncode == 0, told
    assert outcome(out)[:1] == tiny
    files = sorted(path.name for path in out.rglob("*") if path.is_file())
    assert files == ["a-0.json", "b-0.json", "tiny-full.json"]
    assert [variant for variant, *_ in outcome(out)] == ["a", "b"]
