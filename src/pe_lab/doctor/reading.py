"""What the doctor knows of a table of positions, before it judges: the measurements.

Tables and modules that add one are both read here, through a `probe` that gets the
first n rows out of the subject's call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.code import COARSE, Code, read
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.waves import USUAL, geometric, is_round, name_ladder

Call = Callable[..., Any]
Probe = Callable[[Call, int], "Tensor | Failure"]
ALARMS = ("wrong", "risky")
LENGTHS = (256, 64, 32, 16, 8)
TABLES = "03 Compute the tables by hand"
_EXPECTED = {"order": "D-LAYOUT", "layout": "D-LAYOUT", "base": "D-BASE"} | {
    "spacing": "D-BASE", "scaling": "D-BASE", "offset": "D-OFFSET", "gain": "D-NORM",
    "axes": "D-GRID", "scheme": "D-ORDER", "parameters": "D-STATE", "scale": "D-SCALE",
}  # fmt: skip


@dataclass
class Reading:
    """A table as it was measured.

    Args:
        width: channels.
        probe: (call, n) → its first n rows (n, width), in the subject's dtype.
        table: (L, width) float64, with the L that the subject could give.
        code: sines and cosines in it, if they are there.
        name: of the ladder: base, spacing, scaling …
        dim: channels that the exponents divide by.
        learns: whether gradients reach the rows.
        axes: (height, width) of a grid whose cells are the rows, or ().
    """

    width: int
    probe: Probe
    table: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    code: Code | None = None
    name: dict[str, Any] = field(default_factory=dict)
    dim: int = 0
    learns: bool = False
    axes: tuple[int, ...] = ()

    @property
    def cells(self) -> int:
        """Rows of a grid."""
        return math.prod(self.axes)

    def ideal(self, positions: Tensor) -> Tensor:
        """The rows that the code so named has there; NaN in channels not named."""
        code = self.code
        rows = torch.full((len(positions), self.width), torch.nan, dtype=torch.float64)
        if code is None:
            return rows
        ladder = self.name["ladder"].double()
        turn = -1.0 if code.backward else 1.0
        sign = -1.0 if code.quarter % 2 else 1.0
        offset = round(code.offset) if abs(code.offset % 1) < 0.02 else code.offset
        start = code.quarter * torch.pi / 2 + sign * offset * ladder
        angles = start + turn * positions.double()[:, None] * ladder
        rows[:, code.sines], rows[:, code.cosines] = angles.sin(), angles.cos()
        return rows * code.gain

    def misses(self, table: Tensor, positions: Tensor | None = None) -> Tensor:
        """Largest distance of each row from the ideal, (rows,)."""
        at = torch.arange(len(table)) if positions is None else positions
        gap = (table.double() - self.ideal(at)).abs()
        return torch.where(self.ideal(at).isnan(), 0.0, gap).amax(-1)


def measure(patient: Patient, width: int, probe: Probe, **more: Any) -> Reading:
    """Read the subject and keep what was read among the facts."""
    reading = Reading(width, probe, **more)
    patient.facts.update(reading=reading, rows={})
    most = min(int(patient.options.get("max_len", LENGTHS[0])), LENGTHS[0])
    lengths = (most, *LENGTHS, *patient.facts.get("sizes", ()))
    for length in (reading.cells,) if reading.axes else lengths:
        got = rows(patient, length)
        if isinstance(got, Tensor):
            reading.table = got.double()
            break
    interpret(reading)
    return reading


def interpret(reading: Reading) -> None:
    """Look for sines and cosines in the table, and name their ladder."""
    reading.code, reading.name = read(_narrowed(reading)), {}
    if reading.code is not None:
        _name(reading, reading.code)


def reading_of(patient: Patient) -> Reading:
    """What `measure` kept."""
    return patient.facts["reading"]


def rows(patient: Patient, count: int) -> Tensor | Failure:
    """The first rows, asked for once: (count, width) in the subject's dtype."""
    known = patient.facts["rows"]
    if reading_of(patient).axes and count != reading_of(patient).cells:
        return Failure(ValueError("a grid has its own number of cells"))
    if count not in known:
        known[count] = reading_of(patient).probe(patient.call, count)
    return known[count]


