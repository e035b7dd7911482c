"""What a rotation is: its shape, axis, pairs, norms, width, frequencies, offsets."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Check, Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.rope_survey import (
    SAME,
    Survey,
    blocks,
    head_dim,
    is_pair_call,
    random_heads,
    run,
    survey,
    wrapped,
)
from pe_lab.doctor.waves import FIT, USUAL, geometric, name_ladder, short
from pe_lab.scaling import yarn_gain

ROTATE, SCORE, TABLE, BREAK = (
    "05 Rotate by k",
    "06 Score position against position",
    "03 Compute the tables by hand",
    "01 Break the symmetry",
)


def wrong(patient: Patient, check: str, message: str, **more: Any) -> Finding:
    """A finding that later checks need not repeat."""
    patient.facts.setdefault("cause", check)
    more.setdefault("chapter", ROTATE)
    return Finding(check, more.pop("severity", "wrong"), message, **more)


def explained(patient: Patient, check: str) -> NotApplicable | None:
    """Not applicable, if an earlier finding says it all."""
    cause = patient.facts.get("cause")
    return NotApplicable(check, f"explained by {cause}") if cause else None


def expected(patient: Patient) -> dict[str, Any]:
    """What the caller says that the identity should be."""
    return dict(patient.options.get("expected", {}))


# ------------------------------------------------------------------ identity


def identity(patient: Patient, found: Survey) -> dict[str, Any]:
    """The names of everything that was found, in the order of the report."""
    if not found.pairs:
        return {"scheme": "unknown", "layout": "unknown"}
    layout, width = layout_of(found)
    named = ladder(patient)
    facts: dict[str, Any] = {"scheme": scheme(patient), "layout": layout}
    axes = getattr(patient.adapt, "ids", "row")
    if axes[0].isdigit():
        facts["axes"] = int(axes[0])
    facts |= {"rotary_dim": width, "pairs": _shown(found.pairs)}
    if not math.isnan(named["base"]):
        facts["base"] = named["base"]
    facts |= {"spacing": named["spacing"], "scaling": named["scaling"]}
    gain = found.gain[0]
    if scheme(patient) == "RoPE":
        facts["gain"] = round(float(gain.mean()), 6)
    return facts


def _shown(pairs: tuple[tuple[int, int], ...]) -> str:
    first = ", ".join(map(str, pairs[:3]))
    return f"{first}, … {pairs[-1]}" if len(pairs) > 4 else ", ".join(map(str, pairs))


def layout_of(found: Survey) -> tuple[str, int]:
    """("half", "interleaved", "half of each part" or "other", channels that turn)."""
    pairs, n = found.pairs, len(found.pairs)
    first = pairs[0][0]
    layout = "other"
    if pairs == tuple((first + i, first + i + n) for i in range(n)):
        layout = "half"
    elif pairs == tuple((first + 2 * i, first + 2 * i + 1) for i in range(n)):
        layout = "interleaved"
    elif pairs == tuple((i, i + found.head_dim // 2) for i in range(n)):
        layout = "half of the head"
    else:
        for parts in (2, 3, 4):
            share = n // parts
            if n % parts == 0 and pairs == tuple(
                (2 * share * p + i, 2 * share * p + i + share)
                for p in range(parts)
                for i in range(share)
            ):
                layout = f"half of each of {parts} parts"
    return layout, 2 * n


def scheme(patient: Patient) -> str:
    """RoPE, xPos, or one of several axes."""
    found = survey(patient)
    axes = getattr(patient.adapt, "ids", "row")[0].isdigit()
    if axes:
        return "axial RoPE" if _repeats(found.omega) else "M-RoPE"
    steady = float((found.gain - found.gain[0]).abs().max()) <= SAME
    return "RoPE" if steady else "xPos"


def _repeats(omega: Tensor) -> int:
    """Into how many equal ladders the frequencies fall, or 0."""
    for parts in (2, 3, 4):
        if len(omega) % parts == 0 and len(omega) > parts:
            rows = omega.reshape(parts, -1)
            if float((rows / rows[0] - 1).abs().max()) <= FIT:
                return parts
    return 0


def ladder(patient: Patient) -> dict[str, Any]:
    """The name of the ladder, kept in patient.facts["ladder"]."""
    if "ladder" not in patient.facts:
        patient.facts["ladder"] = _ladder(survey(patient))
    return dict(patient.facts["ladder"])


def _ladder(found: Survey) -> dict[str, Any]:
    omega, width = found.omega.abs(), 2 * len(found.pairs)
    parts = _repeats(omega)
    if parts:
        omega, width = omega[: len(omega) // parts], width // parts
    named = name_ladder(omega, dim=width)
    if layout_of(found)[0] == "half of the head":
        whole = name_ladder(omega, dim=found.head_dim)
        if _rank(whole) <= _rank(named):
            named, width = whole, found.head_dim
    if parts:
        named["ladder"] = named["ladder"].repeat(parts)
    return {**named, "dim": width, "parts": max(1, parts)}


def _rank(named: dict[str, Any]) -> int:
    """How usual the base is; the less the more."""
    base, plain = named["base"], named["scaling"] != "unknown"
    return USUAL.index(base) if plain and base in USUAL else len(USUAL)


# -------------------------------------------------------------------- checks


def check_shape(patient: Patient) -> Verdict:
    """Other batch, heads, length and memory order give what they should."""
    width = head_dim(patient)
    if getattr(patient.adapt, "square", False):
        return wrong(
            patient,
            "D-ORDER",
            "It works only where there are as many heads as tokens: the angles lie "
            "along the axis of the heads, (B, L, H, D) is expected instead of "
            "(B, H, L, D).",
            remedy="Transpose axes 1 and 2 before, or index the table along axis 2.",
        )
    whole = random_heads(2, 3, 5, width)
    reference = patient.guard.call(patient.renewed(), whole, run(2, 5))
    if isinstance(reference, Failure):
        return NotApplicable("D-SHAPE", f"2 rows, 3 heads, 5 tokens: {reference}")
    for name, x, part in _other_shapes(whole, reference):
        out = patient.guard.call(patient.renewed(), x, run(2, x.shape[2]))
        if isinstance(out, Failure):
            return _refuses_shape(patient, name, out)
        if not isinstance(out, Tensor) or out.shape != x.shape:
            given = tuple(getattr(out, "shape", ()))
            message = f"With {name} the shape is {given} instead of {tuple(x.shape)}."
            return wrong(patient, "D-SHAPE", message, remedy="Keep every axis of x.")
        out = out[: len(part), : part.shape[1]]
        alike = x.shape[2] == 1 or float((out - part).abs().max()) <= 10 * SAME
        if not alike:  # one token alone is the business of decoding
            return wrong(
                patient,
                "D-SHAPE",
                f"With {name} the numbers differ from those of the same tokens in a "
                "larger input.",
                value=float((out - part).abs().max()),
                tolerance=10 * SAME,
                remedy="Do not guess axes by their sizes; fix (B, H, L, D).",
            )
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


def _refuses_shape(patient: Patient, name: str, failure: Failure) -> Finding:
    severity = "risky" if name == "a transposed view" else "wrong"
    return Finding(
        "D-SHAPE",
        severity,
        f"With {name} it raises: {failure}",
        remedy="Heads usually come as a transposed view; use reshape, not view."
        if severity == "risky"
        else "Read the sizes from x, every time.",
        chapter=ROTATE,
    )


def check_order(patient: Patient) -> Verdict:
    """One token at all places: what comes out depends on the position, and only on it."""
    if earlier := explained(patient, "D-ORDER"):
        return earlier
    token = random_heads(head_dim(patient))
    x = token.expand(2, 3, 5, -1).contiguous()
    out = patient.guard.call(patient.renewed(), x, run(3, 5))
    there = patient.guard.call(patient.renewed(), x, run(40, 5))
    if isinstance(out, Failure) or isinstance(there, Failure):
        return NotApplicable("D-ORDER", f"five equal tokens: {out or there}")
    names = ("rows of the batch", "heads")
    for axis, name in enumerate(names):
        apart = float((out - out.narrow(axis, 0, 1)).abs().max())
        if not apart <= 10 * SAME:
            return _wrong_axis(patient, name, out, apart)
    if float((out - out[:, :, :1]).abs().max()) <= SAME:
        return wrong(
            patient,
            "D-ORDER",
            "Every token of the sequence is turned alike: the order of tokens has no "
            "effect.",
            remedy="Make one angle for each position, along axis 2 of (B, H, L, D).",
            chapter=BREAK,
        )
    if float((out - there).abs().max()) <= SAME:
        return wrong(
            patient,
            "D-CACHE",
            "The positions that are given have no effect: tokens 40 … 44 are turned "
            "as tokens 3 … 7.",
            remedy="Make the angles from the ids, not from the length of x.",
        )
    return Passed("D-ORDER", "heads and rows share their angles, positions do not")


def _wrong_axis(patient: Patient, name: str, out: Tensor, apart: float) -> Finding:
    flat = float((out - out[:, :, :1]).abs().max()) <= SAME
    instead = ", and tokens of a sequence are all turned alike" if flat else ""
    return wrong(
        patient,
        "D-ORDER",
        f"At one position, {name} are turned by different angles{instead}: the angles "
        f"lie along the axis of the {name}.",
        value=apart,
        tolerance=10 * SAME,
        remedy="x is (B, H, L, D); let the table broadcast as (1, 1, L, D).",
        chapter=BREAK,
    )


def check_layout(patient: Patient) -> Verdict:
    """Every channel has one partner, and both turn by one angle, forwards."""
    if earlier := explained(patient, "D-LAYOUT"):
        return earlier
    found = survey(patient)
    if found.near is None:
        return NotApplicable("D-LAYOUT", f"basis vectors: {found.failure}")
    if not found.pairs:
        return _no_pairs(patient, found)
    return (
        _not_rotations(patient, found)
        or _not_from_zero(patient, found)
        or _expected_layout(patient, found)
        or Passed("D-LAYOUT", f"{layout_of(found)[0]}: {_shown(found.pairs)}")
    )


def _no_pairs(patient: Patient, found: Survey) -> Finding:
    many = [(i, o) for i, o in found.partners.items() if len(o) > 1]
    if not many:
        message = "No channel mixes with another: nothing is rotated."
        if found.near is not None and not bool(found.near.isfinite().all()):
            message = "Basis vectors come out as NaN or infinity."
        return wrong(patient, "D-LAYOUT", message, remedy="Add the rotated halves.")
    channel, others = many[0]
    several = " and ".join(map(str, others[:4]))
    return wrong(
        patient,
        "D-LAYOUT",
        f"Channel {channel} mixes with channels {several}; in a rotation each channel "
        "has one partner.",
        remedy="Pair i with i + D/2, or 2i with 2i + 1, in splitting and in joining.",
    )


def _not_rotations(patient: Patient, found: Survey) -> Finding | None:
    """Blocks that are no rotation times a factor: [[c, −s], [s, c]]."""
    assert found.near is not None
    block = blocks(found.near, found.pairs)
    diagonal = (block[..., 0, 0] - block[..., 1, 1]).abs().amax(0)
    across = (block[..., 0, 1] + block[..., 1, 0]).abs().amax(0)
    if float(torch.maximum(diagonal, across).max()) <= 10 * SAME:
        return None
    i = int(torch.maximum(diagonal, across).argmax())
    a, b = found.pairs[i]
    same = block[..., 0, 1] - block[..., 1, 0]
    if float(diagonal.max()) <= 10 * SAME and float(same.abs().max()) <= 10 * SAME:
        return wrong(
            patient,
            "D-NORM",
            f"Channels {a} and {b} become (a·c + b·s, b·c + a·s): a minus is missing, "
            "so lengths are not kept.",
            value=float(across[i]),
            tolerance=10 * SAME,
            remedy="The first of a pair becomes a·cos − b·sin.",
        )
    if float(diagonal.max()) > 10 * SAME:
        return _two_speeds(patient, found, i)
    return wrong(
        patient,
        "D-NORM",
        f"The pair of channels {a} and {b} is not rotated: its sines are "
        f"{float(block[1, i, 1, 0]):.4f} and {float(-block[1, i, 0, 1]):.4f} at "
        "position 1, and should be one number.",
        value=float(across[i]),
        tolerance=10 * SAME,
        remedy="Give both channels of a pair the same cosine and the same sine.",
    )


def _two_speeds(patient: Patient, found: Survey, i: int) -> Finding:
    assert found.near is not None
    a, b = found.pairs[i]
    own = found.near[1].diagonal().clamp(-1, 1).acos()
    layout = layout_of(found)[0]
    if not _tiled_for_other(own, layout):
        return wrong(
            patient,
            "D-NORM",
            f"The pair of channels {a} and {b} is not rotated: its cosines are "
            f"{float(found.near[1, a, a]):.4f} and {float(found.near[1, b, b]):.4f} at "
            "position 1, and should be one number.",
            remedy="Compute both from the old pair: (a·cos − b·sin, b·cos + a·sin).",
        )
    other = {"half": "interleaved", "interleaved": "half"}[layout]
    return wrong(
        patient,
        "D-LAYOUT",
        f"Channels {a} and {b} mix as partners, but turn at different speeds "
        f"({float(own[a]):.4g} and {float(own[b]):.4g} radians per position): pairs "
        f"are {layout}, the table is tiled for {other}.",
        value=float((own[a] - own[b]).abs()),
        tolerance=10 * SAME,
        remedy="Half: cat(w, w) with (i, i + D/2). Interleaved: "
        "repeat_interleave(w, 2) with (2i, 2i + 1).",
    )


def _tiled_for_other(own: Tensor, layout: str) -> bool:
    """Whether channels turn at the speeds of the other layout's pairs."""
    if layout not in ("half", "interleaved"):
        return False
    a, b = own.chunk(2) if layout == "interleaved" else (own[0::2], own[1::2])
    return float((a - b).abs().max()) <= 0.01


