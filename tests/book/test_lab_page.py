"""The page on the laboratory: its sweeps and its experiment run, its numbers are right.

Its scripts are run as they stand there, with a tiny experiment instead of the large one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pe_lab import cli
from pe_lab.lab import load, read_result, run, store
from pe_lab.lab.experiments import EXPERIMENTS
from tests.book.chapters import ROOT

pytest.importorskip("sphinx", reason="the numbers are put into the page by Sphinx")
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import pe_results

PAGE = (ROOT / "book" / "lab.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```$", PAGE, flags=re.M | re.S)
TINY = "stall --quick --variant permuted-abc/none --variant fixed-abc/none"


def block(marker: str) -> str:
    """The only block of code that has the marker."""
    (found,) = (text for _, text in BLOCKS if marker in text)
    return found


def tiny(script: str) -> str:
    """The script with an experiment of two runs, in two parts, and its folder."""
    changed = script.replace("panorama-full", "stall-quick")
    for old, new in (
        ("run panorama", f"run {TINY}"),
        ("8", "2"),
        ("seq 0 7", "seq 0 1"),
    ):
        changed = changed.replace(old, new)
    assert changed != script
    return changed


def shell(script: str, folder: Path, **environment: str) -> str:
    """What a script says, with `pe-lab` being the one of this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def runs_in(folder: Path) -> list[str]:
    """The variants of which a run is stored, and collected too."""
    found = read_result(folder / "results" / "stall-quick")
    collected = read_result(folder / "results" / "stall-quick.json")
    assert collected == found
    return [run.variant for run in found.runs]


@pytest.mark.skipif(os.name != "posix", reason="the scripts are for bash and xargs")
def test_a_sweep_by_xargs_makes_every_run(tmp_path):
    told = shell(tiny(block("xargs")), tmp_path)
    assert runs_in(tmp_path) == ["permuted-abc/none", "fixed-abc/none"]
    assert "2 of 8 planned runs" in told


@pytest.mark.skipif(os.name != "posix", reason="the scripts are for bash and xargs")
def test_a_sweep_by_slurm_makes_every_run_once(tmp_path):
    """Slurm sets two variables and runs the script: so does this, task by task."""
    script, array = tiny(block("#SBATCH")), {"SLURM_ARRAY_TASK_COUNT": "2"}
    shell(script, tmp_path, SLURM_ARRAY_TASK_ID="0", **array)
    assert runs_in(tmp_path) == ["permuted-abc/none"]
    shell(script, tmp_path, SLURM_ARRAY_TASK_ID="1", **array)
    assert runs_in(tmp_path) == ["permuted-abc/none", "fixed-abc/none"]


def test_the_array_has_as_many_tasks_as_xargs_has_parts():
    assert "--array=0-7" in block("#SBATCH") and "seq 0 7" in block("xargs")
    assert "--shard {}/8" in block("xargs")


def test_the_experiment_runs(tmp_path, monkeypatch):
    """As a file of the package, named in one place, and by every command after that."""
    path = tmp_path / "heads.py"
    path.write_text(block('name="heads"'), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("pe_lab.lab.experiments.heads", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(EXPERIMENTS, "heads", module.EXPERIMENT)
    result = run("heads", size="quick", out=tmp_path)
    assert result.final("one", "held_out_loss").shape == (1,)
    assert store.planned(read_result(tmp_path / "heads-quick")) == 1
    picture = tmp_path / "a.svg"
    command = ["plot", str(tmp_path / "heads-quick"), "--out", str(picture)]
    assert cli.main(command) == 0 and picture.exists()


def test_commands_and_options_on_the_page_exist():
    """Every `pe-lab …` line is one that the command line takes."""
    lines = [
        line.partition("#")[0].split()[1:]
        for kind, text in BLOCKS
        for line in text.replace("\\\n", " ").splitlines()
        if kind == "bash" and line.startswith("pe-lab ")
    ]
    assert len(lines) >= 8
    for line in lines:
        words = [
            word.replace('"$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"', "0/8")
            for word in line
        ]
        cli.parser().parse_args(words)
    table = set(re.findall(r"^\| `(--[a-z-]+)", PAGE, flags=re.M))
    helped = cli.parser().parse_args  # argparse knows options only by their use
    for option in table - {"--quick", "--no-resume"}:
        value = {"--size": "gpu", "--shard": "0/2", "--device": "cpu"}.get(option, "3")
        helped(["run", "stall", option, value])
    helped(["run", "stall", "--quick", "--no-resume"])
    assert len(table) >= 9


def test_the_table_of_costs_is_what_the_runs_took():
    rows = pe_results.costs(pe_results.shipped())
    assert [row[0] for row in rows] == store.shipped()
    for name, question, variants, seeds, total, slowest in rows:
        result = load(name)
        assert question == EXPERIMENTS[name].question
        counts = sorted({len(result.of(variant)) for variant in result.variants})
        assert variants == str(len(result.variants))
        assert seeds == "–".join(map(str, counts[:1] + counts[1:][-1:]))
        spent = [run.provenance["cpu_seconds"] for run in result.runs]
        # two digits: half a unit of the second one is 5 % at most
        assert value_of(total) == pytest.approx(sum(spent), rel=0.05)
        assert value_of(slowest) == pytest.approx(max(spent), rel=0.05)


def value_of(text: str) -> float:
    """Seconds of a duration on the page."""
    number, unit = text.split()
    return float(number) * {"s": 1, "min": 60, "h": 3600}[unit]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.234, "0.23 s"),
        (89, "89 s"),
        (90, "1.5 min"),
        (5000, "83 min"),
        (5400, "1.5 h"),
    ],
)
def test_a_duration_is_written_with_two_digits(seconds, text):
    assert pe_results.duration(seconds) == text


def test_the_numbers_of_the_page_are_known():
    named = set(re.findall(r"\{results\}`([a-z-]+)`", PAGE))
    known = pe_results.numbers(pe_results.shipped())
    assert named and named <= known.keys()
    assert known["runs"] == str(sum(len(load(n).runs) for n in store.shipped()))
