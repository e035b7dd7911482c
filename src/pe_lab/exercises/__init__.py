"""The book's exercises: `check(exercise_id, answer)` says what is wrong, not only that.

Each chapter's exercises are data in `chapter_NN.py`, a tuple `EXERCISES`. That file is
imported when one of its exercises is first checked, so a new chapter is a new file and
no other change.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from .cases import Score, case, score
from .engine import Exercise, Mistake, Verdict, judge
from .examined import Examined

__all__ = [
    "Examined",
    "Exercise",
    "Mistake",
    "Score",
    "Verdict",
    "case",
    "chapter",
    "chapters",
    "check",
    "find",
    "judge",
    "score",
]


def check(exercise_id: str, answer: object) -> Verdict:
    """Judge an answer to one of the book's exercises.

    Args:
        exercise_id: as printed in the exercise, for example "05-block".
        answer: your answer: a number, text, list, NumPy array, torch tensor, or the
            function that was asked for. It is not changed.

    Returns:
        a Verdict: `.passed`, `.kind`, `.message`; true where the answer is right.

    Raises:
        ValueError: if there is no such exercise. Never because of the answer.

    Example:
        >>> pe_lab.check("05-block", None)
        ○ 05-block: not answered yet.
        >>> pe_lab.check("05-block", 3.0)
        ✗ 05-block: wrong type.
        A function is needed; yours is a float: give its name.
    """
    return judge(find(exercise_id), answer)


def find(exercise_id: str) -> Exercise:
    """The exercise with this id.

    Args:
        exercise_id: such as "05-block".

    Returns:
        the `Exercise`.

    Raises:
        ValueError: if there is none; the message lists the nearest.

    Example:
        >>> pe_lab.exercises.find("05-block").title
        'One clock, k steps on'
    """
    if not isinstance(exercise_id, str):
        raise ValueError(
            f"The exercise id is {type(exercise_id).__name__}; needed is a text such "
            'as "05-block". The order is check(exercise_id, answer).'
        )
    number = exercise_id.partition("-")[0]
    known = chapter(number) if number in chapters() else ()
    for exercise in known:
        if exercise.id == exercise_id:
            return exercise
    near = _nearest(exercise_id, [exercise.id for exercise in known])
    raise ValueError(f'There is no exercise "{exercise_id}". {near}')


def _nearest(exercise_id: str, same_chapter: list[str]) -> str:
    """A sentence with the ids that were most likely meant."""
    ids = [exercise.id for number in chapters() for exercise in chapter(number)]
    near = difflib.get_close_matches(exercise_id, ids, n=5, cutoff=0.5)
    near = near or same_chapter
    if not near:
        return f"There are exercises for chapters {', '.join(chapters())}."
    return f"Near it: {', '.join(near)}."


def chapters() -> tuple[str, ...]:
    """The two-digit numbers of the chapters with exercises, in order.

    Returns:
        a tuple of texts.

    Example:
        >>> "05" in pe_lab.exercises.chapters()
        True
    """
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(n[8:] for n in names if n.startswith("chapter_")))


def chapter(number: str) -> tuple[Exercise, ...]:
    """The exercises of one chapter, in the order of the page.

    Args:
        number: two digits, "05" for chapter 5.

    Returns:
        a tuple of `Exercise`.

    Example:
        >>> pe_lab.exercises.chapter("05")[0].id
        '05-block'
    """
    module = importlib.import_module(f"{__name__}.chapter_{number}")
    exercises: tuple[Exercise, ...] = module.EXERCISES
    return exercises