def _not_from_zero(patient: Patient, found: Survey) -> Finding | None:
    """Rotations that do not begin with none at position 0, or go backwards."""
    slow = found.omega.abs() * NEAR_ONE
    back = bool((found.omega < 0).all()) and bool((slow < math.pi).any())
    phase = found.phase
    if float((phase.abs() - math.pi / 2).abs().max()) <= 100 * SAME:
        return wrong(
            patient,
            "D-LAYOUT",
            "Position 0 is turned by 90°: sine and cosine are swapped.",
            value=float(phase.abs().max()),
            tolerance=100 * SAME,
            remedy="The first of a pair becomes a·cos − b·sin.",
        )
    some = (found.omega < 0) & (found.omega.abs() < 3)
    if bool(some.any()) and not back:
        pair = found.pairs[int(some.nonzero()[0])]
        return wrong(
            patient,
            "D-LAYOUT",
            f"Some pairs turn backwards, as channels {pair[0]} and {pair[1]}, others "
            "forwards.",
            remedy="Give all pairs one sign.",
        )
    if back:
        return wrong(
            patient,
            "D-LAYOUT",
            "All pairs turn backwards, by −p·ω: released weights do not fit it.",
            severity="risky",
            remedy="The second of a pair becomes b·cos + a·sin, with plus.",
        )
    return None


