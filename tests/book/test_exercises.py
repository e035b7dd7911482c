"""Every exercise has a stub, three hints and a solution, and each does its part.

The stub is derived from the solution (book/tools/exercises.py), runs, and says "not
answered"; the solution passes; and every mistake that the checker knows has its name.
"""

from __future__ import annotations

import ast
import math
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from book.tools.exercises import ExerciseError, Stub, derive, rewritten, stubs, update
from pe_lab import exercises
from pe_lab.exercises import Exercise, Mistake, Verdict
from tests.book.chapters import CHAPTERS, Cell, Chapter, chapter_from, listed

FEWEST, MOST, HINTS = 4, 6, 3
MANY = {"18": 10}  # chapters that may have more: eight blind cases and two others
OPENING = re.compile(r"(?m)^\s*(?:`{3,}|:{3,})\{exercise\}[^\S\n]*(.*)$")
LABEL = re.compile(r"(?m)^\s*:label:\s*ex-(\S+)")
TITLE = re.compile(r"(?P<title>.+?)\s+(?P<stars>★{1,3})")
HINT = re.compile(
    r"(?m)^\s*(?:`{3,}|:{3,})\{admonition\}\s*Hint (\d+)\s*\n\s*:class:\s*(.+)$"
)
SETUP = {"torch.set_num_threads", "torch.manual_seed", "pe_lab.seed"}


@pytest.fixture(autouse=True)
def same_random_state() -> Iterator[None]:
    """Solutions may seed; the tests after them see nothing of it."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    threads = torch.get_num_threads()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    torch.set_num_threads(threads)


# ── the page ─────────────────────────────────────────────────────────────────────


def exercise_cells(chapter: Chapter) -> list[Cell]:
    """The text cells that pose an exercise."""
    texts = [cell for cell in chapter.source_cells if cell.kind == "markdown"]
    return [cell for cell in texts if OPENING.search(cell.source)]


def page_problems(cell: Cell) -> list[str]:
    """What the text of one exercise lacks."""
    problems = []
    heading = OPENING.search(cell.source)
    if heading is None or not TITLE.fullmatch(heading[1].strip()):
        problems.append(f"{cell}: the title does not end in ★, ★★ or ★★★")
    if len(LABEL.findall(cell.source)) != 1:
        problems.append(f"{cell}: no label `ex-…`, or more than one exercise")
    hints = HINT.findall(cell.source)
    if [int(number) for number, _ in hints] != list(range(1, HINTS + 1)):
        problems.append(f"{cell}: has hints {[n for n, _ in hints]}, not 1, 2, 3")
    if any(set(classes.split()) != {"dropdown", "hint"} for _, classes in hints):
        problems.append(f"{cell}: a hint is not of class `dropdown hint`")
    return problems


def order_problems(chapter: Chapter) -> list[str]:
    """Exercises that are not text, stub, solution in this order."""
    problems = []
    cells = chapter.source_cells
    for cell in exercise_cells(chapter):
        label = LABEL.search(cell.source)
        after = cells[cell.index + 1 : cell.index + 3]
        solution = f"{{solution}} ex-{label[1] if label else '?'}\n"
        if (
            len(after) < 2
            or "exercise" not in after[0].tags
            or solution not in f"{after[1].source}\n"
        ):
            problems.append(f"{cell}: not followed by its stub and then its solution")
        elif ":class: dropdown" not in after[1].source:
            problems.append(f"{after[1]}: the solution is not folded")
    return problems


def registry_problems(chapter: Chapter, known: Sequence[Exercise]) -> list[str]:
    """Differences between the page and what `pe_lab.check` knows."""
    cells = exercise_cells(chapter)
    ids = [label for cell in cells for label in LABEL.findall(cell.source)]
    problems = []
    if ids != [exercise.id for exercise in known]:
        problems.append(
            f"{chapter.name} poses {ids}; pe_lab.exercises has "
            f"{[exercise.id for exercise in known]}"
        )
    most = MANY.get(chapter.name[:2], MOST)
    if not FEWEST <= len(ids) <= most:
        problems.append(f"{chapter.name} has {len(ids)} exercises, not 4 to {most}")
    for cell, exercise in zip(cells, known, strict=False):
        heading = OPENING.search(cell.source)
        posed = heading[1].strip() if heading else ""
        if posed != f"{exercise.title} {'★' * exercise.stars}":
            problems.append(
                f"{cell}: is {posed!r} on the page, {exercise.title!r} with "
                f"{exercise.stars} stars in pe_lab.exercises"
            )
    return problems


# ── the code ─────────────────────────────────────────────────────────────────────


def chapter_stubs(chapter: Chapter) -> list[Stub]:
    """The exercises of a chapter's source."""
    return stubs(chapter.source.read_text(encoding="utf-8"))


