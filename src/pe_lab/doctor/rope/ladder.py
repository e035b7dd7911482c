"""How many channels a rotation turns, and on which ladder of frequencies."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.rope.pairs import CLOSE, layout_of, shown
from pe_lab.doctor.rope.survey import Survey, angles_of, survey, wrapped
from pe_lab.doctor.rope.words import ROTATE, expected, explained, found_wrong
from pe_lab.doctor.waves import FIT, USUAL, geometric, name_ladder


def ladder(patient: Patient) -> dict[str, Any]:
    """`name_ladder` of the survey, with "dim" and "parts"; kept in patient.facts."""
    if "ladder" not in patient.facts:
        patient.facts["ladder"] = _ladder(survey(patient))
    return dict(patient.facts["ladder"])


def repeats(omega: Tensor) -> int:
    """Into how many equal ladders the frequencies fall, one per axis; or 1."""
    for parts in (2, 3, 4):
        if len(omega) % parts == 0 and len(omega) > parts:
            rows = omega.reshape(parts, -1)
            if (
                float((rows / rows[0] - 1).abs().max()) <= FIT
                and rows[0, 0] > rows[0, 1]
            ):
                return parts
    return 1


def _ladder(found: Survey) -> dict[str, Any]:
    omega, dim = found.omega.abs(), 2 * len(found.pairs)
    parts = repeats(omega)
    omega, dim = omega[: len(omega) // parts], dim // parts
    named = name_ladder(omega, dim=dim)
    if layout_of(found)[0] == "half of the head":
        whole = name_ladder(omega, dim=found.head_dim)
        if _rank(whole) <= _rank(named):
            named, dim = whole, found.head_dim
    named["ladder"] = named["ladder"].repeat(parts)
    return {**named, "dim": dim, "parts": parts}


def _rank(named: dict[str, Any]) -> int:
    """How usual the base is: 0 is the most usual."""
    base, plain = named["base"], named["scaling"] != "unknown"
    return USUAL.index(base) if plain and base in USUAL else len(USUAL)


# ---------------------------------------------------------------------- width


def check_dim(patient: Patient) -> Verdict:
    """The right channels turn, with partners and a ladder that fit their number."""
    if earlier := explained(patient, "D-DIM"):
        return earlier
    found = survey(patient)
    if not found.pairs:
        return NotApplicable("D-DIM", "there are no pairs")
    width = layout_of(found)[1]
    told = expected(patient).get("rotary_dim", width)
    if told != width:
        return found_wrong(
            patient,
            "D-DIM",
            f"{width} of {found.head_dim} channels turn; {told} were expected.",
            value=width,
            remedy="Turn the first rotary_dim channels, and pass the others on.",
        )
    if width == found.head_dim:
        return Passed("D-DIM", f"all {width} channels turn")
    where = f"{width} of {found.head_dim} channels turn, {shown(found.pairs)}"
    return (
        _rest_lost(patient, found)
        or _one_forgotten(patient, found, where)
        or _wrong_part(patient, found, where)
        or _other_part(found, where)
        or Passed("D-DIM", where)
    )


def _rest_lost(patient: Patient, found: Survey) -> Finding | None:
    """Channels that do not turn should come out as they went in."""
    rest = [i for i, others in found.partners.items() if not others]
    if found.near is None or not rest:
        return None
    kept = found.near[:, rest, rest]
    off = float((kept - 1).abs().max())
    if off <= CLOSE or float((kept / found.gain.mean() - 1).abs().max()) <= CLOSE:
        return None
    i = rest[int((kept - 1).abs().amax(0).argmax())]
    return found_wrong(
        patient,
        "D-DIM",
        f"Channel {i} is not turned and does not pass either: 1 becomes "
        f"{float(found.near[1, i, i]):.4g}.",
        value=off,
        tolerance=CLOSE,
        remedy="Join the channels past rotary_dim behind the turned ones as they are.",
    )


def _one_forgotten(patient: Patient, found: Survey, where: str) -> Finding | None:
    half = len(found.pairs)
    if half < 8 or 2 * half + 2 != found.head_dim:
        return None
    left = [i for i, others in found.partners.items() if not others]
    return found_wrong(
        patient,
        "D-DIM",
        f"{where}: a single pair is left out, channels {left[0]} and {left[1]}.",
        remedy="Give every pair a frequency: i = 0, 1, …, D/2 − 1.",
    )


def _wrong_part(patient: Patient, found: Survey, where: str) -> Finding | None:
    width, half = 2 * len(found.pairs), len(found.pairs)
    omega = found.omega.abs()
    part, whole = (_rank(name_ladder(omega, dim=d)) for d in (width, found.head_dim))
    apart = layout_of(found)[0] == "half of the head"
    if apart and part < whole:
        return found_wrong(
            patient,
            "D-DIM",
            f"{where}: the partner is half a head away instead of {half}, while the "
            f"frequencies are those of {width} channels.",
            remedy=f"Split the first {width} channels in two halves, then turn.",
        )
    if not apart and whole < part and "base" not in expected(patient):
        return found_wrong(
            patient,
            "D-DIM",
            f"{where}, with the frequencies of {found.head_dim} channels; they should "
            f"run over the {width} that turn.",
            value=float(omega[-1]),
            remedy=f"Exponents 2i/{width}.",
        )
    return None


def _other_part(found: Survey, where: str) -> Finding | None:
    half, layout = len(found.pairs), layout_of(found)[0]
    if layout == "half of the head":
        what = ', as "proportional" partial rotation has it'
    elif layout == "other":
        what = ", which is none of the usual layouts"
    else:
        return None
    return Finding(
        "D-DIM",
        "differs",
        f"{where}{what}.",
        remedy=f"For the usual partial rotation, pair i with i + {half} and divide "
        f"exponents by {2 * half}.",
        chapter=ROTATE,
    )


# --------------------------------------------------------------------- ladder


def check_base(patient: Patient) -> Verdict:
    """The frequencies are a ladder that somebody uses, and the one expected."""
    if earlier := explained(patient, "D-BASE"):
        return earlier
    found = survey(patient)
    if not found.pairs or found.near is None:
        return NotApplicable("D-BASE", "there are no pairs")
    named = ladder(patient)
    return (
        _rounded(patient, found, named)
        or _uneven(patient, found, found.near)
        or _unexpected(patient, found, named)
        or _repeated(patient, named)
        or _slip(patient, found, named)
        or _no_ladder(patient, found, named)
        or Passed("D-BASE", f"base {named['base']:g}, scaling {named['scaling']}")
    )


def _rounded(patient: Patient, found: Survey, named: dict[str, Any]) -> Finding | None:
    if "rounded" not in named:
        return None
    worst = float((found.omega.abs() - named["ladder"]).abs().max())
    return found_wrong(
        patient,
        "D-DTYPE",
        f"The frequencies are those of base {named['base']:g}, rounded to "
        f"{named['rounded']}: off by up to {named['error']:.2%}, so by a radian after "
        f"{1 / worst:.0f} positions.",
        value=named["error"],
        tolerance=FIT,
        remedy="Make frequencies and angles in float32 or wider; round the result.",
    )


def _repeated(patient: Patient, named: dict[str, Any]) -> Finding | None:
    """Equal ladders are for axes; one axis needs but one."""
    one_axis = not getattr(patient.adapt, "ids", "row")[0].isdigit()
    if named["parts"] == 1 or not one_axis:
        return None
    return found_wrong(
        patient,
        "D-BASE",
        f"One ladder of {named['dim'] // 2} frequencies comes {named['parts']} times, "
        "for positions of one number: pairs that should differ turn alike.",
        value=float(named["parts"]),
        remedy="Exponents 2i/rotary_dim for all pairs; repeat a ladder only for axes.",
    )


def _uneven(patient: Patient, found: Survey, near: Tensor) -> Finding | None:
    """Angles at 1 … 7 that are no multiples of one frequency: rounded."""
    seen = wrapped(angles_of(near, found.pairs) - found.phase)
    steps = torch.arange(len(seen), dtype=torch.float64)[:, None]
    speed = wrapped(seen[1] - seen[0])
    off = float(wrapped(seen - steps * speed).abs().max())
    if off <= 1e-4 * max(1.0, float(found.omega.abs().max())):
        return None
    if _bent(seen):
        return _curved(patient, off)
    return found_wrong(
        patient,
        "D-LONG",
        f"Angles are not multiples of the position: by 7 they are off by {off:.2g} "
        "radians, so positions or angles are rounded to few digits.",
        value=off,
        tolerance=1e-4,
        remedy="Make angles in float32 or wider, as position times frequency.",
    )


def _curved(patient: Patient, off: float) -> Finding:
    return found_wrong(
        patient,
        "D-SHIFT",
        "Angles follow a curve of the position, not a line: from 6 to 7 a pair turns "
        f"otherwise than from 0 to 1 (off by {off:.2g} radians), so scores do not "
        "depend on m − n alone.",
        value=off,
        tolerance=1e-4,
        remedy="Use positions as they are: no logarithm, root, or share of a text.",
    )


def _bent(seen: Tensor) -> bool:
    """Whether all slow pairs go by one curve of the position, far from a line."""
    slow = seen[:, (seen.abs().amax(0) < 1) & (seen[1].abs() > 1e-5)]
    if slow.shape[1] < 2 or len(seen) < 4:
        return False
    curve = slow / slow[1]
    spread = float((curve[-1] - curve[-1].median()).abs().max())
    steps = curve.median(1).values.diff()
    # 16 bits round by 2^-8; a curve bends more, and steps keep their sign
    away = abs(float(curve[-1].median()) / (len(seen) - 1) - 1)
    return away > 0.05 and spread < 0.05 and bool((steps > 0).all())


def _unexpected(
    patient: Patient, found: Survey, named: dict[str, Any]
) -> Finding | None:
    told = expected(patient)
    names = {n: told[n] for n in ("base", "spacing", "scaling") if n in told}
    omega = found.omega.abs()
    if "base" in names and names.get("scaling", "none") == "none":
        plain = geometric(float(names["base"]), named["dim"], len(omega))
        if "spacing" not in names and float((omega / plain - 1).abs().max()) < 1e-3:
            return None
    off = {n: v for n, v in names.items() if not _agrees(v, named[n])}
    if not off:
        return None
    said = ", ".join(f"{n} {_text(named[n])}" for n in off)
    wanted = ", ".join(f"{n} {_text(v)}" for n, v in off.items())
    hint = _slip_text(found, named)
    return found_wrong(
        patient,
        "D-BASE",
        f"The frequencies are those of {said}; {wanted} was expected. The slowest pair "
        f"turns by {float(omega[-1]):.4g} per position.{hint and ' ' + hint}",
        value=float(omega[-1]),
        remedy="ω_i = base^(−2i/rotary_dim), then the scaling rule, once.",
    )


def _agrees(told: Any, named: Any) -> bool:
    """Equal words, and numbers within a thousandth."""
    ours, theirs = str(told).split(), str(named).split()
    pairs = list(zip(ours, theirs, strict=False))
    return len(ours) == len(theirs) and all(
        a == b or (_is_number(a) and _is_number(b) and _near(float(a), float(b)))
        for a, b in pairs
    )


def _is_number(word: str) -> bool:
    return word.replace(".", "").replace("e+", "").replace("e", "").isdigit()


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-3 * max(abs(a), abs(b))


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _slip(patient: Patient, found: Survey, named: dict[str, Any]) -> Finding | None:
    """Ladders that are a known slip, and no known convention."""
    text = _slip_text(found, named)
    if not text:
        return _halved(patient, found, named)
    return found_wrong(
        patient,
        "D-BASE",
        text,
        value=float(found.omega[-1].abs()),
        remedy="ω_i = base^(−2i/rotary_dim) for i = 0, 1, …, rotary_dim/2 − 1.",
    )


def _halved(patient: Patient, found: Survey, named: dict[str, Any]) -> Finding | None:
    """Base 100 along one axis, where 10⁴ and a lost 2 give the same ladder."""
    several = getattr(patient.adapt, "ids", "row")[0].isdigit()
    hundred = named["scaling"] == "none" and abs(named["base"] / 100 - 1) <= FIT
    if several or not hundred or len(found.pairs) < 4 or "base" in expected(patient):
        return None
    slowest = float(found.omega[-1].abs())
    return Finding(
        "D-BASE",
        "differs",
        f"The slowest pair repeats after {math.tau / slowest:.0f} positions: base 100, "
        "as image models have it, and as base 10000 gives with i/d instead of 2i/d.",
        slowest,
        remedy="For text ω_i = base^(−2i/rotary_dim): torch.arange(0, rotary_dim, 2).",
        chapter=ROTATE,
    )


def _slip_text(found: Survey, named: dict[str, Any]) -> str:
    d = named["dim"]
    omega = found.omega.abs()[: len(found.pairs) // named["parts"]]
    if named["scaling"].startswith("step"):
        return (
            "Pairs are either kept or divided by "
            f"{named['scaling'].split()[1]}, with no ramp between them."
        )
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
            return f"Exponents are 2i/{d - 1} instead of 2i/{d}, for base {base:g}."
        later = abs(math.log(start) * d / step - 1) < FIT
        if later and abs(fall * d / step - 1) < FIT:
            return f"Exponents start at 2/{d} instead of 0, for base {base:g}."
    if abs(fall) <= FIT:
        return "All pairs turn at one speed: the exponents are all 0."
    if fall > 0:
        return "Pairs turn faster from one to the next: the exponents lack a minus."
    return ""


def _slipped_base(omega: Tensor, base: float, start: float) -> str:
    slowest = math.tau / float(omega[-1])
    if start > 1.5 and abs(start - round(start)) <= FIT:
        return (
            f"The fastest pair turns by {start:g} radians per position: positions are "
            "multiplied by a factor that should divide them."
        )
    if abs(start * 180 / math.pi - 1) <= FIT:
        return "The fastest pair turns by one degree per position, not by one radian."
    if base < 50 and len(omega) >= 4:
        return (
            f"The slowest pair repeats after {slowest:.0f} positions: base {base:.4g}, "
            "as if exponents were divided by the width of all heads instead of one."
        )
    if base > 1e12:
        return (
            f"The slowest pair needs {slowest:.1g} positions for a turn: base "
            f"{base:.4g}, as if the step of the exponents were rounded."
        )
    return ""


def _no_ladder(
    patient: Patient, found: Survey, named: dict[str, Any]
) -> Finding | None:
    omega, steps = found.omega.abs(), found.omega.abs().diff()
    if named["scaling"] not in ("longrope", "unknown"):
        return None
    even = len(omega) > 2 and float((steps - steps[0]).abs().max()) <= FIT * omega.max()
    if named["scaling"] == "longrope" or (even and float(steps[0]) > 0):
        base = f"base {named['base']:g}"
        own = f"Every pair has a factor of its own on {base}, as in LongRoPE"
        evenly = "Frequencies rise in even steps, as some image encodings have them"
        free = named["scaling"] == "longrope"
        return Finding(
            "D-BASE",
            "note" if free else "differs",
            f"{own if free else evenly}.",
            remedy="Compare the frequencies with the config.",
            chapter=ROTATE,
        )
    return found_wrong(
        patient,
        "D-BASE",
        f"The frequencies {', '.join(f'{float(w):.4g}' for w in omega[:5])}, … are no "
        "geometric ladder, nor one under a known scaling rule.",
        value=named["error"],
        tolerance=FIT,
        remedy="ω_i = base^(−2i/rotary_dim): one real exponent per pair.",
    )
