"""A verse of the King James Bible, and the question which group of books it is from.

An encoder reads `CLS words`, and its first slot is asked for the group; no other slot
is, and padding is masked. The same verse in two places counts once, so that none is
trained on and held out. The choice is made by the verses' SHA-256: it depends on them
alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

import torch
from torch import Generator

from pe_lab import refuse

from .tasks import IGNORE, Batch, Draw, Task, entropy, padded
from .text import kjv_verses, most_frequent, words_of
from .vocabulary import PAD, Vocabulary, fingerprint

GROUPS = {  # name → its first book, in the order of the Bible
    "Law": "Genesis",
    "History": "Joshua",
    "Poetry": "Job",
    "Major prophets": "Isaiah",
    "Minor prophets": "Hosea",
    "Gospels and Acts": "Matthew",
    "Letters of Paul": "Romans",
    "General letters": "Hebrews",
    "Revelation": "Revelation",
}
CLS = 1  # in the place of BOS
MARKS = ("<pad>", "<cls>", "<rare>")

Verse = tuple[str, int]  # text, number of its group


@dataclass(frozen=True)
class Verses:
    """Verses to train on, and verses held out.

    Attributes:
        train, held_out: (text, number of the group) pairs, no text twice.
        words: the vocabulary of the training part, with PAD, CLS and one symbol for
            rare words in front.
        fingerprint: of all pairs in their order.

    Example:
        >>> verses = [("in the beginning", 0), ("Jesus wept .", 5), ("and he wept", 5)]
        >>> data = pe_lab.lab.verses.split(verses, held_out=1)
        >>> data.held_out, data.majority
        ((('and he wept', 5),), 1.0)
    """

    train: tuple[Verse, ...]
    held_out: tuple[Verse, ...]
    words: Vocabulary
    fingerprint: str

    @property
    def majority(self) -> float:
        """The share of the held-out verses that are from the largest group of them."""
        counts = Counter(group for _, group in self.held_out)
        return max(counts.values()) / counts.total()


def grouped(verses: list[tuple[str, str]]) -> list[Verse]:
    """Each verse with the number of its group of books.

    Args:
        verses: (place, text) pairs in the order of the Bible.

    Returns:
        (text, number) pairs; a new group begins with its first book.

    Example:
        >>> verses = [("Ruth 4:22", "a"), ("Esther 1:1", "b"), ("Job 1:1", "c")]
        >>> pe_lab.lab.verses.grouped([("Joshua 1:1", ""), *verses])
        [('', 1), ('a', 1), ('b', 1), ('c', 2)]
    """
    firsts = {book: number for number, book in enumerate(GROUPS.values())}
    number, found = 0, []
    for place, text in verses:
        number = firsts.get(place.rpartition(" ")[0], number)
        found.append((text, number))
    return found


def split(verses: list[Verse], held_out: int, vocabulary_size: int = 4096) -> Verses:
    """Take each text once, in its first place, and put some aside.

    Args:
        verses: (text, number of the group) pairs.
        held_out: how many to put aside.
        vocabulary_size: of the words, the marks included.

    Returns:
        the `Verses`, ordered by the SHA-256 of their texts.

    Raises:
        TypeError, ValueError: if that leaves no verse to train on.

    Example:
        >>> data = pe_lab.lab.verses.split([("a b", 0), ("c", 1), ("c", 8)], 1, 9)
        >>> data.train, data.held_out, data.words.symbols[3:]
        ((('a b', 0),), (('c', 1),), ['a', 'b'])
    """
    distinct = dict(reversed(verses))
    order = sorted(distinct, key=lambda text: sha256(text.encode()).digest())
    if refuse.whole("held_out", held_out) >= len(order):
        raise ValueError(
            f"held_out needs to be less than the {len(order)} distinct verses, got "
            f"{held_out}."
        )
    pairs = tuple((text, distinct[text]) for text in order)
    count = refuse.whole("vocabulary_size", vocabulary_size, len(MARKS)) - len(MARKS)
    words = (word for text in order[held_out:] for word in words_of(text))
    return Verses(
        train=pairs[held_out:],
        held_out=pairs[:held_out],
        words=Vocabulary(most_frequent(words, count), MARKS, unknown="<rare>"),
        fingerprint=fingerprint(f"{group}\t{text}" for text, group in pairs),
    )


@lru_cache(maxsize=2)
def kjv(held_out: int = 4_000, vocabulary_size: int = 4096) -> Verses:
    """The verses of the King James Bible in their nine groups.

    Args:
        held_out: verses to put aside.
        vocabulary_size: of the words, the marks included.

    Returns:
        the `Verses`; the same arguments give the same.

    Raises:
        FileNotFoundError: before the verses and their places were fetched.
        TypeError, ValueError: as for `split`.
    """
    return split(grouped(kjv_verses()), held_out, vocabulary_size)


def verse_batch(verses: list[Verse], words: Vocabulary, length: int) -> Batch:
    """Verses as a batch: CLS and the words are read, the first slot is asked.

    Args:
        verses: (text, number of the group) pairs.
        words: the vocabulary.
        length: slots at most; the end of a longer verse is cut off.

    Returns:
        the `Batch`, with its mask.

    Example:
        >>> verses = [("Jesus wept .", 5), ("in the beginning", 0)]
        >>> words = pe_lab.lab.verses.split(verses, held_out=1).words
        >>> batch = pe_lab.lab.verses.verse_batch(verses, words, length=3)
        >>> batch.targets.tolist(), batch.mask.all().item()
        ([[5, -100, -100], [0, -100, -100]], True)
    """
    rows = [[CLS, *words.encode(words_of(text))][:length] for text, _ in verses]
    inputs = padded(rows, PAD)
    targets = torch.full_like(inputs, IGNORE)
    targets[:, 0] = torch.tensor([group for _, group in verses])
    lengths = torch.tensor([len(row) for row in rows])
    return Batch(inputs, targets, mask=torch.arange(inputs.shape[1]) < lengths[:, None])


def book_group(data: Verses | None = None, length: int = 48) -> Task:
    """Say which group of books a verse is from.

    Args:
        data: the verses; by default those of `kjv`.
        length: slots at most, CLS among them; one King James verse in ten is longer.

    Returns:
        the `Task`, whose guess is the entropy of the groups; `data.majority` is the
        share of right answers that a guess can reach.

    Raises:
        FileNotFoundError: by default, before the verses were fetched.
        TypeError, ValueError: if length is not a whole number of at least 2.

    Example:
        >>> verses = [("a", 0), ("b", 1), ("c", 1), ("d", 0)]
        >>> data = pe_lab.lab.verses.split(verses, held_out=2)
        >>> task = pe_lab.lab.verses.book_group(data)
        >>> task.kind, task.num_inputs, task.num_outputs
        ('encoder', 5, 9)
    """
    data = kjv() if data is None else data
    length = refuse.whole("length", length, 2)

    def drawing(verses: tuple[Verse, ...]) -> Draw:
        def draw(batch_size: int, generator: Generator) -> Batch:
            chosen = torch.randint(len(verses), (batch_size,), generator=generator)
            rows = [verses[i] for i in chosen.tolist()]
            return verse_batch(rows, data.words, length)

        return draw

    guess = entropy(torch.tensor([group for _, group in data.held_out]))
    sizes = (len(data.words), len(GROUPS), guess)
    draws = (drawing(data.train), drawing(data.held_out))
    return Task("book-group", "encoder", *sizes, *draws)
