"""Whether a bias has the right axes, and depends on the difference of positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.bias.common import (
    apart,
    diagonals_agree,
    found,
    in_words,
    needs,
    seen_of,
    small,
    starts_at_first,
)
from pe_lab.doctor.bias.profile import (
    LOOSE,
    MASKED,
    Profile,
    Reading,
    band,
    by_ids,
    centred,
    linear,
    read,
    reading,
)
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict


def check_axes(patient: Patient) -> Verdict:
    """(H, Lq, Lk), with as many heads as are wanted, for any two lengths."""
    how = reading(patient)
    if how.square in ("q", "k") or how.axes.endswith("q"):
        return _one_length(patient)
    wrong, mend = _misplaced(how, patient.options.get("num_heads"))
    if wrong:
        return found(patient, "D-SHAPE", "wrong", f"{wrong}.", mend)
    return _torn(patient) or _plain_axes(patient)


def _misplaced(how: Reading, heads: Any) -> tuple[str, str]:
    """What is wrong with the axes, and how to mend it; "" if nothing is."""
    axes, wanted = how.axes.lstrip("1"), heads if isinstance(heads, int) else 0
    if how.square:
        return (
            "It can only be asked for as many queries as keys, so not while decoding",
            "Make distances from both lengths, the queries being the last of the keys.",
        )
    if axes.find("h") > 0:
        words = f"The heads are not the first axis: its axes are {in_words(how.axes)}"
        return words, "Return (heads, queries, keys)."
    if axes == "hk":
        words = "It has no axis for queries: added to scores, heads lie over queries"
        return words, "Return (heads, 1, keys)."
    if "h" not in axes and wanted > 1:
        words = f"There is one square for all {wanted} heads"
        return words, "Give each head a square, with its own slope or table."
    if wanted and how.heads not in (wanted, 1):
        words = f"It is for {how.heads} heads, and {wanted} are wanted"
        return words, "Build it for the heads of the layer."
    return "", ""


def _one_length(patient: Patient) -> Finding:
    """The keys have an axis as long as the queries, or the queries one as the keys."""
    if reading(patient).square == "k":
        return found(
            patient,
            "D-SHAPE",
            "wrong",
            "Asked for fewer queries than keys it gives a row for every key; while "
            "decoding, the one query would get the rows of all.",
            "Return the last q_len rows.",
        )
    return found(
        patient,
        "D-CACHE",
        "wrong",
        "The axis of the keys is as long as there are queries; while decoding, with "
        "one query, it is one number for all keys, and no bias.",
        "Count keys by k_len, and the query's position from k_len − q_len.",
    )


def _torn(patient: Patient) -> Finding | None:
    """(Lq, Lk, H) that was reshaped to (H, Lq, Lk), which tears it apart."""
    seen = patient.facts["profile"]
    if not isinstance(seen, Profile) or seen.toeplitz != "none":
        return None
    heads, size, _ = seen.near.shape
    mended = seen.near.reshape(size, size, heads).permute(2, 0, 1)
    if heads == 1 or not diagonals_agree(centred(mended)):
        return None
    return found(
        patient,
        "D-SHAPE",
        "wrong",
        "Read as (queries, keys, heads) it is a function of distance, as (heads, "
        "queries, keys) it is none: it was reshaped where axes should have moved.",
        "Move the heads by permute(2, 0, 1), not by view or reshape.",
    )


def _plain_axes(patient: Patient) -> Verdict:
    how = reading(patient)
    if "h" not in how.axes and how.axes.lstrip("1") == "qk" and "1" not in how.axes:
        return found(
            patient,
            "D-SHAPE",
            "differs",
            "It has no axis of heads; all heads share one square.",
            "Return (1, queries, keys) to say so.",
        )
    if how.swapped:
        return found(
            patient,
            "D-SHAPE",
            "differs",
            "Its first argument is the keys, its second the queries.",
            "Most code calls biases with the queries first.",
        )
    return Passed("D-SHAPE", f"its axes are {in_words(how.axes)}")


def check_finite(patient: Patient) -> Verdict:
    """Numbers everywhere, and a mask, if any, of what comes later."""
    seen = patient.facts["profile"]
    if isinstance(seen, Failure):
        message = f"No square of a few tokens can be read: {seen}."
        mend = "Make it work for short texts of any length."
        return found(patient, "D-SHAPE", "wrong", message, mend)
    odd = seen.near.isnan().any(0) | (seen.near > -MASKED).any(0)
    if bool(odd.any()):
        m, n = (int(i) for i in odd.nonzero()[0])
        message = f"Query {m} and key {n} get {float(seen.near[:, m, n].max()):g}."
        mend = "Take the absolute distance before a logarithm or a power."
        return found(patient, "D-BIAS", "wrong", message, mend)
    if bool(seen.hidden.any()) and not band(seen.hidden):
        m, n = (int(i) for i in seen.hidden.nonzero()[0])
        message = (
            f"It hides key {n} from query {m}, and not just keys that come later or "
            "are far away: the mask in it is transposed or shifted."
        )
        mend = "Hide where the key's position is above the query's."
        return found(patient, "D-BIAS", "wrong", message, mend)
    ahead, behind = seen.hidden[0], seen.hidden[-1]
    if len(ahead) > 3 and bool(ahead[2]) and not bool(ahead[1] | behind.any()):
        message = "The mask in it hides later keys from the second on, not the first."
        mend = "Hide every key whose position is above the query's: triu(1)."
        return found(patient, "D-BIAS", "risky", message, mend)
    return Passed("D-BIAS", "every number is finite, or a mask")


@needs("D-BIAS")
def check_effect(patient: Patient) -> Verdict:
    """Something is left after what a whole row shares is taken away."""
    seen = seen_of(patient)
    level = centred(seen.near)[:, ~seen.hidden]
    size = float(level.abs().max())
    if size > 0:
        return Passed("D-BIAS", "keys of one query differ", size, 0.0)
    rows = not bool((seen.near[:, ~seen.hidden] == seen.near.flatten()[0]).all())
    what = (
        "Every key of a query gets the same bias, which the softmax cannot see"
        if rows
        else "The bias is the same number everywhere"
    )
    mend = (
        "Let it depend on the keys' positions; look for whole numbers or a lost axis."
    )
    return found(patient, "D-BIAS", "wrong", f"{what}.", mend, 0.0, 0.0)


@needs("D-BIAS")
def check_above(patient: Patient) -> Verdict:
    """What is a function of distance below the diagonal is one above it too."""
    seen = seen_of(patient)
    if seen.toeplitz == "past" and not bool(seen.hidden.any()):
        return _shifted_rows(patient)
    return Passed("D-BIAS", "above the diagonal the same rule holds, or a mask")


def _shifted_rows(patient: Patient) -> Finding:
    return found(
        patient,
        "D-BIAS",
        "risky",
        "Up to the diagonal the bias depends on the distance, above it it does not: it "
        "holds the ends of other rows, as a relative shift leaves them. Right under a "
        "causal mask only.",
        "Mask it, or make 2L − 1 distances and shift those.",
    )


@needs("D-CACHE")
def check_decode(patient: Patient) -> Verdict:
    """One query at the end of k keys gets the last row of a square of k."""
    worst = 0.0
    for k in (2, 3, small(patient)):
        row, square = read(patient, 1, k), read(patient, k, k)
        if isinstance(square, Failure):
            continue
        if isinstance(row, Failure):
            return _decoding(patient, f"With 1 query and {k} keys {row}.")
        error = apart(centred(row), centred(square)[:, -1:])
        worst = max(worst, error)
        if error > LOOSE and not starts_at_first(patient):
            flat = float(centred(row).abs().max()) == 0
            return _decoding(
                patient,
                f"One query with {k} keys gets "
                + ("no bias at all" if flat else "another bias")
                + f", where the last row of the square has "
                f"{_row(centred(square)[0, -1])}.",
                error,
            )
    return Passed("D-CACHE", "one query gets the last row of the square", worst, LOOSE)


def _decoding(patient: Patient, what: str, value: float | None = None) -> Finding:
    return found(
        patient,
        "D-CACHE",
        "wrong",
        f"{what[0].upper()}{what[1:]} So the bias is lost or changed while decoding.",
        "Count the query's position from the number of keys: m = k_len − q_len + i.",
        value,
        LOOSE,
    )


def _row(values: Tensor) -> str:
    return ", ".join(f"{v:.3g}" for v in values[-4:].tolist())


@needs("D-ALIGN")
def check_align(patient: Patient) -> Verdict:
    """Fewer queries than keys are the last ones; ids are read, not counted."""
    if by_ids(patient):
        return _ids_are_read(patient)
    size = small(patient)
    few, square = read(patient, 3, size), read(patient, size, size)
    if isinstance(few, Failure) or isinstance(square, Failure):
        return NotApplicable("D-ALIGN", f"3 queries with {size} keys: {few}")
    end = apart(centred(few), centred(square)[:, -3:])
    if end <= LOOSE:
        return Passed("D-ALIGN", "fewer queries are the last ones", end, LOOSE)
    if starts_at_first(patient):
        return NotApplicable("D-ALIGN", "queries count from the first key: see below")
    check, what = "D-ALIGN", "the rows are none of the square's"
    if _transposed(patient, square):
        check, what = "D-BIAS", "the axes are swapped"
    message = f"With 3 queries and {size} keys {what}."
    return found(patient, check, "wrong", message, _LAST, end, LOOSE)


_LAST = "Add k_len − q_len to the queries' positions, or take the last rows."


@needs("D-ALIGN")
def check_first(patient: Patient) -> Verdict:
    """Queries that count from the first key; it says nothing of the values."""
    if not starts_at_first(patient):
        return Passed("D-ALIGN", "queries do not count from the first key")
    message = (
        f"With 3 queries and {small(patient)} keys the queries count from the first "
        "key: right where both start together, wrong with a cache, where they are last."
    )
    return found(patient, "D-ALIGN", "risky", message, _LAST)


def _transposed(patient: Patient, square: Tensor) -> bool:
    """Whether f(q_len, k_len) gives (H, k, q), rather than being called as f(k, q)."""
    size = square.shape[-1]
    if not reading(patient).swapped:
        return False
    other = read(patient, size, 3)
    if isinstance(other, Failure):
        return False
    other = other.transpose(1, 2)
    return apart(centred(other), centred(square.transpose(1, 2))[:, -3:]) <= LOOSE


def _ids_are_read(patient: Patient) -> Verdict:
    size = seen_of(patient).near.shape[-1]
    ids = [i for i in (0, 1, 3, 4, 7, 12, 20) if i < size]
    keys = torch.tensor(ids)
    some, square = read(patient, keys[-2:], keys), seen_of(patient).near
    if isinstance(some, Failure):
        return NotApplicable("D-ALIGN", f"ids with gaps: {some}")
    wanted = centred(square[:, ids][:, -2:][:, :, ids])
    error = apart(centred(some), wanted)
    if error <= LOOSE:
        return Passed(
            "D-ALIGN", "ids with gaps get the bias of their ids", error, LOOSE
        )
    return found(
        patient,
        "D-ALIGN",
        "wrong",
        f"Ids {ids[-2:]} with keys {ids} get another bias than at the same ids in a "
        "row: rows are counted, the ids are not read.",
        "Make distances from the ids: q_pos[:, None] − k_pos[None, :].",
        error,
        LOOSE,
    )


@needs("D-CACHE")
def check_nested(patient: Patient) -> Verdict:
    """A longer text leaves the bias of two tokens as it is."""
    size = small(patient)
    short, square = read(patient, size, size), seen_of(patient).near
    if isinstance(short, Failure) or size == square.shape[-1]:
        return NotApplicable("D-CACHE", "there is one length only")
    long = centred(square[:, :size, :size])
    error = apart(centred(short), long)
    if apart(centred(short).tril(), long.tril()) <= LOOSE < error:
        return _shifted_rows(patient)
    if error <= LOOSE:
        return Passed("D-CACHE", "a longer text changes no pair", error, LOOSE)
    return found(
        patient,
        "D-CACHE",
        "wrong",
        f"The same two tokens get another bias in a text of {square.shape[-1]} tokens "
        f"than of {size}: keys of a cache were scored with the old one.",
        "Let distances depend on positions, not on the length.",
        error,
        LOOSE,
    )


@needs("D-SHIFT")
def check_shift(patient: Patient) -> Verdict:
    """The bias depends on m − n only, near the origin and far from it."""
    seen = seen_of(patient)
    if seen.toeplitz == "none":
        return _not_of_distance(patient)
    if not by_ids(patient):
        return Passed("D-SHIFT", "rows repeat along the diagonals")
    return _shifted(patient)


def _not_of_distance(patient: Patient) -> Verdict:
    level = centred(seen_of(patient).near)
    size = level.shape[-1]
    rows = [linear(level[:, m, : m + 1].flip(-1)) for m in range(3, size)]
    slopes = [r for r in rows if r is not None and bool((r != 0).any())]
    if len(slopes) == len(rows):
        first, last = (float(slopes[i][0]) for i in (0, -1))
        message = (
            f"The slope depends on the query: {first:.3g} for the fourth token, "
            f"{last:.3g} for number {size}."
        )
        mend = "Multiply the slope by the difference of positions."
        return found(patient, "D-SHIFT", "wrong", message, mend)
    if _mirrored(level):
        message = "It depends on the sum of two positions, not on their difference."
        mend = "Subtract the positions: one has the wrong sign."
        return found(patient, "D-SHIFT", "wrong", message, mend)
    message = (
        "It is no function of the distance: absolute positions, or progress through "
        "the text, enter."
    )
    return found(patient, "D-SHIFT", "note", message, "")


def _mirrored(level: Tensor) -> bool:
    """Whether entries agree where m + n does, up to what a row shares."""
    flat = level - level[..., :1]
    steps = flat.diff(dim=2).flip(2)
    return diagonals_agree(steps)


def _shifted(patient: Patient) -> Verdict:
    """The same distances further on, in the precision that float32 has there."""
    ids = torch.arange(seen_of(patient).near.shape[-1])
    here, worst = centred(seen_of(patient).near), 0.0
    for by in (1, 1000, 10**6):
        there = read(patient, ids + by, ids + by)
        if isinstance(there, Failure):
            if by > 1:
                break
            return NotApplicable("D-SHIFT", f"positions from {by} on: {there}")
        error = apart(centred(there), here)
        worst = max(worst, error)
        if error > LOOSE:
            return _moved(patient, by, error)
    return Passed("D-SHIFT", "the same at positions 10⁶ further", worst, LOOSE)


def _moved(patient: Patient, by: int, error: float) -> Verdict:
    """A shift changes the bias: progress (FIRE), roundings of slope·j, or a bug."""
    far = [torch.tensor([m]) for m in (20_000, 50_000)]
    rows = [read(patient, m, torch.tensor([0, int(m)])) for m in far]
    ends = [r for r in rows if isinstance(r, Tensor)]
    check, severity, mend = "D-SHIFT", "note", ""
    if len(ends) == 2 and apart(centred(ends[0]), centred(ends[1])) < LOOSE:
        message = (
            f"From position {by} on it depends on the share of the text that lies "
            "between two tokens, as FIRE's bias does."
        )
    elif by >= 10**6 and seen_of(patient).absolute:
        check, mend = "D-DTYPE", "Multiply the slope by the difference of positions."
        message = (
            f"At positions from {by} on, float32 no longer tells slope·j of "
            "neighbours apart."
        )
    else:
        severity, mend = "wrong", "Use positions only through their difference."
        message = f"Moved by {by} positions, the same distances get another bias."
    return found(patient, check, severity, message, mend, error, LOOSE)
