"""Strings of digits to copy, reverse, sort or add: trained on short, tested on long.

A decoder reads `BOS x SEP y EOS` and is asked for y and EOS, each from all that stands
before it. Lengths are drawn evenly, and every string is new. Short strings are few, so
a trained model has met most of them; strings longer than the trained ones, none.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator

from pe_lab import refuse

from .tasks import IGNORE, Batch, Task, entropy, padded
from .vocabulary import BOS, EOS, PAD, Vocabulary

SYMBOLS = Vocabulary("=0123456789+")
SEP = SYMBOLS.ids["="]

Rule = Callable[..., tuple[str, str]]  # one or two strings of n digits → x, y


def string_batch(pairs: list[tuple[str, str]], length: int = 0) -> Batch:
    """Pairs (x, y) as a batch: BOS x SEP y is read, y EOS is asked, shifted by one.

    Args:
        pairs: of strings over the digits and `+`.
        length: the least width; shorter rows end in PAD, where nothing is asked.

    Returns:
        the `Batch`.

    Raises:
        ValueError: for other characters.

    Example:
        >>> batch = pe_lab.lab.strings.string_batch([("12", "21")])
        >>> batch.inputs, batch.targets
        (tensor([[1, 5, 6, 3, 6, 5]]), tensor([[-100, -100, -100,    6,    5,    2]]))
    """
    rows = [[BOS, *SYMBOLS.encode(x), SEP, *SYMBOLS.encode(y), EOS] for x, y in pairs]
    asked = [
        [IGNORE] * (len(x) + 1) + row[len(x) + 2 :]
        for (x, _), row in zip(pairs, rows, strict=True)
    ]
    return Batch(
        padded([row[:-1] for row in rows], PAD, length),
        padded(asked, IGNORE, length),
    )


def _task(name: str, rule: Rule, operands: int, shortest: int, longest: int) -> Task:
    """A decoder's task; the guess is measured on 10 000 strings, good to 0.01 nats."""
    shortest = refuse.whole("shortest", shortest)
    longest = refuse.whole("longest", longest, shortest, "It is no less than shortest.")

    def draw(batch_size: int, generator: Generator) -> Batch:
        sizes = (batch_size, operands, longest)
        lengths = torch.randint(
            shortest, longest + 1, (batch_size,), generator=generator
        )
        digits = torch.randint(10, sizes, generator=generator)
        return string_batch(
            [
                rule(*("".join(map(str, row[:n])) for row in rows))
                for rows, n in zip(digits.tolist(), lengths.tolist(), strict=True)
            ]
        )

    targets = draw(10_000, Generator().manual_seed(0)).targets
    guess = entropy(targets[targets != IGNORE])
    return Task(name, "decoder", len(SYMBOLS), len(SYMBOLS), guess, draw, draw)


def copy(shortest: int = 1, longest: int = 8) -> Task:
    """Write x again.

    Args:
        shortest, longest: digits in x, each number of them as likely as another.

    Returns:
        the `Task`; its batches are all new.

    Raises:
        TypeError, ValueError: unless 1 ≤ shortest ≤ longest.
    Source: the task is one of Kazemnejad et al. 2023.

    Example:
        >>> batch = pe_lab.lab.strings.copy(3, 3).draw(5, torch.Generator())
        >>> torch.equal(batch.inputs[:, 1:4], batch.inputs[:, 5:])
        True
    """
    return _task("copy", lambda x: (x, x), 1, shortest, longest)


def reverse(shortest: int = 1, longest: int = 8) -> Task:
    """Write x from its end to its beginning.

    Args:
        shortest, longest: as for `copy`.

    Returns:
        the `Task`; its batches are all new.

    Raises:
        TypeError, ValueError: unless 1 ≤ shortest ≤ longest.
    Source: the task is one of Kazemnejad et al. 2023.

    Example:
        >>> batch = pe_lab.lab.strings.reverse(3, 3).draw(5, torch.Generator())
        >>> torch.equal(batch.inputs[:, 1:4].flip(1), batch.inputs[:, 5:])
        True
    """
    return _task("reverse", lambda x: (x, x[::-1]), 1, shortest, longest)


def sort(shortest: int = 1, longest: int = 8) -> Task:
    """Write the digits of x from the smallest to the largest, as often as they occur.

    Args:
        shortest, longest: as for `copy`.

    Returns:
        the `Task`; its batches are all new.

    Raises:
        TypeError, ValueError: unless 1 ≤ shortest ≤ longest.
    Source: the task is one of Kazemnejad et al. 2023, there with other symbols too.

    Example:
        >>> batch = pe_lab.lab.strings.sort(3, 3).draw(5, torch.Generator())
        >>> torch.equal(batch.inputs[:, 1:4].sort(dim=1).values, batch.inputs[:, 5:])
        True
    """
    return _task("sort", lambda x: (x, "".join(sorted(x))), 1, shortest, longest)


def addition(shortest: int = 1, longest: int = 8, *, units_first: bool = True) -> Task:
    """Add two numbers of n digits each; the sum has n + 1, leading zeros kept.

    x is `a+b`, both written as usual. The sum is written from its units on by default,
    so that a carry goes the way the model writes.

    Args:
        shortest, longest: digits in each number.
        units_first: whether the sum is reversed; otherwise it is written as usual.

    Returns:
        the `Task`; its batches are all new.

    Raises:
        TypeError, ValueError: unless 1 ≤ shortest ≤ longest.
    Source: the task is one of Kazemnejad et al. 2023.

    Example:
        >>> batch = pe_lab.lab.strings.addition(2, 2).draw(1, torch.Generator())
        >>> batch.inputs.shape  # BOS, two digits, +, two digits, SEP, three digits
        torch.Size([1, 10])
    """
    units_first = refuse.flag("units_first", units_first)

    def rule(a: str, b: str) -> tuple[str, str]:
        total = str(int(a) + int(b)).zfill(len(a) + 1)
        return f"{a}+{b}", total[::-1] if units_first else total

    return _task("addition", rule, 2, shortest, longest)


TASKS: dict[str, Callable[[int, int], Task]] = {
    "copy": copy,
    "reverse": reverse,
    "sort": sort,
    "addition": addition,
}
