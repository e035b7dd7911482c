"""Files are whole, versioned and checked; many processes write, one reads, none waits."""

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from pe_lab.lab import load, read_result, store
from pe_lab.lab.experiments import EXPERIMENTS
from pe_lab.lab.results import Curve, Result, Run
from pe_lab.lab.store import read_run, shipped, write_json, write_result, write_run
from tests.lab.test_results import RESULT


@pytest.fixture
def folder(tmp_path):
    """A sweep of three runs, as `run` stores them."""
    folder = tmp_path / "toy-full"
    for run in RESULT.runs:
        write_run(folder / f"{run.variant}-{run.seed}.json", "toy", run)
    return folder


def state(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# ── files ────────────────────────────────────────────────────────────────────────


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
    with pytest.raises(
        ValueError, match=r"toy\.json is not a whole JSON file.*move it"
    ):
        read_result(path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "toy.json").write_bytes(b"\x93NUMPY\xff")
    with pytest.raises(ValueError, match=r"toy\.json is not a whole JSON file"):
        read_result(tmp_path / "toy.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "not a result"),
        ({"runs": []}, "not a result"),
        ({"format": 99, "runs": []}, "has format 99, this version reads 1"),
        (
            {"format": 1, "experiment": "toy", "mode": "full"},
            "lacks the entry 'runs'; move it elsewhere and run",
        ),
        (
            {"format": 1, "experiment": 3, "mode": "full", "runs": []},
            "has 3 as experiment; move it",
        ),
        (
            {"format": 1, "experiment": "toy", "mode": "full", "runs": [{}]},
            "lacks the entry 'variant' of a run; move it",
        ),
    ],
)
def test_other_files_are_refused_by_what_is_wrong_with_them(tmp_path, content, message):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"other\.json .*{message}"):
        read_result(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_result(tmp_path / "nowhere.json")


def test_one_run_twice_in_a_result_is_refused(tmp_path):
    twice = Result("toy", "full", (*RESULT.runs, RESULT.runs[0]))
    write_result(tmp_path / "toy.json", twice)
    with pytest.raises(
        ValueError, match=r"b with seed 1 is stored twice, in .*toy\.json"
    ):
        read_result(tmp_path / "toy.json")


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


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("whole", [True, False])
def test_a_number_that_is_not_finite_is_refused_before_writing(tmp_path, value, whole):
    bad = replace(RESULT.runs[0], final={"bleu": value})
    message = f"the run of b with seed 1 has {value} as final bleu, where a finite"
    with pytest.raises(ValueError, match=message):
        if whole:
            write_result(tmp_path / "toy.json", Result("toy", "full", (bad,)))
        else:
            write_run(tmp_path / "toy.json", "toy", bad)
    assert list(tmp_path.iterdir()) == []


def test_a_curve_of_unequal_lengths_is_refused_before_writing(tmp_path):
    bad = replace(RESULT.runs[0], curves={"loss": Curve([0, 1], [2.0])})
    with pytest.raises(ValueError, match="has 2 steps and 1 values of loss"):
        write_run(tmp_path / "toy.json", "toy", bad)
    assert list(tmp_path.iterdir()) == []


# ── folders ──────────────────────────────────────────────────────────────────────


def test_a_folder_is_a_result_too(folder):
    found = read_result(folder)
    assert (found.experiment, found.mode) == ("toy", "full")
    assert [(run.variant, run.seed) for run in found.runs] == [
        ("a", 0), ("b", 0), ("b", 1)
    ]  # fmt: skip


def test_runs_stand_as_the_experiment_lists_its_variants(tmp_path):
    stored = load("sqrt-d")
    folder = tmp_path / "sqrt-d-full"
    for number, run in enumerate(reversed(stored.runs)):
        write_run(folder / f"{number}.json", "sqrt-d", run)
    assert read_result(folder) == stored


def test_a_folder_by_another_name_has_no_known_size(folder):
    kept = folder.rename(folder.parent / "kept")
    found = read_result(kept)
    assert (found.experiment, found.mode) == ("toy", "unknown")


def test_leftovers_and_other_files_do_not_matter(folder):
    expected = read_result(folder)
    whole = (folder / "b-0.json").read_text()
    (folder / ".b-0.json.7f3a").write_text(whole[:30])  # a writer was killed
    (folder / ".c-0.json").write_text(whole[:30])
    (folder / "b-1.safetensors").write_bytes(b"\0" * 30)
    (folder / "notes.txt").write_text("the second sweep")
    assert read_result(folder) == expected


DAMAGE = {
    "empty": ("", "is not a whole JSON file .*; move it elsewhere and run"),
    "cut": (lambda text: text[:200], "is not a whole JSON file"),
    "other JSON": ("[1, 2]", "is JSON, but not a result of pe_lab.lab; move it"),
    "other format": (
        lambda text: text.replace('"format": 1', '"format": 7'),
        "has format 7, this version reads 1; use the version",
    ),
    "no run": ('{"format": 1, "experiment": "toy"}', "lacks the entry 'run'; move it"),
    "no seed": (
        lambda text: text.replace('"seed"', '"sead"'),
        "lacks the entry 'seed' of a run; move it elsewhere and run",
    ),
    "a text for a number": (
        lambda text: text.replace("1.0", '"1.0"'),
        "has '1.0' as .*, where a number is needed; move it",
    ),
    "nan": (lambda text: text.replace("3.0", "NaN"), "has nan as .* finite number is"),
    "a value too few": (
        lambda text: text.replace("[ 3.0, ", "[ "),
        "has 3 steps and 2 values of loss; move it",
    ),
    "foreign": (
        lambda text: text.replace('"toy"', '"stall"'),
        "is a run of stall among those of toy; move it to a folder of its own",
    ),
    "a result": (
        '{"format": 1, "experiment": "toy", "mode": "full", "runs": []}',
        "is a whole result and not one run; name it",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named_with_its_file_and_nothing_is_touched(folder, damage, message):
    path = folder / "b-0.json"
    before = path.read_text()
    path.write_text(damage if isinstance(damage, str) else damage(before))
    assert path.read_text() != before
    there = state(folder)
    with pytest.raises(ValueError, match=rf"b-0\.json {message}") as error:
        read_result(folder)
    assert "\n" not in str(error.value)
    assert state(folder) == there


def test_one_run_under_two_names_is_refused(folder):
    shutil.copy(folder / "b-1.json", folder / "copy.json")
    there = state(folder)
    with pytest.raises(ValueError, match=r"b with seed 1 .*b-1\.json and .*copy\.json"):
        read_result(folder)
    assert state(folder) == there


def test_an_empty_folder_is_said_to_be_empty(tmp_path):
    with pytest.raises(ValueError, match="holds no stored run yet; look again"):
        read_result(tmp_path)


def test_a_name_is_a_shipped_result_and_a_path_is_a_path(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert store.find("stall") == load("stall")
    assert store.find("toy-full") == read_result(folder)
    folder.rename(folder.parent / "stall")
    assert store.find("stall") == load("stall")
    assert store.find("./stall").experiment == "toy"
    with pytest.raises(ValueError, match="no shipped result is called 'nope'"):
        store.find("nope")
    with pytest.raises(FileNotFoundError, match="nope"):
        store.find("results/nope")


# ── many processes ───────────────────────────────────────────────────────────────

POINTS = 3000

WRITER = f"""
import sys
from pathlib import Path
from pe_lab.lab.results import Curve, Run
from pe_lab.lab.store import write_collected, write_run

folder, me = Path(sys.argv[1]), int(sys.argv[2])
steps = list(range({POINTS}))
curves = {{"loss": Curve(steps, [float(step) for step in steps])}}
print("ready", flush=True)
sys.stdin.readline()
for seed in range(3):
    for variant in ["shared"] * 5 + [f"own-{{me}}"]:
        file = folder / f"{{variant}}-{{seed}}.json"
        write_run(file, "toy", Run(variant, seed, {{}}, curves, {{}}))
write_collected(folder)
"""


def test_many_processes_write_while_another_reads(tmp_path):
    """Three write the same runs, again and again, and their own; all are whole.

    A file of some 50 kB that were written in place would be met empty or cut off. That
    takes microseconds, so the end of each file is looked at thousands of times.
    """
    folder = tmp_path / "toy-full"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:  # all at once
        writer.stdin.write("go\n")
        writer.stdin.flush()
    looks, counts = 0, set()
    while any(writer.poll() is None for writer in writers):
        for file in folder.glob("[so]*.json"):
            for _ in range(100):
                assert file.read_bytes().endswith(b"}\n"), (
                    f"{file.name} is half written"
                )
                looks += 1
        if looks:
            counts.add(len(read_result(folder).runs))
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert looks > 1000 and len(counts) > 1, "nobody looked while they wrote"
    found = read_result(folder)
    assert sorted((run.variant, run.seed) for run in found.runs) == sorted(
        (variant, seed)
        for variant in ("shared", "own-0", "own-1", "own-2")
        for seed in range(3)
    )
    assert read_result(tmp_path / "toy-full.json") == found
    assert all(len(run.curves["loss"].values) == POINTS for run in found.runs)
    assert not [file for file in folder.iterdir() if file.suffix != ".json"]


def test_who_collects_late_does_not_lose_what_came_meanwhile(folder, monkeypatch):
    """One process collects, another adds a run and collects, then the first writes."""
    late, write = Run("c", 0, {}, {}, {"score": 1.0}), store.write_result

    def slowly(path, result):
        monkeypatch.setattr(store, "write_result", write)
        write_run(folder / "c-0.json", "toy", late)
        store.write_collected(folder)
        write(path, result)

    monkeypatch.setattr(store, "write_result", slowly)
    assert late in store.write_collected(folder).runs
    assert late in read_result(folder.parent / "toy-full.json").runs


# ── what is shipped ──────────────────────────────────────────────────────────────


def test_shipped_files_without_profiles_are_read():
    for name in ("stall", "add-concat", "sqrt-d"):
        assert "profiles" not in (store.SHIPPED / f"{name}.json").read_text()
        assert all(run.profiles == {} for run in load(name).runs)


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
