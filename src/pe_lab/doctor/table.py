"""Tables of positions: f(length, d_model) → (L, d), read row by row.

Sinusoids (Vaswani et al. 2017) on one axis or on a grid, learned rows, or neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lab.doctor import grid_checks, table_checks
from pe_lab.doctor.guard import Failure, Guard, evaluating, fresh
from pe_lab.doctor.kind import Adapter, Kind, Patient
from pe_lab.doctor.reading import (
    TABLES,
    Reading,
    bad,
    expects,
    explained,
    measure,
    passed,
    reading_of,
    unexpected,
)
from pe_lab.doctor.report import NotApplicable, Verdict
from pe_lab.encodings.base import PositionalEncoding

CONVENTION = "f(length, d_model) → (L, d) or (1, L, d)"
WIDTHS = (32, 64, 16, 128, 512, 768, 256)
_LENGTH = 5


def recognise(subject: Any, options: Mapping[str, Any], guard: Guard) -> Adapter | str:
    """Whether two sizes give a table of those sizes."""
    if not callable(subject) or isinstance(subject, type | PositionalEncoding):
        return "it cannot be called with two numbers"
    said = "nothing"
    for width in _widths(options):
        got = guard.call(_adapter(options)(fresh(subject)), _size(options), width)
        if isinstance(got, Tensor):
            if not got.is_floating_point():
                return f"({_LENGTH}, {width}) gives {got.dtype}, and rows are floats"
            near = got.dim() == 2 and {_rows(options), width} & set(got.shape)
            if near:
                return _adapter(options)
            said = f"({_LENGTH}, {width}) gives shape {tuple(got.shape)}"
        else:
            said = f"({_LENGTH}, {width}) gives {got}"
    return said


def _widths(options: Mapping[str, Any]) -> tuple[int, ...]:
    given = options.get("d_model")
    # a width next to the one that was named shows what kind it is that fails there
    return WIDTHS if given is None else (int(given), int(given) + 1)


def _size(options: Mapping[str, Any]) -> Any:
    return tuple(options["axes"]) if options.get("axes") else _LENGTH


def _rows(options: Mapping[str, Any]) -> int:
    axes = options.get("axes")
    return int(np.prod(axes)) if axes else _LENGTH


def _adapter(options: Mapping[str, Any]) -> Adapter:
    def adapt(subject: Any) -> Callable[..., Any]:
        def call(size: Any, width: int) -> Any:
            with evaluating(subject):
                return _as_rows(_asked(subject, size, width))

        return call

    return adapt


def _asked(subject: Any, size: Any, width: int) -> Any:
    """Grids are asked for as f(height, width, d), f((height, width), d) or f(cells)."""
    if not isinstance(size, tuple):
        return subject(size, width)
    for arguments in ((*size, width), (size, width)):
        try:
            return subject(*arguments)
        except TypeError:
            continue
    return subject(int(np.prod(size)), width)


def _as_rows(given: Any) -> Any:
    """(L, d) of a tensor or array (L, d), (1, L, d), (L, 1, d) or (h, w, d)."""
    table = torch.from_numpy(given) if isinstance(given, np.ndarray) else given
    if not isinstance(table, Tensor):
        raise TypeError(f"a table is a tensor, not {type(given).__name__}")
    if table.dim() == 4 and table.shape[0] == 1:
        table = table[0]
    if table.dim() == 3:
        table = table.flatten(0, 1)
    return table


def identify(patient: Patient) -> dict[str, Any]:
    """Measure a table of one width, and say what it is."""
    options = patient.options
    axes = tuple(int(n) for n in options.get("axes") or ())
    width = _first_width(patient)
    patient.facts["width_free"] = options.get("d_model") is None
    patient.facts["stores"] = True  # a table of zeros is meant to be something else
    patient.facts["learns"] = _learns(patient, width)

    def probe(call: Callable[..., Any], count: int) -> Tensor | Failure:
        got = patient.guard.call(call, axes or count, width)
        wrong = isinstance(got, Tensor) and (got.dim() != 2 or got.shape[1] != width)
        return Failure(ValueError(f"shape {tuple(got.shape)}")) if wrong else got

    reading = measure(patient, width, probe, learns=patient.facts["learns"], axes=axes)
    return describe(patient, reading)


def _first_width(patient: Patient) -> int:
    size = patient.options.get("axes") or _LENGTH
    asked = tuple(size) if not isinstance(size, int) else size
    for width in _widths(patient.options):
        got = patient.call(asked, width)
        if isinstance(got, Tensor) and got.dim() == 2 and got.shape[1] == width:
            return width
    return _widths(patient.options)[0]


def _learns(patient: Patient, width: int) -> bool:
    """Whether the rows carry gradients."""
    call = patient.renewed()
    size = patient.options.get("axes") or _LENGTH

    def tracked() -> Tensor:
        with torch.enable_grad():
            got = call(tuple(size) if not isinstance(size, int) else size, width)
        return torch.tensor(bool(got.requires_grad))

    got = patient.guard.call(tracked)
    return isinstance(got, Tensor) and bool(got)


def describe(patient: Patient, reading: Reading) -> dict[str, Any]:
    """The identity of what was measured."""
    patient.facts["identity"] = identity = _described(patient, reading)
    return identity


def _described(patient: Patient, reading: Reading) -> dict[str, Any]:
    if reading.axes:
        return grid_checks.describe(reading)
    code = reading.code
    learnt = {"parameters": "trained"} if reading.learns else {}
    if code is None:
        still = not bool(reading.table.any())
        scheme = "learned" if reading.learns else "none" if still else "no structure"
        spread = (
            {"std": float(reading.table.std())} if reading.table.numel() > 1 else {}
        )
        return {"scheme": scheme, **spread, **learnt}
    name = reading.name
    identity = {"scheme": "sinusoidal", "order": code.order, "pairs": len(code.omega)}
    identity |= {key: name[key] for key in ("base", "spacing", "scaling")}
    offset = round(code.offset, 3) + 0.0
    whole = int(offset) if offset.is_integer() else offset
    identity |= {"gain": float(f"{code.gain:.4g}"), "offset": whole}
    return {**identity, **learnt}


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
    base = reading.name.get("base")
    cause = explained(patient, "D-BASE")
    whole = reading.code is not None and reading.code.complete
    if (
        cause
        or not whole
        or base is None
        or not patient.facts["width_free"]
        or reading.axes
    ):
        return cause or NotApplicable("D-BASE", "it has one width")
    got = patient.call(len(reading.table), 48)
    if not isinstance(got, Tensor) or tuple(got.shape) != (len(reading.table), 48):
        return NotApplicable("D-BASE", "it has one width")
    known = dict(patient.facts)
    patient.facts["rows"] = {}
    other = measure(patient, 48, lambda call, n: patient.guard.call(call, n, 48))
    patient.facts.update(known)
    there = other.name.get("base", float("nan"))
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


def check_memory(patient: Patient) -> Verdict:
    """Other widths and edited results leave later calls alone."""
    reading = reading_of(patient)
    call, size = patient.renewed(), reading.axes or 6
    width = reading.width

    def twice() -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)  # of rows that are drawn at each call
        given = call(size, width)
        first = given.clone()
        given.add_(100.0)
        torch.manual_seed(0)
        return first, call(size, width)

    got = patient.guard.call(twice)
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
        value=float((first.double() - second.double()).abs().max())
        if first.shape == second.shape
        else None,
    )


def check_default(patient: Patient) -> Verdict:
    """The rows do not depend on torch's default dtype, up to rounding."""
    cause = explained(patient, "D-DTYPE")
    reading = reading_of(patient)
    if cause:
        return cause
    call: Any = patient.renewed()
    size: Any = reading.axes or min(300, len(reading.table))

    def narrow() -> Any:
        torch.set_default_dtype(torch.bfloat16)
        return call(size, reading.width)

    got = patient.guard.call(narrow)
    if isinstance(got, Failure):
        return NotApplicable("D-DTYPE", f"not with a bfloat16 default: {got}")
    if got.shape != reading.table[: len(got)].shape or not got.is_floating_point():
        return NotApplicable("D-DTYPE", "its shape changes with the default dtype")
    gap = float((got.double() - reading.table[: len(got)]).abs().max())
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


def check_expected(patient: Patient) -> list[Verdict]:
    """The identity is what the caller expects."""
    return unexpected(patient, patient.facts["identity"])


KIND = Kind(
    "table",
    CONVENTION,
    recognise,
    identify,
    (
        check_shape,
        table_checks.check_finite,
        table_checks.check_history,
        table_checks.check_order,
        grid_checks.check_grid,
        table_checks.check_prefix,
        table_checks.check_rounded,
        table_checks.check_layout,
        check_expected,
        table_checks.check_base,
        check_widths,
        table_checks.check_norm,
        table_checks.check_offset,
        table_checks.check_lone,
        table_checks.check_len,
        table_checks.check_long,
        check_memory,
        check_default,
        check_trains,
        check_odd,
    ),
)
