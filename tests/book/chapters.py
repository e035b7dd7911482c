"""What the tests of the book share: chapters, their cells, and their text.

A chapter is a pair: notebooks/NN_name.py, the source, and NN_name.ipynb, written by
book/tools/run_notebooks.py. Tests read sources for style and pairs for outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"

FENCE = re.compile(r"^\s*(`{3,}|:{3,})(.*)$")
DIRECTIVE = re.compile(r"\{(?P<name>[^}]+)\}\s*(?P<argument>.*)")


@dataclass(frozen=True)
class Cell:
    """One cell: its place in the notebook and what the reader sees of it."""

    chapter: str
    index: int
    kind: str  # "code", "markdown" or "raw"
    source: str
    metadata: dict[str, Any]
    outputs: tuple[NotebookNode, ...] = ()

    def __str__(self) -> str:
        return f"{self.chapter}, cell {self.index}"

    @property
    def tags(self) -> list[str]:
        """Cell tags, such as `exercise` or `nbval-ignore-output`."""
        return list(self.metadata.get("tags", []))

    @property
    def lines(self) -> list[str]:
        """Source lines; a blank line counts."""
        return self.source.split("\n")

    @property
    def has_image(self) -> bool:
        """Whether an output is a picture."""
        types = {kind for output in self.outputs for kind in output.get("data", {})}
        return any(kind.startswith("image/") for kind in types)

    @property
    def output_text(self) -> str:
        """Everything that the outputs say in characters."""
        return "\n".join(text for output in self.outputs for text in texts(output))


def texts(output: NotebookNode) -> Iterator[str]:
    """The texts of one output: a stream, or each textual form of a value."""
    if output.output_type == "stream":
        yield output.text
    for kind, value in output.get("data", {}).items():
        if kind.startswith("text/"):
            yield value


def cells_of(notebook: NotebookNode, name: str) -> list[Cell]:
    """The notebook's cells as `Cell`s."""
    return [
        Cell(
            chapter=name,
            index=index,
            kind=cell.cell_type,
            source=cell.source,
            metadata=dict(cell.metadata),
            outputs=tuple(cell.get("outputs", ())),
        )
        for index, cell in enumerate(notebook.cells)
    ]


@dataclass(frozen=True)
class Chapter:
    """A pair of files that share a stem such as `05_rotate_by_k`."""

    source: Path

    @property
    def name(self) -> str:
        """The stem, which is also the name that the site's address shows."""
        return self.source.stem

    @property
    def notebook(self) -> Path:
        """The stored notebook."""
        return self.source.with_suffix(".ipynb")

    @cached_property
    def source_cells(self) -> list[Cell]:
        """Cells as the .py file has them, without outputs."""
        return cells_of(jupytext.read(self.source, fmt="py:percent"), self.name)

    @cached_property
    def cells(self) -> list[Cell]:
        """Cells as stored, with outputs."""
        return cells_of(nbformat.read(self.notebook, as_version=4), self.name)

    @property
    def code(self) -> list[Cell]:
        """Stored code cells."""
        return [cell for cell in self.cells if cell.kind == "code"]

    @property
    def text(self) -> list[Cell]:
        """Stored text cells."""
        return [cell for cell in self.cells if cell.kind == "markdown"]


CHAPTERS = [Chapter(path) for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.py"))]


def chapter_from(folder: Path, source: str, name: str = "99_try_it") -> Chapter:
    """A chapter for the self-tests, from py:percent text, in a temporary folder."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    notebook = nbformat.from_dict(
        {**jupytext.reads(source, fmt="py:percent"), "nbformat": 4, "nbformat_minor": 5}
    )
    nbformat.write(notebook, path.with_suffix(".ipynb"))
    return Chapter(path)


def printed(cell: Cell, text: str) -> Cell:
    """`cell` as if it had printed `text`, for the self-tests."""
    stream = nbformat.v4.new_output("stream", name="stdout", text=text)
    return replace(cell, outputs=(*cell.outputs, stream))


def listed(problems: Iterable[str]) -> str:
    """Sentences one under the other; empty when there is no problem."""
    return "\n".join(problems)


def expect_none(problems: Iterable[str]) -> None:
    """Fail with all problems, one a line, whatever their number."""
    found = listed(problems)
    if found:
        pytest.fail(found, pytrace=False)


# ── MyST Markdown ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Block:
    """A stretch of Markdown lines and the directives that it lies in."""

    inside: tuple[str, ...]  # directive names, outermost first; code fence: "```python"
    lines: tuple[str, ...]

    @property
    def is_prose(self) -> bool:
        """Whether these lines are the chapter's running text, in no directive."""
        return not self.inside


def blocks(markdown: str) -> list[Block]:
    """Split Markdown at its fences (``` and :::), keeping track of nesting."""
    found: list[Block] = []
    open_fences: list[tuple[str, str]] = []
    pending: list[str] = []

    def flush() -> None:
        if pending:
            names = tuple(name for _, name in open_fences)
            found.append(Block(names, tuple(pending)))
            pending.clear()

    for line in markdown.split("\n"):
        fence = FENCE.match(line)
        if fence is None or is_inside_code(open_fences, fence[1]):
            pending.append(line)
        elif closes(open_fences, fence):
            flush()
            open_fences.pop()
        else:
            flush()
            open_fences.append((fence[1], fence_name(fence[2])))
    flush()
    return found


def fence_name(info: str) -> str:
    """`exercise` for "{exercise} Title", "```python" for "python"."""
    directive = DIRECTIVE.match(info.strip())
    return directive["name"] if directive else f"```{info.strip()}"


def is_inside_code(open_fences: list[tuple[str, str]], marks: str) -> bool:
    """In a code block, other fences are text, except the one that ends it."""
    if not open_fences or not open_fences[-1][1].startswith("```"):
        return False
    return not is_same_fence(open_fences[-1][0], marks)


def closes(open_fences: list[tuple[str, str]], fence: re.Match[str]) -> bool:
    """A bare fence as long as the one open, of the same character, ends it."""
    if not open_fences or fence[2].strip():
        return False
    return is_same_fence(open_fences[-1][0], fence[1])


def is_same_fence(opening: str, marks: str) -> bool:
    """Same character and at least as long."""
    return marks[0] == opening[0] and len(marks) >= len(opening)
