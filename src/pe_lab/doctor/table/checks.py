"""Checks of tables of positions; those of modules that add one start with them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pe_lab.doctor import slips
from pe_lab.doctor.code import COARSE, FINE
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.reading import (
    LENGTHS,
    Reading,
    bad,
    explained,
    passed,
    reading_of,
    rows,
)
from pe_lab.doctor.report import NotApplicable, Verdict
from pe_lab.encodings.sinusoidal import sinusoidal

SYMMETRY = "01 Break the symmetry"
_LONG = (20001, 10001, 5000, 2048, 1024, 512)
_REFUSE = "Refuse positions that have no row, or compute their rows."
_EXACT = "Make angles in float64 and round the result; make far rows by the same rule."
_MOST = 4_000_000  # entries of a table that is made only to look at it


def sorted_out(
    check: str, *, grids: bool = True
) -> Callable[..., Callable[[Patient], Verdict]]:
    """A check that is left out where an earlier finding is the cause.

    Args:
        check: its id.
        grids: whether it also means something for the cells of a grid, in a row.
    """

    def wrap(judge: Callable[[Patient, Reading], Verdict]) -> Callable[..., Verdict]:
        def run(patient: Patient) -> Verdict:
            reading = reading_of(patient)
            if reading.axes and not grids:
                return NotApplicable(check, "a grid is read axis by axis")
            return explained(patient, check) or judge(patient, reading)

        return run

    return wrap


@sorted_out("D-STATE")
def check_finite(patient: Patient, reading: Reading) -> Verdict:
    """Rows are numbers."""
    table = reading.table
    if not table.numel():
        text = f"It gives no rows of 8 to 256 positions: {rows(patient, LENGTHS[-1])}."
        return bad(patient, "D-LEN", "wrong", text, "Let every length have its rows.")
    wild = ~table.isfinite()
    if not bool(wild.any()):
        return passed("D-STATE", "every entry is finite")
    row, channel = (int(n) for n in wild.nonzero()[0])
    slip = slips.of_rows(table)
    dead = bool(wild.any(0).all())
    check = "D-BASE" if slip or not (dead or row) else "D-DTYPE" if row else "D-STATE"
    why = f": {slip}" if slip else ""
    return bad(
        patient,
        check,
        "wrong",
        f"Row {row} is {float(table[row, channel])} in channel {channel}{why}.",
        "Make frequencies and angles in float64 or float32, where the module is built.",
    )


@sorted_out("D-ORDER")
def check_order(patient: Patient, reading: Reading) -> Verdict:
    """Rows differ."""
    table = reading.table
    if len(table) < 2:
        return NotApplicable("D-ORDER", "there is a single row")
    spread = float((table - table[0]).abs().max())
    if spread > 0 and (reading.axes or not torch.equal(table[1], table[0])):
        return passed("D-ORDER", "rows differ", spread, 0.0)
    if spread > 0:
        text = "Row 1 is row 0 again: the first two tokens have one position."
        mend = "Number the tokens 0, 1, 2, …, and round none of it."
        return bad(patient, "D-ORDER", "wrong", text, mend, chapter=SYMMETRY)
    if not bool(table.any()) and (reading.learns or not patient.facts.get("stores")):
        said = "a learned table that starts at zero" if reading.learns else "NoPE"
        return NotApplicable("D-ORDER", f"nothing is added: {said}")
    slip = slips.of_rows(table)
    return bad(
        patient,
        "D-ORDER",
        "wrong",
        f"All {len(table)} positions have the same row" + (f": {slip}." if slip else
        ", so that nothing tells one order of the tokens from another."),
        "Let each row depend on its position, and add row p to token p.",
        value=spread,
        chapter=SYMMETRY,
    )  # fmt: skip


@sorted_out("D-LEN", grids=False)
def check_prefix(patient: Patient, reading: Reading) -> Verdict:
    """Row p is the same whatever the length."""
    table = reading.table
    short = next((n for n in (len(table) // 3, 7, 3) if n < len(table)), 0)
    got = rows(patient, short)
    if not short or not isinstance(got, Tensor) or got.shape[1:] != table.shape[1:]:
        return NotApplicable("D-LEN", "it has one length only")
    varies = bool((table != table[:1]).any()) and slips.of_rows(table) is None
    again = outrun(reading, table, len(table)) if varies else None
    if again is not None:
        return bad(patient, "D-LEN", "wrong", again, _REFUSE)
    gap = (got.double() - table[: len(got)]).abs().amax(-1)
    allowed = COARSE if got.dtype in (torch.float16, torch.bfloat16) else 1e-5
    if len(got) == short and float(gap.max()) <= allowed:
        return passed("D-LEN", "rows do not change with the length", float(gap.max()))
    if reading.code is None and misplaced(table):
        return passed("D-LEN", "the whole table is in disorder")
    return _lengthy(patient, reading, gap, allowed)


def _lengthy(
    patient: Patient, reading: Reading, gap: Tensor, allowed: float
) -> Verdict:
    down = reading.code is not None and reading.code.downward
    row = int(gap.argmax())
    why = "a text that grows by a token changes the codes of all tokens before"
    return bad(
        patient,
        "D-OFFSET" if down else "D-LEN",
        "wrong",
        f"Row {row} of {len(gap)} rows is not row {row} of {len(reading.table)}: "
        f"{'positions count down from the end' if down else why}.",
        "Make row p from p alone: neither divided by the length nor counted from it.",
        value=float(gap.max()),
        tolerance=allowed,
    )


def misplaced(table: Tensor) -> bool:
    """Whether the entries are those of the usual table, in other places."""
    right = sinusoidal(*table.shape, dtype=torch.float64)
    gap = table.flatten().sort().values - right.flatten().sort().values
    return float(gap.abs().max()) <= FINE


@sorted_out("D-DTYPE", grids=False)
def check_rounded(patient: Patient, reading: Reading) -> Verdict:
    """Positions and frequencies were not made in 16 bits."""
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
        what = None
        if _rounded_positions(patient, dtype):
            what = "positions"
        elif reading.name.get("rounded") == name or _rounded_ladder(reading, dtype):
            what = "frequencies"
        elif _rounded_angles(reading, dtype):
            what = "angles"
        if what is not None:
            return bad(
                patient,
                "D-DTYPE",
                "wrong",
                f"Its {what} are rounded to {name}, whose 8 bits (11 in float16) do "
                "not hold them: angles are off by radians.",
                "Compute positions, frequencies and angles in float32 or float64, "
                "whatever the default dtype is, and cast the finished table.",
            )
    return passed("D-DTYPE", "positions and frequencies are not rounded")


def _rounded_ladder(reading: Reading, dtype: torch.dtype) -> bool:
    """Whether frequencies near the usual ones all are numbers of this dtype."""
    code = reading.code
    if code is None or not code.complete or code.coarse:
        return False
    w = code.omega
    usual = 1e4 ** (-2 * torch.arange(len(w), dtype=torch.float64) / reading.width)
    near = (w / usual - 1).abs()
    seen = (w > 1e-3) & (near < 2e-2)
    known = (w / w.to(dtype).double() - 1).abs()
    # one in a hundred numbers is that near to one of bfloat16
    enough = int(seen.sum()) > max(3, len(w) // 2)
    return enough and float(near[seen].max()) > 1e-4 and float(known[seen].max()) < 3e-5


def _rounded_angles(reading: Reading, dtype: torch.dtype) -> bool:
    """Whether the rows are those of angles that were multiplied in 16 bits."""
    if reading.code is not None and reading.code.complete or len(reading.table) < 32:
        return False
    width, half = reading.width, (reading.width + 1) // 2
    w = 1e4 ** (-2 * torch.arange(half, dtype=torch.float64) / width)
    p = torch.arange(len(reading.table), dtype=torch.float64).to(dtype)[:, None]
    for ladder in (w.to(dtype), w.float()):
        angles = (p * ladder).to(dtype).double()
        waves = torch.stack((angles.sin(), angles.cos()), dim=-1)
        for code in (waves.flatten(-2), waves.transpose(-2, -1).flatten(-2)):
            gap = (reading.table - code[:, :width]).abs()
            # half of a unit more or less of a power changes few entries
            if float((gap <= COARSE).double().mean()) > 0.98:
                return True
    return False


def _rounded_positions(patient: Patient, dtype: torch.dtype) -> bool:
    """Whether neighbours fall together where the dtype runs out of whole numbers."""
    first = 256 if dtype == torch.bfloat16 else 2048
    got = rows(patient, first + 8)
    if not isinstance(got, Tensor) or len(got) < first + 8:
        return False
    same = [bool(torch.equal(got[p], got[p + 1])) for p in (first, first + 4)]
    before = bool(torch.equal(got[first - 2], got[first - 1]))
    apart = not bool(torch.equal(got[first], got[first + 2]))
    return all(same) and apart and not before


@sorted_out("D-LEN", grids=False)
def check_len(patient: Patient, reading: Reading) -> Verdict:
    """Far rows are there, are refused, or follow the rule: no wrap, no clamp."""
    if not bool((reading.table != reading.table[:1]).any()):
        return NotApplicable("D-LEN", "nothing is added")
    one = rows(patient, 1)
    if not isinstance(rows(patient, 3), Tensor):
        return NotApplicable("D-LEN", "it has one length only")
    if not isinstance(one, Tensor) or one.shape != (1, reading.width):
        said = f"shape {tuple(one.shape)}" if isinstance(one, Tensor) else one
        keep = "Keep the axis of positions when it has length 1; name axes to squeeze."
        text = f"A text of one token fails: {said}."
        return bad(patient, "D-LEN", "risky", text, keep)
    if not torch.allclose(one.double(), reading.table[:1], atol=1e-2):
        text = "A text of one token does not get row 0."
        return bad(patient, "D-LEN", "wrong", text, "Make row p from p alone.")
    for count in far(patient, reading):
        got = rows(patient, count)
        if not isinstance(got, Tensor):
            continue
        if len(got) != count and patient.facts.get("scale") == 0:
            continue  # an encoding alone: too short to be added
        trouble = outrun(reading, got, count)
        if trouble:
            return bad(patient, "D-LEN", "wrong", trouble, _REFUSE)
        return passed("D-LEN", f"{count} rows are there", float(count))
    return passed("D-LEN", "positions without a row are refused")


def far(patient: Patient, reading: Reading) -> list[int]:
    """Lengths to ask for, the longest first."""
    stored = patient.facts.get("sizes", ())
    ends = {patient.options.get("max_len"), *stored} - {None}
    own = {n for end in ends for n in (3 * int(end) + 5, int(end) + 1)}
    counts = own | {n for n in _LONG if n * reading.width <= _MOST}
    return sorted((n for n in counts if n), reverse=True)


def outrun(reading: Reading, got: Tensor, count: int) -> str | None:
    """What to say if the last of `count` rows is missing, empty, or another's."""
    if len(got) != count:
        return f"Asked for {count} rows, it gives {len(got)} and says nothing."
    last = got[-1]
    if len(got) > 3 and torch.equal(last, got[-2]) and torch.equal(last, got[-3]):
        first = int((got == last).all(-1).nonzero()[0])
        return f"Rows {first} to {count - 1} are all the same: it stops counting there."
    again = (got[: count - 1] == last).all(-1).nonzero().flatten()
    if len(again):
        period = count - 1 - int(again[-1])
        return (
            f"Row {count - 1} is row {int(again[-1])} again: it wraps after {period}."
        )
    if not bool(last.any()) and bool(reading.table.any()):
        first = int(got.any(-1).nonzero()[-1]) + 1
        return f"Rows from {first} on are empty: those tokens have no position."
    return None


