"""Checks of sines and cosines: their order, their ladder, their size, their start."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lab.doctor import slips
from pe_lab.doctor.code import FINE, read
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.reading import (
    Reading,
    bad,
    expects,
    passed,
    reading_of,
    rows,
)
from pe_lab.doctor.report import NotApplicable, Verdict
from pe_lab.doctor.table.checks import misplaced, sorted_out
from pe_lab.doctor.waves import is_round
from pe_lab.encodings.sinusoidal import ORDERS, sinusoidal


@sorted_out("D-LAYOUT", grids=False)
def check_layout(patient: Patient, reading: Reading) -> Verdict:
    """Sines and cosines stand in a known order, with their signs."""
    code, table = reading.code, reading.table
    if code is not None and code.complete:
        return _signs(patient, reading)
    if not bool(table.any()) or table.shape[0] < 8:
        return NotApplicable("D-LAYOUT", "there is too little to see")
    for search in (_late_start, _disorder, _ramp, _one_phase):
        found = search(patient, table)
        if found is not None:
            check, message, remedy = found
            return bad(patient, check, "wrong", message, remedy)
    return NotApplicable("D-LAYOUT", "it is not made of sines and cosines")


# What a table that does not turn evenly may be: (check, message, remedy), or None
Found = tuple[str, str, str] | None


def _late_start(patient: Patient, table: Tensor) -> Found:
    later = read(table[1:])
    if later is None or not later.complete:
        return None
    return (
        "D-OFFSET",
        f"Row 1 holds the code of position {later.offset:.4g}, and row 0 is none of "
        "that table.",
        "Start at 0: row p holds the code of position p.",
    )


def _disorder(patient: Patient, table: Tensor) -> Found:
    full = rows(patient, patient.facts.get("limit") or len(table))
    whole = full.double() if isinstance(full, Tensor) else table
    if not misplaced(table) and not misplaced(whole):
        return None
    return (
        "D-LAYOUT",
        "The entries are those of the sinusoidal table, but in other places: it was "
        "reshaped, transposed or concatenated along another axis.",
        "Stack sines and cosines along the last axis, then flatten the last two.",
    )


def _ramp(patient: Patient, table: Tensor) -> Found:
    gap = float((table - table[1] * torch.arange(len(table))[:, None]).abs().max())
    if gap > FINE * float(table.abs().max()):
        return None
    return (
        "D-NORM",
        "Row p is p times row 1: the code grows without bound, and drowns the "
        "embeddings.",
        "Use sines and cosines of the position, or a learned row.",
    )


def _signs(patient: Patient, reading: Reading) -> Verdict:
    code = reading.code
    assert code is not None
    if math.isnan(code.offset):
        return NotApplicable("D-LAYOUT", "the pairs do not start together")
    if code.sense == "" or (code.sense == "c" and expects(patient, "order")):
        return passed("D-LAYOUT", code.order)
    if code.sense == "c":
        return bad(
            patient,
            "D-LAYOUT",
            "differs",
            f"The cosine comes first ({code.order}); the paper has the sine first. "
            "Any order works as long as everything trained with it keeps it.",
            "Swap the two for a checkpoint of the other order.",
        )
    return bad(
        patient,
        "D-LAYOUT",
        "wrong",
        f"A sign is wrong ({code.order}): position p has the code of −p or of a place "
        "half a turn away.",
        "Use +sin and +cos.",
    )


def _one_phase(patient: Patient, table: Tensor) -> Found:
    half = (table.shape[1] + 1) // 2
    for blocks in (False, True):
        a = table[:, :half] if blocks else table[:, ::2]
        b = table[:, half:] if blocks else table[:, 1::2]
        a = a[:, : b.shape[1]]
        gap = min(float((a - b).abs().max()), float((a + b).abs().max()))
        if gap <= FINE and bool(a.any()):
            wave = "a sine" if float(table[0].abs().max()) <= FINE else "a cosine"
            return (
                "D-LAYOUT",
                f"Both channels of each pair hold the same wave, {wave}: without its "
                "partner a sine cannot tell p from π/ω − p, and no rotation moves the "
                "code by one position.",
                "Give even channels the sine and odd channels the cosine of an angle.",
            )
    return None


@sorted_out("D-BASE", grids=False)
def check_base(patient: Patient, reading: Reading) -> Verdict:
    """Frequencies are those of a known rule."""
    code = reading.code
    if code is None or not code.complete:
        slip = slips.of_rows(reading.table) or _torn(reading) or _uneven(reading)
        if slip is None:
            return NotApplicable("D-BASE", "it is not made of sines and cosines")
        return _wrong_base(patient, slip)
    name, base = reading.name, float(reading.name["base"])
    if len(code.omega) == 1:
        return _plain_base(patient, reading)
    fits = name["scaling"] != "unknown" and name["error"] <= 1e-3
    plain = name["scaling"] == "none" and is_round(base)
    known = slips.of_base(code.omega, reading.width)
    if known and known[1] and not plain:
        return _wrong_base(patient, known[0])
    if expects(patient, "base") or expects(patient, "scaling"):
        return passed("D-BASE", f"base {base:g}, as expected", name["error"])
    if known and name["spacing"] == "paper":
        return _wrong_base(patient, known[0], "risky")
    rule = slips.of_rows(reading.table) if not (fits and plain) else None
    if rule is not None or not fits:
        return _wrong_base(patient, rule or _free(reading))
    if not is_round(base):
        return _wrong_base(patient, _odd_base(base), "risky")
    return _plain_base(patient, reading)


def _plain_base(patient: Patient, reading: Reading) -> Verdict:
    name, base = reading.name, float(reading.name["base"])
    slow = name["scaling"].split(" ")
    factor = float(slow[1]) if slow[0] == "linear" else 1.0
    if abs(2 * factor - round(2 * factor)) > 1e-2 or factor < 1:
        text = f"positions are divided by {factor:g} before anything else"
        return _wrong_base(patient, text, "risky")
    if base == 1e4 or math.isnan(base):
        return passed("D-BASE", f"base {base:g}, {name['scaling']}", name["error"])
    return bad(
        patient,
        "D-BASE",
        "differs",
        f"Its base is {base:g}, where 10000 is usual; wavelengths end near "
        f"{2 * math.pi * base:.3g} positions.",
        "Keep it, if what was trained had it.",
        value=base,
    )


def _wrong_base(patient: Patient, why: str, severity: str = "wrong") -> Verdict:
    code = reading_of(patient).code
    seen = None if code is None or len(code.omega) < 2 else float(code.omega[1])
    unsure = (
        " If it is meant so, say expected={'base': …}." if severity != "wrong" else ""
    )
    return bad(
        patient,
        "D-BASE",
        severity,
        f"The frequencies are not those of 10000^(−2i/d): {why}.{unsure}",
        "Use 10000 ** (-2 * i / d) for pair i = 0 … d/2 − 1, in float.",
        value=seen,
    )


def _free(reading: Reading) -> str:
    code = reading.code
    assert code is not None
    w = code.omega
    wanted = 1e4 ** (-2 * torch.arange(len(w), dtype=torch.float64) / reading.width)
    i = int((w / wanted).log().abs().argmax())
    return (
        f"pair {i} turns by {float(w[i]):.4g} at each position, where "
        f"{float(wanted[i]):.4g} is right, and no rule explains it"
    )


def _odd_base(base: float) -> str:
    return f"they fall as with base {base:.6g}, which nobody chooses"


def _torn(reading: Reading) -> str | None:
    """The first pair of channels with waves of two frequencies."""
    for blocks in (False, True):
        waves = channel_waves(reading.table)
        half = (reading.width + 1) // 2
        seen = [c for c in range(reading.width) if waves[c] is not None]
        if len(seen) < 2:
            return None
        for c in seen:
            partner = c + half if blocks else c + 1
            ours, theirs = waves[c], waves[partner] if partner < len(waves) else None
            if (not blocks and c % 2) or ours is None or theirs is None:
                continue
            if ours[0] > 0.1 and abs(ours[0] - theirs[0]) > 5e-3 * ours[0]:
                return (
                    f"channels {c} and {partner} turn by {ours[0]:.4g} and "
                    f"{theirs[0]:.4g} at each position; the sine and the cosine of a "
                    "pair need one frequency"
                )
    return None


def _uneven(reading: Reading) -> str | None:
    """Pairs on a circle that do not go round it evenly."""
    table, half = reading.table, (reading.width + 1) // 2
    for blocks in (False, True):
        a = table[:, :half] if blocks else table[:, ::2]
        b = table[:, half:] if blocks else table[:, 1::2]
        z = torch.complex(b, a[:, : b.shape[1]])
        size = z.abs()
        if float((size - size[0, 0]).abs().max()) > FINE * float(size[0, 0]):
            continue
        steps = (z[1:] * z[:-1].conj()).angle()[:, 0].tolist()
        if len(steps) < 3 or max(steps) - min(steps) <= FINE:
            continue
        return (
            "angles are not positions times frequencies: pair 0 turns by "
            f"{steps[0]:.4g}, then by {steps[1]:.4g}, then by {steps[2]:.4g}"
        )
    return None


def channel_waves(table: Tensor) -> list[tuple[float, float] | None]:
    """(frequency, amplitude) of each channel that is a wave, fast enough to be seen.

    For a wave t_(p+1) + t_(p−1) = 2·cos ω · t_p at every p.
    """
    found: list[tuple[float, float] | None] = []
    both, middle = table[2:] + table[:-2], table[1:-1]
    power = middle.square().sum(0)
    cos = (both * middle).sum(0) / (2 * power).clamp_min(1e-12)
    rest = (both - 2 * cos * middle).abs().amax(0) / table.abs().amax(0).clamp_min(1e-9)
    for c in range(table.shape[1]):
        steady = float(rest[c]) <= FINE and abs(float(cos[c])) < 1 - 1e-4
        steady = steady and float(power[c]) > 0
        size = float((2 * power[c] / len(middle)).sqrt())
        found.append((math.acos(float(cos[c])), size) if steady else None)
    return found


@sorted_out("D-NORM", grids=False)
def check_norm(patient: Patient, reading: Reading) -> Verdict:
    """sin² + cos² is the same at every position and in every pair."""
    code, table = reading.code, reading.table
    if code is not None and code.complete:
        return _gain(patient, reading)
    alike = _alike(table)
    if code is None and alike is None and not _has_waves(table):
        return NotApplicable("D-NORM", "it is not made of sines and cosines")
    if alike is not None:
        text = f"It is nearly the sinusoidal table: {alike}."
        return bad(patient, "D-NORM", "wrong", text, "Leave sines and cosines alone.")
    return _unequal(patient, reading)


def _unequal(patient: Patient, reading: Reading) -> Verdict:
    """What to say of waves whose pairs are no circles."""
    code, table = reading.code, reading.table
    half = (table.shape[1] + 1) // 2
    blocks = code is not None and code.blocks
    a = table[:, :half] if blocks else table[:, ::2]
    b = table[:, half:] if blocks else table[:, 1::2]
    norms = (a[:, : b.shape[1]].square() + b.square()).sqrt()
    spread = norms.amax(0) - norms.amin(0)
    middle = norms.median()
    pair = int(torch.maximum(spread, (norms - middle).abs().amax(0)).argmax())
    return bad(
        patient,
        "D-NORM",
        "wrong",
        f"sin² + cos² is not the same everywhere: in pair {pair} its root runs from "
        f"{float(norms[:, pair].min()):.4g} to {float(norms[:, pair].max()):.4g}, "
        f"elsewhere it is {float(middle):.4g}.",
        "Give both channels of every pair the same angle and the same amplitude.",
        value=float(spread.max()),
        tolerance=FINE,
    )


def _has_waves(table: Tensor) -> bool:
    return len(table) > 8 and any(wave is not None for wave in channel_waves(table))


def _alike(table: Tensor) -> str | None:
    """What was done to the usual table, if some of it is left."""
    if len(table) < 16:
        return None
    for order in ORDERS:
        right = sinusoidal(*table.shape, order=order, dtype=torch.float64)
        fast = right[1:].abs().amax(0) > 0.5  # slow channels look like constants
        seen, wanted = table[1:, fast], right[1:, fast]
        same = (seen - wanted).abs() <= 1e-4
        if 0.2 < float(same.double().mean()) < 1:
            row, channel = (int(n) for n in (~same).nonzero()[0])
            return (
                f"in row {row + 1} an entry is {float(seen[row, channel]):.4g} where "
                f"{float(wanted[row, channel]):.4g} is right"
            )
        ranked = seen.flatten()[wanted.flatten().argsort()]
        span = float(ranked.max() - ranked.min())
        # of unrelated numbers neighbours are a third of the span apart
        if span > 0 and float(ranked.diff().abs().mean()) < 0.01 * span:
            return "its entries are a function of the right ones, not those themselves"
    return None


def _gain(patient: Patient, reading: Reading) -> Verdict:
    code = reading.code
    assert code is not None
    if abs(code.gain - 2) < 1e-3 and not expects(patient, "gain"):
        return bad(
            patient,
            "D-NORM",
            "risky",
            "The code has amplitude 2: it is added twice. If it is meant so, say "
            "expected={'gain': 2}.",
            "Add it once.",
            value=code.gain,
            chapter="07 Add, scale, and find the √d_model bug",
        )
    root = math.sqrt(reading.width)
    if abs(code.gain / root - 1) < 1e-3 and root > 1 and not expects(patient, "gain"):
        return _drowns(patient, code.gain)
    return passed("D-NORM", "sin² + cos² = gain² in every pair", code.gain)


def _drowns(patient: Patient, gain: float) -> Verdict:
    return bad(
        patient,
        "D-SCALE",
        "risky",
        f"The code has amplitude {gain:.4g} = √d: it drowns embeddings of standard "
        "deviation 1. If it is meant so, say expected={'gain': …}.",
        "Multiply the embeddings by √d, not the code.",
        value=gain,
        chapter="07 Add, scale, and find the √d_model bug",
    )


@sorted_out("D-OFFSET", grids=False)
def check_offset(patient: Patient, reading: Reading) -> Verdict:
    """Row 0 is position 0."""
    code = reading.code
    if code is None or not code.complete:
        return NotApplicable("D-OFFSET", "a table without structure starts anywhere")
    if math.isnan(code.offset):
        text = "The pairs do not start together: row 0 is no position at all."
        mend = "Multiply every frequency with the same positions 0, 1, 2, …"
        return bad(patient, "D-OFFSET", "wrong", text, mend)
    where = code.offset
    if abs(where) < 0.05 and not code.downward:
        return passed("D-OFFSET", "row 0 is position 0", where, 0.05)
    usual = where > 1.5 and abs(where - round(where)) < 0.05 and not code.downward
    if expects(patient, "offset"):
        return passed("D-OFFSET", f"row 0 is position {where:g}", where)
    return bad(
        patient,
        "D-OFFSET",
        "differs" if usual else "wrong" if code.downward else "risky",
        f"Row 0 holds the code of position {where:.4g}.",
        "Start at 0, or say expected={'offset': …} if the model was trained so.",
        value=where,
        tolerance=0.05,
    )


@sorted_out("D-SHAPE", grids=False)
def check_lone(patient: Patient, reading: Reading) -> Verdict:
    """Of an odd width, the last channel is a sine, or empty."""
    code, name = reading.code, reading.name
    if code is None or reading.width % 2 == 0 or name.get("scaling") != "none":
        return NotApplicable("D-SHAPE", "every channel has a partner")
    at = len(code.omega) if code.blocks else reading.width - 1
    seen = reading.table[:, at]
    slow = float(name["base"]) ** (-2 * len(code.omega) / reading.dim)
    places = torch.arange(len(seen), dtype=torch.float64) + code.offset
    wanted = code.gain * (places * slow).sin()
    other = code.gain * (places * slow).cos()
    gap = min(float((seen - w).abs().max()) for w in (wanted, other, 0 * seen))
    if gap <= FINE or name["spacing"] != "paper":
        return passed("D-SHAPE", "the last channel is a sine", gap, FINE)
    return bad(
        patient,
        "D-SHAPE",
        "wrong",
        f"The width {reading.width} is odd, and channel {at}, which has no partner, is "
        "neither the next sine nor empty.",
        "An odd width has ⌈d/2⌉ sines and ⌊d/2⌋ cosines.",
        value=gap,
        tolerance=FINE,
    )
