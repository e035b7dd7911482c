"""The command line does what it says, and says on stderr what went wrong."""

import subprocess
import sys

import pytest

import pe_lab
from pe_lab import cli
from pe_lab.lab import read_result, text


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


def test_shipped_results_are_listed_and_shown(capsys):
    assert cli.main(["results"]) == 0
    assert "sqrt-d" in capsys.readouterr().out.splitlines()
    assert cli.main(["results", "stall"]) == 0
    shown = capsys.readouterr().out
    assert "position/none" in shown and "commit" in shown and "text: kjv" in shown


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["run", "sqrt"], "no experiment is called 'sqrt'; there are: stall"),
        (["run", "stall", "--seeds", "0"], "seeds and jobs need at least 1"),
        (["run", "stall", "--variant", "x"], "no variant 'x'"),
        (["results", "sqrt"], "no shipped result is called 'sqrt'"),
        (["results", "nowhere.json"], "nowhere.json"),
    ],
)
def test_errors_are_sentences_on_stderr_with_status_1(command, message, capsys):
    assert cli.main(command) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("pe-lab: ") and message in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    "command", [[], ["dance"], ["run"], ["run", "stall", "--jobs"]]
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


def test_fetch_prints_where_the_text_is(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(text, "fetch_kjv", lambda: tmp_path / "kjv.txt")
    assert cli.main(["fetch"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "kjv.txt")


def test_the_command_line_loads_nothing_optional():
    code = (
        "import sys, pe_lab.cli as cli; cli.parser().format_help();"
        "print(sorted({'matplotlib', 'num2words', 'cn2an'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
