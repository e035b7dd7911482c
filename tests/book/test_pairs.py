"""Each chapter is a pair that says the same thing, written by the runner alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
from jupyter_server.services.contents.largefilemanager import LargeFileManager
from jupytext.sync_contentsmanager import (
    build_sync_jupytext_contents_manager_class,
)

from book.tools import run_notebooks as runner
from tests.book.chapters import (
    CHAPTERS,
    NOTEBOOKS,
    ROOT,
    Chapter,
    chapter_from,
    expect_none,
    listed,
)

MEND = "run `make sync`"


def pair_problems(chapter: Chapter) -> list[str]:
    """Cells that differ between the source and the stored notebook."""
    if not chapter.notebook.exists():
        return [f"{chapter.name} has no .ipynb: {MEND}"]
    source = runner.read_source(chapter.source)
    stored = nbformat.read(chapter.notebook, as_version=4)
    if len(source.cells) != len(stored.cells):
        counts = f"{len(source.cells)} cells in .py, {len(stored.cells)} in .ipynb"
        return [f"{chapter.name} has {counts}: {MEND}"]
    pairs = enumerate(zip(source.cells, stored.cells, strict=True))
    return [
        f"{chapter.name}, cell {index} differs between .py and .ipynb: {MEND}"
        for index, (one, other) in pairs
        if runner.cell_identity(one) != runner.cell_identity(other)
    ]


def runner_problems(chapter: Chapter) -> list[str]:
    """Signs that something else than the runner wrote the stored notebook."""
    stored = nbformat.read(chapter.notebook, as_version=4)
    counts = [c.execution_count for c in stored.cells if c.cell_type == "code"]
    problems = []
    if counts != list(range(1, len(counts) + 1)):
        problems.append(f"{chapter.name} was not run from top to bottom: {MEND}")
    text = chapter.notebook.read_text(encoding="utf-8")
    if runner.normalise(stored, chapter.name) != text:
        problems.append(f"{chapter.name}.ipynb was not written by the runner: {MEND}")
    return problems


def lonely_notebooks(folder: Path) -> list[str]:
    """Notebooks that have no source."""
    return [
        f"{path.name} has no .py source"
        for path in sorted(folder.glob("*.ipynb"))
        if not path.with_suffix(".py").exists()
    ]


def test_source_and_notebook_hold_the_same_cells():
    expect_none(p for chapter in CHAPTERS for p in pair_problems(chapter))


def test_notebooks_are_written_by_the_runner():
    stored = [chapter for chapter in CHAPTERS if chapter.notebook.exists()]
    expect_none(p for chapter in stored for p in runner_problems(chapter))


def test_every_notebook_has_a_source():
    expect_none(lonely_notebooks(NOTEBOOKS))


# ── the checks can fail ──────────────────────────────────────────────────────────


def test_an_edit_of_one_side_is_seen(tmp_path: Path):
    chapter = chapter_from(tmp_path, "# %%\nx = 1\n")
    assert pair_problems(chapter) == []
    chapter.source.write_text("# %%\nx = 2\n")
    assert "cell 0 differs" in listed(pair_problems(chapter))
    chapter.source.write_text('# %% tags=["nbval-skip"]\nx = 1\n')
    assert "cell 0 differs" in listed(pair_problems(chapter))
    chapter.source.write_text("# %%\nx = 1\n# %%\ny = 1\n")
    assert "2 cells in .py, 1 in .ipynb" in listed(pair_problems(chapter))
    chapter.notebook.unlink()
    assert "has no .ipynb" in listed(pair_problems(chapter))


def test_a_notebook_saved_by_hand_is_seen(tmp_path: Path):
    chapter = chapter_from(tmp_path, "# %%\nx = 1\n")
    found = listed(runner_problems(chapter))
    assert "was not run from top to bottom" in found
    assert "was not written by the runner" in found


def test_a_notebook_without_source_is_seen(tmp_path: Path):
    chapter = chapter_from(tmp_path, "# %%\nx = 1\n")
    assert lonely_notebooks(tmp_path) == []
    chapter.source.unlink()
    assert lonely_notebooks(tmp_path) == ["99_try_it.ipynb has no .py source"]


def test_jupyterlab_opens_a_chapter_whichever_file_is_newer(tmp_path: Path):
    """Written last, the notebook has its metadata in another order than the source."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    header = 'mystnb={"figure": {"name": "fig-a", "caption": "b"}}'
    chapter = chapter_from(tmp_path, f"# %% {header}\nx = 1\n")
    text = runner.normalise(nbformat.read(chapter.notebook, as_version=4), chapter.name)
    chapter.notebook.write_text(text, encoding="utf-8")
    later = chapter.source.stat().st_mtime + 3600
    os.utime(chapter.notebook, (later, later))
    contents = build_sync_jupytext_contents_manager_class(LargeFileManager)()
    contents.root_dir = str(tmp_path)
    opened = contents.get(chapter.notebook.name)["content"]
    assert [cell["source"] for cell in opened["cells"]] == ["x = 1"]
