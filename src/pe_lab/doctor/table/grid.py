"""Codes of the cells of a grid: which channels vary with row, which with column.

Axial codes give each axis channels of its own (Carion et al. 2020).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from pe_lab.doctor.code import read
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.reading import (
    Reading,
    bad,
    explained,
    interpret,
    passed,
    reading_of,
)
from pe_lab.doctor.report import Finding, NotApplicable, Verdict
from pe_lab.doctor.table import sinusoid as sinusoid_checks

CHAPTER = "03 Compute the tables by hand"
_STILL = 1e-5  # of values about 1 in float32


def shares(table: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """(d,) each: how much a channel varies along a column, and along a row."""
    cells = table.reshape(height, width, -1)
    return (
        (cells - cells[:1]).abs().amax((0, 1)),
        (cells - cells[:, :1]).abs().amax((0, 1)),
    )


def describe(reading: Reading) -> dict[str, Any]:
    """Scheme, order of the axes, and what the rows' share is made of."""
    table = reading.table
    if len(reading.axes) != 2 or not len(table):
        return {"scheme": "no structure"}
    down, across = (s > _STILL for s in shares(table, *reading.axes))
    learnt = {"parameters": "trained"} if reading.learns else {}
    if bool((down & across).any()):
        scheme = "learned" if reading.learns else "no structure"
        if reading.code is not None:
            scheme = "sinusoidal along the raster"
        return {"scheme": scheme, **learnt}
    return {
        "scheme": "axial",
        "axes": _order(down, across),
        "channels of rows": int(down.sum()),
        "channels of columns": int(across.sum()),
        **learnt,
    }


def _order(down: Tensor, across: Tensor) -> str:
    if not bool(down.any() and across.any()):
        return "one only"
    first = int(down.nonzero()[0]) < int(across.nonzero()[0])
    return "row first" if first else "column first"


def check_grid(patient: Patient) -> Verdict | list[Verdict]:
    """On a grid that is not square, each channel varies along one axis."""
    cause = explained(patient, "D-GRID")
    reading = reading_of(patient)
    if cause or len(reading.axes) != 2 or not len(reading.table):
        return cause or NotApplicable(
            "D-GRID", "no grid was named: axes=(height, width)"
        )
    height, width = reading.axes
    down, across = (s > _STILL for s in shares(reading.table, height, width))
    if not bool(down.any()) or not bool(across.any()):
        axis = "row" if not bool(down.any()) else "column"
        return _bad(patient, f"No channel depends on the {axis} of a cell.")
    mixed = down & across
    if not bool(mixed.any()):
        return _axis_by_axis(patient, reading, _order(down, across))
    return _judge_mixed(patient, reading, int(mixed.nonzero()[0]))


def _judge_mixed(patient: Patient, reading: Reading, channel: int) -> Verdict:
    """What to say where a channel varies along both axes."""
    height, width = reading.axes
    turned = shares(reading.table, width, height)
    if not bool(((turned[0] > _STILL) & (turned[1] > _STILL)).any()):
        return _bad(
            patient,
            f"The cells are those of a {width}×{height} grid: the axes were flattened "
            f"in the other order than the {height}×{width} image is.",
        )
    same = _one_code(reading.table, width)
    if same is not None:
        return _bad(patient, f"{same}: an index came round, or axes were swapped.")
    if reading.learns or (reading.code is None and not _wavy(reading)):
        return NotApplicable("D-GRID", "each cell has a row of its own")
    if read(reading.table) is not None:
        return bad(
            patient,
            "D-GRID",
            "differs",
            "It counts the cells along the raster: neighbours in a column are as far "
            f"apart as {width} steps along a row.",
            "Give each axis channels of its own.",
            chapter=CHAPTER,
        )
    return _bad(patient, f"Channel {channel} varies with the row and with the column.")


def _one_code(table: Tensor, width: int) -> str | None:
    """Two cells that have one code, in words."""
    seen: dict[tuple[float, ...], int] = {}
    for cell, code in enumerate(table.tolist()):
        before = seen.setdefault(tuple(code), cell)
        if before != cell:
            a, b = divmod(before, width), divmod(cell, width)
            return f"Cells {a} and {b} have one code"
    return None


def _axis_by_axis(patient: Patient, reading: Reading, order: str) -> list[Verdict]:
    """The checks of a row of positions, on each axis with its half of the channels."""
    found: list[Verdict] = [passed("D-GRID", order)]
    half = reading.width // 2
    if reading.width % 4:
        return found
    cells = reading.table.reshape(*reading.axes, -1)
    lines = (cells[:, 0], cells[0])
    for line, first in zip(lines, _FIRST[order], strict=True):
        codes = line[:, :half] if first else line[:, half:]
        if len(codes) < 4:
            continue
        alone = replace(reading, width=half, axes=(), table=codes)
        interpret(alone)
        patient.facts["reading"] = alone
        verdicts = [check(patient) for check in _LINES]
        found += [v for v in verdicts if isinstance(v, Finding)]
    patient.facts["reading"] = reading
    return found


_FIRST = {"row first": (True, False), "column first": (False, True)}
_LINES = (
    sinusoid_checks.check_layout,
    sinusoid_checks.check_base,
    sinusoid_checks.check_norm,
    sinusoid_checks.check_offset,
)


def _wavy(reading: Reading) -> bool:
    """Whether the first row or column of the grid holds sines and cosines."""
    cells = reading.table.reshape(*reading.axes, -1)
    return read(cells[0]) is not None or read(cells[:, 0]) is not None


def _bad(patient: Patient, message: str) -> Verdict:
    return bad(
        patient,
        "D-GRID",
        "wrong",
        message,
        "Number the cells row by row: cell r·width + c has the codes of r and of c.",
        chapter=CHAPTER,
    )
