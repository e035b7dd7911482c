"""What the README promises: its example runs, and its commands and files exist."""

from __future__ import annotations

import ast
import doctest
import re
from pathlib import Path

import pytest

from pe_lab import cli

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_does_what_it_shows():
    example = re.search(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert example
    test = doctest.DocTestParser().get_doctest(example[1], {}, "README", None, 0)
    results = doctest.DocTestRunner().run(test)
    assert results.attempted >= 8
    assert results.failed == 0


def test_the_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    words = re.findall(r"^make ([a-z -]+)|`make ([a-z -]+)", README, flags=re.MULTILINE)
    named = {name for pair in words for part in pair for name in part.split()}
    assert {"lab", "book", "test"} <= named
    assert sorted(named - targets) == []


def test_the_files_exist():
    names = re.findall(r"\b[\w/-]+\.(?:ipynb|yml|txt|md|cff|png)\b", README)
    assert len(set(names)) >= 6
    assert [name for name in sorted(set(names)) if not (ROOT / name).exists()] == []


READ_IN_AN_EVENING = [
    *("tables", "frequencies", "positions", "scaling", "attention", "model", "refuse"),
    *("random", "encodings/*", "hf/*"),
]


def docstring_lines(code: str) -> int:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    found = [
        node.body[0]
        for node in ast.walk(ast.parse(code))
        if isinstance(node, documented) and ast.get_docstring(node) is not None
    ]
    return sum(text.end_lineno - text.lineno + 1 for text in found)


def test_the_core_is_as_short_as_it_says():
    package = ROOT / "src" / "pe_lab"
    files = [f for part in READ_IN_AN_EVENING for f in package.glob(f"{part}.py")]
    codes = [file.read_text(encoding="utf-8") for file in files]
    lines = sum(code.count("\n") for code in codes)
    said = re.search(r"some ([\d,]+) lines, three in ten of them docstrings", README)
    assert said
    assert lines == pytest.approx(int(said[1].replace(",", "")), abs=50)
    assert sum(map(docstring_lines, codes)) / lines == pytest.approx(0.3, abs=0.05)


def test_the_commands_are_understood():
    commands = re.findall(r"`(pe-lab [^`]+)`", README)
    assert len(commands) >= 4
    for command in commands:
        cli.parser().parse_args(command.split()[1:])
