"""Tasks for small Transformers: each draws batches, and knows its loss without order.

A batch says what the model reads and what every slot should say; a slot whose target is
IGNORE is not counted in the loss.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Generator, Tensor
from torch.nn.utils.rnn import pad_sequence

from . import subwords
from .data import NumberPairs, Pair, number_pairs
from .text import Text, character_vocabulary, word_vocabulary, words_of
from .vocabulary import BOS, EOS, PAD, Vocabulary

IGNORE = -100  # what cross_entropy ignores by default


@dataclass(frozen=True)
class Batch:
    """Token ids for one step.

    Attributes:
        inputs: (B, L), what the model reads; the decoder's side where there are two.
        targets: (B, L), the id that each slot should say, or IGNORE.
        source: (B, S), what the encoder of an encoder-decoder reads; PAD at the end.
        mask: (B, L) boolean, false for padding that an encoder must not look at; None
            if it may look everywhere, as a decoder may, whose padding comes last.

    Example:
        >>> batch = pe_lab.lab.tasks.fixed_abc().draw(2, torch.Generator())
        >>> batch.inputs, batch.source is None
        (tensor([[0, 1, 2],
                [0, 1, 2]]), True)
    """

    inputs: Tensor
    targets: Tensor
    source: Tensor | None = None
    mask: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """A batch in which every tensor is changed in the same way.

        Args:
            change: of one tensor.

        Returns:
            a `Batch`; what is None stays None.
        """

        def maybe(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else change(tensor)

        ids = change(self.inputs), change(self.targets)
        return Batch(*ids, maybe(self.source), maybe(self.mask))

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device.

        Args:
            device: of torch.

        Returns:
            a `Batch`.
        """
        return self.map(lambda tensor: tensor.to(device))


Draw = Callable[[int, Generator], Batch]


@dataclass(frozen=True)
class Task:
    """What a model is trained on.

    Attributes:
        name: for people.
        kind: of Transformer: `encoder`, `decoder` or `encoder-decoder`.
        num_inputs: size of the vocabulary that is read (on the source side, if any).
        num_outputs: size of the vocabulary that is written.
        guess: nats, the loss of the best constant guess (frequencies, nothing else).
        draw: (batch_size, generator) → a training batch.
        draw_held_out: the same from data that is never trained on.

    Example:
        >>> task = pe_lab.lab.tasks.permuted_abc()
        >>> task.kind, task.num_inputs, round(task.guess, 4)  # ln 3
        ('encoder', 3, 1.0986)
    """

    name: str
    kind: str
    num_inputs: int
    num_outputs: int
    guess: float
    draw: Draw
    draw_held_out: Draw


def _fresh(
    name: str, num_inputs: int, num_outputs: int, guess: float, draw: Draw
) -> Task:
    """An encoder task whose batches are all new: held-out data are more of the same."""
    return Task(name, "encoder", num_inputs, num_outputs, guess, draw, draw)


def position(length: int = 16, vocab_size: int = 50) -> Task:
    """Say at which place you stand; the tokens are random and tell nothing.

    Args:
        length: of every sequence.
        vocab_size: of the random tokens.

    Returns:
        the `Task`; its batches are all new.

    Example:
        >>> task = pe_lab.lab.tasks.position(length=4)
        >>> task.draw(1, torch.Generator()).targets
        tensor([[0, 1, 2, 3]])
    """

    def draw(batch_size: int, generator: Generator) -> Batch:
        inputs = torch.randint(vocab_size, (batch_size, length), generator=generator)
        return Batch(inputs, torch.arange(length).expand(batch_size, length))

    return _fresh("position", vocab_size, length, math.log(length), draw)


def left_neighbour(length: int = 16, vocab_size: int = 50) -> Task:
    """Say which token stands to your left; the first slot is not asked.

    Args:
        length: of every sequence.
        vocab_size: of the random tokens.

    Returns:
        the `Task`; its batches are all new.

    Example:
        >>> batch = pe_lab.lab.tasks.left_neighbour(4).draw(2, torch.Generator())
        >>> torch.equal(batch.targets[:, 1:], batch.inputs[:, :-1]), batch.targets[0, 0]
        (True, tensor(-100))
    """

    def draw(batch_size: int, generator: Generator) -> Batch:
        inputs = torch.randint(vocab_size, (batch_size, length), generator=generator)
        targets = inputs.roll(1, dims=1)
        targets[:, 0] = IGNORE
        return Batch(inputs, targets)

    return _fresh("left-neighbour", vocab_size, vocab_size, math.log(vocab_size), draw)


