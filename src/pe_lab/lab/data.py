"""Number words and their Chinese numerals, made by num2words and cn2an.

`two hundred and six` → `二百零六`: a small translation task with a right answer for
every sentence, in which order decides (`six thousand two` is not `two thousand six`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import ModuleType

from .vocabulary import Vocabulary, fingerprint

Pair = tuple[tuple[str, ...], tuple[str, ...]]  # (English words, Chinese characters)


@dataclass(frozen=True)
class NumberPairs:
    """Pairs to train on, pairs held out, and the vocabularies of both sides.

    Attributes:
        train: (words, characters) pairs in a shuffled order.
        held_out: pairs whose numbers are not in `train`, each of six words or more.
        words, characters: the vocabularies, with PAD, BOS and EOS in front.
        fingerprint: of all pairs in their order; it changes with the library versions
            if, and only if, the data change.

    Example:
        >>> pair = (("forty", "two"), ("四", "十", "二"))
        >>> data = pe_lab.lab.data.split([pair], set())
        >>> data.words.encode(["two", "forty"])  # after PAD, BOS and EOS
        [4, 3]
    """

    train: tuple[Pair, ...]
    held_out: tuple[Pair, ...]
    words: Vocabulary
    characters: Vocabulary
    fingerprint: str


def need(module: str) -> ModuleType:
    """Import an optional module or say how to get it.

    Args:
        module: its import name.

    Returns:
        the module.

    Raises:
        ImportError: with the command that installs the laboratory's packages.

    Example:
        >>> pe_lab.lab.data.need("sacrebleau")
        Traceback (most recent call last):
        ImportError: pe_lab.lab needs sacrebleau for this; pip install 'pe-lab[lab]' ...
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"pe_lab.lab needs {module} for this; pip install 'pe-lab[lab]' brings it."
        ) from error


def english_words(number: int) -> tuple[str, ...]:
    """The words of a number, hyphens and commas taken as gaps.

    Args:
        number: a whole number.

    Returns:
        a tuple of words.

    Raises:
        ImportError: if num2words is missing.

    Example:
        >>> pe_lab.lab.data.english_words(6042)
        ('six', 'thousand', 'and', 'forty', 'two')
    """
    text: str = need("num2words").num2words(number)
    return tuple(text.replace("-", " ").replace(",", " ").split())


def chinese_characters(number: int) -> tuple[str, ...]:
    """The characters of a number's Chinese numeral.

    Args:
        number: a whole number.

    Returns:
        a tuple of characters.

    Raises:
        ImportError: if cn2an is missing.

    Example:
        >>> pe_lab.lab.data.chinese_characters(6042)
        ('六', '千', '零', '四', '十', '二')
    """
    return tuple(need("cn2an").an2cn(number))


def distinct_numbers(count: int, digits: int, seed: int) -> list[int]:
    """Distinct numbers, first the number of digits drawn evenly, then the number.

    Args:
        count: how many.
        digits: the largest number of digits; the smallest is 1.
        seed: of Python's generator, whose `random()` is the same in every version.

    Returns:
        the numbers in the order in which they were drawn.

    Example:
        >>> numbers = pe_lab.lab.data.distinct_numbers(50, 3, seed=0)
        >>> len(set(numbers)), 1 <= min(numbers), max(numbers) < 1000
        (50, True, True)
    """
    generator = random.Random(seed)
    seen: dict[int, None] = {}
    while len(seen) < count:
        low = 10 ** int(generator.random() * digits)
        seen[low + int(generator.random() * 9 * low)] = None
    return list(seen)


@lru_cache(maxsize=2)
def number_pairs(
    count: int = 20_466, *, held_out: int = 500, digits: int = 8, seed: int = 0
) -> NumberPairs:
    """Number words with their Chinese numerals, split into training and held-out pairs.

    Short numbers all stay in the training pairs: a model that never saw `seven` alone
    would fail on it for a reason that has nothing to do with position.

    Args:
        count: pairs in all.
        held_out: pairs held out, the first ones with at least six English words.
        digits: numbers have 1 to `digits` digits, each length as likely as another.
        seed: of the draw.

    Returns:
        The pairs; the same arguments give the same pairs.

    Raises:
        ValueError: if there are not enough numbers, or too few long ones to hold out.
        ImportError: if num2words or cn2an is missing.
    """
    if not 1 <= digits <= 8 or not 1 <= count <= 10**digits // 2:
        raise ValueError(
            f"number_pairs needs 1 to 8 digits and at most half of the numbers that "
            f"have them, got digits={digits}, count={count}."
        )
    pairs = [
        (english_words(number), chinese_characters(number))
        for number in distinct_numbers(count, digits, seed)
    ]
    chosen = [i for i, (words, _) in enumerate(pairs) if len(words) >= 6][:held_out]
    if len(chosen) < held_out:
        raise ValueError(
            f"held_out needs at most {len(chosen)} here, the pairs with six words or "
            f"more, got {held_out}; ask for a larger count."
        )
    return split(pairs, set(chosen))


def split(pairs: list[Pair], chosen: set[int]) -> NumberPairs:
    """Put the chosen pairs aside and build both vocabularies from all pairs.

    Args:
        pairs: of words and characters.
        chosen: the indices of those that are held out.

    Returns:
        the `NumberPairs`.

    Example:
        >>> pairs = [(("one",), ("一",)), (("two",), ("二",))]
        >>> data = pe_lab.lab.data.split(pairs, {1})
        >>> data.train, data.held_out, len(data.words)
        (((('one',), ('一',)),), ((('two',), ('二',)),), 5)
    """
    return NumberPairs(
        train=tuple(pair for i, pair in enumerate(pairs) if i not in chosen),
        held_out=tuple(pair for i, pair in enumerate(pairs) if i in chosen),
        words=Vocabulary(sorted({word for words, _ in pairs for word in words})),
        characters=Vocabulary(sorted({c for _, numeral in pairs for c in numeral})),
        fingerprint=fingerprint(" ".join(w) + "\t" + "".join(c) for w, c in pairs),
    )
