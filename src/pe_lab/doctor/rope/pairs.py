"""Which channels a rotation pairs, which way it turns, and whether it keeps lengths."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.rope.survey import SAME, Survey, blocks, survey
from pe_lab.doctor.rope.words import ROTATE, expected, explained, found_wrong
from pe_lab.scaling import yarn_gain

CLOSE = 10 * SAME


def layout_of(found: Survey) -> tuple[str, int]:
    """("half", "interleaved", … or "other", how many channels turn)."""
    pairs, n = found.pairs, len(found.pairs)
    first = pairs[0][0]
    known = {
        tuple((first + i, first + i + n) for i in range(n)): "half",
        tuple((first + 2 * i, first + 2 * i + 1) for i in range(n)): "interleaved",
    }
    whole = tuple((i, i + found.head_dim // 2) for i in range(n))
    known.setdefault(whole, "half of the head")
    for parts in (2, 3, 4):
        known.setdefault(_in_parts(n, parts), f"half of each of {parts} parts")
    return known.get(pairs, "other"), 2 * n


def _in_parts(n: int, parts: int) -> tuple[tuple[int, int], ...]:
    share = n // parts
    starts = [2 * share * part for part in range(parts)]
    return tuple((s + i, s + i + share) for s in starts for i in range(share))


def shown(pairs: tuple[tuple[int, int], ...]) -> str:
    """The first pairs and the last."""
    first = ", ".join(map(str, pairs[:3]))
    return f"{first}, … {pairs[-1]}" if len(pairs) > 4 else ", ".join(map(str, pairs))


def check_layout(patient: Patient) -> Verdict:
    """Every channel has one partner, and both turn by one angle, forwards."""
    if earlier := explained(patient, "D-LAYOUT"):
        return earlier
    found = survey(patient)
    if found.near is None:
        return NotApplicable("D-LAYOUT", f"basis vectors: {found.failure}")
    if not found.pairs:
        return _no_pairs(patient, found.near, found.partners)
    return (
        _not_rotations(patient, found, found.near)
        or _swapped(patient, found)
        or _backwards(patient, found)
        or _expected_layout(patient, found)
        or Passed("D-LAYOUT", f"{layout_of(found)[0]}: {shown(found.pairs)}")
    )


def _no_pairs(
    patient: Patient, near: Tensor, partners: dict[int, tuple[int, ...]]
) -> Finding:
    many = [(i, others) for i, others in partners.items() if len(others) > 1]
    if not bool(near.isfinite().all()):
        message = "Basis vectors come out as NaN or infinity."
    elif not many:
        message = "No channel mixes with another: nothing is rotated."
    else:
        several = " and ".join(map(str, many[0][1][:4]))
        message = (
            f"Channel {many[0][0]} mixes with channels {several}; in a rotation each "
            "channel has one partner."
        )
    remedy = "Pair i with i + D/2, or 2i with 2i + 1, in splitting and in joining."
    return found_wrong(patient, "D-LAYOUT", message, remedy=remedy)


def _not_rotations(patient: Patient, found: Survey, near: Tensor) -> Finding | None:
    """Blocks that are no rotation times a factor: [[c, −s], [s, c]]."""
    block = blocks(near, found.pairs)
    cosines = (block[..., 0, 0] - block[..., 1, 1]).abs().amax(0)
    sines = (block[..., 0, 1] + block[..., 1, 0]).abs().amax(0)
    off = torch.maximum(cosines, sines)
    i = int(off.argmax())
    if float(off[i]) <= CLOSE:
        return None
    a, b = found.pairs[i]
    same_sign = (block[..., 0, 1] - block[..., 1, 0]).abs().amax()
    if float(cosines.max()) > CLOSE:
        return _two_cosines(patient, found, near, i)
    if float(same_sign) <= CLOSE:
        what = f"channels {a} and {b} become (a·c + b·s, b·c + a·s): a minus is missing"
    else:
        seen = f"{float(block[1, i, 1, 0]):.4f} and {float(-block[1, i, 0, 1]):.4f}"
        what = f"the sines of channels {a} and {b} are {seen} at position 1"
    return found_wrong(
        patient,
        "D-NORM",
        f"The pairs are not rotated, so lengths are not kept: {what}.",
        value=float(off[i]),
        tolerance=CLOSE,
        remedy="(a, b) becomes (a·cos − b·sin, b·cos + a·sin), with one angle.",
    )


def _two_cosines(patient: Patient, found: Survey, near: Tensor, i: int) -> Finding:
    a, b = found.pairs[i]
    own = near[1].diagonal().clamp(-1, 1).acos()
    layout = layout_of(found)[0]
    seen = f"{float(own[a]):.4g} and {float(own[b]):.4g} radians per position"
    if not _tiled_for_other(own, layout):
        return found_wrong(
            patient,
            "D-NORM",
            f"Channels {a} and {b} are partners with different cosines, as if of {seen}"
            ": lengths are not kept.",
            remedy="Compute both from the old pair: (a·cos − b·sin, b·cos + a·sin).",
        )
    other = "interleaved" if layout == "half" else "half"
    return found_wrong(
        patient,
        "D-LAYOUT",
        f"Channels {a} and {b} are partners, but turn by {seen}: pairs are {layout}, "
        f"the table is tiled for {other}.",
        value=float((own[a] - own[b]).abs()),
        tolerance=CLOSE,
        remedy="Half: cat(w, w) with (i, i + D/2). Interleaved: "
        "repeat_interleave(w, 2) with (2i, 2i + 1).",
    )


def _tiled_for_other(own: Tensor, layout: str) -> bool:
    """Whether channels turn at the speeds of the other layout's pairs."""
    if layout not in ("half", "interleaved"):
        return False
    a, b = own.chunk(2) if layout == "interleaved" else (own[0::2], own[1::2])
    return float((a - b).abs().max()) <= 0.01  # arccos near 1 is coarse


