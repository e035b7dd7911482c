"""Derive the exercise cells of the chapters from their solutions.

In notebooks/NN_name.py an exercise is three cells: a text cell with an {exercise}
directive, a code cell tagged `exercise` (the stub), and a text cell with a {solution}
directive that holds one ```python block. That block is the source; the stub is derived
from it, so that the two cannot drift apart:

- imports and calls of `pe_lab.check` stay; a solution ends in one, as does its stub;
- a function keeps its decorators, signature and docstring; its body becomes `...`;
  in a class, this happens to every method;
- an assignment `name = value` becomes `name = ...`, and `a, b = value` becomes
  `a = b = ...`; any other statement belongs to the solution and is left out;
- comments between statements stay, comments inside bodies go;
- lines from a comment `# given` to a comment `# your turn` stay as they are, between
  statements as well as at the start of a body.

    python book/tools/exercises.py                     # rewrite stubs, every chapter
    python book/tools/exercises.py notebooks/05_*.py   # some chapters
    python book/tools/exercises.py --check             # list stale stubs, write nothing
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"

CELL = re.compile(r"(?m)^(?=# %%)")
STUB_TAG = re.compile(r'tags=\[[^\]]*"exercise"[^\]]*\]')
SOLUTION = re.compile(r"\{solution\}\s+ex-(\S+)")
PYTHON = re.compile(r"(?ms)^\s*(`{3,})python[^\S\n]*\n(.*?)^\s*\1[^\S\n]*$")
GIVEN, YOUR_TURN = re.compile(r"\s*# given\b"), re.compile(r"\s*# your turn\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class ExerciseError(Exception):
    """An exercise that cannot be derived; the message says where and why."""


@dataclass(frozen=True)
class Stub:
    """One exercise of a chapter: the stub as it stands and as it should."""

    exercise_id: str
    solution: str
    current: str
    derived: str

    @property
    def is_current(self) -> bool:
        """True when the stub is the one that the solution gives."""
        return self.current == self.derived


# ── one solution ─────────────────────────────────────────────────────────────────


def derive(solution: str) -> str:
    """The stub of a solution, by the rule at the top of this file.

    Raises: ExerciseError if the solution is no Python or does not end in a check.
    """
    try:
        tree = ast.parse(solution)
    except SyntaxError as error:
        raise ExerciseError(f"the solution is not Python: {error}") from None
    if not tree.body or not _is_check(tree.body[-1]):
        raise ExerciseError("the solution has to end in pe_lab.check(...)")
    lines = solution.splitlines()
    given = _given(lines)
    out, done = [], 0
    for node in tree.body:
        first, last = _first_line(node), node.end_lineno or node.lineno
        out += lines[done : first - 1]
        kept = set(range(first, last + 1)) <= given
        out += lines[first - 1 : last] if kept else _statement(node, lines, given)
        done = last
    return _tidy("\n".join(out))


def _first_line(node: ast.stmt) -> int:
    """The line on which a statement starts, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _given(lines: Sequence[str]) -> set[int]:
    """Numbers of the lines from each `# given` to the next `# your turn`."""
    given, inside = set(), False
    for number, line in enumerate(lines, 1):
        if GIVEN.match(line):
            inside = True
        if inside:
            given.add(number)
        if YOUR_TURN.match(line):
            inside = False
    if inside:
        raise ExerciseError('a "# given" without a "# your turn" after it')
    return given


def _is_check(node: ast.stmt) -> bool:
    """True for a bare call of pe_lab.check."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in ("pe_lab.check", "check")
    )


def _statement(node: ast.stmt, lines: Sequence[str], given: set[int]) -> list[str]:
    """The lines that stand for one statement in the stub."""
    if isinstance(node, ast.Import | ast.ImportFrom) or _is_check(node):
        return list(lines[node.lineno - 1 : node.end_lineno])
    if isinstance(node, Function):
        return _function(node, lines, given)
    if isinstance(node, ast.ClassDef):
        return _class(node, lines, given)
    indent = " " * node.col_offset
    if isinstance(node, ast.Assign):
        names = [
            ast.unparse(name) for target in node.targets for name in _names(target)
        ]
        return [f"{indent}{' = '.join(names)} = ..."]
    if isinstance(node, ast.AnnAssign):
        target, kind = ast.unparse(node.target), ast.unparse(node.annotation)
        return [f"{indent}{target}: {kind} = ..."]
    return []


def _names(target: ast.expr) -> Iterator[ast.expr]:
    """The single targets of an assignment."""
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _names(element)
    elif isinstance(target, ast.Starred):
        yield from _names(target.value)
    else:
        yield target


def _function(node: Function, lines: Sequence[str], given: set[int]) -> list[str]:
    """Decorators, signature, docstring and given lines; then `...`."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    first = _first_line(node)
    if not body:
        return list(lines[first - 1 : node.end_lineno])
    start, header = _first_line(body[0]), _header_end(node, lines)
    if start == header:
        head = lines[start - 1].encode()[: body[0].col_offset].decode()
        return [*lines[first - 1 : start - 1], f"{head}..."]
    opened = header if body is node.body else node.body[0].end_lineno or header
    kept = [n for n in range(opened + 1, (node.end_lineno or 0) + 1) if n in given]
    return [
        *lines[first - 1 : opened],
        *(lines[number - 1] for number in kept),
        " " * body[0].col_offset + "...",
    ]


