"""Settings of an explorable: traits that refuse a bad value with a sentence."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

import traitlets


class Whole(traitlets.Int):  # type: ignore[type-arg]
    """A whole number from `low` to `high`, in steps of `step` counted from `low`."""

    def __init__(self, default: int, low: int, high: int, step: int = 1) -> None:
        super().__init__(default)
        self.low, self.high, self.step = low, high, step
        self.tag(sync=True, setting=True)

    def validate(self, obj: Any, value: Any) -> int:
        """The value as an int, or an error that says what is needed."""
        where = f"{type(obj).__name__}: {self.name}"
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{where} needs a whole number, got {value!r}.")
        number = operator.index(value)
        if not self.low <= number <= self.high:
            raise ValueError(
                f"{where} needs a whole number from {self.low} to {self.high}, "
                f"got {number}."
            )
        if (number - self.low) % self.step:
            raise ValueError(
                f"{where} needs one of {self.low}, {self.low + self.step}, … "
                f"{self.high}, got {number}; try {number - self.step // 2}."
            )
        return number

    @property
    def bounds(self) -> list[float]:
        """What the front end needs to know to build a slider."""
        return [self.low, self.high, self.step]


class Real(traitlets.Float):  # type: ignore[type-arg]
    """A finite number from `low` to `high`."""

    def __init__(self, default: float, low: float, high: float) -> None:
        super().__init__(default)
        self.low, self.high = low, high
        self.tag(sync=True, setting=True)

    def validate(self, obj: Any, value: Any) -> float:
        """The value as a float, or an error that says what is needed."""
        where = f"{type(obj).__name__}: {self.name}"
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{where} needs a number, got {value!r}.")
        number = float(value)
        if not (math.isfinite(number) and self.low <= number <= self.high):
            raise ValueError(
                f"{where} needs a finite number from {self.low:g} to {self.high:g}, "
                f"got {number:g}."
            )
        return number

    @property
    def bounds(self) -> list[float]:
        """What the front end needs to know to build a slider."""
        return [self.low, self.high]


class Choice(traitlets.Unicode):  # type: ignore[type-arg]
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        super().__init__(words[0])
        self.words = words
        self.tag(sync=True, setting=True)

    def validate(self, obj: Any, value: Any) -> str:
        """The word, or an error that lists the words."""
        if not isinstance(value, str) or value not in self.words:
            raise ValueError(
                f"{type(obj).__name__}: {self.name} needs one of "
                f"{', '.join(map(repr, self.words))}, got {value!r}."
            )
        return value

    @property
    def bounds(self) -> list[str]:
        """What the front end needs to know to build a list."""
        return list(self.words)


class Switch(traitlets.Bool):  # type: ignore[type-arg]
    """On or off."""

    def __init__(self, default: bool = False) -> None:
        super().__init__(default)
        self.tag(sync=True, setting=True)

    def validate(self, obj: Any, value: Any) -> bool:
        """The value, or an error that says what is needed."""
        if not isinstance(value, bool):
            raise TypeError(
                f"{type(obj).__name__}: {self.name} needs True or False, got {value!r}."
            )
        return value


class Sentence(traitlets.Unicode):  # type: ignore[type-arg]
    """A few words, separated by spaces."""

    longest = 10  # characters of a word, so that it fits a phone

    def __init__(self, default: str, low: int, high: int) -> None:
        super().__init__(default)
        self.low, self.high = low, high
        self.tag(sync=True, setting=True)

    def validate(self, obj: Any, value: Any) -> str:
        """The words joined by single spaces, or an error that says what is needed."""
        where = f"{type(obj).__name__}: {self.name}"
        if not isinstance(value, str):
            raise TypeError(f"{where} needs a text, got {value!r}.")
        words = value.split()
        if not self.low <= len(words) <= self.high:
            raise ValueError(
                f"{where} needs {self.low} to {self.high} words, got {len(words)}."
            )
        too_long = [word for word in words if len(word) > self.longest]
        if too_long:
            raise ValueError(
                f"{where} needs words of at most {self.longest} letters, "
                f"got {too_long[0]!r}."
            )
        return " ".join(words)


class Permutation(traitlets.List):  # type: ignore[type-arg]
    """The numbers 0 … n−1, each once, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.tag(sync=True, setting=True)

    def validate(self, obj: Any, value: Any) -> list[int]:
        """The numbers as a list of ints, or an error that says what is needed."""
        where = f"{type(obj).__name__}: {self.name}"
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise TypeError(f"{where} needs a list of whole numbers, got {value!r}.")
        given = list(value)
        if not all(hasattr(n, "__index__") for n in given):
            raise TypeError(f"{where} needs a list of whole numbers, got {given}.")
        places = [operator.index(n) for n in given]
        if sorted(places) != list(range(len(places))):
            raise ValueError(
                f"{where} needs each of 0 … {len(places) - 1} once, got {places}."
            )
        return places