NEAR_ONE = 1  # positions 0 and 1 show the sign of all that turn less than 180°


def _expected_layout(patient: Patient, found: Survey) -> Finding | None:
    told = expected(patient).get("layout")
    layout, width = layout_of(found)
    if told in (None, layout) or width == 2:
        return None
    partial = told == "half" and layout == "half of the head"
    return wrong(
        patient,
        "D-DIM" if partial else "D-LAYOUT",
        f"Pairs are {layout} ({_shown(found.pairs)}); {told} was expected.",
        remedy=f"Pair {_pairing(str(told))}, or reorder the weights by "
        "pe_lab.convert_layout.",
    )


def _pairing(layout: str) -> str:
    return "2i with 2i + 1" if layout == "interleaved" else "i with i + rotary_dim/2"


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
        return _moving_gain(patient, found, drift)
    spread = float((gain[0] - gain[0, 0]).abs().max())
    if spread > SAME:
        return wrong(
            patient,
            "D-NORM",
            "Pairs are stretched by different factors, "
            f"{float(gain.min()):.4g} to {float(gain.max()):.4g}.",
            value=spread,
            tolerance=SAME,
            remedy="A rotation stretches nothing; a gain is one number for all pairs.",
        )
    return _constant_gain(patient, float(gain.mean()))


