"""Far and odd positions: past a table, past what a dtype can count, out of order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.rope.ladder import ladder
from pe_lab.doctor.rope.survey import (
    SAME,
    Survey,
    angles,
    angles_of,
    head_dim,
    matrices,
    random_heads,
    run,
    survey,
    turned,
    wrapped,
)
from pe_lab.doctor.rope.words import ROTATE, explained, found_wrong

# Starts of runs: past every table of a usual size, and past what 16 bits count.
_STARTS = (1000, 2**11, 2**12, 2**13, 10**4, 2**14, 2**15, 2**16, 10**5, 2**17, 10**6)


def check_ids(patient: Patient) -> Verdict:
    """Ids that are no run, as of packed or padded text, are taken one by one."""
    if earlier := explained(patient, "D-CACHE"):
        return earlier
    if patient.options.get("contiguous"):
        return NotApplicable("D-CACHE", "ids are runs, as the caller says")
    ids, token = torch.tensor([0, 1, 2, 0, 1, 5, 9]), random_heads(head_dim(patient))
    outs = [
        turned(patient, token.expand(1, 2, len(p), -1), p) for p in (ids, run(0, 10))
    ]
    if failures := [out for out in outs if isinstance(out, Failure)]:
        return NotApplicable("D-CACHE", f"ids with gaps: {failures[0]}")
    apart = float((outs[0] - outs[1][:, :, ids]).abs().max())
    if apart <= 10 * SAME:
        return Passed("D-CACHE", "each id counts for itself", apart, 10 * SAME)
    return found_wrong(
        patient,
        "D-CACHE",
        "The ids 0, 1, 2, 0, 1, 5, 9 are not taken one by one: packed documents and "
        "padded rows get the angles of a plain run.",
        severity="risky",
        value=apart,
        tolerance=10 * SAME,
        remedy="Index the table by the ids. If a call has but an offset, say "
        "contiguous=True.",
    )


def check_grid(patient: Patient) -> Verdict:
    """With several axes, every pair turns by one of them, and every axis turns some."""
    axes = getattr(patient.adapt, "ids", "row")[0]
    if not axes.isdigit():
        return NotApplicable("D-GRID", "positions have one axis")
    if earlier := explained(patient, "D-GRID"):
        return earlier
    places = 5 * torch.eye(int(axes), dtype=torch.int64)  # one step along each axis
    there = matrices(patient, places)
    found = survey(patient)
    if isinstance(there, Failure) or not found.pairs:
        return NotApplicable("D-GRID", f"places off the axes: {there}")
    turns = wrapped(angles_of(there, found.pairs) - found.phase).abs() > 1e-6
    shares = turns.sum(1).tolist()
    if bool((turns.sum(0) == 1).all()) and min(shares) > 0:
        return Passed("D-GRID", f"axes turn {shares} pairs each")
    several = int((turns.sum(0) > 1).sum())
    what = f"{several} pairs turn by several axes" if several else "an axis turns none"
    return found_wrong(
        patient,
        "D-GRID",
        f"Axes turn {shares} of {len(found.pairs)} pairs, and {what}: places that "
        "differ cannot all be told apart.",
        remedy="Share the pairs out among the axes, each to one.",
    )


def check_far(patient: Patient) -> list[Verdict]:
    """Positions to a million: exact, refused, or wrong."""
    cause = patient.facts.get("cause")
    found = survey(patient)
    if cause or not found.pairs:
        why = f"explained by {cause}" if cause else "there are no pairs"
        return [NotApplicable("D-LONG", why), NotApplicable("D-LEN", why)]
    omega = _exact(patient, found)
    worst = (0.0, 0)
    end: Verdict | None = None
    for start in (*(2**k for k in range(3, 10)), *_STARTS):
        if start * _growth(found) > 60:
            end = Passed("D-LEN", f"gains leave float32 before {start}")
            break
        there = angles(patient, run(start))
        if isinstance(there, Failure):
            end = _refuses(patient, start, there)
            break
        error = _error(there, start, omega, found)
        if not error <= _plain(start):
            return _bad(patient, start, there, omega, error)
        worst = max(worst, (error, start))
    return [_accuracy(worst), end or Passed("D-LEN", "positions to 10⁶ are taken")]


def _growth(found: Survey) -> float:
    """By how much the logarithm of a gain changes per position, as xPos has it."""
    return float((found.gain[-1] / found.gain[0]).log().abs().max() / 7)


def _exact(patient: Patient, found: Survey) -> Tensor:
    """The ladder's own frequencies if they were recognised, else those measured."""
    named = ladder(patient)
    sign = found.omega.sign()
    near = named["error"] <= 1e-5 and named["ladder"].shape == found.omega.shape
    return named["ladder"] * sign if near else found.omega


