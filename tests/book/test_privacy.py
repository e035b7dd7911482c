"""Nothing in the repository tells on whose machine it was written."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.book.chapters import CHAPTERS, ROOT, expect_none

TEXT_LIMIT = 20_000_000  # bytes; no text of ours is that long

HOME = re.compile(r"(?<![\w.:/-])/(?:home|Users)/(?!you\b|user\b)\w[\w.-]*/")
WINDOWS = re.compile(r"\b[A-Z]:\\{1,2}Users\\")
FILE_URL = re.compile(r"\bfile:///(?!\S*\$)\w")
PRIVATE_IP = re.compile(
    r"(?<![\d.])(?:10(?:\.\d{1,3}){3}|192\.168(?:\.\d{1,3}){2}"
    r"|172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2})(?![\d.])"
)
PRIVATE_HOST = re.compile(r"https?://[\w.-]+\.(?:internal|intranet|corp|lan|local)\b")
ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")

EVERYWHERE = [HOME, WINDOWS, FILE_URL, PRIVATE_IP, PRIVATE_HOST]


def this_machine() -> list[re.Pattern[str]]:
    """The folder of this checkout, the home folder and the host's name."""
    names = [str(ROOT), f"{Path.home()}/"]
    host = socket.gethostname()
    if len(host) >= 8 and re.search(r"[\d.-]", host):  # not "localhost", not "laptop"
        names.append(host)
    return [re.compile(rf"(?<![\w.]){re.escape(name)}") for name in names]


def tracked_files() -> list[Path]:
    """What git would publish; everything below the root where there is no git."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    if listing.returncode:
        return [path for path in ROOT.rglob("*") if path.is_file()]
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def private_problems(text: str, patterns: list[re.Pattern[str]]) -> Iterator[str]:
    """Each private thing that `text` contains."""
    for pattern in patterns:
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"line {line}: {match[0]}"


def readable(path: Path) -> str:
    """The text of a file; empty for pictures and fonts."""
    data = path.read_bytes()[:TEXT_LIMIT]
    return "" if b"\0" in data else data.decode("utf-8", errors="replace")


def test_no_tracked_file_names_a_machine():
    patterns = EVERYWHERE + this_machine()
    files = tracked_files()
    assert files
    expect_none(
        f"{path.relative_to(ROOT)}, {problem}"
        for path in files
        for problem in private_problems(readable(path), patterns)
    )


def test_no_output_shows_a_memory_address():
    cells = [cell for c in CHAPTERS if c.notebook.exists() for cell in c.cells]
    expect_none(
        f"{cell}, {problem}"
        for cell in cells
        for problem in private_problems(cell.output_text, [ADDRESS])
    )


@pytest.mark.parametrize(
    "text",
    [
        "/home/ann/book/x.py",
        "/Users/ann/book",
        r"C:\Users\ann",
        "file:///tmp/x",
        "at 192.168.1.7",
        "http://10.0.0.3:8888",
        "https://git.corp/x",
        f"{ROOT}/notebooks",
        f"in {Path.home()}/.cache",
    ],
)
def test_a_private_thing_is_seen(text: str):
    assert list(private_problems(text, EVERYWHERE + this_machine()))


def test_an_address_is_seen():
    assert list(private_problems("<Clock object at 0x7f12ab34cd>", [ADDRESS]))


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/home/ann/x",
        "/usr/bin/chromium",
        "127.0.0.1:8000",
        "version 10.4.5",
        "book/_static/home/x",
    ],
)
def test_a_public_thing_passes(text: str):
    assert not list(private_problems(text, EVERYWHERE + this_machine()))