def fixed_abc() -> Task:
    """Say at which place you stand in `A B C`, always in this order: a trap.

    The letter gives the place away, so a model without any position solves it.

    Returns:
        the `Task`.

    Example:
        >>> batch = pe_lab.lab.tasks.fixed_abc().draw(1, torch.Generator())
        >>> torch.equal(batch.inputs, batch.targets)
        True
    """

    def draw(batch_size: int, generator: Generator) -> Batch:
        order = torch.arange(3).expand(batch_size, 3)
        return Batch(order, order)

    return _fresh("fixed-abc", 3, 3, math.log(3), draw)


def permuted_abc() -> Task:
    """Say at which place you stand in a shuffled `A B C`: the trap, mended.

    Returns:
        the `Task`; its batches are all new.

    Example:
        >>> batch = pe_lab.lab.tasks.permuted_abc().draw(9, torch.Generator())
        >>> batch.inputs.sort(dim=1).values.unique(dim=0), batch.targets[0]
        (tensor([[0, 1, 2]]), tensor([0, 1, 2]))
    """

    def draw(batch_size: int, generator: Generator) -> Batch:
        inputs = torch.rand(batch_size, 3, generator=generator).argsort(dim=1)
        return Batch(inputs, torch.arange(3).expand(batch_size, 3))

    return _fresh("permuted-abc", 3, 3, math.log(3), draw)


def _windows(ids: Tensor, size: int, batch_size: int, generator: Generator) -> Tensor:
    """(batch_size, size) windows that start anywhere in a long row of ids."""
    starts = torch.randint(len(ids) - size, (batch_size, 1), generator=generator)
    return ids[starts + torch.arange(size)]


def entropy(ids: Tensor) -> float:
    """Nats per token if only the frequencies of the tokens are known.

    Args:
        ids: (L,) token ids.

    Returns:
        −Σ p ln p over the tokens that occur.

    Example:
        >>> round(pe_lab.lab.tasks.entropy(torch.tensor([1, 2, 1, 2])), 4)  # ln 2
        0.6931
    """
    counts = torch.tensor(list(Counter(ids.tolist()).values()), dtype=torch.float64)
    share = counts / counts.sum()
    return float(-(share * share.log()).sum())


def _causal(
    name: str, vocabulary_size: int, train: Tensor, held_out: Tensor, length: int
) -> Task:
    """Say the next token of a text, seeing only what stands before it."""

    def drawing(ids: Tensor) -> Draw:
        def draw(batch_size: int, generator: Generator) -> Batch:
            rows = _windows(ids, length + 1, batch_size, generator)
            return Batch(rows[:, :-1], rows[:, 1:])

        return draw

    sizes = (vocabulary_size, vocabulary_size, entropy(held_out))
    return Task(name, "decoder", *sizes, drawing(train), drawing(held_out))


@lru_cache(maxsize=2)
def next_character(text: Text, length: int = 32) -> Task:
    """Say the next character of a text."""
    vocabulary = character_vocabulary(text)
    train, held_out = (_encoded(t, vocabulary) for t in (text.train, text.held_out))
    return _causal("next-character", len(vocabulary), train, held_out, length)


@lru_cache(maxsize=2)
def next_word(text: Text, vocabulary_size: int, length: int = 32) -> Task:
    """Say the next word or punctuation mark of a text; rare words are one symbol."""
    vocabulary = word_vocabulary(text, vocabulary_size)
    parts = (words_of(part) for part in (text.train, text.held_out))
    train, held_out = (_encoded(part, vocabulary) for part in parts)
    return _causal("next-word", len(vocabulary), train, held_out, length)


@lru_cache(maxsize=2)
def next_token(text: Text, vocabulary_size: int, length: int = 32) -> Task:
    """Say the next token of a text, cut into subwords by byte-pair encoding."""
    pieces = subwords.learn(text, vocabulary_size)
    train, held_out = (
        torch.tensor(pieces.encode(t)) for t in (text.train, text.held_out)
    )
    return _causal("next-token", len(pieces), train, held_out, length)


def _encoded(symbols: str | list[str], vocabulary: Vocabulary) -> Tensor:
    """The ids of a text's symbols as one long row."""
    return torch.tensor(vocabulary.encode(symbols))