def _constant_gain(patient: Patient, gain: float) -> Verdict:
    told = expected(patient).get("gain")
    if told is not None and abs(gain - told) > 1e-4:
        return Finding(
            "D-NORM",
            "wrong",
            f"Lengths grow by {gain:.6g}; {told:.6g} was expected.",
            value=gain,
            tolerance=1e-4,
            remedy="Multiply cosines and sines by the gain, once.",
            chapter=ROTATE,
        )
    if abs(gain - 1) <= SAME:
        return Passed("D-NORM", "lengths are kept", abs(gain - 1), SAME)
    factor = _yarn_factor(patient)
    if factor and abs(gain - yarn_gain(factor) ** 2) <= 1e-4:
        return Finding(
            "D-NORM",
            "wrong",
            f"Lengths grow by {gain:.4g}, the square of YaRN's gain "
            f"{yarn_gain(factor):.4g}: it is applied twice.",
            value=gain,
            tolerance=1e-4,
            remedy="Multiply cosines and sines by the gain, once.",
            chapter=ROTATE,
        )
    implied = math.exp(10 * (gain - 1)) if 1 < gain < 2 else math.nan
    severity = "note" if 1 < gain < 2 else "differs"
    hint = f", YaRN's for factor {implied:.4g}" if 1 < gain < 2 else ""
    return Finding(
        "D-NORM",
        severity,
        f"Lengths are multiplied by {gain:.6g}{hint}; scores by its square.",
        value=gain,
        remedy="Nothing, if the softmax does not correct for it as well.",
        chapter=ROTATE,
    )