def _header_end(node: Function, lines: Sequence[str]) -> int:
    """The line of the colon that ends a signature."""
    parts = [*ast.walk(node.args), *(ast.walk(node.returns) if node.returns else [])]
    last = max([node.lineno, *(getattr(part, "end_lineno", 0) for part in parts)])
    body = _first_line(node.body[0])
    for number in range(last, body):
        if re.search(r":\s*(#.*)?$", lines[number - 1]):
            return number
    return body


def _class(node: ast.ClassDef, lines: Sequence[str], given: set[int]) -> list[str]:
    """A class with its docstring, each method reduced to a stub."""
    out, done = list(lines[_first_line(node) - 1 : node.lineno - 1]), node.lineno - 1
    for inner in node.body:
        first, last = _first_line(inner), inner.end_lineno or inner.lineno
        out += lines[done : first - 1]
        text = isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)
        kept = text or set(range(first, last + 1)) <= given
        out += lines[first - 1 : last] if kept else _statement(inner, lines, given)
        done = last
    return out


def _tidy(text: str) -> str:
    """At most two blank lines in a row, none at the ends."""
    return re.sub(r"\n{4,}", "\n\n\n", text).strip("\n")


# ── one chapter ──────────────────────────────────────────────────────────────────


def stubs(source: str) -> list[Stub]:
    """Every exercise of a chapter's text (py:percent), in order.

    Raises: ExerciseError if a stub has no solution after it, or a solution no stub.
    """
    cells = CELL.split(source)
    pairs = zip(cells, [*cells[1:], ""], strict=True)
    found = [_stub(cell, after) for cell, after in pairs if _is_stub(cell)]
    solutions = [match for cell in cells for match in SOLUTION.findall(_text(cell))]
    ids = [stub.exercise_id for stub in found]
    if solutions != ids:
        raise ExerciseError(
            f"solutions {solutions} and cells tagged exercise, before {ids}, differ: "
            "the cell goes right before the solution"
        )
    return found


def _is_stub(cell: str) -> bool:
    """True for a code cell tagged `exercise`."""
    return bool(STUB_TAG.search(cell.partition("\n")[0]))


def _text(cell: str) -> str:
    """The Markdown of a text cell; nothing for a code cell."""
    header, _, body = cell.partition("\n")
    if "[markdown]" not in header:
        return ""
    return re.sub(r"(?m)^# ?", "", body)


def _stub(cell: str, after: str) -> Stub:
    """Read one stub and the solution in the cell after it."""
    text = _text(after)
    name, block = SOLUTION.search(text), PYTHON.search(text)
    current = cell.partition("\n")[2].strip("\n")
    if name is None or block is None:
        raise ExerciseError(
            f"no solution with a ```python block follows the exercise\n{current}"
        )
    solution = block[2].rstrip("\n")
    try:
        return Stub(name[1], solution, current, derive(solution))
    except ExerciseError as error:
        raise ExerciseError(f"exercise {name[1]}: {error}") from None


def rewritten(source: str) -> str:
    """The chapter's text with every stub derived anew, all else byte for byte."""
    fresh = iter(stubs(source))
    cells = CELL.split(source)
    for n, cell in enumerate(cells):
        if _is_stub(cell):
            header, _, body = cell.partition("\n")
            tail = body[len(body.rstrip("\n")) :] or "\n"
            cells[n] = f"{header}\n{next(fresh).derived}{tail}"
    return "".join(cells)


def update(path: Path, *, write: bool) -> list[str]:
    """Ids of the stale stubs of one chapter; rewrites them when `write`."""
    source = path.read_text(encoding="utf-8")
    try:
        stale = [stub.exercise_id for stub in stubs(source) if not stub.is_current]
    except ExerciseError as error:
        raise ExerciseError(f"{path.name}: {error}") from None
    if stale and write:
        path.write_text(rewritten(source), encoding="utf-8")
    return stale


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 when --check finds a stale stub or one has no rule."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "chapters", nargs="*", type=Path, help="NN_name.py; default all"
    )
    parser.add_argument("--check", action="store_true", help="list, write nothing")
    options = parser.parse_args(arguments)
    paths = options.chapters or sorted(NOTEBOOKS.glob("[0-9][0-9]_*.py"))
    count = 0
    try:
        for path in paths:
            for exercise_id in update(path, write=not options.check):
                count += 1
                verb = "is stale" if options.check else "derived anew"
                print(f"{path.name}: {exercise_id} {verb}")
    except ExerciseError as error:
        print(error, file=sys.stderr)
        return 1
    if count and not options.check:
        print("Now run book/tools/run_notebooks.py --changed.")
    return int(bool(count) and options.check)


if __name__ == "__main__":
    sys.exit(main())
