"""What the doctor found: findings, an identity, and how both are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SEVERITIES = ("wrong", "risky", "differs", "note")
SIGNS = {"wrong": "✗", "risky": "!", "differs": "≠", "note": "·"}


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

    Raises:
        ValueError: for another severity.

    Example:
        >>> print(pe_lab.doctor.Finding("D-NORM", "wrong", "lengths grow by 3 %"))
        ✗ D-NORM  lengths grow by 3 %
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
        return f"{SIGNS[self.severity]} {self.check}  {self.message}"


@dataclass(frozen=True)
class Passed:
    """A check that found nothing.

    Args:
        check: its id.
        message: what holds.
        value, tolerance: what was measured, and how much is allowed; None if it is not
            a number.

    Example:
        >>> pe_lab.doctor.Passed("D-NORM", "lengths are kept", 1e-7, 1e-6).value
        1e-07
    """

    check: str
    message: str
    value: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class NotApplicable:
    """A check that has nothing to say about this subject.

    Args:
        check: its id.
        why: the reason, in words.

    Example:
        >>> pe_lab.doctor.NotApplicable("D-GRID", "it has one axis").why
        'it has one axis'
    """

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

    Example:
        >>> found = pe_lab.doctor.Finding("D-NORM", "wrong", "lengths grow")
        >>> report = pe_lab.doctor.Report("mine", "rope", {}, (found,))
        >>> report.severity, len(report.findings), report.passed
        ('wrong', 1, ())
    """

    subject: str
    kind: str
    identity: Mapping[str, Any] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    seconds: float = 0.0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, risky, different or worth a note; the worst first.

        Returns:
            those of one severity in the order in which causes come before effects.
        """
        found = [v for v in self.verdicts if isinstance(v, Finding)]
        return tuple(sorted(found, key=lambda f: SEVERITIES.index(f.severity)))

    @property
    def passed(self) -> tuple[Passed, ...]:
        """The checks that found nothing.

        Returns:
            in the order in which they were made.
        """
        return tuple(v for v in self.verdicts if isinstance(v, Passed))

    @property
    def not_applicable(self) -> tuple[NotApplicable, ...]:
        """The checks that do not apply, with the reason.

        Returns:
            in the order in which they were tried.
        """
        return tuple(v for v in self.verdicts if isinstance(v, NotApplicable))

    @property
    def severity(self) -> str | None:
        """Of the worst finding.

        Returns:
            "wrong", "risky", "differs" or "note"; None without any finding.
        """
        return self.findings[0].severity if self.findings else None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values.

        Returns:
            what `json.dumps` can write.

        Example:
            >>> report = pe_lab.doctor.Report("mine", "rope", {"base": 1e4})
            >>> report.to_dict()["identity"]
            {'base': 10000.0}
        """
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
        lines += [f"  {name}: {shown(value)}" for name, value in self.identity.items()]
        lines.append("Findings:" if self.findings else "Nothing found.")
        for finding in self.findings:
            lines.append(
                f"  {SIGNS[finding.severity]} {finding.severity}: {finding.message}"
            )
            lines += [f"      {line}" for line in details(finding)]
        names = ", ".join(dict.fromkeys(passed.check for passed in self.passed))
        lines.append(f"Passed: {names or 'none'}")
        for other in self.not_applicable:
            lines.append(f"Not applicable: {other.check} ({other.why})")
        return "\n".join(lines)

    __repr__ = __str__

    def to_html(self) -> str:
        """The report as a piece of HTML that needs nothing else.

        Returns:
            one element, which takes the colours and letters of the page around it.

        Example:
            >>> pe_lab.doctor.Report("mine", "rope").to_html()[:23]
            '<div class="pe-report">'
        """
        from pe_lab.doctor.report_html import page

        return page(self)

    _repr_html_ = to_html


def details(finding: Finding) -> list[str]:
    """Its check and number, its mend and its chapter, a line each."""
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
        return shown(value)
    return value


def shown(value: Any) -> str:
    """A value of the identity as a report writes it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
