"""Symbols and their ids, with the three marks that sequences need: pad, begin, end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

PAD, BOS, EOS = 0, 1, 2
MARKS = ("<pad>", "<bos>", "<eos>")


def fingerprint(lines: Iterable[str]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the lines joined by newlines.

    Args:
        lines: the data, in its order.

    Returns:
        16 characters; two data sets with the same fingerprint are the same.
    """
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class Vocabulary:
    """A list of symbols; the id of a symbol is its place in the list.

    Args:
        symbols: the symbols, distinct; their order is kept.
        marks: symbols put in front of them; the default gives PAD 0, BOS 1, EOS 2.
        unknown: the symbol that stands for every symbol outside the list, if any.
    """

    def __init__(
        self,
        symbols: Iterable[str],
        marks: Sequence[str] = MARKS,
        unknown: str | None = None,
    ) -> None:
        self.symbols = [*marks, *symbols]
        self.ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        self.marks = tuple(marks)
        self.unknown = unknown
        if len(self.ids) != len(self.symbols):
            twice = next(s for s in self.symbols if self.symbols.count(s) > 1)
            raise ValueError(f"symbols need to be distinct, got {twice!r} twice.")
        if unknown is not None and unknown not in self.ids:
            raise ValueError(
                f"unknown needs to be one of the symbols, got {unknown!r}."
            )

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, symbols: Iterable[str]) -> list[int]:
        """The ids of the symbols.

        Raises:
            ValueError: for a symbol outside the vocabulary, if it has no `unknown`.
        """
        fallback = None if self.unknown is None else self.ids[self.unknown]
        found = [self.ids.get(symbol, fallback) for symbol in symbols]
        if None in found:
            raise ValueError(
                f"symbol number {found.index(None)} is not in this vocabulary of "
                f"{len(self)}; build the vocabulary from all of the data."
            )
        return [i for i in found if i is not None]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The symbols up to the first EOS, without PAD and BOS.

        Args:
            ids: token ids, for example one row of what a model wrote.
        """
        symbols: list[str] = []
        for i in ids:
            symbol = self.symbols[int(i)]
            if symbol == "<eos>" and symbol in self.marks:
                break
            if symbol not in self.marks:
                symbols.append(symbol)
        return symbols