def _masked(
    name: str,
    vocabulary_size: int,
    train: Tensor,
    held_out: Tensor,
    length: int,
    rate: float,
) -> Task:
    """Say the tokens that were covered, from those on both sides."""
    cover = vocabulary_size  # the id of the mask: one more than those of the text

    def drawing(ids: Tensor) -> Draw:
        def draw(batch_size: int, generator: Generator) -> Batch:
            rows = _windows(ids, length, batch_size, generator)
            covered = torch.rand(rows.shape, generator=generator) < rate
            inputs = rows.masked_fill(covered, cover)
            return Batch(inputs, rows.masked_fill(~covered, IGNORE))

        return draw

    sizes = (cover + 1, cover, entropy(held_out))
    return Task(name, "encoder", *sizes, drawing(train), drawing(held_out))


@lru_cache(maxsize=2)
def masked_character(text: Text, length: int = 32, rate: float = 0.15) -> Task:
    """Say the characters that were covered, from those on both sides."""
    vocabulary = character_vocabulary(text)
    train, held_out = (_encoded(t, vocabulary) for t in (text.train, text.held_out))
    return _masked("masked-character", len(vocabulary), train, held_out, length, rate)


@lru_cache(maxsize=2)
def masked_token(
    text: Text, vocabulary_size: int, length: int = 32, rate: float = 0.15
) -> Task:
    """Say the subwords that were covered, from those on both sides."""
    pieces = subwords.learn(text, vocabulary_size)
    train, held_out = (
        torch.tensor(pieces.encode(t)) for t in (text.train, text.held_out)
    )
    return _masked("masked-token", len(pieces), train, held_out, length, rate)


def padded(rows: list[list[int]], filler: int, length: int = 0) -> Tensor:
    """Rows of ids as one matrix, filled up to the longest row, or to `length`.

    Args:
        rows: of ids.
        filler: the id that fills up.
        length: the least width.

    Returns:
        (rows, width) int64.

    Example:
        >>> pe_lab.lab.tasks.padded([[5, 6, 7], [8]], filler=0)
        tensor([[5, 6, 7],
                [8, 0, 0]])
    """
    matrix = pad_sequence([torch.tensor(r) for r in rows], True, filler)
    missing = max(0, length - matrix.shape[1])
    return torch.nn.functional.pad(matrix, (0, missing), value=filler)


def number_batch(pairs: list[Pair], data: NumberPairs, length: int = 0) -> Batch:
    """Pairs as a batch: words + EOS are read; BOS + numeral in, numeral + EOS out.

    Args:
        pairs: which ones.
        data: whose vocabularies are used.
        length: the least width of all three matrices; 0 for no more than is needed.

    Returns:
        the `Batch`.

    Example:
        >>> pair = (("six",), ("六",))
        >>> data = pe_lab.lab.data.split([pair], set())
        >>> batch = pe_lab.lab.tasks.number_batch([pair], data)
        >>> batch.source, batch.inputs, batch.targets
        (tensor([[3, 2]]), tensor([[1, 3]]), tensor([[3, 2]]))
    """
    sources = [[*data.words.encode(words), EOS] for words, _ in pairs]
    numerals = [data.characters.encode(numeral) for _, numeral in pairs]
    return Batch(
        padded([[BOS, *numeral] for numeral in numerals], PAD, length),
        padded([[*numeral, EOS] for numeral in numerals], IGNORE, length),
        padded(sources, PAD, length),
    )


def numbers(data: NumberPairs | None = None) -> Task:
    """Translate number words into a Chinese numeral.

    Args:
        data: the pairs; by default the 20 466 of the book.

    Returns:
        the `Task`.

    Raises:
        ImportError: by default, if num2words or cn2an is missing.

    Example:
        >>> pairs = [(("one",), ("一",)), (("two",), ("二",))]
        >>> task = pe_lab.lab.tasks.numbers(pe_lab.lab.data.split(pairs, {1}))
        >>> task.kind, task.num_inputs, task.num_outputs
        ('encoder-decoder', 5, 5)
    """
    data = data or number_pairs()

    def drawing(pairs: tuple[Pair, ...]) -> Draw:
        def draw(batch_size: int, generator: Generator) -> Batch:
            chosen = torch.randint(len(pairs), (batch_size,), generator=generator)
            return number_batch([pairs[i] for i in chosen.tolist()], data)

        return draw

    written = [c for _, numeral in data.held_out for c in (*numeral, "<eos>")]
    guess = entropy(_encoded(written, data.characters))
    sizes = (len(data.words), len(data.characters), guess)
    draws = (drawing(data.train), drawing(data.held_out))
    return Task("numbers", "encoder-decoder", *sizes, *draws)
