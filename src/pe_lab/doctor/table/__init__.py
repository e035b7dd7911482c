"""Tables of positions: f(length, d_model) → (L, d), read row by row.

Sinusoids (Vaswani et al. 2017) on one axis or on a grid, learned rows, or neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure, Guard, evaluating, fresh
from pe_lab.doctor.kind import Adapter, Kind, Patient
from pe_lab.doctor.reading import (
    Reading,
    measure,
    unexpected,
)
from pe_lab.doctor.report import Verdict
from pe_lab.doctor.table import calls as table_calls
from pe_lab.doctor.table import checks as table_checks
from pe_lab.doctor.table import grid as grid_checks
from pe_lab.doctor.table import sinusoid as sinusoid_checks
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
            if got.dim() == 2 and _near(tuple(got.shape), _rows(options), width):
                return _adapter(options)
            said = f"({_LENGTH}, {width}) gives shape {tuple(got.shape)}"
        else:
            said = f"({_LENGTH}, {width}) gives {got}"
    return said


def _near(shape: tuple[int, ...], count: int, width: int) -> bool:
    """Whether this is a table of these sizes, or one with the bug of being none."""
    widths = {width // 2, width - 1, width, width + 1, 2 * width}
    return shape == (width, count) or (shape[0] == count and shape[1] in widths)


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


def check_expected(patient: Patient) -> list[Verdict]:
    """The identity is what the caller expects."""
    return unexpected(patient, patient.facts["identity"])


KIND = Kind(
    "table",
    CONVENTION,
    recognise,
    identify,
    (
        table_calls.check_shape,
        table_checks.check_finite,
        table_checks.check_history,
        table_checks.check_order,
        grid_checks.check_grid,
        table_checks.check_prefix,
        table_checks.check_rounded,
        sinusoid_checks.check_layout,
        check_expected,
        sinusoid_checks.check_base,
        table_calls.check_widths,
        sinusoid_checks.check_norm,
        sinusoid_checks.check_offset,
        sinusoid_checks.check_lone,
        table_checks.check_len,
        table_checks.check_long,
        table_calls.check_memory,
        table_calls.check_default,
        table_calls.check_trains,
        table_calls.check_odd,
    ),
)