def _swapped(patient: Patient, found: Survey) -> Finding | None:
    quarter = float((found.phase.abs() - math.pi / 2).abs().max())
    if quarter > 10 * CLOSE:
        return None
    return found_wrong(
        patient,
        "D-LAYOUT",
        "Position 0 is turned by 90°: sine and cosine are swapped.",
        value=float(found.phase.abs().max()),
        tolerance=10 * CLOSE,
        remedy="(a, b) becomes (a·cos − b·sin, b·cos + a·sin).",
    )


def _backwards(patient: Patient, found: Survey) -> Finding | None:
    back = found.omega < 0
    if not bool(back.any()):
        return None
    if bool(back.all()):
        return found_wrong(
            patient,
            "D-LAYOUT",
            "All pairs turn backwards, by −p·ω: released weights do not fit it.",
            severity="risky",
            remedy="The second of a pair becomes b·cos + a·sin, with plus.",
        )
    a, b = found.pairs[int(back.nonzero()[0])]
    leading = bool((back.int().diff() <= 0).all())  # they come before all others
    how = "turn backwards, or by more than half a turn per position"
    return found_wrong(
        patient,
        "D-BASE" if leading else "D-LAYOUT",
        f"Some pairs, as channels {a} and {b}, {how if leading else 'turn backwards'}; "
        "others turn forwards.",
        remedy="Give all pairs one sign, and the fastest one 1 radian per position.",
    )


def _expected_layout(patient: Patient, found: Survey) -> Finding | None:
    told = expected(patient).get("layout")
    layout, width = layout_of(found)
    if told in (None, layout) or width == 2:
        return None
    partial = told == "half" and layout == "half of the head"
    other = "2i with 2i + 1" if told == "interleaved" else "i with i + rotary_dim/2"
    return found_wrong(
        patient,
        "D-DIM" if partial else "D-LAYOUT",
        f"Pairs are {layout} ({shown(found.pairs)}); {told} was expected.",
        remedy=f"Pair {other}, or reorder the weights by pe_lab.convert_layout.",
    )


def check_norm(patient: Patient) -> Verdict:
    """Lengths are kept, up to a constant gain, or as xPos changes them."""
    if earlier := explained(patient, "D-NORM"):
        return earlier
    found = survey(patient)
    if not found.pairs:
        return NotApplicable("D-NORM", "there are no pairs")
    gain = found.gain
    drift = float((gain - gain[0]).abs().max())
    if not drift <= SAME:
        sides = _two_sides if found.keys is not None else _one_side
        return sides(patient, found, drift)
    if finding := _sides_differ(patient, found):
        return finding
    spread = float((gain[0] - gain[0, 0]).abs().max())
    if spread > SAME:
        return found_wrong(
            patient,
            "D-NORM",
            "Pairs are stretched by different factors, "
            f"{float(gain.min()):.4g} to {float(gain.max()):.4g}.",
            value=spread,
            tolerance=SAME,
            remedy="A rotation stretches nothing; a gain is one number for all pairs.",
        )
    return _wrong_gain(patient, float(gain.mean())) or _gain(float(gain.mean()))


