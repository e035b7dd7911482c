"""Files that are whole or not there, whatever stops the process that writes them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name in the same folder, then rename it.

    Renaming replaces the old file in one step, so a reader meets the old one or the new
    one. Each writer has a name of its own: of several at once, one leaves its file.

    Raises:
        OSError: if it cannot be written; what was at `path` stays as it was.
    """
    part = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):  # the first error is the one to tell
            part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise OSError(
            f"{path} could not be written ({error.strerror or error}); what was stored "
            "before is untouched, and the same command goes on from there."
        ) from error


def refuse_other(path: Path, there: Any, here: Any, name: str = "") -> None:
    """Refuse a stored file that was made with other settings.

    Args:
        path: of the file.
        there: the settings in it.
        here: those of now; tuples are lists, as in JSON.
        name: of the setting that is compared.

    Raises:
        ValueError: names the first setting that differs.
    """
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            inner = f"{name}.{key}" if name else key
            refuse_other(path, there.get(key), here.get(key), inner)
    elif there != plain(here):
        raise ValueError(
            f"{path} was made with {name} = {there}, this run now has {plain(here)}; "
            "choose another folder with --out, or delete that one."
        )


def plain(value: Any) -> Any:
    """A value as it comes back from JSON: tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value
