"""Byte-pair encoding of a text, learned by the library tokenizers when it is asked for.

The pair of neighbours that occurs most often becomes one symbol, again and again, until
the vocabulary is full (Sennrich et al. 2016). Text is first cut into words and spaces
as GPT-2 cuts it, and bytes are written as letters (a space is `Ġ`), so no text is lost.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from pe_lab import refuse

from .data import need
from .text import Text
from .vocabulary import fingerprint

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Subwords:
    """Pieces of words, and the way from a text to them and back.

    Args:
        tokenizer: a trained byte-level one, of the library tokenizers.

    Example:
        >>> text = pe_lab.lab.text.Text("mine", "to be or not to be, ", "to be", "")
        >>> pieces = pe_lab.lab.subwords.learn(text, size=12)
        >>> pieces.symbols[8:]  # after the characters of the text
        ['be', 'to', 'Ġbe', 'no']
        >>> pieces.decode(pieces.encode("to be, or not"))
        'to be, or not'
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        ids = tokenizer.get_vocab()
        self.symbols: list[str] = sorted(ids, key=lambda symbol: ids[symbol])

    def __len__(self) -> int:
        return len(self.symbols)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the symbols in the order in which they were made."""
        return fingerprint(self.symbols)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, cut at its lines first.

        Args:
            text: any; characters that were not in the text of `learn` are refused.

        Returns:
            a list of ids.

        Raises:
            ValueError: for a text with other characters.
        """
        lines = self.tokenizer.encode_batch_fast(text.splitlines(keepends=True))
        ids = [i for line in lines for i in line.ids]
        if self.decode(ids) != text:
            raise ValueError(
                "the text needs characters that these subwords were learned from; "
                "learn them from all of the data."
            )
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of some ids.

        Args:
            ids: of `encode`, or what a model wrote.

        Returns:
            a string; a character of which only some bytes are there becomes `\\ufffd`.
        """
        return str(self.tokenizer.decode(ids))


@lru_cache(maxsize=4)
def learn(text: Text, size: int) -> Subwords:
    """Learn subwords from the training part of a text; some 2 CPU seconds for 4 MB.

    Args:
        text: whose characters, of both parts, are the first symbols.
        size: symbols in all; fewer if there are no more pairs to join.

    Returns:
        the `Subwords`; the same text gives the same.

    Raises:
        TypeError, ValueError: if the characters alone are more than `size`.
        ImportError: if tokenizers is missing.
    Source: Sennrich et al. 2016; on bytes, Radford et al. 2019.

    Example:
        >>> text = pe_lab.lab.text.Text("mine", "a banana and a bandana", "", "")
        >>> pe_lab.lab.subwords.learn(text, size=7).symbols  # a, b, d, n and a space
        ['a', 'b', 'd', 'n', 'Ġ', 'an', 'ban']
    """
    library = need("tokenizers")
    cut = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces = (cut.pre_tokenize_str(c) for c in sorted(set(text.train + text.held_out)))
    letters = sorted(
        {letter for found in pieces for word, _ in found for letter in word}
    )
    size = refuse.whole("size", size, len(letters), "So many bytes are in the text.")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(text.train.splitlines(keepends=True), trainer)
    return Subwords(tokenizer)