def _yarn_factor(patient: Patient) -> float | None:
    words = ladder(patient)["scaling"].split()
    return float(words[-1]) if words[0] in ("yarn", "by", "llama3") else None


def _moving_gain(patient: Patient, found: Survey, drift: float) -> Verdict:
    if found.keys is None:
        return _one_sided_gain(patient, found, drift)
    block = blocks(found.keys, found.pairs)
    keys = (block.square().sum((-1, -2)) / 2).sqrt()
    product = found.gain * keys
    uneven = float((product / product[0] - 1).abs().max())
    if not uneven <= 10 * SAME:
        return wrong(
            patient,
            "D-NORM",
            "Queries and keys do not balance: the factors of a query and a key at one "
            f"position multiply to {float(product[-1, 0]):.4g} at position 7, and "
            f"{float(product[0, 0]):.4g} at 0.",
            value=uneven,
            tolerance=10 * SAME,
            remedy="xPos: what a query is multiplied by, a key is divided by.",
        )
    return Passed("D-NORM", "queries grow as keys shrink, as in xPos", uneven)


def _one_sided_gain(patient: Patient, found: Survey, drift: float) -> Verdict:
    log = found.gain.log()
    steps = log[1:] - log[:-1]
    even = float((steps - steps[0]).abs().max())
    if even <= SAME and bool((steps[0] <= SAME).all() or (steps[0] >= -SAME).all()):
        return Finding(
            "D-NORM",
            "differs",
            "Lengths change by a constant factor from one position to the next, as "
            "one side of xPos does; the other side was not given.",
            value=drift,
            remedy="Give it as f(q, k, positions), so that both sides can be seen.",
            chapter=ROTATE,
        )
    return wrong(
        patient,
        "D-NORM",
        f"Lengths depend on the position: by factors from {float(found.gain.min()):.4g} "
        f"to {float(found.gain.max()):.4g} within 8 positions.",
        value=drift,
        tolerance=SAME,
        remedy="A rotation keeps lengths: cos² + sin² = 1, with one angle for both.",
    )