def imports(chapter: Chapter) -> dict[str, Any]:
    """A namespace with what the chapter imports and sets up, and nothing else."""
    namespace: dict[str, Any] = {"__name__": "chapter"}
    for cell in chapter.source_cells:
        if cell.kind != "code" or "exercise" in cell.tags:
            continue
        lines = [line for line in cell.lines if not line.startswith(("%", "!"))]
        kept = [node for node in ast.parse("\n".join(lines)).body if is_setup(node)]
        exec(compile(ast.Module(kept, []), chapter.name, "exec"), namespace)
    return namespace


def is_setup(node: ast.stmt) -> bool:
    """Whether a statement is an import, or sets threads or a seed."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in SETUP
    return isinstance(node, ast.Import | ast.ImportFrom)


def verdict_of(code: str, namespace: dict[str, Any]) -> object:
    """Run an exercise cell; the value of its last line, as the notebook shows it."""
    body = ast.parse(code).body
    last = body.pop()
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(body, []), "<exercise>", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "<exercise>", "eval"), namespace)


def code_problems(chapter: Chapter) -> list[str]:
    """Stubs that are stale or do not wait for an answer; solutions that fail."""
    problems = []
    for stub in chapter_stubs(chapter):
        if not stub.is_current:
            problems.append(
                f"{chapter.name}: the stub of {stub.exercise_id} is stale; run "
                "python book/tools/exercises.py"
            )
        waits = verdict_of(stub.derived, imports(chapter))
        if not isinstance(waits, Verdict) or waits.passed is not None:
            problems.append(f"{chapter.name}: the untouched stub gives {waits!r}")
        solved = verdict_of(stub.solution, imports(chapter))
        if not isinstance(solved, Verdict) or not solved:
            problems.append(f"{chapter.name}: the solution gives {solved!r}")
        elif solved.exercise_id != stub.exercise_id:
            problems.append(
                f"{chapter.name}: the solution of {stub.exercise_id} checks "
                f"{solved.exercise_id}"
            )
    return problems


# ── every chapter ────────────────────────────────────────────────────────────────

each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.name)


@each_chapter
def test_exercises_are_complete_on_the_page(chapter):
    problems = [p for cell in exercise_cells(chapter) for p in page_problems(cell)]
    assert not problems, listed(problems)


@each_chapter
def test_exercise_stub_solution_follow_each_other(chapter):
    assert not (problems := order_problems(chapter)), listed(problems)


@each_chapter
def test_page_and_checker_have_the_same_exercises(chapter):
    known = exercises.chapter(chapter.name[:2])
    assert not (problems := registry_problems(chapter, known)), listed(problems)


@each_chapter
def test_stubs_wait_and_solutions_pass(chapter):
    assert not (problems := code_problems(chapter)), listed(problems)


# ── the checks above can fail ────────────────────────────────────────────────────

PAGE = '''\
# %%
import math

import pe_lab

hidden = 1

# %% [markdown]
# ::::{exercise} One clock, k steps on ★
# :label: ex-99-block
# Write `block`.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# Draw it.
# :::
# :::{admonition} Hint 2
# :class: dropdown hint
# Use two angles.
# :::
# :::{admonition} Hint 3
# :class: dropdown hint
# Use four entries.
# :::
# ::::

# %% tags=["exercise"]
def block(offset, omega):
    """M_k for one frequency."""
    ...


pe_lab.check("99-block", block)

# %% [markdown]
# ::::{solution} ex-99-block
# :class: dropdown
# ```python
# def block(offset, omega):
#     """M_k for one frequency."""
#     c, s = math.cos(offset * omega), math.sin(offset * omega)
#     return [[c, s], [-s, c]]
#
#
# pe_lab.check("99-block", block)
# ```
# ::::

# %%
1 + 1
'''


def block(offset, omega):
    c, s = math.cos(offset * omega), math.sin(offset * omega)
    return [[c, s], [-s, c]]


BLOCK = Exercise(
    "99-block", "One clock, k steps on", 1, block, probes=((1, 0.5), (2, 1.0))
)
KNOWN = {"99-block": BLOCK, "99-other": Exercise("99-other", "Another", 1, "yes")}


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Makes a chapter from PAGE with one text replaced."""
    monkeypatch.setattr(exercises, "find", KNOWN.__getitem__)

    def make(old: str = "", new: str = "") -> Chapter:
        assert old in PAGE
        return chapter_from(tmp_path, PAGE.replace(old, new) if old else PAGE)

    return make


