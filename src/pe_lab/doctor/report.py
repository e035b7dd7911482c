"""What the doctor found: findings, an identity, and how both are shown."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SEVERITIES = ("wrong", "risky", "differs", "note")
_SIGNS = {"wrong": "✗", "risky": "!", "differs": "≠", "note": "·"}


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Args:
        check: its id, such as "D-NORM".
        severity: "wrong", "risky" (right here, wrong elsewhere), "differs" (its own
            convention) or "note".
        message: what is the matter, with the evidence, in one or two sentences.
        value, tolerance: what was measured, and how much is allowed; None if the
            finding is not a number.
        remedy: how to mend it, in one sentence.
        chapter: where the book explains it, such as "05 Rotate by k".
    """

    check: str
    severity: str
    message: str
    value: float | None = None
    tolerance: float | None = None
    remedy: str = ""
    chapter: str = ""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(
                f"severity needs one of {SEVERITIES}, got {self.severity}."
            )

    def __str__(self) -> str:
        return f"{_SIGNS[self.severity]} {self.check}  {self.message}"


@dataclass(frozen=True)
class Passed:
    """A check that found nothing, and the number that it measured."""

    check: str
    message: str
    value: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class NotApplicable:
    """A check that has nothing to say about this subject, and why."""

    check: str
    why: str


Verdict = Finding | Passed | NotApplicable


@dataclass(frozen=True)
class Report:
    """The doctor's report.

    Args:
        subject: its name.
        kind: as what it was called, see `pe_lab.diagnose`.
        identity: what it is, from the outside in: scheme, layout, base, …
        verdicts: of every check, in the order in which causes come before effects.
        seconds: wall time that the examination took.
    """

    subject: str
    kind: str
    identity: Mapping[str, Any] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    seconds: float = 0.0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, risky, different or worth a note; the worst first."""
        found = [v for v in self.verdicts if isinstance(v, Finding)]
        return tuple(sorted(found, key=lambda f: SEVERITIES.index(f.severity)))

    @property
    def passed(self) -> tuple[Passed, ...]:
        """The checks that found nothing."""
        return tuple(v for v in self.verdicts if isinstance(v, Passed))

    @property
    def not_applicable(self) -> tuple[NotApplicable, ...]:
        """The checks that do not apply, with the reason."""
        return tuple(v for v in self.verdicts if isinstance(v, NotApplicable))

    @property
    def severity(self) -> str | None:
        """Of the worst finding; None if there is none."""
        return self.findings[0].severity if self.findings else None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return {
            "subject": self.subject,
            "kind": self.kind,
            "severity": self.severity,
            "identity": {name: _plain(value) for name, value in self.identity.items()},
            "findings": [asdict(finding) for finding in self.findings],
            "passed": [asdict(passed) for passed in self.passed],
            "not_applicable": [asdict(other) for other in self.not_applicable],
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        lines = [f"{self.subject}, examined as {self.kind!r} in {self.seconds:.1f} s"]
        lines += [f"  {name}: {_short(value)}" for name, value in self.identity.items()]
        lines.append("Findings:" if self.findings else "Nothing found.")
        for finding in self.findings:
            lines.append(
                f"  {_SIGNS[finding.severity]} {finding.severity}: {finding.message}"
            )
            lines += [f"      {line}" for line in _details(finding)]
        names = ", ".join(passed.check for passed in self.passed)
        lines.append(f"Passed: {names or 'none'}")
        for other in self.not_applicable:
            lines.append(f"Not applicable: {other.check} ({other.why})")
        return "\n".join(lines)

    __repr__ = __str__

    def to_html(self) -> str:
        """The report as a piece of HTML that needs nothing else."""
        rows = "".join(
            f"<tr><td>{_SIGNS[f.severity]} {f.severity}</td><td>{f.check}</td>"
            f"<td>{html.escape(f.message)}<br><small>"
            f"{html.escape(' '.join(_details(f)))}</small></td></tr>"
            for f in self.findings
        )
        facts = "".join(
            f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(_short(value))}</td></tr>"
            for name, value in self.identity.items()
        )
        passed = ", ".join(p.check for p in self.passed) or "none"
        others = "; ".join(f"{o.check}: {o.why}" for o in self.not_applicable) or "none"
        return (
            f"<div class='pe-report'><p><b>{html.escape(self.subject)}</b>, examined "
            f"as {html.escape(self.kind)}</p><table>{facts}</table>"
            f"<table>{rows or '<tr><td>Nothing found.</td></tr>'}</table>"
            f"<p>Passed: {html.escape(passed)}</p>"
            f"<p>Not applicable: {html.escape(others)}</p></div>"
        )

    _repr_html_ = to_html


def _details(finding: Finding) -> list[str]:
    measured = ""
    if finding.value is not None:
        allowed = (
            "" if finding.tolerance is None else f", allowed {finding.tolerance:.2g}"
        )
        measured = f"measured {finding.value:.3g}{allowed}"
    where = f"{finding.check}: {measured}" if measured else finding.check
    lines = [where]
    if finding.remedy:
        lines.append(f"Mend: {finding.remedy}")
    if finding.chapter:
        lines.append(f"Explained in chapter {finding.chapter}.")
    return lines


def _plain(value: Any) -> Any:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return _short(value)
    return value


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
