"""A chapter reads well: short cells, short texts, and a reason for every exception."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest

from tests.book.chapters import (
    CHAPTERS,
    ROOT,
    Cell,
    Chapter,
    blocks,
    chapter_from,
    expect_none,
    listed,
)

COLUMNS = 88
TEXT_COLUMNS = 160  # a sentence has its own line; one of 160 is long enough
CODE_MEDIAN, CODE_USUAL, CODE_MOST = 6, 15, 25  # lines of a code cell
TEXT_LEAST, TEXT_MOST = 20, 80  # words of a text cell
SHORT_TEXTS = 0.2  # share of texts that may be shorter: a question, a step
TWO_SENTENCES = 0.1  # share of source lines that may hold two sentences

NEEDS_REASON = {"nbval-ignore-output", "nbval-skip", "raises-exception"}
SKIPS = {"skip", "skipif", "xfail"}

# A heading, table, label, option, rule, link target, tag, or list and its items' lines.
NOT_PROSE = re.compile(r"\s*$|#|\||\(\S+\)=|:\w|---|\[\S+\]:|<|[-*+] |\d+\. |  ")
WORD = re.compile(r"\w[\w'’.,-]*")
SENTENCE_END = re.compile(r"(?<![.\s][A-Za-z])(?<!al)(?<!\bvs)[.?!]['\"”)]*\s+[A-Z]")


# ── code cells ───────────────────────────────────────────────────────────────────


def share_at_most(values: Sequence[int], limit: int) -> float:
    """Share of the values that do not exceed `limit`."""
    return sum(value <= limit for value in values) / len(values)


def code_size_problems(chapter: Chapter) -> list[str]:
    """Code cells that are too long, one by one and as a whole."""
    code = [cell for cell in chapter.source_cells if cell.kind == "code"]
    sizes = [len(cell.lines) for cell in code]
    problems = [
        f"{cell} has {size} lines of code, more than {CODE_MOST}"
        for cell, size in zip(code, sizes, strict=True)
        if size > CODE_MOST
    ]
    if sizes and median(sizes) > CODE_MEDIAN:
        problems.append(
            f"{chapter.name}: half the code cells exceed {CODE_MEDIAN} lines"
        )
    if sizes and share_at_most(sizes, CODE_USUAL) < 0.9:
        problems.append(f"{chapter.name}: a tenth of them exceed {CODE_USUAL} lines")
    return problems


def tag_problems(chapter: Chapter) -> list[str]:
    """Tags that let a cell out of a test, without a word on why."""
    return [
        f'{cell} is tagged {tag} and gives no reason="…"'
        for cell in chapter.source_cells
        for tag in cell.tags
        if tag in NEEDS_REASON and len(str(cell.metadata.get("reason", "")).split()) < 2
    ]


# ── lines ────────────────────────────────────────────────────────────────────────


def is_breakable(line: str, limit: int) -> bool:
    """Whether a long line could have been broken: not a table, not one long link."""
    return not line.lstrip("# ").startswith("|") and " " in line[2:].strip()[:limit]


def line_problems(chapter: Chapter) -> list[str]:
    """Lines of the source that are too wide; cell headers cannot be broken."""
    problems = []
    lines = chapter.source.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        limit = TEXT_COLUMNS if line.startswith("# ") else COLUMNS
        if (
            len(line) > limit
            and not line.startswith("# %%")
            and is_breakable(line, limit)
        ):
            place = f"{chapter.source.name}:{number}"
            problems.append(f"{place} has {len(line)} columns, more than {limit}")
    return problems


# ── text cells ───────────────────────────────────────────────────────────────────


def prose_lines(cell: Cell) -> list[str]:
    """Running text: no directive, heading, table, list, label or display formula."""
    lines = [
        line for block in blocks(cell.source) if block.is_prose for line in block.lines
    ]
    prose, in_formula = [], False
    for line in lines:
        if line.strip().startswith("$$"):
            in_formula = not in_formula and line.strip().count("$$") == 1
        elif not in_formula and not NOT_PROSE.match(line):
            prose.append(line)
    return prose


def word_count(cell: Cell) -> int:
    """Words of the running text; a formula or a reference counts as one word."""
    text = re.sub(r"\$[^$]+\$|`[^`]+`|\{[\w:]+\}", "x", " ".join(prose_lines(cell)))
    return len(WORD.findall(text))


def is_only_prose(cell: Cell) -> bool:
    """Whether the cell stands on its sentences alone."""
    return prose_lines(cell) == [line for line in cell.lines if line.strip()]


def text_size_problems(chapter: Chapter) -> list[str]:
    """Texts that hold more than one idea, or too many that hold less than one."""
    texts = [cell for cell in chapter.source_cells if cell.kind == "markdown"]
    problems = [
        f"{cell} has {word_count(cell)} words of text, more than {TEXT_MOST}"
        for cell in texts
        if word_count(cell) > TEXT_MOST
    ]
    plain = [cell for cell in texts if is_only_prose(cell)]
    short = [cell for cell in plain if word_count(cell) < TEXT_LEAST]
    if len(short) > SHORT_TEXTS * len(plain) and len(short) > 1:
        where = ", ".join(str(cell.index) for cell in short)
        rule = f"{len(short)} of {len(plain)} texts have fewer than {TEXT_LEAST} words"
        problems.append(f"{chapter.name}: {rule} (cells {where})")
    return problems


def sentence_problems(chapter: Chapter) -> list[str]:
    """Source lines that hold two sentences, if there are many."""
    texts = [cell for cell in chapter.source_cells if cell.kind == "markdown"]
    lines = [(cell, line) for cell in texts for line in prose_lines(cell)]
    double = [(cell, line) for cell, line in lines if SENTENCE_END.search(line)]
    if len(double) <= max(1, TWO_SENTENCES * len(lines)):
        return []
    return [f"{cell}: two sentences on one line: {line}" for cell, line in double]


# ── tests that are skipped ───────────────────────────────────────────────────────


def skip_problems(path: Path) -> Iterator[str]:
    """Calls and marks in a test file that skip without a reason."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {
        id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in SKIPS:
            continue
        owner = ast.unparse(node.value)
        if owner not in {"pytest", "pytest.mark", "mark"}:
            continue
        call = called.get(id(node))
        if call is None or not gives_reason(call, node.attr, owner):
            yield f"{path.name}:{node.lineno} {owner}.{node.attr} gives no reason"