def test_a_good_page_has_no_problems(page):
    chapter = page()
    (cell,) = exercise_cells(chapter)
    assert page_problems(cell) == []
    assert order_problems(chapter) == []
    assert code_problems(chapter) == []
    assert registry_problems(chapter, [BLOCK]) == [
        "99_try_it has 1 exercises, not 4 to 6"
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (" ★", "", "does not end in ★"),
        (" ★", " ★★★★", "does not end in ★"),
        ("# :label: ex-99-block\n", "", "no label"),
        ("Hint 2", "Hint 4", "not 1, 2, 3"),
        ("{admonition} Hint 3", "{note} Hint 3", "not 1, 2, 3"),
        ("# :class: dropdown hint\n# Use two", "# :class: hint\n# Use two", "of class"),
    ],
)
def test_an_incomplete_page_is_noticed(page, old, new, problem):
    (cell,) = exercise_cells(page(old, new))
    assert problem in listed(page_problems(cell))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (' tags=["exercise"]', "", "not followed by its stub"),
        ("{solution} ex-99-block", "{solution} ex-99-third", "not followed by"),
        ("# :class: dropdown\n", "", "not folded"),
    ],
)
def test_a_wrong_order_is_noticed(page, old, new, problem):
    assert problem in listed(order_problems(page(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("ex-99-block\n# Write", "ex-99-blok\n# Write", "poses ['99-blok']"),
        ("k steps on ★", "k steps on ★★", "with 1 stars in"),
        ("One clock", "A clock", "on the page"),
    ],
)
def test_a_difference_from_the_checker_is_noticed(page, old, new, problem):
    assert problem in listed(registry_problems(page(old, new), [BLOCK]))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("    ...\n", "    pass\n", "is stale"),
        ("[-s, c]]", "[s, c]]", "the solution gives ✗"),
        ('# pe_lab.check("99-block"', '# pe_lab.check("99-other"', "solution gives"),
        ("# def block(offset, omega):\n", "# def block(offset):\n", "solution gives ✗"),
        ("# ```python\n", "# ```python\n# hidden\n", "NameError"),
        ("import math\n", "", "NameError"),
    ],
)
def test_bad_code_is_noticed(page, old, new, problem):
    try:
        found = listed(code_problems(page(old, new)))
    except NameError as error:  # code that leans on cells which are not imports
        found = f"NameError: {error}"
    assert problem in found


def test_a_stub_that_answers_is_noticed(page):
    answer = "# given\n#     return 1\n#     # your turn\n#     c, s"
    found = listed(code_problems(page("c, s = math", f"{answer} = math")))
    assert "the untouched stub gives" in found


# ── the tool that derives stubs ──────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("solution", "stub"),
    [
        ("a = 1 + 1", "a = ..."),
        ("a, (b, *c) = 1, (2, 3)", "a = b = c = ..."),
        ("a: int = 3", "a: int = ..."),
        ("import math\na = math.pi", "import math\na = ..."),
        ("a = 1\nprint(a)\nfor i in a:\n    a += i", "a = ..."),
        ("# How many?\na = 1", "# How many?\na = ..."),
        ("def f(x): return x", "def f(x): ..."),
        ('def f(x):\n    """D."""\n    return x', 'def f(x):\n    """D."""\n    ...'),
        ("@g\ndef f(x):\n    return x", "@g\ndef f(x):\n    ..."),
        (
            'def f(\n    x="#",  # :\n    y=2,\n):\n    # so\n    return x',
            'def f(\n    x="#",  # :\n    y=2,\n):\n    ...',
        ),
        (
            "class A(B):\n    n = 1\n\n    def f(self):\n        return 1",
            "class A(B):\n    n = ...\n\n    def f(self):\n        ...",
        ),
        (
            "# given\na = [\n    1,\n]\n# your turn\nb = a",
            "# given\na = [\n    1,\n]\n# your turn\nb = ...",
        ),
        (
            "def f(x):\n    # given\n    y = x\n    # your turn\n    return y",
            "def f(x):\n    # given\n    y = x\n    # your turn\n    ...",
        ),
    ],
)
def test_derives(solution, stub):
    end = '\npe_lab.check("05-x", f)'
    assert derive(solution + end) == stub + end