def _narrowed(reading: Reading) -> Tensor:
    """The table without the zeros that fill an odd width up."""
    table = reading.table
    padded = table.shape[1] % 2 and table.shape[1] > 2 and not bool(table[:, -1].any())
    return table[:, :-1] if padded else table


def _name(reading: Reading, code: Code) -> None:
    width = reading.width
    dims = (width,) if width % 2 == 0 else (width, width + 1, width - 1)
    names = {dim: name_ladder(code.omega, dim=dim) for dim in dims}
    plain = [d for d in dims if names[d]["scaling"] == "none"]
    good = [d for d in plain if is_round(names[d]["base"])]
    reading.dim = next(iter(good or plain or dims))
    reading.name = names[reading.dim]
    if code.coarse:
        _name_coarse(reading)


def _name_coarse(reading: Reading) -> None:
    """Of a table in 16 bits: the usual ladder that it is near to, if there is one."""
    code, pairs = reading.code, len(reading.name["ladder"])
    measured = dict(reading.name)
    for base in USUAL:
        for spacing in ("paper", "tensor2tensor"):
            dim = reading.dim
            steps = base ** (dim / max(1, dim - 2)) if spacing != "paper" else base
            ladder = geometric(steps, dim, pairs)
            reading.name = {"base": base, "spacing": spacing, "scaling": "none"} | {
                "ladder": ladder, "error": 0.0,
            }  # fmt: skip
            gap = reading.misses(reading.table)
            if code is not None and float(gap.max()) <= COARSE * code.gain:
                return
    reading.name = measured


# Verdicts ----------------------------------------------------------------------------


def bad(
    patient: Patient | None,
    check: str,
    severity: str,
    message: str,
    remedy: str = "",
    *,
    value: float | None = None,
    tolerance: float | None = None,
    chapter: str = TABLES,
) -> Finding:
    """A finding; of a patient that is named, the cause of what comes after it."""
    if severity in ALARMS and patient is not None:
        patient.facts.setdefault("cause", check)
    return Finding(check, severity, message, value, tolerance, remedy, chapter)


def explained(patient: Patient, check: str) -> NotApplicable | None:
    """What to say where an earlier finding already explains what would be seen."""
    cause = patient.facts.get("cause")
    return None if cause is None else NotApplicable(check, f"explained by {cause}")


def unexpected(patient: Patient, identity: dict[str, Any]) -> list[Verdict]:
    """A finding for each expectation of the caller that the identity contradicts."""
    found: list[Verdict] = []
    for key, wanted in dict(patient.options.get("expected") or {}).items():
        key = "order" if key == "layout" else key
        if key not in _EXPECTED or key not in identity:
            continue
        got = identity[key]
        if not _agree(got, wanted):
            found.append(
                bad(
                    patient,
                    _EXPECTED[key],
                    "wrong",
                    f"Its {key} is {_text(got)}, where {_text(wanted)} is expected.",
                    f"Build it with {key} {_text(wanted)}.",
                )
            )
    return found


def expects(patient: Patient, key: str) -> bool:
    """Whether the caller said what this should be."""
    return key in dict(patient.options.get("expected") or {})


def _agree(got: Any, wanted: Any) -> bool:
    if isinstance(got, int | float) and isinstance(wanted, int | float):
        return abs(got - wanted) <= 1e-3 * max(abs(wanted), 1e-9)
    return str(got) == str(wanted)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def passed(
    check: str,
    message: str,
    value: float | None = None,
    tolerance: float | None = None,
) -> Passed:
    """A check that found nothing."""
    return Passed(check, message, value, tolerance)
