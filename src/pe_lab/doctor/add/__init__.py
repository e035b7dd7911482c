"""Modules that add positions: f(x: B×L×d) → x + encoding (Vaswani et al. 2017, 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pe_lab.doctor import table
from pe_lab.doctor.add import checks as add_checks
from pe_lab.doctor.add import state as add_state
from pe_lab.doctor.add.call import Add, parts, tensors_of, widths
from pe_lab.doctor.export import check_export
from pe_lab.doctor.guard import Failure, Guard
from pe_lab.doctor.kind import Adapter, Kind, Patient
from pe_lab.doctor.reading import Reading, measure
from pe_lab.doctor.report import NotApplicable, Verdict
from pe_lab.doctor.table import checks as table_checks
from pe_lab.doctor.table import grid as grid_checks
from pe_lab.doctor.table import sinusoid as sinusoid_checks

# (B, L): no two sizes alike; then what a wrong axis still lets through
SHAPES = ((2, 7), (1, 7), (7, 7))
_DIVIDES = (
    "zeros give NaN and other numbers do not, so it divides x by its own size: give "
    "the part that adds the encoding"
)


def recognise(subject: Any, options: Mapping[str, Any], guard: Guard) -> Adapter | str:
    """Whether embeddings come back as they were, entry by entry, plus something."""
    if not callable(subject) or isinstance(subject, type):
        return "it cannot be called"
    axes = tuple(int(n) for n in options.get("axes") or ())
    first = bool(options.get("batch_first", True))
    said, fits = "nothing", []
    for form in _forms(subject, axes):
        call = Add(subject, form, axes, first)
        for width in widths(subject, options):
            got = _accepts(call, guard, width)
            if got is None:
                fits.append((_mixed(call, guard, width), form))
                break
            said = got if said == "nothing" else said
    if not fits:
        return said
    chosen = min(fits, key=lambda fit: fit[0])[1]
    return lambda copy: Add(copy, chosen, axes, first)


def _accepts(call: Add, guard: Guard, width: int) -> str | None:
    said = "nothing"
    for batch, length in _shapes(call.subject, width):
        shape = (batch, int(np.prod(call.axes)) if call.axes else length, width)
        got = _tried(call, guard, shape)
        if got is None:
            return None
        said = f"{shape}: {got}" if said == "nothing" else said
    return said


def _mixed(call: Add, guard: Guard, width: int) -> int:
    """Channels of a grid that vary along both axes: many, if channels are cells."""
    if len(call.axes) != 2:
        return 0
    got = guard.call(call, torch.zeros(1, int(np.prod(call.axes)), width))
    if not isinstance(got, Tensor):
        return width
    down, across = grid_checks.shares(got[0].double(), *call.axes)
    both = int(((down > 1e-5) & (across > 1e-5)).sum())
    return both if bool(down.any()) and bool(across.any()) else width


def _forms(subject: Any, axes: tuple[int, ...]) -> tuple[str, ...]:
    if callable(getattr(subject, "embed", None)):
        return ("cells", "embed") if len(axes) == 2 else ("embed",)
    return ("grid", "image", "call") if axes else ("call",)


def _tried(call: Add, guard: Guard, shape: tuple[int, ...]) -> str | None:
    """None if entries of x come back linearly, each for itself, else why not."""
    source = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=source)
    other = x.clone()
    token = min(2, shape[1] - 1)
    other[0, token, 1] += 1.0
    results = [_seeded(call.again(), guard, x) for x in (0 * x, x, 2 * x, other)]
    failed = [r for r in results if not isinstance(r, Tensor)]
    if failed:
        return str(failed[0])
    if any(r.shape != x.shape for r in results):
        return f"gives shape {tuple(results[0].shape)}"
    zero, once, twice, moved = (r.double() for r in results)
    if not bool(zero.isfinite().all()):  # what is wrong with it is for the checks
        return _DIVIDES if bool(once.isfinite().all()) else None
    scale = float(once.abs().max()) + 1e-9
    if float((twice - 2 * once + zero).abs().max()) > 1e-3 * scale:
        return "it is not linear in x: give the part that adds the encoding"
    change = (moved - once).abs()[0]
    change[token, 1] = 0.0
    if float(change[token].max()) > 1e-4 * scale:
        return "one channel changes what others get, as in a linear layer"
    if float(change.max()) > 1e-4 * scale:
        return "one token changes what other tokens get, as in attention"
    return None


def _seeded(call: Add, guard: Guard, x: Tensor) -> Any:
    def run(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return call(x)

    return guard.call(run, x)


def identify(patient: Patient) -> dict[str, Any]:
    """Measure what is added to zeros, and say what it is."""
    call, width = _first(patient)
    axes = call.axes
    patient.facts.update(
        form=call.form, width_free=False, stores=_stores(patient.subject, width)
    )
    patient.facts["sizes"] = sizes = _sizes(patient.subject, width)
    patient.facts["limit"] = max(sizes, default=None)
    if axes:
        patient.facts["sizes"] = (int(np.prod(axes)),)
    patient.facts["learns"] = add_state.learns(patient, width)

    def probe(call: Callable[..., Any], count: int) -> Tensor | Failure:
        got = patient.guard.call(call, torch.zeros(1, count, width))
        if isinstance(got, Tensor) and (got.dim() != 3 or got.shape[2] != width):
            return Failure(ValueError(f"shape {tuple(got.shape)}"))
        return got[0] if isinstance(got, Tensor) else got

    reading = measure(patient, width, probe, learns=patient.facts["learns"], axes=axes)
    add_checks.measure_gain(patient)
    identity = table.describe(patient, reading)
    return _named(patient, identity)


def _named(patient: Patient, identity: dict[str, Any]) -> dict[str, Any]:
    if patient.facts["scale"] is not None:
        identity["scale"] = float(f"{patient.facts['scale']:.5g}")
    count = sum(p.numel() for p in _trained(patient.subject))
    if count:
        identity["parameters"] = identity.get("parameters", f"{count} trained")
    return identity


def _trained(subject: Any) -> list[nn.Parameter]:
    if not isinstance(subject, nn.Module):
        return []
    return [p for p in subject.parameters() if p.requires_grad]


def _first(patient: Patient) -> tuple[Add, int]:
    """The call, and the first width that it takes."""
    call: Add = patient.renewed()  # type: ignore[assignment]
    for width in widths(patient.subject, patient.options):
        for batch, length in _shapes(patient.subject, width):
            length = int(np.prod(call.axes)) if call.axes else length
            got = patient.guard.call(call, torch.zeros(batch, length, width))
            if isinstance(got, Tensor) and got.shape == (batch, length, width):
                return call, width
    return call, widths(patient.subject, patient.options)[0]


def _stores(subject: Any, width: int) -> bool:
    """Whether it has tensors that could be a table or its frequencies."""
    tensors = [t for part in parts(subject) for _, t, _ in tensors_of(part)]
    return any(t.numel() >= width // 2 for t in tensors)


def _shapes(subject: Any, width: int) -> list[tuple[int, int]]:
    """(batch, length) to try; the last of them fit what takes one length only."""
    return [*SHAPES, *((2, size) for size in _sizes(subject, width))]


def _sizes(subject: Any, width: int) -> tuple[int, ...]:
    """Rows of the tables of that width that it stores."""
    shapes = [t.shape for part in parts(subject) for _, t, _ in tensors_of(part)]
    found = [s.numel() // width for s in shapes if len(s) > 1 and s[-1] == width]
    return tuple(sorted(set(found), reverse=True))[:4]


def check_traced(patient: Patient) -> Verdict:
    """Exported with an open length, where that is asked for."""
    reading = patient.facts.get("reading")
    if not isinstance(reading, Reading) or reading.axes:
        return NotApplicable("D-EXPORT", "it takes no text of any length")
    width = reading.width
    return check_export(patient, lambda n: (add_checks.embeddings((2, n, width)),))


KIND = Kind(
    "add",
    "module(x: B×L×d) → x + encoding",
    recognise,
    identify,
    (
        table_checks.check_finite,
        table_checks.check_history,
        add_checks.check_axis,
        add_checks.check_random,
        add_checks.check_sum,
        table_checks.check_order,
        grid_checks.check_grid,
        table_checks.check_prefix,
        table_checks.check_rounded,
        sinusoid_checks.check_layout,
        table.check_expected,
        sinusoid_checks.check_base,
        add_checks.check_scale,
        sinusoid_checks.check_norm,
        sinusoid_checks.check_offset,
        sinusoid_checks.check_lone,
        add_checks.check_batch,
        add_checks.check_arguments,
        add_checks.check_single,
        table_checks.check_len,
        table_checks.check_long,
        add_state.check_grad,
        add_checks.check_dropout,
        add_state.check_device,
        add_state.check_trains,
        add_state.check_history,
        add_state.check_inference,
        add_state.check_cast,
        add_state.check_state_dict,
        check_traced,
    ),
)
