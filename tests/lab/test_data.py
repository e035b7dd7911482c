"""Number pairs are right, the same every time, and split without overlap."""

import sys

import pytest

from pe_lab.lab.data import (
    chinese_characters,
    distinct_numbers,
    english_words,
    number_pairs,
)


def test_pairs_are_what_a_person_would_write():
    assert english_words(206) == ("two", "hundred", "and", "six")
    assert english_words(1_042) == ("one", "thousand", "and", "forty", "two")
    assert "".join(chinese_characters(206)) == "二百零六"
    assert "".join(chinese_characters(10)) == "十"
    assert "".join(chinese_characters(20_000_300)) == "二千万零三百"


def test_the_data_are_the_ones_behind_the_shipped_results():
    # A new num2words or cn2an may word numbers differently; then this fails first.
    assert number_pairs().fingerprint == "096abcf8781c1dbc"
    assert number_pairs(5_000).fingerprint == "8e436f304ac42eee"


def test_held_out_numbers_are_long_and_never_trained_on():
    data = number_pairs()
    assert len(data.train) == 19_966
    assert len(data.held_out) == 500
    assert not set(data.train) & set(data.held_out)
    assert min(len(words) for words, _ in data.held_out) >= 6
    short = {words for words, _ in data.train if len(words) == 1}
    assert {english_words(n) for n in range(1, 21)} <= short


def test_both_vocabularies_cover_every_pair():
    data = number_pairs(5_000)
    assert (len(data.words), len(data.characters)) == (34, 17)
    for words, numeral in data.train + data.held_out:
        assert data.words.decode(data.words.encode(words)) == list(words)
        assert data.characters.decode(data.characters.encode(numeral)) == list(numeral)


def test_each_number_of_digits_is_as_likely_until_there_are_no_more():
    numbers = distinct_numbers(4_000, digits=8, seed=1)
    assert len(set(numbers)) == 4_000
    share = [sum(len(str(n)) == d for n in numbers) for d in range(1, 9)]
    assert share[0] == 9  # all of them
    assert max(share[3:]) < 1.25 * min(share[3:])  # about 600 each, spread about 25


@pytest.mark.parametrize(
    "arguments",
    [{"count": 0}, {"count": 60, "digits": 2}, {"count": 5, "digits": 9}],
)
def test_impossible_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="at most half of the numbers"):
        number_pairs(**arguments)


def test_too_many_held_out_pairs_are_refused():
    with pytest.raises(ValueError, match=r"held_out needs at most \d+ here"):
        number_pairs(100, held_out=90)


def test_a_missing_library_is_named_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(ImportError, match=r"num2words.*pip install 'pe-lab\[lab\]'"):
        english_words(3)
