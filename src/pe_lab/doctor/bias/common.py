"""What the checks of a bias share: findings, sizes, how far two biases are apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from pe_lab.doctor.bias.profile import LOOSE, Profile, by_ids, centred, read
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Check, Patient
from pe_lab.doctor.report import Finding, NotApplicable, Verdict

CHAPTER = "06 Score position against position"
# of a probability. bfloat16 holds −slope·distance to 2^-9 of its size, which moves
# probabilities by 2e-4, and weights of a few units by 1e-2; slope·j moves them by 0.4
MOVED = 0.03


def found(
    patient: Patient,
    check: str,
    severity: str,
    message: str,
    remedy: str,
    value: float | None = None,
    tolerance: float | None = None,
) -> Finding:
    """A finding; what is wrong explains what would only repeat it."""
    if severity in ("wrong", "risky"):
        patient.facts.setdefault("cause", check)
    return Finding(check, severity, message, value, tolerance, remedy, CHAPTER)


def seen_of(patient: Patient) -> Profile:
    """What `identify` read."""
    seen = patient.facts["profile"]
    assert isinstance(seen, Profile)
    return seen


def needs(check_id: str, *, sound: bool = True) -> Callable[[Check], Check]:
    """Skip a check where nothing could be read or, if sound, where a cause is known."""

    def wrap(check: Check) -> Check:
        @wraps(check)
        def checked(patient: Patient) -> Verdict | list[Verdict]:
            if not isinstance(patient.facts["profile"], Profile):
                return NotApplicable(check_id, "no square could be read")
            if sound and "cause" in patient.facts:
                return NotApplicable(check_id, f"explained by {patient.facts['cause']}")
            return check(patient)

        return checked

    return wrap


def small(patient: Patient) -> int:
    """A length that is quick to ask for, and that the patient can be asked for."""
    return min(9, seen_of(patient).near.shape[-1])


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference of two biases, of the size of the second, masks apart."""
    if a.shape != b.shape:
        return math.inf
    a, b = (t.masked_fill((a < -1e4) | (b < -1e4), 0.0) for t in (a, b))
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))


def starts_at_first(patient: Patient) -> bool:
    """Whether queries count from the first key when there are fewer of them."""
    size = small(patient)
    few, square = read(patient, 3, size), read(patient, size, size)
    if by_ids(patient) or isinstance(few, Failure) or isinstance(square, Failure):
        return False
    start = few - few[:, torch.arange(3), torch.arange(3)][..., None]
    return (
        apart(start, centred(square)[:, :3])
        <= LOOSE
        < apart(centred(few), centred(square)[:, -3:])
    )


def diagonals_agree(level: Tensor) -> bool:
    """Whether each diagonal at or below the main one has one number."""
    spread = float(level.max() - level.min())
    size = level.shape[-1]
    rows = [level.diagonal(o, 1, 2) for o in range(1 - size, size)]
    return spread > 0 and all(
        float((d.amax(1) - d.amin(1)).max()) <= LOOSE * spread for d in rows
    )


def in_words(axes: str) -> str:
    """Letters of axes in words."""
    names = {"h": "heads", "q": "queries", "k": "keys", "1": "1"}
    return ", ".join(names[a] for a in axes)
