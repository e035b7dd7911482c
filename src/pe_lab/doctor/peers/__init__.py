"""What the doctor finds in other libraries as they are installed: a dated table.

`python -m pe_lab.doctor.peers --output FILE.json` examines every piece of
`pe_lab.doctor.peers.catalogue` and writes what it found, with versions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pe_lab.doctor import diagnose
from pe_lab.doctor.confusion import ALARMS
from pe_lab.doctor.peers.catalogue import PEERS, Peer
from pe_lab.doctor.results import FOLDER
from pe_lab.provenance import provenance

RESULT = FOLDER / "peers.json"


@dataclass(frozen=True)
class Row:
    """What was found in a piece of a library.

    Args:
        package, version, what, kind: of the piece.
        known: its defect in words, "" without one.
        scheme: what the doctor takes it for.
        severity: of the worst finding, None without any.
        findings: check, severity and message of each.
        as_known: whether a known defect raised an alarm by one of its checks, or a
            piece without one raised none.
    """

    package: str
    version: str
    what: str
    kind: str
    known: str
    scheme: str
    severity: str | None
    findings: list[dict[str, str]]
    as_known: bool


def installed(package: str) -> str | None:
    """The version of a package, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Of the libraries that are installed, and of torch, on which they stand."""
    found = {name: installed(name) for name in dict.fromkeys(p.package for p in PEERS)}
    made = provenance()
    own = {"pe_lab": made.pe_lab, "python": made.python, "torch": made.torch}
    return own | {name: v for name, v in found.items() if v is not None}


def rows(peers: Iterable[Peer] = PEERS) -> Iterator[Row]:
    """Examine the pieces whose package is installed, one after the other."""
    for peer in peers:
        release = installed(peer.package)
        if release is not None:
            yield examine(peer, release)


def examine(peer: Peer, release: str) -> Row:
    """One piece, of a release."""
    made = peer.make()
    try:
        report = diagnose(made, kind=peer.kind, **peer.options)
    except ValueError as refused:  # it is called in another way than it was
        found = {"check": "D-SHAPE", "severity": "note", "message": str(refused)}
        return Row(
            peer.package, release, peer.what, peer.kind, peer.known, "", None, [found],
            False,
        )  # fmt: skip
    alarms = {f.check for f in report.findings if f.severity in ALARMS}
    return Row(
        peer.package,
        release,
        peer.what,
        peer.kind,
        peer.known,
        str(report.identity.get("scheme", "")),
        report.severity,
        [
            {"check": f.check, "severity": f.severity, "message": f.message}
            for f in report.findings
        ],
        bool(alarms & set(peer.finds)) if peer.finds else not alarms,
    )


def table(found: Iterable[Row]) -> dict[str, Any]:
    """The date, the versions and the rows, as they are stored."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "rows": [asdict(row) for row in found],
    }


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 if a row is not as it is known."""
    parser = argparse.ArgumentParser(prog="python -m pe_lab.doctor.peers")
    parser.add_argument("--output", type=Path, default=RESULT, metavar="FILE")
    output: Path = parser.parse_args(arguments).output
    content = table(_told(rows()))
    text = json.dumps(content, indent=1, ensure_ascii=False)
    output.write_text(text + "\n", encoding="utf-8")
    return int(not all(row["as_known"] for row in content["rows"]))


def _told(found: Iterable[Row]) -> Iterator[Row]:
    """The rows as they come, each with a line on the terminal."""
    for row in found:
        checks = ", ".join(f"{f['severity']} {f['check']}" for f in row.findings)
        sign = " " if row.as_known else "?"
        print(f"{sign} {row.package} {row.version}: {row.what}: {checks or 'nothing'}")
        yield row
