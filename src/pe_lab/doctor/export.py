"""D-EXPORT: traced at one length, run at another; what was fixed on the way shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict

SHORT, LONG = 6, 11
_ALLOWED = 1e-5  # of the largest number: the same float32 sums in another order
_CHAPTER = "18 Find the bug"


def check_export(patient: Patient, inputs: Callable[[int], tuple[Any, ...]]) -> Verdict:
    """Whether an exported program with an open length gives what the code gives.

    inputs: from a length to what the kind's call takes.
    """
    if not patient.options.get("compile"):
        why = "tracing takes seconds; diagnose(…, compile=True) asks for it"
        return NotApplicable("D-EXPORT", why)
    wanted = patient.guard.call(patient.renewed(), *inputs(LONG))
    if not isinstance(wanted, Tensor):
        return NotApplicable("D-EXPORT", f"it gives no tensor at length {LONG}")
    traced = partial(_traced, patient.renewed(), inputs(SHORT))
    got = patient.guard.call(traced, *inputs(LONG))
    if not isinstance(got, Tensor) or got.shape != wanted.shape:
        return _fixed(got)
    gap = float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30))
    if not gap <= _ALLOWED:
        return _other(gap)
    return Passed("D-EXPORT", "exported with an open length", gap, _ALLOWED)


def _traced(call: Callable[..., Any], short: tuple[Any, ...], *longer: Any) -> Any:
    class Held(nn.Module):
        def forward(self, *given: Any) -> Any:
            return call(*given)

    length = torch.export.Dim("length", min=2, max=4 * LONG)
    shapes = tuple(
        {axis: length for axis in range(a.dim()) if a.shape[axis] != b.shape[axis]}
        for a, b in zip(short, longer, strict=True)
    )
    program = torch.export.export(Held(), short, dynamic_shapes=(shapes,))
    return program.module()(*longer)


def _fixed(got: Any) -> Finding:
    said = f": {got}" if isinstance(got, Failure) else ""
    return Finding(
        "D-EXPORT",
        "risky",
        f"Exported at length {SHORT}, it cannot be run at length {LONG}; something "
        f"turns the length into a plain number while it is traced{said}.",
        remedy="Keep the length in shapes and torch.arange; no int(), range() or loop.",
        chapter=_CHAPTER,
    )


def _other(gap: float) -> Finding:
    return Finding(
        "D-EXPORT",
        "wrong",
        f"Exported at length {SHORT} and run at length {LONG}, it gives other numbers: "
        "a value of the traced call is kept as a constant.",
        gap,
        _ALLOWED,
        "Compute it from the inputs inside the call.",
        _CHAPTER,
    )
