"""Whether a rotation is the same whatever was called before, or shares its batch.

Here a subject is compared with a copy of itself that has seen nothing, so it need not
be understood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.rope.survey import (
    SAME,
    angles,
    basis,
    head_dim,
    is_pair_call,
    matrices,
    random_heads,
    run,
    survey,
    turned,
    turned_pair,
    wrapped,
)
from pe_lab.doctor.rope.words import explained, found_wrong


def check_decoding(patient: Patient) -> Verdict:
    """Six tokens, then one at a time, are turned as ten at once."""
    if earlier := explained(patient, "D-CACHE"):
        return earlier
    full = matrices(patient, run(0, 10))
    if isinstance(full, Failure):
        return NotApplicable("D-CACHE", f"ten tokens: {full}")
    for name, starts in _PLANS.items():
        call = patient.renewed()
        for start, length in starts:
            out = matrices(patient, run(start, length), call)
            if isinstance(out, Failure):
                return _stopped(patient, name, start, out)
            apart = float((out - full[start : start + length]).abs().max())
            if not apart <= 10 * SAME:
                return _off(patient, name, start, out, apart)
    return _stored_keys(patient) or Passed("D-CACHE", "one at a time is as all at once")


_PLANS = {
    "one token at a time": [(i, 1) for i in range(5)],
    "six tokens, then one at a time": [(0, 6), *((6 + i, 1) for i in range(4))],
    "two chunks of the same length": [(0, 5), (5, 5)],
    "the same positions again": [(2, 4), (2, 4)],
}


def _stopped(patient: Patient, name: str, start: int, failure: Failure) -> Finding:
    return found_wrong(
        patient,
        "D-CACHE",
        f"Fed with {name}, it raises at position {start}: {failure}",
        remedy="Take sizes and positions from the arguments of this call alone.",
    )


def _off(patient: Patient, name: str, start: int, out: Tensor, apart: float) -> Finding:
    instead = _position_of(patient, out[0])
    as_what = f" as position {instead}" if instead is not None else " by other angles"
    return found_wrong(
        patient,
        "D-CACHE",
        f"Fed with {name}, position {start} is turned{as_what}; all at once it is "
        "turned rightly.",
        value=apart,
        tolerance=10 * SAME,
        remedy="Make the angles from the ids of this call; a cache needs the ids, not "
        "the length, in its key.",
    )


def _position_of(patient: Patient, matrix: Tensor) -> int | None:
    """The position whose matrix this is, if it is below 64."""
    there = matrices(patient, run(0, 64))
    if isinstance(there, Failure):
        return None
    apart = (there - matrix).abs().amax((1, 2))
    return int(apart.argmin()) if float(apart.min()) <= 10 * SAME else None


def _stored_keys(patient: Patient) -> Finding | None:
    """Whether keys that a call gives back besides its own were turned anew."""
    x = basis(head_dim(patient), 6)
    full = turned_pair(patient, x, run(0, 6), x) if is_pair_call(patient) else None
    call, keys = patient.renewed(), None
    for i in range(6 if is_pair_call(patient) else 0):
        token = x[:, :, i : i + 1]
        out = turned_pair(patient, token, run(i, 1), token, call)
        keys = None if isinstance(out, Failure) else out[1]
    number = keys.shape[2] if isinstance(keys, Tensor) else 0
    if not isinstance(full, tuple) or keys is None or not 0 < number <= 6:
        return None
    apart = float((keys - full[1][:, :, -number:]).abs().max())
    if apart <= 10 * SAME:
        return None
    return found_wrong(
        patient,
        "D-CACHE",
        f"After six steps the keys of {number} tokens are not those of one pass: "
        "stored keys are turned again, or by the position of the query.",
        value=apart,
        tolerance=10 * SAME,
        remedy="Turn a key once, by its own position, before it is stored.",
    )


def check_history(patient: Patient) -> Verdict:
    """A short input after a long one, or after 16 bits, is turned as at first."""
    if earlier := explained(patient, "D-HISTORY"):
        return earlier
    first = patient.facts.get("first")
    if not isinstance(first, Tensor):
        return NotApplicable("D-HISTORY", "the first call failed")
    for name, disturb in _DISTURBANCES.items():
        call = patient.renewed()
        before = matrices(patient, run(0, 8), call)
        late = matrices(patient, run(1021), call)
        disturb(patient, call)
        after = matrices(patient, run(0, 8), call)
        again = matrices(patient, run(1021), call)
        for was, now in ((before, after), (first, after), (late, again)):
            if isinstance(was, Tensor) and not _same(was, now):
                return _changed(patient, name, was, now)
    return Passed("D-HISTORY", "what was called before leaves no trace")


def _same(was: Tensor, now: Any) -> bool:
    return isinstance(now, Tensor) and float((was - now).abs().max()) <= SAME


def _long(patient: Patient, call: Callable[..., Any]) -> None:
    for length in (64, 1500, 9000):
        ids = run(0, length)
        patient.guard.call(call, random_heads(1, 1, length, head_dim(patient)), ids)


def _coarse(dtype: torch.dtype) -> Callable[[Patient, Callable[..., Any]], None]:
    def disturb(patient: Patient, call: Callable[..., Any]) -> None:
        for length in (8, 2048):
            x = random_heads(1, 1, length, head_dim(patient), dtype=dtype)
            patient.guard.call(call, x, run(0, length))

    return disturb


def _in_autocast(patient: Patient, call: Callable[..., Any]) -> None:
    def cast(*args: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return call(*args)

    for length in (8, 2048):
        x = random_heads(1, 1, length, head_dim(patient))
        patient.guard.call(cast, x, run(0, length))


_DISTURBANCES: dict[str, Callable[[Patient, Callable[..., Any]], None]] = {
    "a call at other positions": lambda patient, call: None,
    "a long input": _long,
    "a bfloat16 input": _coarse(torch.bfloat16),
    "a float16 input": _coarse(torch.float16),
    "a call in autocast": _in_autocast,
}


def _changed(patient: Patient, name: str, was: Tensor, now: Any) -> Finding:
    if isinstance(now, Failure):
        message = f"After {name} it raises where it did not before: {now}"
        return found_wrong(
            patient, "D-HISTORY", message, remedy="Keep nothing between calls."
        )
    apart = float((was - now).abs().max())
    return found_wrong(
        patient,
        "D-HISTORY",
        f"After {name} the same positions are turned by other angles than before.",
        value=apart,
        tolerance=SAME,
        remedy="Keep nothing between calls but what is a function of the position "
        "alone, in float32 or wider.",
    )


def check_length(patient: Patient) -> Verdict:
    """Position 3 is turned alike in a short and in a long input."""
    if earlier := explained(patient, "D-CACHE"):
        return earlier
    found = survey(patient)
    short = angles(patient, run(0, 8)) if found.pairs else None
    if not isinstance(short, Tensor):
        return NotApplicable("D-CACHE", "angles could not be read")
    for length in (20, 64, 600, 2500, 5000, 9000):
        long = angles(patient, run(0, length))
        if isinstance(long, Failure):
            break
        apart = float(wrapped(long[:8] - short).abs().max())
        if not apart <= 10 * SAME:
            return found_wrong(
                patient,
                "D-BASE",
                f"In an input of {length} tokens position 7 is turned otherwise than "
                f"in one of 8: frequencies depend on the length, so cached keys do not "
                "fit later queries.",
                severity="risky",
                value=apart,
                tolerance=10 * SAME,
                remedy="Choose the frequencies once for a whole generation.",
            )
    drift = _length_in_gain(patient, found)
    return drift or Passed("D-CACHE", "angles do not depend on the length of the input")


def _length_in_gain(patient: Patient, found: Any) -> Finding | None:
    x = random_heads(1, 1, 100, head_dim(patient))
    short, long = (turned(patient, x[:, :, :n], run(0, n)) for n in (8, 100))
    if isinstance(short, Failure) or isinstance(long, Failure):
        return None
    apart = float((short - long[:, :, :8]).abs().max())
    if apart <= 1e-4:
        return None
    return found_wrong(
        patient,
        "D-CACHE",
        "In an input of 100 tokens the first ones are scaled otherwise than in one of "
        "8: the centre or the gain moves with the length, so cached keys do not fit.",
        severity="risky",
        value=apart,
        tolerance=1e-4,
        remedy="Fix the centre, or the length that decides on the gain.",
    )


def check_batch(patient: Patient) -> Verdict:
    """Rows with ids of their own are turned as they are alone."""
    if earlier := explained(patient, "D-BATCH"):
        return earlier
    if getattr(patient.adapt, "ids", "row") not in ("row", "rows"):
        return NotApplicable("D-BATCH", "ids have several axes")
    x = random_heads(3, 2, 4, head_dim(patient))
    for last in (5000, 50):
        ids = torch.stack((run(0), run(7), run(last)))
        alone = [turned(patient, x[b : b + 1], ids[b : b + 1]) for b in range(3)]
        both = turned(patient, x, ids)
        if not any(isinstance(out, Failure) for out in (both, *alone)):
            return _rows(patient, both, alone)
    return NotApplicable("D-BATCH", "all rows share one row of ids, (L,)")


def _rows(patient: Patient, both: Tensor, alone: list[Tensor]) -> Verdict:
    apart = [float((both[b] - alone[b][0]).abs().max()) for b in range(3)]
    if max(apart) <= 1e-2:
        return Passed("D-BATCH", "rows are turned as they are alone", max(apart), 1e-2)
    x = random_heads(3, 2, 4, head_dim(patient))
    first = turned(patient, x, torch.stack((run(0),) * 3))
    shared = isinstance(first, Tensor) and float((both - first).abs().max()) <= SAME
    why = "the ids of row 0 are used for all" if shared else "rows change one another"
    return found_wrong(
        patient,
        "D-BATCH",
        f"Three rows with ids from 0, from 7 and from far on are turned otherwise than "
        f"each alone: {why}.",
        severity="wrong" if shared else "risky",
        value=max(apart),
        tolerance=1e-2,
        remedy="Give every row the angles of its own ids, and choose no frequencies by "
        "the longest row.",
    )
