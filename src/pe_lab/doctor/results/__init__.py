"""Stored examinations: the doctor's confusion matrix, and what it found in libraries.

A file `NAME.json` beside this one holds a date, versions of libraries, and its rows;
`confusion` has "outcomes", the fields of `pe_lab.doctor.confusion.Outcome`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pe_lab import refuse
from pe_lab.doctor.confusion import Outcome
from pe_lab.provenance import provenance

FOLDER = Path(__file__).parent
_LIBRARIES = ("transformers", "x-transformers")


def names() -> tuple[str, ...]:
    """The stored examinations.

    Returns:
        their names, sorted.
    """
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def load(name: str) -> dict[str, Any]:
    """One stored examination.

    Args:
        name: "confusion", or another of `names()`.

    Returns:
        the file's content.

    Raises:
        ValueError: if there is no such file; it names those that there are.
    """
    path = FOLDER / f"{refuse.one_of('name', name, names())}.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def save_outcomes(outcomes: Iterable[Outcome], path: Path | None = None) -> Path:
    """Store what came of the patients, with the date and the versions.

    Args:
        outcomes: of `pe_lab.doctor.confusion.outcomes()`.
        path: of the file, by default the one that is shipped.

    Returns:
        the path.
    """
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": _versions(),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    path = path or FOLDER / "confusion.json"
    text = json.dumps(content, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _versions() -> dict[str, str]:
    """Of this package, of what it stands on, and of the libraries with patients."""
    made = provenance()
    found = {"pe_lab": made.pe_lab, "python": made.python, "torch": made.torch}
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
