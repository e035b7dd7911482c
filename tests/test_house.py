"""The code keeps the house's rule on size: no function of more than 25 lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.book.chapters import ROOT, expect_none

MOST_LINES = 25  # of the body; a docstring may be as long as it has to
FOLDERS = ("src", "book", "benchmarks")


def size_problems(name: str, code: str) -> Iterator[str]:
    """Functions whose body is too long to be read at once."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = body_lines(node)
            if lines > MOST_LINES:
                yield f"{name}:{node.lineno} {node.name} has {lines} lines of body"


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring to the last."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return node.end_lineno - body[0].lineno + 1 if body and node.end_lineno else 0


def test_functions_can_be_read_at_once():
    paths = [path for name in FOLDERS for path in sorted((ROOT / name).rglob("*.py"))]
    assert paths
    expect_none(
        problem
        for path in paths
        for problem in size_problems(str(path.relative_to(ROOT)), read(path))
    )


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_a_long_function_is_seen():
    short = 'def f():\n    """A text\n    of two lines."""\n' + "    x = 1\n" * 25
    assert list(size_problems("a.py", short)) == []
    assert list(size_problems("a.py", short + "    x = 1\n")) == [
        "a.py:1 f has 26 lines of body"
    ]