def gives_reason(call: ast.Call, name: str, owner: str) -> bool:
    """`reason=…`, or for pytest.skip("…") and mark.skip("…") the first argument."""
    if any(keyword.arg == "reason" for keyword in call.keywords):
        return True
    return bool(call.args) and (name == "skip" or owner == "pytest")


CHECKS = [
    code_size_problems,
    tag_problems,
    line_problems,
    text_size_problems,
    sentence_problems,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_chapters_keep_the_style(check):
    expect_none(problem for chapter in CHAPTERS for problem in check(chapter))


def test_no_test_is_skipped_without_a_reason():
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert files
    expect_none(problem for path in files for problem in skip_problems(path))


# ── the checks can fail ──────────────────────────────────────────────────────────

WORDS = "word " * 19 + "last."
GOOD = f"""# %% [markdown]
# # A title
#
# {WORDS}
# {WORDS}
#
# ```{{exercise}} Do it
# {"a long exercise " * 6}
# {"has many words " * 6}
# ```
# %% tags=["nbval-ignore-output"] reason="the clock moves"
x = 1
# %% mystnb={{"figure": {{"name": "fig-a", "caption": "{"long " * 20}"}}}}
x
# %% [markdown]
# | {"a wide table " * 12} |
# |---|
"""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_good_chapter_passes(check, tmp_path: Path):
    assert check(chapter_from(tmp_path, GOOD)) == []


def lines_of_code(*sizes: int) -> str:
    return "".join("# %%\n" + "x = 1\n" * size for size in sizes)


@pytest.mark.parametrize(
    ("check", "source", "problem"),
    [
        (
            code_size_problems,
            lines_of_code(26, *[1] * 20),
            "cell 0 has 26 lines of code",
        ),
        (code_size_problems, lines_of_code(7, 7, 7, 1), "half the code cells exceed 6"),
        (code_size_problems, lines_of_code(16, 16, *[1] * 8), "a tenth of them exceed"),
        (tag_problems, '# %% tags=["nbval-ignore-output"]\n1\n', "gives no reason"),
        (tag_problems, '# %% tags=["nbval-skip"] reason=""\n1\n', "gives no reason"),
        (line_problems, f"# %%\nx = '{'a ' * 50}'\n", ".py:2 has 106 columns"),
        (line_problems, f"# %% [markdown]\n# {'word ' * 40}\n", "more than 160"),
        (
            text_size_problems,
            f"# %% [markdown]\n# {'word ' * 81}\n",
            "81 words of text",
        ),
        (text_size_problems, "# %% [markdown]\n# Why?\n\n" * 3, "3 of 3 texts"),
        (sentence_problems, "# %% [markdown]\n# One. Two.\n\n" * 3, "two sentences"),
    ],
)
def test_a_bad_chapter_is_seen(check, source: str, problem: str, tmp_path: Path):
    assert problem in listed(check(chapter_from(tmp_path, source)))


@pytest.mark.parametrize(
    ("code", "is_bad"),
    [
        ("@pytest.mark.skip\ndef f(): ...", True),
        ("@pytest.mark.skipif(True)\ndef f(): ...", True),
        ("pytest.skip()", True),
        ("pytest.skip('no GPU')", False),
        ("@pytest.mark.skipif(True, reason='no GPU')\ndef f(): ...", False),
        ("config.skip", False),
    ],
)
def test_a_skip_without_reason_is_seen(code: str, is_bad: bool, tmp_path: Path):
    path = tmp_path / "test_it.py"
    path.write_text(code)
    assert bool(list(skip_problems(path))) is is_bad