def _sides_differ(patient: Patient, found: Survey) -> Finding | None:
    """A constant gain on one side alone."""
    if found.keys is None or found.keys.shape[0] != len(found.gain):
        return None
    block = blocks(found.keys, found.pairs)
    keys = (block.square().sum((-1, -2)) / 2).sqrt()
    mean, even = float(keys.mean()), float((keys - keys.mean()).abs().max()) <= SAME
    if not even or abs(mean - float(found.gain.mean())) <= CLOSE:
        return None
    return found_wrong(
        patient,
        "D-NORM",
        f"Keys are multiplied by {mean:.4g}, queries by "
        f"{float(found.gain.mean()):.4g}.",
        severity="risky",
        value=mean,
        remedy="Give both sides one gain, or say in the softmax what one side lacks.",
    )


def _wrong_gain(patient: Patient, gain: float) -> Finding | None:
    told = expected(patient).get("gain")
    words = str(patient.facts.get("ladder", {}).get("scaling", "")).split()
    right = yarn_gain(float(words[-1])) if words[:1] == ["yarn"] else 1.0
    if told is not None and abs(gain - told) > CLOSE:
        message = f"Lengths are multiplied by {gain:.6g}; {told:.6g} was expected."
    elif told is None and right > 1.001 and abs(gain - right**2) <= CLOSE:
        message = (
            f"Lengths are multiplied by {gain:.4g}, the square of YaRN's gain "
            f"{right:.4g}: it is applied twice."
        )
    else:
        return None
    return Finding(
        "D-NORM",
        "wrong",
        message,
        value=gain,
        tolerance=CLOSE,
        remedy="Multiply cosines and sines by the gain, once.",
        chapter=ROTATE,
    )


def _gain(gain: float) -> Verdict:
    if abs(gain - 1) <= SAME:
        return Passed("D-NORM", "lengths are kept", abs(gain - 1), SAME)
    like_yarn = 1 < gain < 2
    factor = math.exp(10 * (gain - 1))
    is_whole = abs(factor - round(factor)) <= 0.01 and factor < 129
    hint = f", YaRN's gain for factor {factor:.0f}" if is_whole else ""
    return Finding(
        "D-NORM",
        "note" if like_yarn else "differs",
        f"Lengths are multiplied by {gain:.6g}{hint}; scores by its square.",
        value=gain,
        remedy="Nothing, if the softmax does not correct for it as well.",
        chapter=ROTATE,
    )


def _two_sides(patient: Patient, found: Survey, drift: float) -> Verdict:
    block: Any = blocks(found.keys, found.pairs)  # type: ignore[arg-type]
    product = found.gain * (block.square().sum((-1, -2)) / 2).sqrt()
    uneven = float((product / product[0] - 1).abs().max())
    if uneven <= CLOSE:
        return Passed("D-NORM", "queries grow as keys shrink, as in xPos", uneven)
    return found_wrong(
        patient,
        "D-NORM",
        "Queries and keys do not balance: the factors of a query and a key at one "
        f"position multiply to {float(product[-1, 0]):.4g} at position 7, and to "
        f"{float(product[0, 0]):.4g} at 0.",
        value=uneven,
        tolerance=CLOSE,
        remedy="xPos: what a query is multiplied by, a key is divided by.",
    )


def _one_side(patient: Patient, found: Survey, drift: float) -> Verdict:
    steps = found.gain.log().diff(dim=0)
    even = float((steps - steps[0]).abs().max()) <= SAME
    if even and bool((steps[0] <= SAME).all() or (steps[0] >= -SAME).all()):
        return Finding(
            "D-NORM",
            "differs",
            "Lengths change by a constant factor from one position to the next, as "
            "one side of xPos does; the other side was not given.",
            value=drift,
            remedy="Give it as f(q, k, positions), so that both sides can be seen.",
            chapter=ROTATE,
        )
    least, most = float(found.gain.min()), float(found.gain.max())
    return found_wrong(
        patient,
        "D-NORM",
        f"Lengths depend on the position, by factors from {least:.4g} to {most:.4g} "
        "within 8 positions.",
        value=drift,
        tolerance=SAME,
        remedy="A rotation keeps lengths: cos² + sin² = 1, with one angle for both.",
    )
