"""Ids and symbols go both ways, and marks never leak into what is read out."""

import pytest

from pe_lab.lab.vocabulary import BOS, EOS, PAD, Vocabulary, fingerprint


def test_marks_come_first_and_symbols_keep_their_order():
    vocabulary = Vocabulary("cab")
    assert (PAD, BOS, EOS) == (0, 1, 2)
    assert vocabulary.encode("abc") == [4, 5, 3]
    assert len(vocabulary) == 6


def test_decode_undoes_encode_and_stops_at_the_end_mark():
    vocabulary = Vocabulary("abc")
    ids = [BOS, *vocabulary.encode("cab"), PAD, EOS, *vocabulary.encode("bb")]
    assert vocabulary.decode(ids) == ["c", "a", "b"]


def test_unknown_symbols_are_refused_or_replaced():
    with pytest.raises(ValueError, match="symbol number 1 is not in this vocabulary"):
        Vocabulary("abc").encode("axb")
    assert Vocabulary("abc", marks=("?",), unknown="?").encode("axb") == [1, 0, 2]


def test_doubled_symbols_and_a_missing_stand_in_are_refused():
    with pytest.raises(ValueError, match="'a' twice"):
        Vocabulary("aba")
    with pytest.raises(ValueError, match="unknown needs to be one of the symbols"):
        Vocabulary("abc", unknown="?")


def test_fingerprints_tell_data_apart_by_content_and_order():
    assert fingerprint(["a", "b"]) == fingerprint(iter(["a", "b"]))
    assert len({fingerprint(x) for x in (["a", "b"], ["b", "a"], ["a"], ["ab"])}) == 4
