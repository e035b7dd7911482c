"""Subwords lose no text, are the same every time, and join what occurs most often."""

import subprocess
import sys
from collections import Counter

import pytest

from pe_lab.lab import subwords
from pe_lab.lab.text import Text, load_text

TEXT = Text("mine", "low lower lowest\nnew newer newest\n" * 5, "slow naïve—\n", "")


@pytest.fixture(scope="module")
def topics():
    return load_text("topics")


def joined(words, joins):
    """Byte-pair encoding written again, on characters and by counting everything."""
    pieces = {word: list(word) for word in words}
    made = []
    for _ in range(joins):
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:], strict=False):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: pairs[pair])
        made.append("".join(best))
        for word, old in pieces.items():
            new, i = [], 0
            while i < len(old):
                step = 2 if tuple(old[i : i + 2]) == best else 1
                new.append("".join(old[i : i + step]))
                i += step
            pieces[word] = new
    return made


def test_joins_are_those_of_the_algorithm():
    """Words chosen so that no two pairs ever occur equally often."""
    text = Text("mine", "ab" + " ab" * 8 + " abc" * 4 + " abcd" * 2, "", "")
    words = {"ab": 1, "Ġab": 8, "Ġabc": 4, "Ġabcd": 2}
    pieces = subwords.learn(text, 5 + 4)
    assert pieces.symbols[:5] == ["a", "b", "c", "d", "Ġ"]
    assert pieces.symbols[5:] == joined(words, 4) == ["ab", "Ġab", "Ġabc", "Ġabcd"]


def test_nothing_is_lost(topics):
    pieces = subwords.learn(topics, 600)
    assert len(pieces) == 600
    for part in (topics.train, topics.held_out):
        ids = pieces.encode(part)
        assert pieces.decode(ids) == part
        assert min(ids) >= 0 and max(ids) < 600
        assert len(ids) < 0.6 * len(part)  # 600 subwords: some 2.2 characters each


def test_characters_of_the_held_out_part_are_known():
    pieces = subwords.learn(TEXT, 40)
    assert pieces.decode(pieces.encode(TEXT.held_out)) == TEXT.held_out


def test_only_the_training_part_is_counted():
    pieces = subwords.learn(Text("mine", "ab ab", "xyxyxyxyxy", ""), 6)
    assert pieces.symbols == ["a", "b", "x", "y", "Ġ", "ab"]


def test_the_same_text_gives_the_same_in_another_process(topics):
    """Whatever the number of threads: ties are broken by the symbols alone."""
    code = (
        "from pe_lab.lab import subwords, text;"
        "print(subwords.learn(text.load_text('topics'), 600).fingerprint)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={"TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == subwords.learn(topics, 600).fingerprint
    assert subwords.learn(topics, 601).fingerprint != other.stdout.strip()


def test_unknown_characters_and_too_small_sizes_are_refused():
    with pytest.raises(ValueError, match="needs characters that these subwords"):
        subwords.learn(TEXT, 40).encode("quiz")
    with pytest.raises(ValueError, match="size needs .* So many bytes"):
        subwords.learn(TEXT, 5)
