"""The command line does what it says, and says on stderr what went wrong."""

import json
import subprocess
import sys

import pytest

import pe_lab
from pe_lab import cli
from pe_lab.lab import Curve, Profile, Run, minilm, read_result, store, text


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.strip() == pe_lab.__version__


def test_a_run_prints_a_table_and_stores_the_result(tmp_path, capsys):
    command = ["run", "stall", "--quick", "--variant", "permuted-abc/none"]
    assert cli.main([*command, "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "permuted-abc/none" in captured.out
    assert "stored in" in captured.out
    assert "100/100" in captured.err  # the bar
    stored = tmp_path / "stall-quick.json"
    assert read_result(stored).variants == ["permuted-abc/none"]
    assert cli.main([*command, "--out", str(tmp_path)]) == 0  # nothing to do: no bar
    again = capsys.readouterr()
    assert (again.out, again.err) == (captured.out, "")
    assert cli.main(["results", str(stored)]) == 0
    assert "permuted-abc/none" in capsys.readouterr().out


def test_shipped_results_are_listed_with_their_questions(capsys):
    assert cli.main(["results"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("sqrt-d "))
    assert "quick, full" in line and "What does it cost to forget √d_model" in line


def test_a_shipped_result_is_shown(capsys):
    assert cli.main(["results", "stall"]) == 0
    shown = capsys.readouterr().out
    assert "position/none" in shown and "commit" in shown and "text: kjv" in shown
    assert "42 of 42 planned runs" in shown
    assert "curves: train_loss, held_out_loss" in shown


@pytest.fixture
def sweep(tmp_path):
    """A sweep of lengths that has two of its runs, without a collected result."""
    for seed in (0, 1):
        loss = Profile(at=[32, 64], values=[1.5, 2.5 + seed])
        curve = Curve(steps=[0, 100], values=[3.0, 1.5])
        run = Run("rope", seed, {}, {"held_out_loss": curve}, {"parameters": 7})
        run.profiles["loss/plain"] = loss
        store.write_run(tmp_path / "toy-full" / f"rope-{seed}.json", "toy", run)
    return str(tmp_path / "toy-full")


def test_a_sweep_that_still_runs_is_shown(sweep, capsys):
    assert cli.main(["results", sweep]) == 0
    shown = capsys.readouterr().out
    assert "2 runs" in shown and "profiles: loss/plain" in shown
    assert cli.main(["results", sweep, "--profile", "loss/plain"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["variant", "seeds", "32", "64"]
    assert shown[1].split() == ["rope", "2", "1.5", "3", "±", "0.71"]


def test_programs_read_every_value(sweep, capsys):
    assert cli.main(["results", sweep, "--profile", "loss/plain", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loss/plain"] == {"rope": {"32": [1.5, 1.5], "64": [2.5, 3.5]}}
    assert cli.main(["results", sweep, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["final"] == {
        "rope": {"parameters": [7, 7]}
    }


def test_a_picture_is_drawn_and_its_file_named(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plot", sweep]) == 0
    assert capsys.readouterr().out.strip() == "toy-held_out_loss.png"
    assert (tmp_path / "toy-held_out_loss.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["plot", sweep, "--metric", "loss/plain"]) == 0
    assert capsys.readouterr().out.strip() == "toy-loss.plain.png"
    options = ["--variant", "position/none", "--ylog", "--out", "a.svg"]
    assert cli.main(["plot", "stall", *options]) == 0
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["run", "sqrt"], "no experiment is called 'sqrt'; there are: stall"),
        (["run", "stall", "--seeds", "0"], "seeds and jobs need at least 1"),
        (["run", "stall", "--variant", "x"], "no variant 'x'"),
        (["results", "sqrt"], "no shipped result is called 'sqrt'"),
        (["results", "nowhere.json"], "nowhere.json"),
        (["results", "stall", "--profile", "x"], "no profile 'x'; it has: none"),
        (["plot", "sqrt"], "no shipped result is called 'sqrt'"),
        (
            ["plot", "stall", "--metric", "x"],
            "no curve or profile 'x'; curves: train_loss, held_out_loss; profiles: none",
        ),
        (["plot", "stall", "--variant", "x"], "no variant 'x'"),
        (["plot", "stall", "--out", "a.pdf"], "a.pdf ends in '.pdf'"),
    ],
)
def test_errors_are_sentences_on_stderr_with_status_1(command, message, capsys):
    assert cli.main(command) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("pe-lab: ") and message in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    "command", [[], ["dance"], ["run"], ["run", "stall", "--jobs"], ["plot"]]
)
def test_wrong_usage_ends_with_status_2(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(command)
    assert end.value.code == 2
    assert "usage: pe-lab" in capsys.readouterr().err


def test_ctrl_c_ends_with_status_130_and_says_that_runs_are_kept(monkeypatch, capsys):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupt)
    assert cli.main(["run", "stall"]) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_a_reader_who_has_seen_enough_is_no_error():
    command = [sys.executable, "-m", "pe_lab.cli", "results"]
    asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    asked.stdout.close()  # as `| head -0` does
    assert asked.stderr.read() == b""
    assert asked.wait() == 0
    asked.stderr.close()


def test_fetch_prints_where_the_text_is(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(text, "fetch_kjv", lambda: tmp_path / "kjv.txt")
    assert cli.main(["fetch"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "kjv.txt")


def test_fetch_takes_a_name(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(minilm, "fetch", lambda: tmp_path / "minilm")
    assert cli.main(["fetch", "minilm"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "minilm")
    with pytest.raises(SystemExit):
        cli.main(["fetch", "bert"])


def test_the_command_line_loads_nothing_optional():
    code = (
        "import sys, pe_lab.cli as cli; cli.parser().format_help();"
        "print(sorted({'matplotlib', 'num2words', 'cn2an'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
