"""What the checks of rotations share: findings that explain later ones."""

from __future__ import annotations

from typing import Any

from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable

BREAK = "01 Break the symmetry"
ROTATE = "05 Rotate by k"
SCORE = "06 Score position against position"


def found_wrong(
    patient: Patient,
    check: str,
    message: str,
    *,
    severity: str = "wrong",
    value: float | None = None,
    tolerance: float | None = None,
    remedy: str = "",
    chapter: str = ROTATE,
) -> Finding:
    """A finding, remembered as the cause, which later checks need not repeat."""
    patient.facts.setdefault("cause", check)
    return Finding(check, severity, message, value, tolerance, remedy, chapter)


def explained(
    patient: Patient, check: str, *, but: tuple[str, ...] = ()
) -> NotApplicable | None:
    """Not applicable, if an earlier finding says it all; `but` do not."""
    cause = patient.facts.get("cause")
    if cause is None or cause in but:
        return None
    return NotApplicable(check, f"explained by {cause}")


def expected(patient: Patient) -> dict[str, Any]:
    """What the caller says that the identity should be."""
    return dict(patient.options.get("expected", {}))
