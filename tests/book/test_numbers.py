"""Every number in the prose is computed on its page, or quoted with its source."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.book.chapters import (
    CHAPTERS,
    ROOT,
    Cell,
    Chapter,
    chapter_from,
    expect_none,
    listed,
    printed,
)
from tests.book.numbers import Number, claims, read_numbers, sources

CITATION = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
QUOTED_FILE = Path(__file__).with_name("quoted.yml")

Quoted = dict[str, list[dict[str, Any]]]


def read_quoted() -> Quoted:
    """Bibliography key -> the numbers quoted from that work."""
    return yaml.safe_load(QUOTED_FILE.read_text(encoding="utf-8")) or {}


def is_quoted(number: Number, line: str, quoted: Quoted) -> bool:
    """Whether the line cites a work from which the number is on record."""
    keys = {key.strip() for match in CITATION.findall(line) for key in match.split(",")}
    entries = [entry for key in keys for entry in quoted.get(key, [])]
    return any(number.is_rounding_of(Decimal(str(e["number"]))) for e in entries)


def number_problems(cells: list[Cell], quoted: Quoted) -> list[str]:
    """Numbers of the prose that nothing on the page rounds to."""
    values = sources(cells)
    return [
        f"{cell}: nothing on the page gives {number.written}: {line.strip()}"
        for cell in cells
        for number, line in claims(cell)
        if not any(number.is_rounding_of(value) for value in values)
        and not is_quoted(number, line, quoted)
    ]


def stored_cells(chapter: Chapter) -> list[Cell]:
    return chapter.cells if chapter.notebook.exists() else chapter.source_cells


def test_every_number_in_the_prose_has_a_source():
    quoted = read_quoted()
    expect_none(
        problem
        for chapter in CHAPTERS
        for problem in number_problems(stored_cells(chapter), quoted)
    )


def test_quoted_numbers_come_from_the_bibliography():
    bibliography = ROOT / "book" / "references.bib"
    text = bibliography.read_text(encoding="utf-8") if bibliography.exists() else ""
    keys = set(re.findall(r"^@\w+\{([^,\s]+),", text, flags=re.MULTILINE))
    for key, entries in read_quoted().items():
        assert key in keys
        for entry in entries:
            assert entry["where"].strip()


# ── the check can fail, and does not fail without cause ──────────────────────────


def problems(tmp_path: Path, text: str, code: str = "", output: str = "") -> str:
    """Problems of a text beside one code cell and what it printed."""
    lines = "\n".join(f"# {line}" for line in text.split("\n"))
    chapter = chapter_from(
        tmp_path, f"# %% [markdown]\n{lines}\n# %%\n{code or '...'}\n"
    )
    prose, run = chapter.cells
    quoted = {"vaswani2017": [{"number": 27.3, "where": "Table 2"}]}
    return listed(number_problems([prose, printed(run, output)], quoted))


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        ("Token 5 wins, 3.160 against 1.965.", "", "tensor([3.1600, 1.9649])"),
        ("About 0.69.", "", "0.6931"),
        ("The error is 0.5 here.", "x = 1 / 2", "0.5"),
        (r"$\omega_{255} = 1.0366\times10^{-4}$", "i = 255", "1.0366e-04"),
        ("a period of 60 611 positions", "", "60611.4"),
        ("a period of 60\u202f611 or 60,611 or $60{,}611$", "", "60611"),
        ("about 61 000 positions", "", "60611"),
        ("a table of 512 rows", "pe_lab.sinusoidal(512, 64)", ""),
        ("a million is $10^6$ or 1000000", "n = 10**6", ""),
        ("2048 rows", "n = 2 * 1024", ""),
        ("below 10⁻¹⁴", "error < 1e-14", ""),
        ("some $10^{-7}$", "", "4.8e-07"),
        (r"it is $3 \cdot 10^{-7}$", "", "3.1e-07"),
        ("67.1 % of the variance", "", "0.6712"),
        ("12.5% of it", "", "12.5"),
        ("it falls to −0.25", "", "-0.250"),
        ("with 27.3 BLEU {cite:t}`vaswani2017`", "", ""),
        ("five of 64 cells, 12 rows, 8 heads", "", ""),
        ("in 2017, and the base 10000", "", ""),
        ("see section 3.5 of the paper, [here](https://x.org/1234.567)", "", ""),
        ("{numref}`fig-512.5` and float32, torch 2.13.0", "", ""),
        (":label: ex-123\n(label-1234)=", "", ""),
        ("```python\nx = 123.4\n```", "", ""),
    ],
)
def test_a_number_with_a_source_passes(tmp_path, text: str, code: str, output: str):
    assert problems(tmp_path, text, code, output) == ""


@pytest.mark.parametrize(
    ("text", "code", "output", "number"),
    [
        ("About 0.68.", "", "0.6931", "0.68"),
        ("3.161 wins", "", "3.1600", "3.161"),
        ("a period of 60 612", "", "60611", "60 612"),
        ("about 1000 tokens", "", "1400", "1000"),
        ("about 62 000", "", "60611", "62 000"),
        ("$1.0366 \\times 10^{-3}$", "", "1.0366e-04", "1.0366"),
        ("below $10^{-14}$", "", "1e-13", "10^{-14"),
        ("below 3e-8", "", "1e-7", "3e-8"),
        ("some $10^{-7}$", "", "1.2e-06", "10^{-7"),
        (r"it is $3 \cdot 10^{-7}$", "", "1e-07", "3 \\cdot 10^{-7"),
        ("5.5 % of it", "", "0.65", "5.5 %"),
        ("0.5 more", "x = 1  # 0.5", "", "0.5"),
        ("0.5 more", "x = 'about 0.5'", "", "0.5"),
        ("in 1234", "", "", "1234"),
        ("27.3 BLEU", "", "", "27.3"),
        ("27.9 BLEU {cite:t}`vaswani2017`", "", "", "27.9"),
        ("`x = 0.5`", "", "", "0.5"),
        (":::{note}\nIt takes 123 steps.\n:::", "", "", "123"),
    ],
)
def test_a_number_from_nowhere_is_seen(tmp_path, text, code, output, number):
    assert f"nothing on the page gives {number}" in problems(
        tmp_path, text, code, output
    )


def test_captions_and_alternative_texts_are_prose(tmp_path: Path):
    header = 'mystnb={"figure": {"caption": "It is 0.5"}, "image": {"alt": "is 0.7"}}'
    cells = chapter_from(tmp_path, f"# %% {header}\nx\n").cells
    assert "gives 0.5" in listed(number_problems(cells, {}))
    assert "gives 0.7" in listed(number_problems(cells, {}))


@pytest.mark.parametrize(
    ("written", "value", "unit"),
    [
        ("3.160", "3.160", "0.001"),
        ("512", "512", "1"),
        ("61 000", "61000", "1000"),
        ("1000", "1000", "1"),
        ("1.5e-3", "0.0015", "0.0001"),
        ("2 × 10⁻³", "0.002", "0.001"),
    ],
)
def test_a_number_is_read_as_written(written: str, value: str, unit: str):
    number = next(n for n in read_numbers(written) if n.value == Decimal(value))
    assert number.unit == Decimal(unit)
