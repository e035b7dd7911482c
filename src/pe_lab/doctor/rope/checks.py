"""The axis along which a rotation counts, and the scores that it makes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.rope.pairs import CLOSE
from pe_lab.doctor.rope.survey import (
    SAME,
    Survey,
    as_turned,
    head_dim,
    is_pair_call,
    random_heads,
    run,
    survey,
    turned,
    turned_pair,
    wrapped,
)
from pe_lab.doctor.rope.words import BREAK, ROTATE, SCORE, explained, found_wrong
from pe_lab.doctor.waves import short

_SHAPE = "Read every size from x, and keep its axes (B, H, L, D)."


def check_shape(patient: Patient) -> Verdict:
    """Other batches, heads, lengths and memory orders are turned alike."""
    if getattr(patient.adapt, "square", False):
        return found_wrong(
            patient,
            "D-ORDER",
            "It works only where there are as many heads as tokens: it takes "
            "(B, L, H, D), and would turn along the heads.",
            remedy="Transpose axes 1 and 2 before, or index the table along axis 2.",
        )
    whole = random_heads(2, 3, 5, head_dim(patient))
    wanted = turned(patient, whole, run(2, 5))
    if isinstance(wanted, Failure):
        message = f"With 2 rows, 3 heads and 5 tokens it fails: {wanted}"
        return found_wrong(patient, "D-SHAPE", message, remedy=_SHAPE)
    for name, x, part in _other_shapes(whole, wanted):
        out = patient.guard.call(patient.renewed(), x, run(2, x.shape[2]))
        if finding := _shape(patient, name, x, out, part):
            return finding
    return Passed("D-SHAPE", "one row, one head, one token and views are turned alike")


def _other_shapes(whole: Tensor, out: Tensor) -> list[tuple[str, Tensor, Tensor]]:
    view = whole.transpose(1, 2).contiguous().transpose(1, 2)
    many = random_heads(5, 5, 5, whole.shape[-1])
    many[:2, :3] = whole
    cases = [
        ("one row", whole[:1], out[:1]),
        ("one head", whole[:, :1], out[:, :1]),
        ("one token", whole[:, :, :1], out[:, :, :1]),
        ("one row, head and token", whole[:1, :1, :1], out[:1, :1, :1]),
        ("as many rows and heads as tokens", many, out),
    ]
    cases = [(name, x.contiguous(), part) for name, x, part in cases]
    return [*cases, ("a transposed view", view, out)]


def _shape(
    patient: Patient, name: str, x: Tensor, out: Any, part: Tensor
) -> Finding | None:
    if isinstance(out, Failure):
        view = name == "a transposed view"
        mend = "Heads usually come as a transposed view; use reshape instead of view."
        return Finding(
            "D-SHAPE",
            "risky" if view else "wrong",
            f"With {name} it raises: {out}",
            remedy=mend if view else _SHAPE,
            chapter=ROTATE,
        )
    out = as_turned(out, x)
    if isinstance(out, Failure):
        message = f"With {name} it fails: {out}"
        return found_wrong(patient, "D-SHAPE", message, remedy=_SHAPE)
    apart = float((out[: len(part), : part.shape[1]] - part).abs().max())
    if x.shape[2] == 1 or apart <= CLOSE:  # one token alone is decoding's business
        return None
    return found_wrong(
        patient,
        "D-SHAPE",
        f"With {name} numbers differ from those of the same tokens in another shape.",
        value=apart,
        tolerance=CLOSE,
        remedy="Do not guess axes by their sizes; fix (B, H, L, D).",
    )


def check_order(patient: Patient) -> Verdict:
    """One token everywhere: what comes out depends on its position, and only on it."""
    if earlier := explained(patient, "D-ORDER"):
        return earlier
    x = random_heads(head_dim(patient)).expand(2, 3, 5, -1).contiguous()
    out, there = (turned(patient, x, run(s, 5)) for s in (3, 40))
    if failures := [o for o in (out, there) if isinstance(o, Failure)]:
        return NotApplicable("D-ORDER", f"five equal tokens: {failures[0]}")
    for axis, name in enumerate(("rows of the batch", "heads")):
        apart = float((out - out.narrow(axis, 0, 1)).abs().max())
        if not apart <= CLOSE:
            return _wrong_axis(patient, name, out, apart)
    if float((out - out[:, :, :1]).abs().max()) <= SAME:
        message = (
            "Every token of a sequence is turned alike: their order has no effect."
        )
        remedy = "Make one angle for each position, along axis 2 of (B, H, L, D)."
        return found_wrong(patient, "D-ORDER", message, remedy=remedy, chapter=BREAK)
    if float((out - there).abs().max()) <= SAME:
        return found_wrong(
            patient,
            "D-CACHE",
            "The positions that are given have no effect: tokens at 40 … 44 are turned "
            "as tokens at 3 … 7.",
            remedy="Make the angles from the ids, not from the length of x.",
        )
    return Passed("D-ORDER", "heads and rows share their angles, positions do not")


def _wrong_axis(patient: Patient, name: str, out: Tensor, apart: float) -> Finding:
    flat = float((out - out[:, :, :1]).abs().max()) <= SAME
    instead = ", and all tokens of a sequence by one" if flat else ""
    return found_wrong(
        patient,
        "D-ORDER",
        f"At one position, {name} are turned by different angles{instead}: the angles "
        f"lie along the axis of the {name}.",
        value=apart,
        tolerance=CLOSE,
        remedy="x is (B, H, L, D); let the table broadcast as (1, 1, L, D).",
        chapter=BREAK,
    )


def check_sides(patient: Patient) -> Verdict:
    """Queries come out of queries alone, keys out of keys."""
    if earlier := explained(patient, "D-SHAPE"):
        return earlier
    if not is_pair_call(patient):
        return NotApplicable("D-SHAPE", "queries and keys are not turned in one call")
    x = random_heads(1, 2, 4, head_dim(patient))
    both = turned_pair(patient, x, run(0), torch.zeros_like(x))
    if isinstance(both, Failure):
        return NotApplicable("D-SHAPE", f"keys of zeros: {both}")
    q, k = (bool((side != 0).any()) for side in both)
    if q and not k:
        return Passed("D-SHAPE", "queries and keys are kept apart")
    what = "are exchanged" if k and not q else "are made of one another"
    return found_wrong(
        patient,
        "D-SHAPE",
        f"Queries and keys {what}: with keys of zeros, the keys that come out are "
        f"{'not zero' if k else 'zero'}, the queries {'not zero' if q else 'zero'}.",
        remedy="Turn q into the first result and k into the second.",
    )


def check_shift(patient: Patient) -> Verdict:
    """Scores of m and n depend on m − n, and are largest where it is 0."""
    if earlier := explained(patient, "D-SHIFT"):
        return earlier
    found = survey(patient)
    if found.near is None or (found.keys is None and is_pair_call(patient)):
        return NotApplicable("D-SHIFT", "queries and keys could not both be seen")
    if found.keys is None and not found.steady:
        return NotApplicable("D-SHIFT", "keys, which balance the gain, were not given")
    keys = found.near if found.keys is None else found.keys
    scores = torch.einsum("mji,njk->mnik", found.near, keys)
    apart = float((scores[1:, 1:] - scores[:-1, :-1]).abs().max())
    allowed = CLOSE * float(scores.abs().max()) * found.fastest
    if not apart <= allowed:
        return _not_relative(patient, found.near, keys, apart)
    straight = scores[3].diagonal(dim1=1, dim2=2).diag_embed()
    off = (scores[3] - straight).abs().amax((1, 2))
    if not float(off[3]) <= allowed:
        return _leans(patient, off)
    return Passed("D-SHIFT", "scores depend on m − n", apart, allowed)


def _not_relative(
    patient: Patient, queries: Tensor, keys: Tensor, apart: float
) -> Finding:
    why = "queries and keys are turned by different rules"
    if float((keys - queries.transpose(1, 2)).abs().max()) <= CLOSE:
        why = "keys are turned the other way than queries"
    elif float((keys - keys[:1]).abs().max()) <= CLOSE:
        why = "keys are not turned"
    return found_wrong(
        patient,
        "D-SHIFT",
        f"Scores do not depend on m − n alone: {why}.",
        value=apart,
        tolerance=CLOSE,
        remedy="Turn queries and keys by one rule, each by its own position.",
        chapter=SCORE,
    )


def _leans(patient: Patient, off: Tensor) -> Finding:
    return found_wrong(
        patient,
        "D-SHIFT",
        f"A query at 3 fits best a key at {int(off.argmin())}, not at 3: keys and "
        "queries are counted differently.",
        value=float(off[3]),
        tolerance=CLOSE,
        remedy="Use one count of positions for queries and keys.",
        chapter=SCORE,
    )


def check_start(patient: Patient) -> Verdict:
    """Position 0 is not turned."""
    if earlier := explained(patient, "D-SHIFT"):
        return earlier
    found: Survey = survey(patient)
    if not found.pairs:
        return NotApplicable("D-SHIFT", "there are no pairs")
    off = float(found.phase.abs().max())
    if off <= CLOSE:
        return Passed("D-SHIFT", "position 0 is not turned", off, CLOSE)
    steps = float((wrapped(found.phase) / found.omega).median())
    return Finding(
        "D-SHIFT",
        "differs",
        f"Position 0 is turned as position {short(steps)} would be: scores are the "
        "same, but cached keys of other code do not fit.",
        value=off,
        tolerance=CLOSE,
        remedy="Count positions from 0.",
        chapter=ROTATE,
    )