@pytest.mark.parametrize(
    ("solution", "problem"),
    [
        ("a = 1", "end in pe_lab.check"),
        ("", "end in pe_lab.check"),
        ("a = (", "not Python"),
        ('# given\na = 1\npe_lab.check("05-x", a)', "your turn"),
    ],
)
def test_refuses_to_derive(solution, problem):
    with pytest.raises(ExerciseError, match=problem):
        derive(solution)


def test_rewrites_only_what_is_stale(tmp_path):
    stale = PAGE.replace("    ...\n", "    pass\n    pass\n")
    assert rewritten(stale) == PAGE
    path = tmp_path / "99_try_it.py"
    path.write_text(stale, encoding="utf-8")
    assert update(path, write=False) == ["99-block"]
    assert path.read_text(encoding="utf-8") == stale
    assert update(path, write=True) == ["99-block"]
    assert path.read_text(encoding="utf-8") == PAGE
    assert update(path, write=True) == []


@pytest.mark.parametrize("cut", ["```python", "{solution} ex-99-block"])
def test_refuses_a_stub_without_solution(tmp_path, cut):
    path = tmp_path / "99_try_it.py"
    path.write_text(PAGE.replace(cut, ""), encoding="utf-8")
    with pytest.raises(ExerciseError, match=r"99_try_it\.py"):
        update(path, write=True)


# ── every mistake has its name ───────────────────────────────────────────────────


def mistake_problems(exercise: Exercise) -> list[str]:
    """Mistakes that are not recognised, and a reference that does not pass."""
    problems = []
    if not (verdict := exercises.judge(exercise, exercise.reference)):
        problems.append(f"{exercise.id}: its own reference gives {verdict!r}")
    for mistake in exercise.mistakes:
        verdict = exercises.judge(exercise, mistake.wrong)
        if verdict.kind != mistake.kind:
            problems.append(
                f"{exercise.id}: {mistake.kind!r} is recognised as {verdict.kind!r}"
            )
    return problems


every_exercise = pytest.mark.parametrize(
    "exercise",
    [
        exercise
        for number in exercises.chapters()
        for exercise in exercises.chapter(number)
    ],
    ids=lambda exercise: exercise.id,
)


@every_exercise
def test_every_mistake_is_recognised_by_its_name(exercise):
    assert not (problems := mistake_problems(exercise)), listed(problems)


@every_exercise
def test_every_exercise_foresees_mistakes_and_says_what_they_mean(exercise):
    assert len(exercise.mistakes) >= 2
    kinds = [mistake.kind for mistake in exercise.mistakes]
    assert len(set(kinds)) == len(kinds)
    for mistake in exercise.mistakes:
        assert mistake.message.strip().endswith((".", "?")), mistake.message
        assert 6 <= len(mistake.message.split()) <= 45, mistake.message


def test_a_mistake_that_nothing_tells_apart_is_noticed():
    twin = Mistake("again", [2.0, 3.0], "It is the same as the first mistake.")
    first = Mistake("first", [2.0, 3.0], "It is the first of two.")
    double = Exercise("99-x", "X", 1, [1.0, 2.0], mistakes=(first, twin))
    assert "'again' is recognised as 'first'" in listed(mistake_problems(double))
    right = Exercise("99-x", "X", 1, 1.0, mistakes=(Mistake("right?", 1.0, "So."),))
    assert "'right?' is recognised as 'right'" in listed(mistake_problems(right))
    broken = Exercise("99-x", "X", 1, 1.0, accepts=lambda x: x > 1, need="More than 1.")
    assert "its own reference gives" in listed(mistake_problems(broken))
