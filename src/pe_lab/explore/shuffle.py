"""Chapter 01: self-attention without position cannot see the order of its tokens.

Vaswani et al. 2017, section 3.5, says why position must be put in.
"""

from __future__ import annotations

from typing import Any

import traitlets

from pe_lab.explore.base import Explorable
from pe_lab.explore.settings import Permutation, Sentence, Switch


class Shuffle(Explorable):
    """Self-attention f on a sentence X and on its permutation PX, output by output.

    One head, eight channels, random weights that are always the same. The same word
    has the same embedding wherever it stands.

    Move: drag a word of the lower sentence, or walk it with the arrow keys, or shuffle.
    Then turn on the causal mask; then turn it off and add positions.

    Notice: every output travels with its word, f(PX) = P f(X), so nothing in it tells
    where the word stood, and the mean over the words does not change. Two equal words
    have equal outputs. With a causal mask or with positions the outputs change.

    Args:
        sentence: 2 … 6 words of at most 10 letters, separated by spaces.
        order: which word of the sentence stands at each place, a permutation of
            0 … n−1; by default the sentence as it is.
        causal: each word sees itself and those before it.
        add_position: add the sinusoidal table to the embeddings.

    Example:
        >>> figure = pe_lab.explore.Shuffle(sentence="dog bites man", order=[2, 1, 0])
        >>> figure.causal, figure.add_position
        (False, False)
        >>> figure.close()
    """

    module = "shuffle.js"
    text = (
        "A sentence and the same sentence in another order, each word above its "
        "attention output as a column of colours. Without a mask and without positions "
        "each column is the same in both and only stands elsewhere."
    )

    sentence = Sentence("the cat eats the fish", 2, 6)
    order = Permutation()
    causal = Switch()
    add_position = Switch()

    def __init__(self, key: str | None = None, **settings: Any) -> None:
        super().__init__(key, **settings)
        self.observe(self._restore_order, "sentence")

    @traitlets.default("order")
    def _as_it_is(self) -> list[int]:
        return list(range(len(self.sentence.split())))

    @traitlets.validate("order")
    def _one_place_per_word(self, proposal: Any) -> list[int]:
        order, words = proposal["value"], len(self.sentence.split())
        if len(order) != words:
            raise ValueError(
                f"Shuffle: order needs {words} numbers, one for each word of "
                f"{self.sentence!r}, got {len(order)}."
            )
        return order

    def _restore_order(self, change: Any) -> None:
        self.order = self._as_it_is()
