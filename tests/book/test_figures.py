"""Every figure has a name, a caption and an alternative text, and the text uses it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import nbformat
import pytest

from tests.book.chapters import CHAPTERS, ROOT, Cell, chapter_from, expect_none, listed

NUMREF = re.compile(r"\{numref\}`(?:[^`<]*<)?([\w-]+)>?`")
LEAST_WORDS = 4  # "a plot of x" is no description


def metadata_problems(cell: Cell) -> list[str]:
    """What a cell with a picture does not say in its header."""
    shown = cell.metadata.get("mystnb", {})
    name = shown.get("figure", {}).get("name", "")
    caption = shown.get("figure", {}).get("caption", "").strip()
    alt = shown.get("image", {}).get("alt", "").strip()
    problems = []
    if not re.fullmatch(r"fig-[a-z0-9-]+", name):
        problems.append(f"{cell} shows a figure whose name is {name!r}, not fig-…")
    if len(caption.split()) < LEAST_WORDS:
        problems.append(f"{cell} shows a figure with no caption")
    if len(alt.split()) < LEAST_WORDS:
        problems.append(f"{cell} shows a figure with no alternative text")
    if alt and alt == caption:
        problems.append(f"{cell} repeats the caption as alternative text")
    return problems


def figure_name(cell: Cell) -> str:
    """The name by which the text refers to the cell's figure; empty if none."""
    return str(cell.metadata.get("mystnb", {}).get("figure", {}).get("name", ""))


def empty_problems(cell: Cell) -> list[str]:
    """A cell announced as a figure that shows none: a caption without a picture."""
    if figure_name(cell) and not cell.has_image:
        return [f"{cell} is named {figure_name(cell)} and shows no picture"]
    return []


def reference_problems(cells: Iterable[Cell]) -> list[str]:
    """Figures that share a name, and figures that the text does not mention."""
    cells = list(cells)
    names = Counter(figure_name(cell) for cell in cells if figure_name(cell))
    text = "\n".join(cell.source for cell in cells if cell.kind == "markdown")
    mentioned = set(NUMREF.findall(text))
    problems = [f"{name} names {n} figures" for name, n in names.items() if n > 1]
    problems += [f"no {{numref}} to {name}" for name in names if name not in mentioned]
    return problems


def stored_cells() -> list[Cell]:
    return [cell for c in CHAPTERS if c.notebook.exists() for cell in c.cells]


def test_figures_are_named_captioned_and_described():
    shown = [cell for cell in stored_cells() if cell.has_image]
    expect_none(problem for cell in shown for problem in metadata_problems(cell))


def test_cells_named_as_figures_show_one():
    expect_none(p for cell in stored_cells() for p in empty_problems(cell))


def test_figures_have_names_of_their_own_and_are_referred_to():
    expect_none(reference_problems(stored_cells()))


def test_figures_of_the_pages_are_described():
    pages = sorted((ROOT / "book").rglob("*.md"))
    expect_none(problem for path in pages for problem in page_problems(path))


def page_problems(path: Path) -> list[str]:
    """Figures and images of a Markdown page that have no alternative text."""
    text = path.read_text(encoding="utf-8")
    problems = [f"{path.name}: ![]({target})" for target in UNDESCRIBED.findall(text)]
    for match in DIRECTIVE.finditer(text):
        if not re.search(r"^\s*:alt:\s*\S", match["options"], flags=re.MULTILINE):
            problems.append(f"{path.name}: {match['target']} has no :alt:")
    return problems


UNDESCRIBED = re.compile(r"!\[\s*\]\(([^)]*)\)")
DIRECTIVE = re.compile(
    r"^\s*(?:`{3,}|:{3,})\{(?:figure|image)\}\s*(?P<target>\S+)\n"
    r"(?P<options>(?:\s*:[\w-]+:.*\n)*)",
    re.MULTILINE,
)


# ── the checks can fail ──────────────────────────────────────────────────────────


def figure_cell(header: str, folder: Path) -> Cell:
    cell = chapter_from(folder, f"# %% {header}\nplot()\n").cells[0]
    image = nbformat.v4.new_output("display_data", data={"image/png": "AAAA"})
    return Cell(cell.chapter, 0, "code", cell.source, cell.metadata, (image,))


def header(name: str = "fig-x", caption: str = "A b c d.", alt: str = "e f g h") -> str:
    figure = f'{{"name": "{name}", "caption": "{caption}"}}'
    return f'mystnb={{"figure": {figure}, "image": {{"alt": "{alt}"}}}}'


def test_a_complete_figure_passes(tmp_path: Path):
    cell = figure_cell(header(), tmp_path)
    text = Cell("99", 1, "markdown", "See {numref}`fig-x`.", {})
    named = Cell("99", 1, "markdown", "See {numref}`figure %s <fig-x>`.", {})
    assert metadata_problems(cell) == empty_problems(cell) == []
    assert reference_problems([cell, text]) == reference_problems([cell, named]) == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("", "name is ''"),
        (header(name="kernel"), "name is 'kernel'"),
        (header(caption=""), "no caption"),
        (header(alt="plot"), "no alternative text"),
        (header(alt="A b c d."), "repeats the caption"),
    ],
)
def test_an_incomplete_figure_is_seen(wrong: str, problem: str, tmp_path: Path):
    assert problem in listed(metadata_problems(figure_cell(wrong, tmp_path)))


def test_a_figure_that_is_doubled_unused_or_absent_is_seen(tmp_path: Path):
    cell = figure_cell(header(), tmp_path)
    assert "fig-x names 2 figures" in listed(reference_problems([cell, cell]))
    assert "no {numref} to fig-x" in listed(reference_problems([cell]))
    bare = chapter_from(tmp_path, f"# %% {header()}\nplot()\n").cells[0]
    assert "shows no picture" in listed(empty_problems(bare))


def test_a_page_figure_without_alternative_text_is_seen(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```{figure} a.png\n:name: fig-a\n```\n![](b.png)\n")
    assert len(page_problems(page)) == 2
    page.write_text("```{figure} a.png\n:alt: a line\n```\n![a line](b.png)\n")
    assert page_problems(page) == []