@sorted_out("D-LONG", grids=False)
def check_long(patient: Patient, reading: Reading) -> Verdict:
    """Rows far out are those of exact angles, up to what float32 angles cost."""
    code = reading.code
    if code is None or not code.complete or reading.name["scaling"] == "unknown":
        return NotApplicable("D-LONG", "there is no rule to compare with")
    tables = [(n, rows(patient, n)) for n in far(patient, reading)]
    whole = [t for n, t in tables if isinstance(t, Tensor) and len(t) == n]
    if not whole:
        return NotApplicable("D-LONG", "it has no long table")
    got, count = whole[0], len(whole[0])
    error, at = _farthest(reading, got, code.gain)
    # float32: the angle p·ω carries about ten roundings of p·2^-24; a table that is
    # stored in 16 bits, half a unit of its last place besides
    allowed = 1e-6 * count + (COARSE if code.coarse else 1e-5)
    if error <= 1e-5 or (code.coarse and error <= COARSE):
        return passed("D-LONG", f"exact at {count} positions", error, 1e-5)
    usual = error <= allowed
    text = f"At position {at} it is {error:.2g} away from the exact code"
    return bad(
        patient,
        "D-LONG",
        "note" if usual else "wrong",
        text + (", as float32 angles are." if usual else "."),
        _EXACT,
        value=error,
        tolerance=1e-5 if usual else allowed,
    )


