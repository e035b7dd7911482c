"""The runner: what it removes, what it refuses, and that two runs are identical."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from book.tools import run_notebooks as runner

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
RANDOM = ["0" * 31 + "a", "0" * 31 + "b"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A chapter of three cells whose raw output differs from run to run."""
    path = tmp_path / "99_try_it.py"
    path.write_text(
        '# %% [markdown]\n# # Try it\n# %% tags=["a"]\n'
        'print("one", flush=True)\nprint("two", flush=True)\n'
        "# %%\nimport ipywidgets\n\nipywidgets.IntSlider()\n"
    )
    return path


def test_two_runs_give_the_same_bytes(source: Path):
    assert runner.main([str(source)]) == 0
    first = source.with_suffix(".ipynb").read_bytes()
    assert runner.main([str(source)]) == 0
    assert source.with_suffix(".ipynb").read_bytes() == first
    assert runner.is_current(source)
    assert [path.name for path in source.parent.iterdir() if path.name[0] == "."] == []


def test_check_compares_and_does_not_write(source: Path, capsys):
    assert runner.main(["--check", str(source)]) == 1
    assert "does not exist" in capsys.readouterr().err
    runner.main([str(source)])
    stored = source.with_suffix(".ipynb")
    corrupted = stored.read_text().replace("two", "2")
    stored.write_text(corrupted)
    assert runner.main(["--check", str(source)]) == 1
    assert "differs from this run in cells 1" in capsys.readouterr().err
    assert stored.read_text() == corrupted


def test_changed_runs_only_what_changed(source: Path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "NOTEBOOKS", source.parent)
    source.write_text("# %%\n1 + 1\n")
    assert runner.main(["--changed"]) == 0
    assert "written" in capsys.readouterr().out
    assert runner.main(["--changed"]) == 0
    assert "Nothing to run" in capsys.readouterr().out
    source.write_text("# %%\n1 + 2\n")
    assert runner.main(["--changed"]) == 0
    assert "written" in capsys.readouterr().out


def test_a_failing_cell_is_named_and_nothing_is_written(source: Path, capsys):
    source.write_text("# %%\nx = 1\n# %%\nx / 0\n# %%\nx\n")
    assert runner.main([str(source)]) == 1
    message = capsys.readouterr().err
    assert "99_try_it.py, cell 1: ZeroDivisionError: division by zero" in message
    assert "| x / 0" in message
    assert not source.with_suffix(".ipynb").exists()


def test_a_cell_that_writes_to_stderr_is_refused(source: Path):
    source.write_text("# %%\nimport warnings\n\nwarnings.warn('moves')\n")
    with pytest.raises(runner.ChapterError, match="cell 0: wrote to stderr"):
        runner.run(source)


def test_a_name_that_does_not_exist_is_refused(tmp_path: Path):
    with pytest.raises(SystemExit, match="does not exist"):
        runner.main([str(tmp_path / "98_absent.py")])


def test_split_streams_are_joined():
    def stream(name: str, text: str) -> nbformat.NotebookNode:
        return new_output("stream", name=name, text=text)

    value = new_output("display_data", data={"text/plain": "x"})
    first, second, third = (stream("stdout", letter) for letter in "abc")
    joined = runner.merge_streams([first, second, value, third])
    assert [output.get("text") for output in joined] == ["ab", None, "c"]


def test_random_widget_ids_are_numbered_in_order_of_creation():
    state = {RANDOM[1]: {"state": {"layout": f"IPY_MODEL_{RANDOM[0]}"}}, RANDOM[0]: {}}
    data = {WIDGET_VIEW: {"model_id": RANDOM[1]}, "text/plain": "f" * 32}
    output = new_output("display_data", data=data)
    notebook = new_notebook(cells=[new_code_cell(outputs=[output])])
    notebook.metadata["widgets"] = {runner.WIDGET_STATE: {"state": state}}
    text = runner.normalise(nbformat.from_dict(notebook), "99_try_it")
    assert not any(name in text for name in RANDOM)
    data = nbformat.reads(text, as_version=4).cells[0].outputs[0].data
    assert data[WIDGET_VIEW]["model_id"] == "w" + "1".zfill(31)
    assert data["text/plain"] == "f" * 32  # a hash that is no widget stays


def test_what_differs_between_machines_is_dropped():
    cell = new_code_cell(metadata={"execution": {"t": "1"}, "tags": ["a"], "other": 1})
    metadata = {"language_info": {"name": "python", "version": "3.11.0"}, "other": 1}
    notebook = nbformat.from_dict(new_notebook(cells=[cell], metadata=metadata))
    stored = nbformat.reads(runner.normalise(notebook, "99_try_it"), as_version=4)
    assert stored.metadata == {"language_info": {"name": "python"}}
    assert stored.cells[0].metadata == {"tags": ["a"]}
    assert stored.cells[0].id == "99-000"
