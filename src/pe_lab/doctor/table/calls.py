"""Checks of a table as a function: shapes, widths, memory, default dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.reading import (
    TABLES,
    Reading,
    bad,
    expects,
    explained,
    measure,
    passed,
    reading_of,
)
from pe_lab.doctor.report import NotApplicable, Verdict


def check_shape(patient: Patient) -> Verdict:
    """The shape that was asked for, at even widths, and at the one that was named."""
    reading = reading_of(patient)
    size: Any = reading.axes or 7
    count = int(np.prod(size))
    named = patient.options.get("d_model")
    for d in (reading.width, 48, 10) if named is None else (int(named),):
        got = patient.call(size, d)
        if isinstance(got, Failure) and d == named:
            return _misshaped(patient, count, d, str(got))
        if isinstance(got, Tensor) and tuple(got.shape) != (count, d):
            return _misshaped(patient, count, d, str(tuple(got.shape)))
    return passed("D-SHAPE", "shapes are as asked for")


def _misshaped(patient: Patient, count: int, width: int, got: str) -> Verdict:
    odd = "An odd width has ⌈d/2⌉ sines and ⌊d/2⌋ cosines. " if width % 2 else ""
    return bad(
        patient,
        "D-SHAPE",
        "wrong",
        f"Asked for {count} rows of width {width}, it gives {got}.",
        odd + "Give one row for each position, one column for each channel.",
    )


def check_odd(patient: Patient) -> Verdict:
    """Odd widths too have a table, or are refused in words."""
    if not patient.facts["width_free"] or reading_of(patient).axes:
        return NotApplicable("D-SHAPE", "it has one width")
    for d in (33, 7):
        got = patient.call(7, d)
        if isinstance(got, Tensor) and tuple(got.shape) == (7, d):
            continue
        said = f"gives shape {tuple(got.shape)}" if isinstance(got, Tensor) else got
        return bad(
            patient,
            "D-SHAPE",
            "note",
            f"It has no odd widths: {d} {said}.",
            "Give the sines ⌈d/2⌉ channels and the cosines ⌊d/2⌋, or refuse in words.",
        )
    return passed("D-SHAPE", "odd widths have their table")


def check_widths(patient: Patient) -> Verdict:
    """Another width has the same rule."""
    reading = reading_of(patient)
    cause = explained(patient, "D-BASE")
    there = math.nan if cause else _base_elsewhere(patient, reading)
    if math.isnan(there):
        return cause or NotApplicable("D-BASE", "it has one width")
    base = reading.name["base"]
    if not abs(there / base - 1) > 1e-3:
        return passed("D-BASE", f"base {base:g} at width 48 too", there)
    return bad(
        patient,
        "D-BASE",
        "wrong",
        f"Its base is {base:.5g} at width {reading.width} and {there:.5g} at width 48: "
        "the exponent has a width written into it.",
        "Use 10000 ** (-2 * i / d) with the d of the table.",
        value=there,
    )


def _base_elsewhere(patient: Patient, reading: Reading) -> float:
    """The base of the table of width 48; NaN if there is none."""
    code, count = reading.code, len(reading.table)
    fixed = not patient.facts["width_free"] or bool(reading.axes)
    if fixed or code is None or not code.complete:
        return math.nan
    got = patient.call(count, 48)
    if not isinstance(got, Tensor) or tuple(got.shape) != (count, 48):
        return math.nan
    known = dict(patient.facts)
    other = measure(patient, 48, lambda call, n: patient.guard.call(call, n, 48))
    patient.facts.update(known)
    return float(other.name.get("base", math.nan))


def check_memory(patient: Patient) -> Verdict:
    """Other widths and edited results leave later calls alone."""
    got = patient.guard.call(_edited(patient.renewed(), reading_of(patient)))
    if isinstance(got, Failure):
        return NotApplicable("D-HISTORY", f"a result cannot be edited: {got}")
    first, second = got
    if first.shape == second.shape and torch.equal(first, second):
        return passed("D-HISTORY", "every call gives rows of its own")
    return bad(
        patient,
        "D-HISTORY",
        "note" if patient.facts["learns"] else "risky",
        "Editing a result in place changes what the next call gives: the caller gets "
        "the stored table itself.",
        "Give out a clone, or make the rows at each call.",
    )


def _edited(
    call: Callable[..., Any], reading: Reading
) -> Callable[[], tuple[Tensor, Tensor]]:
    """The same rows twice, the first of which are edited in between."""
    size = reading.axes or 6

    def twice() -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)  # of rows that are drawn at each call
        given = call(size, reading.width)
        first = given.clone()
        given.add_(100.0)
        torch.manual_seed(0)
        return first, call(size, reading.width)

    return twice


def check_default(patient: Patient) -> Verdict:
    """The rows do not depend on torch's default dtype, up to rounding."""
    cause = explained(patient, "D-DTYPE")
    gap = math.nan if cause else _under_bfloat16(patient, reading_of(patient))
    if math.isnan(gap):
        return cause or NotApplicable("D-DTYPE", "not with a bfloat16 default")
    if gap <= 2e-2:
        return passed("D-DTYPE", "the default dtype changes no angle", gap, 2e-2)
    return bad(
        patient,
        "D-DTYPE",
        "note",
        f"With bfloat16 as torch's default, as model loaders set it, rows are off by "
        f"{gap:.2g}: frequencies or positions take the default dtype.",
        "Name dtype=torch.float32 where positions and frequencies are made.",
        value=gap,
        tolerance=2e-2,
    )


def _under_bfloat16(patient: Patient, reading: Reading) -> float:
    """How far rows move if bfloat16 is the default dtype; NaN if there are none."""
    call: Any = patient.renewed()
    size: Any = reading.axes or min(300, len(reading.table))

    def narrow() -> Any:
        torch.set_default_dtype(torch.bfloat16)
        return call(size, reading.width)

    got = patient.guard.call(narrow)
    if not isinstance(got, Tensor) or got.shape != reading.table[: len(got)].shape:
        return math.nan
    return float((got.double() - reading.table[: len(got)]).abs().max())


def check_trains(patient: Patient) -> Verdict:
    """Sinusoids are fixed, and rows that learn are no sinusoids."""
    reading = reading_of(patient)
    if not reading.learns or reading.code is None or expects(patient, "parameters"):
        return passed("D-STATE", "what should train trains, the rest does not")
    return bad(
        patient,
        "D-STATE",
        "risky",
        "The sinusoidal table receives gradients: it is a parameter, and the first "
        "step of the optimiser makes it something else.",
        "Register it as a buffer, or make it anew at each call.",
        chapter=TABLES,
    )
