"""Each verse has the group of its book, is on one side only, and is asked for once."""

import math

import pytest
import torch

import pe_lab
from pe_lab.lab import verses
from pe_lab.lab.tasks import IGNORE
from pe_lab.lab.training import logits_of, loss_of
from pe_lab.lab.vocabulary import PAD

PAIRS = [(f"word{i} and {'more ' * (i % 7)}", i % 3) for i in range(60)]

BOOKS = {  # the Protestant canon, written out
    "Law": "Genesis Exodus Leviticus Numbers Deuteronomy",
    "History": "Joshua Judges Ruth 1_Samuel 2_Samuel 1_Kings 2_Kings 1_Chronicles "
    "2_Chronicles Ezra Nehemiah Esther",
    "Poetry": "Job Psalms Proverbs Ecclesiastes Song_of_Solomon",
    "Major prophets": "Isaiah Jeremiah Lamentations Ezekiel Daniel",
    "Minor prophets": "Hosea Joel Amos Obadiah Jonah Micah Nahum Habakkuk Zephaniah "
    "Haggai Zechariah Malachi",
    "Gospels and Acts": "Matthew Mark Luke John Acts",
    "Letters of Paul": "Romans 1_Corinthians 2_Corinthians Galatians Ephesians "
    "Philippians Colossians 1_Thessalonians 2_Thessalonians 1_Timothy 2_Timothy Titus "
    "Philemon",
    "General letters": "Hebrews James 1_Peter 2_Peter 1_John 2_John 3_John Jude",
    "Revelation": "Revelation",
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_every_book_is_in_its_group():
    books = [
        (book.replace("_", " "), group)
        for group, row in BOOKS.items()
        for book in row.split()
    ]
    assert len(books) == 66
    found = verses.grouped([(f"{book} 1:1", book) for book, _ in books])
    names = list(verses.GROUPS)
    assert [(book, names[number]) for book, number in found] == books


def test_a_text_is_on_one_side_and_in_its_first_group():
    data = verses.split([*PAIRS, ("word3 and more more more ", 2)], held_out=10)
    both = data.train + data.held_out
    assert len(data.held_out) == 10 and len(both) == len(dict(both)) == 60
    assert dict(both) == dict(PAIRS)


def test_the_choice_depends_on_the_texts_alone():
    first, again = verses.split(PAIRS, 10), verses.split(PAIRS[::-1], 10)
    assert first.held_out == again.held_out
    assert first.fingerprint == again.fingerprint
    other = verses.split([(text, 0) for text, _ in PAIRS], 10)
    assert other.fingerprint != first.fingerprint


def test_only_training_words_are_in_the_vocabulary():
    data = verses.split(PAIRS, 10, vocabulary_size=1_000)
    assert data.words.symbols[:3] == ["<pad>", "<cls>", "<rare>"]
    known = set(data.words.symbols)
    assert not any(text.split()[0] in known for text, _ in data.held_out)
    assert all(text.split()[0] in known for text, _ in data.train)


def test_only_the_first_slot_is_asked_and_padding_is_masked():
    data = verses.split(PAIRS, 10, vocabulary_size=5)
    batch = verses.verse_batch(list(data.train), data.words, length=6)
    assert batch.inputs.shape[1] == 6
    assert (batch.inputs[:, 0] == verses.CLS).all()
    assert batch.targets[:, 0].tolist() == [group for _, group in data.train]
    assert (batch.targets[:, 1:] == IGNORE).all()
    assert torch.equal(batch.mask, batch.inputs != PAD)
    words = [len(text.split()) for text, _ in data.train]
    assert batch.mask.sum(dim=1).tolist() == [min(1 + n, 6) for n in words]


@pytest.mark.parametrize("encoding", [pe_lab.Sinusoidal(16), pe_lab.ALiBi(2), None])
def test_padding_does_not_change_what_is_said(encoding):
    """A verse alone and beside a longer one: the plain model, called by the plain loop."""
    data = verses.split(PAIRS, 10)
    torch.manual_seed(0)
    model = pe_lab.Transformer(
        len(data.words), 16, 2, 2, kind="encoder", encoding=encoding
    ).double()
    short, long = sorted(data.train, key=lambda pair: len(pair[0]))[
        :: len(data.train) - 1
    ]
    alone = verses.verse_batch([short], data.words, 48)
    both = verses.verse_batch([short, long], data.words, 48)
    assert alone.inputs.shape[1] < both.inputs.shape[1]
    got, want = logits_of(model, both)[0, 0], logits_of(model, alone)[0, 0]
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)  # sums in another order
    assert torch.isfinite(loss_of(model, both))


def test_the_guess_and_the_majority_are_those_of_the_held_out_groups():
    pairs = [(str(i), 0 if i < 40 else 1) for i in range(60)]
    data = verses.split(pairs, 59)
    zeros = sum(group == 0 for _, group in data.held_out) / 59
    assert data.majority == pytest.approx(max(zeros, 1 - zeros), abs=1e-15)
    want = -zeros * math.log(zeros) - (1 - zeros) * math.log(1 - zeros)
    assert verses.book_group(data).guess == pytest.approx(want, abs=1e-12)


def test_batches_come_from_their_side_and_a_seed_decides_them():
    data = verses.split(PAIRS, 10)
    task = verses.book_group(data)
    rare = data.words.ids["<rare>"]
    for draw, seen in ((task.draw, False), (task.draw_held_out, True)):
        batch, again = draw(40, generator(3)), draw(40, generator(3))
        assert torch.equal(batch.inputs, again.inputs)
        assert ((batch.inputs[:, 1] == rare) == seen).all()


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="held_out needs to be less than the 60"):
        verses.split(PAIRS, 60)
    with pytest.raises(ValueError, match="vocabulary_size needs"):
        verses.split(PAIRS, 5, vocabulary_size=2)
    with pytest.raises(ValueError, match="length needs"):
        verses.book_group(verses.split(PAIRS, 10), length=1)


def test_the_king_james_verses_are_asked_for_in_words(tmp_path, monkeypatch):
    monkeypatch.setenv("PE_LAB_CACHE", str(tmp_path))
    verses.kjv.cache_clear()
    with pytest.raises(FileNotFoundError, match="pe-lab fetch"):
        verses.book_group()