def _farthest(reading: Reading, got: Tensor, gain: float) -> tuple[float, int]:
    """The largest error of these rows, in units of the amplitude, and its position."""
    last = len(got) - 1
    places = torch.linspace(0, last, min(last + 1, 1500)).round().long().unique()
    gap = reading.misses(got[places], places) / gain
    return float(gap.max()), int(places[int(gap.argmax())])


@sorted_out("D-HISTORY")
def check_history(patient: Patient, reading: Reading) -> Verdict:
    """The same call gives the same rows, whatever was called before."""
    one, other = 5, 64
    if not isinstance(reading.probe(patient.renewed(), one), Tensor):
        one = other = len(reading.table)
    call = patient.renewed()
    first, far, _, again = (reading.probe(call, n) for n in (one, other, 3, one))
    if not isinstance(first, Tensor):
        return NotApplicable("D-HISTORY", f"it has no five rows: {first}")
    gap = _apart(first, again)
    alone = reading.probe(patient.renewed(), other)
    if isinstance(alone, Tensor):
        gap = max(gap, _apart(alone, far))
    if gap <= 1e-6:
        return passed("D-HISTORY", "calls do not change each other", gap, 1e-6)
    return bad(
        patient,
        "D-HISTORY",
        "wrong",
        f"A call for {one} or {other} rows gives something else after calls of other "
        "lengths than before them.",
        "Keep nothing between calls, or key what is kept by all that it depends on.",
        value=gap,
        tolerance=1e-6,
    )


def _apart(first: Tensor, second: Tensor | Failure) -> float:
    """Largest difference; infinite if one of them is missing or of another shape."""
    if not isinstance(second, Tensor) or first.shape != second.shape:
        return math.inf
    return float((first.double() - second.double()).abs().nan_to_num(0.0).max())