def _error(there: Tensor, start: int, omega: Tensor, found: Survey) -> float:
    wanted = run(start)[:, None].double() * omega + found.phase
    return float(wrapped(there - wanted).abs().max().nan_to_num(10.0))


def _plain(position: int) -> float:
    """Radians that float32 angles are off by: some roundings of p·ω ≤ p."""
    return 4e-5 + 6 * position * 2.0**-24


def _accuracy(worst: tuple[float, int]) -> Verdict:
    error, start = worst
    if error <= 1e-4:
        return Passed(
            "D-LONG", "angles are exact as far as they were taken", error, 1e-4
        )
    return Finding(
        "D-LONG",
        "note",
        f"At position {start} an angle is off by {error:.2g} radians, as products in "
        "float32 are.",
        value=error,
        tolerance=1e-4,
        remedy="Make angles in float64, and round cosine and sine.",
        chapter=ROTATE,
    )


def _refuses(patient: Patient, start: int, failure: Failure) -> Verdict:
    """A refusal is right, unless a long input reaches that position."""
    if start <= 20000:
        long = angles(patient, run(0, start + 4))
        if not isinstance(long, Failure):
            return found_wrong(
                patient,
                "D-LEN",
                f"Position {start} is refused in a short input ({failure}), and taken "
                "in a long one: the bound is checked against the chunk, not its end.",
                value=float(start),
                remedy="Compare the largest id with the size of the table.",
            )
    return Passed("D-LEN", f"position {start} is refused: {failure}")


def _bad(
    patient: Patient, start: int, there: Tensor, omega: Tensor, error: float
) -> list[Verdict]:
    """Past a table, positions are others; in few digits, only rounded."""
    first = _first_bad(patient, start // 2, start, omega)
    beyond = angles(patient, run(2 * first + 1))
    how = "" if isinstance(beyond, Failure) else _how(patient, first, beyond, omega)
    if how:
        finding = found_wrong(
            patient,
            "D-LEN",
            f"From about position {first} on, tokens are turned wrongly, without an "
            f"error: position {2 * first + 1} {how}.",
            value=float(first),
            remedy="Refuse positions past the table, or compute the angles.",
        )
    else:
        finding = found_wrong(
            patient,
            "D-LONG",
            f"Angles are off by {error:.2g} radians at position {start}, wrong from "
            f"about {first} on: positions or angles are rounded to few digits.",
            value=error,
            tolerance=_plain(start),
            remedy="Make angles in float32 or wider, from integer positions.",
        )
    return [finding]


def _first_bad(patient: Patient, good: int, bad: int, omega: Tensor) -> int:
    found = survey(patient)
    while bad - good > 1:
        middle = (good + bad) // 2
        there = angles(patient, torch.tensor([middle]))
        fine = isinstance(there, Tensor)
        if fine:
            wanted = middle * omega + found.phase
            fine = float(wrapped(there - wanted).abs().max()) <= _plain(middle)
        good, bad = (middle, bad) if fine else (good, middle)
    return bad


def _how(patient: Patient, first: int, beyond: Tensor, omega: Tensor) -> str:
    """What happens beyond the last good position; "" if angles are only rounded."""
    if not bool(beyond.isfinite().all()):
        return "gives NaN"
    if float(beyond.abs().max()) <= SAME:
        return "is not turned at all"
    for other in (first - 1, 1, 0):
        there: Any = angles(patient, torch.tensor([other]))
        alike = isinstance(there, Tensor) and (there[0] - beyond[0]).abs().max() <= SAME
        if alike:
            return f"is turned as position {other}"
    slow = (omega.abs() * (2 * first + 4) < 2) & (omega != 0)
    if not bool(slow.any()):
        return ""
    i = int(slow.nonzero()[0])
    seen = float(wrapped(beyond[0, i] - survey(patient).phase[i]) / omega[i])
    far = abs(seen / (2 * first + 1) - 1) > 0.05
    return f"is turned as position {seen:.4g} would be" if far else ""