def check_dim(patient: Patient) -> Verdict:
    """The right channels turn, with partners and a ladder that fit their number."""
    if earlier := explained(patient, "D-DIM"):
        return earlier
    found = survey(patient)
    if not found.pairs:
        return NotApplicable("D-DIM", "there are no pairs")
    layout, width = layout_of(found)
    told = expected(patient).get("rotary_dim")
    if told is not None and told != width:
        return wrong(
            patient,
            "D-DIM",
            f"{width} of {found.head_dim} channels turn; {told} were expected.",
            value=width,
            remedy="Turn the first rotary_dim channels, and pass the others on.",
        )
    if width < found.head_dim:
        return _partial(patient, found, layout, width)
    return Passed("D-DIM", f"all {width} channels turn")


def _partial(patient: Patient, found: Survey, layout: str, width: int) -> Verdict:
    omega = found.omega.abs()
    part, whole = (name_ladder(omega, dim=d) for d in (width, found.head_dim))
    of_whole = _rank(whole) < _rank(part)
    where = f"{width} of {found.head_dim} channels turn, {_shown(found.pairs)}"
    if layout == "half of the head" and _rank(part) < _rank(whole):
        return wrong(
            patient,
            "D-DIM",
            f"{where}: the partner is half a head away instead of {width // 2}, "
            f"while the frequencies are those of {width} channels.",
            remedy=f"Split the first {width} channels in two halves, then turn.",
        )
    if layout == "half of the head":
        return Finding(
            "D-DIM",
            "differs",
            f"{where}, with the fastest frequencies of the whole head, as "
            '"proportional" partial rotation has it.',
            remedy=f"For the usual partial rotation, pair i with i + {width // 2} and "
            f"divide exponents by {width}.",
            chapter=ROTATE,
        )
    if of_whole and "base" not in expected(patient):
        return wrong(
            patient,
            "D-DIM",
            f"{where}, with frequencies of base {whole['base']:g} over "
            f"{found.head_dim} channels; they should run over the {width} that turn.",
            value=float(omega[-1]),
            remedy=f"Exponents 2i/{width}.",
        )
    if layout == "other":
        return Finding(
            "D-DIM", "differs", f"{where}.", remedy="Compare it with the weights' code."
        )
    return Passed("D-DIM", where)


def check_base(patient: Patient) -> Verdict:
    """The frequencies are a ladder that somebody uses, and the one expected."""
    if earlier := explained(patient, "D-BASE"):
        return earlier
    found = survey(patient)
    if not found.pairs:
        return NotApplicable("D-BASE", "there are no pairs")
    named = ladder(patient)
    if "rounded" in named:
        return _rounded(patient, found, named)
    if found.bend is not None and found.bend < 64:
        return NotApplicable("D-BASE", f"angles are not p·ω from {found.bend} on")
    return (
        _expected_ladder(patient, found, named)
        or _slip(patient, found, named)
        or _unknown(patient, found, named)
        or Passed("D-BASE", f"base {named['base']:g}, {named['scaling']}")
    )


def _rounded(patient: Patient, found: Survey, named: dict[str, Any]) -> Finding:
    worst = float((found.omega.abs() - named["ladder"]).abs().max())
    return wrong(
        patient,
        "D-DTYPE",
        f"The frequencies are those of base {named['base']:g}, rounded to "
        f"{named['rounded']}: off by up to {named['error']:.1%}, so by a radian after "
        f"{1 / worst:.0f} positions.",
        value=named["error"],
        tolerance=FIT,
        remedy="Make frequencies and angles in float32 or wider; round the result.",
    )


def _expected_ladder(
    patient: Patient, found: Survey, named: dict[str, Any]
) -> Finding | None:
    told = expected(patient)
    names = {n: told[n] for n in ("base", "spacing", "scaling") if n in told}
    if not names:
        return None
    omega = found.omega.abs()
    if "base" in names and names.get("scaling", "none") == "none":
        plain = geometric(float(names["base"]), 2 * len(found.pairs), len(omega))
        same = (
            len(omega) == len(plain) and float((omega / plain - 1).abs().max()) < 1e-3
        )
        if same and "spacing" not in names:
            return None
    off = {n: v for n, v in names.items() if not _agrees(v, named[n])}
    if not off:
        return None
    said = ", ".join(f"{n} {_text(named[n])}" for n in off)
    wanted = ", ".join(f"{n} {_text(v)}" for n, v in off.items())
    hint = _slip_text(found, named)
    return wrong(
        patient,
        "D-BASE",
        f"The frequencies are those of {said}; {wanted} was expected. The slowest pair "
        f"turns by {float(omega[-1]):.4g} per position.{hint}",
        value=float(omega[-1]),
        remedy="ω_i = base^(−2i/rotary_dim), then the scaling rule, once.",
    )


