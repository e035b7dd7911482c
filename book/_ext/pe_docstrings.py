"""Docstrings as people write them, turned into the markup that Sphinx reads.

The package's docstrings are plain text first. Four habits of theirs need a hand:
one-line sections (``Source: …``), names in single backticks, bars as in |m − n|, and
aligned lines of formulas.
"""

from __future__ import annotations

import re
from itertools import groupby

from sphinx.application import Sphinx

import pe_lab

WORD = "(?:Args|Convention|Example|Raises|Returns|Source|Yields)"
SECTION = re.compile(rf"({WORD}(?:, {WORD})*):(?: (.+))?$")
NAPOLEON = ("Args", "Raises", "Returns", "Yields")
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
ALIGNED = re.compile(r"\S\s{2,}\S")


def link_code(match: re.Match[str]) -> str:
    """Make ```name``` a link if the package has that name, else plain code."""
    name = match[1].removeprefix("pe_lab.")
    if name in pe_lab.__all__:
        return f":py:obj:`~pe_lab.{name}`"
    return f"``{match[1]}``"


def mark_up(line: str) -> str:
    """One line with its code marked and its bars escaped."""
    return CODE.sub(link_code, line.replace("|", r"\|"))


def as_field(line: str) -> list[str]:
    """``Source: …`` as a field of its own, like the parameters and the result.

    A bare ``Args:`` or ``Raises:`` stays: napoleon reads the list below it.
    Below a bare ``Example:`` stands code.
    """
    match = SECTION.match(line)
    if match is None or (match[1] in NAPOLEON and match[2] is None):
        return [line]
    if match[1] == "Example" and match[2] is None:
        return ["", "Example::", ""]
    return ["", f":{match[1]}: {match[2] or ''}".rstrip()]


def keep_alignment(lines: list[str]) -> list[str]:
    """Paragraphs that align formulas in columns become line blocks."""
    result: list[str] = []
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        block = list(group)
        plain = all(line[:1] not in ("", " ", ":", "|") for line in block)
        if not blank and plain and any(ALIGNED.search(line) for line in block):
            block = [f"| {line}" for line in block]
        result += block
    return result


def tidy(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Rewrite the lines of one docstring in place; an example, its end, is code."""
    end = lines.index("Example:") + 1 if "Example:" in lines else len(lines)
    text, code = lines[:end], lines[end:]
    fields = [new for line in text for new in as_field(mark_up(line))]
    lines[:] = keep_alignment(fields) + code


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx, before napoleon (which listens at priority 500)."""
    app.connect("autodoc-process-docstring", tidy, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
