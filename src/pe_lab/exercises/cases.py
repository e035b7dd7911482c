"""Encodings with one bug each, or none, by number: the blind cases of chapter 18.

The bugs are those of `pe_lab.doctor.mutants`. What is handed out has no name, so that
it has to be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pe_lab import refuse

# What can be answered, and what gives it away.
WORDS = {
    "healthy": "nothing is wrong, at any place",
    "ladder": "frequencies that are not base^(−2i/w), w being the width that turns",
    "layout": "channels paired in one way, and given angles in another",
    "direction": "turned against the sense of the other side",
    "offset": "all positions off by the same number",
    "size": "a factor too many or too few",
    "axis": "positions counted along the texts, the heads or the channels",
    "range": "positions past some bound are clamped, wrapped or dropped",
    "precision": "positions or angles computed in 16 bits",
    "memory": "an answer that depends on the questions before",
    "alignment": "with more keys than queries, queries taken for other tokens",
}


@dataclass(frozen=True)
class _Entry:
    kind: str
    name: str
    word: str
    call: str


_ROPE = "f(x, positions), heads of 64 channels"
_ENTRIES = {
    1: _Entry("rope", "ladder of the whole head", "ladder", _ROPE),
    2: _Entry("slopes", "cut from an earlier answer", "memory", "f(num_heads)"),
    3: _Entry("rope", "neighbours, table tiled for halves", "layout", _ROPE),
    4: _Entry("rope", "angles in the dtype of x", "precision", _ROPE),
    5: _Entry("bias", "queries from the first key", "alignment", "f(q_len, k_len)"),
    6: _Entry("table", "stops at 511", "range", "f(length, d_model)"),
    7: _Entry("add", "along the batch", "axis", "f(x), x of 32 channels"),
    8: _Entry("rope", "xPos", "healthy", "f(q, k, positions), heads of 64 channels"),
}


class Case:
    """A suspect, called as its kind is called.

    Args:
        number: of the case.
        kind: as what `pe_lab.diagnose` examines it.
        call: how it is called, in words.
        suspect: what is called.

    Example:
        >>> pe_lab.exercises.case(2)(4)
        tensor([0.2500, 0.0625, 0.0156, 0.0039], dtype=torch.float64)
    """

    __slots__ = ("_suspect", "call", "kind", "number")

    def __init__(
        self, number: int, kind: str, call: str, suspect: Callable[..., Any]
    ) -> None:
        self.number, self.kind, self.call, self._suspect = number, kind, call, suspect

    def __call__(self, *arguments: Any) -> Any:
        """What the suspect answers."""
        return self._suspect(*arguments)

    def __repr__(self) -> str:
        return f"case {self.number}: {self.kind}, called as {self.call}"


def case(number: int) -> Case:
    """A fresh suspect of chapter 18, to be measured and named.

    Args:
        number: 1 to 8.

    Returns:
        a `Case`: call it as it says. Each is new, so that none remembers.

    Raises:
        ValueError: if there is no such case.

    Example:
        >>> pe_lab.exercises.case(3)
        case 3: rope, called as f(x, positions), heads of 64 channels
    """
    number = refuse.whole("number", number)
    if number not in _ENTRIES:
        raise ValueError(f"number needs 1 to {max(_ENTRIES)}, got {number}.")
    entry = _ENTRIES[number]
    return Case(number, entry.kind, entry.call, _called(_patient(entry).make()))


@dataclass(frozen=True)
class Score:
    """How many suspects were named.

    Attributes:
        right, wrong, open: the numbers of the cases; open ones have no answer.

    Example:
        >>> pe_lab.exercises.score({1: "ladder"}).right
        (1,)
    """

    right: tuple[int, ...]
    wrong: tuple[int, ...]
    open: tuple[int, ...]

    def __repr__(self) -> str:
        total = len(self.right) + len(self.wrong) + len(self.open)
        lines = [f"{len(self.right)} of {total} named"]
        for word, cases in (("look again at", self.wrong), ("open:", self.open)):
            if cases:
                lines.append(f"{word} {', '.join(map(str, cases))}")
        return "; ".join(lines) + "."


def score(answers: Mapping[int, object]) -> Score:
    """How many of the eight suspects were named rightly.

    Args:
        answers: a word for each case that you have measured, by its number; None and
            ... are open.

    Returns:
        a `Score`; it tells which, and not what they are.

    Raises:
        TypeError, ValueError: if it is no mapping, or a number is no case's.

    Example:
        >>> pe_lab.exercises.score({1: "ladder", 2: "size"})
        1 of 8 named; look again at 2; open: 3, 4, 5, 6, 7, 8.
    """
    if not isinstance(answers, Mapping):
        raise TypeError(
            "answers needs a dict of words by case, such as {1: 'size'}, got "
            f"{type(answers).__name__}."
        )
    unknown = [number for number in answers if number not in _ENTRIES]
    if unknown:
        raise ValueError(
            f"answers needs cases 1 to {len(_ENTRIES)}, got {unknown[0]!r}."
        )
    given = {n: a for n, a in answers.items() if a is not None and a is not ...}
    right = {n for n, answer in given.items() if _same(answer, _ENTRIES[n].word)}
    return Score(
        tuple(n for n in _ENTRIES if n in right),
        tuple(n for n in _ENTRIES if n in given and n not in right),
        tuple(n for n in _ENTRIES if n not in given),
    )


def _same(answer: object, right: str) -> bool:
    return isinstance(answer, str) and answer.strip().lower() == right


def _patient(entry: _Entry) -> Any:
    """The catalogue's patient; it is loaded when a case is first asked for."""
    from pe_lab.doctor.mutants import healthy, mutants

    find = healthy if entry.word == "healthy" else mutants
    (patient,) = (p for p in find(entry.kind) if p.name == entry.name)
    return patient


def _called(subject: Any) -> Callable[..., Any]:
    """A scheme of `pe_lab` as a function of q, k and positions; others as they are."""
    if not hasattr(subject, "rotate"):
        function: Callable[..., Any] = subject
        return function
    return lambda q, k, positions: subject.rotate(q, k, positions, positions)


def word(number: int) -> str:
    """The right answer to a case."""
    return _ENTRIES[number].word


def numbers() -> tuple[int, ...]:
    """The cases that there are."""
    return tuple(_ENTRIES)