def _agrees(told: Any, named: Any) -> bool:
    if isinstance(told, int | float) and not isinstance(named, str):
        return abs(float(told) / float(named) - 1) <= 1e-3
    ours, theirs = str(told).split(), str(named).split()
    if ours[:-1] != theirs[:-1] or len(ours) < 2:
        return ours == theirs
    return abs(float(ours[-1]) / float(theirs[-1]) - 1) <= 1e-3


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _slip(patient: Patient, found: Survey, named: dict[str, Any]) -> Verdict | None:
    """Ladders that are a known slip, and no known convention."""
    text = _slip_text(found, named)
    if not text:
        return None
    return wrong(
        patient,
        "D-BASE",
        text.strip(),
        value=float(found.omega[-1].abs()),
        remedy="ω_i = base^(−2i/rotary_dim) for i = 0, 1, …, rotary_dim/2 − 1.",
    )


def _slip_text(found: Survey, named: dict[str, Any]) -> str:
    d = named["dim"]
    omega = found.omega.abs()[: len(found.pairs) // named["parts"]]
    n, start = len(omega), float(omega[0])
    fall = float((omega[-1] / omega[0]).log()) / max(1, n - 1)
    whole = math.exp(min(700.0, -fall * d / 2))
    if n < 3 or float((omega / (geometric(whole, d, n) * start) - 1).abs().max()) > FIT:
        return ""
    return _slipped_exponent(start, fall, d) or _slipped_base(omega, whole, start)


def _slipped_exponent(start: float, fall: float, d: int) -> str:
    for base in USUAL[:3]:
        step = -2 * math.log(base)
        if abs(start - 1) <= FIT and abs(fall * (d - 1) / step - 1) < FIT:
            return f" Exponents are 2i/{d - 1} instead of 2i/{d}, for base {base:g}."
        if abs(math.log(start) * d / step - 1) < FIT and abs(fall * d / step - 1) < FIT:
            return f" Exponents start at 2/{d} instead of 0, for base {base:g}."
    if abs(fall) <= FIT:
        return " All pairs turn at one speed: the exponents are all 0."
    if fall > 0:
        return " Pairs turn faster from one to the next: the exponents lack a minus."
    return ""


def _slipped_base(omega: Tensor, base: float, start: float) -> str:
    if start > 1.5 and abs(start - round(start)) <= FIT:
        return (
            f" The fastest pair turns by {start:g} radians per position: positions are "
            "multiplied by a factor that should divide them."
        )
    if base < 50 and len(omega) >= 4:
        return (
            f" The slowest pair repeats after {math.tau / float(omega[-1]):.0f} "
            f"positions: base {base:.4g}, as if exponents were divided by the width of "
            "all heads instead of one."
        )
    if base > 1e12:
        return (
            f" The slowest pair needs {math.tau / float(omega[-1]):.1g} positions for "
            f"a turn: base {base:.4g}, as if the step of the exponents were rounded."
        )
    return ""


def _unknown(patient: Patient, found: Survey, named: dict[str, Any]) -> Verdict | None:
    omega = found.omega.abs()
    steps = omega[1:] - omega[:-1]
    if named["scaling"] == "longrope":
        return Finding(
            "D-BASE",
            "note",
            f"Every pair has a factor of its own on base {named['base']:g}, as in "
            f"LongRoPE: {float(named['base'] ** 0 / omega[0]):.4g} for the fastest.",
            remedy="Compare the factors with the config.",
            chapter=ROTATE,
        )
    if named["scaling"] != "unknown":
        return None
    if len(omega) > 2 and float((steps - steps[0]).abs().max()) <= FIT * float(
        omega.max()
    ):
        return Finding(
            "D-BASE",
            "differs",
            "Frequencies are evenly spaced, as some image encodings have them.",
            remedy="For text, use ω_i = base^(−2i/rotary_dim).",
            chapter=ROTATE,
        )
    falls = ", ".join(f"{float(w):.4g}" for w in omega[:5])
    return wrong(
        patient,
        "D-BASE",
        f"The frequencies {falls}, … are no geometric ladder, nor one under a known "
        "scaling rule.",
        value=named["error"],
        tolerance=FIT,
        remedy="ω_i = base^(−2i/rotary_dim): one real exponent per pair.",
    )


def check_shift(patient: Patient) -> Verdict:
    """Scores of m and n depend on m − n, and are largest where it is 0."""
    if earlier := explained(patient, "D-SHIFT"):
        return earlier
    found = survey(patient)
    seen = found.keys is not None or not is_pair_call(patient)
    if found.near is None or not seen:
        return NotApplicable("D-SHIFT", "queries and keys could not both be seen")
    if found.keys is None and scheme(patient) == "xPos":
        return NotApplicable("D-SHIFT", "keys, which balance the gain, were not given")
    keys = found.near if found.keys is None else found.keys
    scores = torch.einsum("mji,njk->mnik", found.near, keys)
    apart = float((scores[1:, 1:] - scores[:-1, :-1]).abs().max())
    largest = float(scores.abs().max())
    if not apart <= 10 * SAME * largest:
        return _not_relative(patient, found, keys, apart)
    same = scores[3, 3]
    lean = float((same - same.diagonal().diag()).abs().max())
    if not lean <= 10 * SAME * largest:
        return _leans(patient, scores, lean)
    return Passed("D-SHIFT", "scores depend on m − n", apart, 10 * SAME * largest)


def _not_relative(
    patient: Patient, found: Survey, keys: Tensor, apart: float
) -> Finding:
    mirrored = float((keys - found.near.transpose(1, 2)).abs().max()) <= 10 * SAME  # type: ignore[union-attr]
    still = float((keys - torch.eye(found.head_dim)).abs().max()) <= 10 * SAME
    why = "queries and keys are turned by different rules"
    if mirrored:
        why = "keys are turned the other way than queries"
    elif still:
        why = "keys are not turned"
    return wrong(
        patient,
        "D-SHIFT",
        f"Scores do not depend on m − n alone: {why}.",
        value=apart,
        tolerance=10 * SAME,
        remedy="Turn queries and keys by one rule, each by its own position.",
        chapter=SCORE,
    )


def _leans(patient: Patient, scores: Tensor, lean: float) -> Finding:
    eye = [float((s - s.diagonal().diag()).abs().max()) for s in scores[3]]
    nearest = int(torch.tensor(eye).argmin())
    return wrong(
        patient,
        "D-SHIFT",
        f"A query at 3 fits best a key at {nearest}, not at 3: keys and queries are "
        "counted differently.",
        value=lean,
        tolerance=10 * SAME,
        remedy="Use one count of positions for queries and keys.",
        chapter=SCORE,
    )


def check_start(patient: Patient) -> Verdict:
    """Position 0 is not turned."""
    if earlier := explained(patient, "D-SHIFT"):
        return earlier
    found = survey(patient)
    if not found.pairs:
        return NotApplicable("D-SHIFT", "there are no pairs")
    off = float(found.phase.abs().max())
    if off <= 10 * SAME:
        return Passed("D-SHIFT", "position 0 is not turned", off, 10 * SAME)
    steps = float((wrapped(found.phase) / found.omega).median())
    return Finding(
        "D-SHIFT",
        "differs",
        f"Position 0 is turned as position {short(steps)}: scores are the same, cached "
        "keys of other code do not fit.",
        value=off,
        tolerance=10 * SAME,
        remedy="Count positions from 0.",
        chapter=ROTATE,
    )


CHECKS: tuple[Check, ...] = (
    check_shape,
    check_order,
    check_layout,
    check_norm,
    check_dim,
    check_base,
    check_shift,
    check_start,
)
