"""Casts, contexts and modes that must not change a rotation's angles."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.export import check_export
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.rope.survey import (
    SAME,
    as_matrices,
    basis,
    head_dim,
    matrices,
    random_heads,
    run,
    turned,
)
from pe_lab.doctor.rope.words import ROTATE, explained, found_wrong

Call = Callable[..., Any]

# Where 16 bits count no more: bfloat16 past 256, float16 past 2048; and below that.
_SHORT = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
_PLACES = (2051, 1021, 509, 253, 125, 61, 11)
_COARSE = 0.012  # three roundings to bfloat16 of numbers below 1
_MIXED = re.compile("same device|expected device")
_OFF = 0.05  # no rounding of sines: the angle itself is another


def check_dtype(patient: Patient) -> Verdict:
    """16-bit inputs, casts of the module, autocast and default dtypes."""
    if earlier := explained(patient, "D-DTYPE", but=("D-HISTORY", "D-LEN")):
        return earlier
    start, reference = _place(patient)
    if reference is None:
        return NotApplicable("D-DTYPE", "no place to compare at")
    return (
        _inputs(patient, start, reference)
        or _casts(patient, start, reference)
        or _contexts(patient, start, reference)
        or _sizes(patient, start, reference)
    )


def _place(patient: Patient) -> tuple[int, Tensor | None]:
    for start in _PLACES:
        there = matrices(patient, run(start))
        if isinstance(there, Tensor):
            return start, there
    return 0, None


def _inputs(patient: Patient, start: int, reference: Tensor) -> Finding | None:
    for dtype, name in _SHORT.items():
        x = basis(head_dim(patient), 4, dtype)
        out = turned(patient, x, run(start))
        if isinstance(out, Failure):
            continue
        error = _apart(as_matrices(out), reference)
        if not error <= _OFF:
            what = f"With {name} inputs"
            return _other_angles(patient, what, start, error, severity="wrong")
        if out.dtype != dtype:
            given = str(out.dtype).removeprefix("torch.")
            return Finding(
                "D-DTYPE",
                "risky",
                f"For {name} inputs the output is {given}.",
                remedy="End with .to(x.dtype).",
                chapter=ROTATE,
            )
    return None


def _other_angles(
    patient: Patient, what: str, start: int, error: float, severity: str = "risky"
) -> Finding:
    return found_wrong(
        patient,
        "D-DTYPE",
        f"{what}, positions {start} … {start + 3} are turned by other angles, off by "
        f"up to {error:.2g}: ids, frequencies or angles are rounded to 16 bits.",
        severity=severity,
        value=error,
        tolerance=_OFF,
        remedy="Keep frequencies as Python numbers, and make angles from them in "
        "float32 or wider, whatever the dtype of x, outside of autocast.",
    )


def _apart(out: Tensor, reference: Tensor) -> float:
    return float((out - reference).abs().max().nan_to_num(10.0))


def _casts(patient: Patient, start: int, reference: Tensor) -> Finding | None:
    """The module after .to(bfloat16) or .half(), fed in that dtype and in float32."""
    if not isinstance(patient.subject, nn.Module):
        return None
    for dtype, name in _SHORT.items():
        call = patient.renewed(partial(_cast, dtype=dtype))
        for given in (dtype, torch.float32):
            out = matrices(patient, run(start), call, given)
            error = 0.0 if isinstance(out, Failure) else _apart(out, reference)
            if not error <= _OFF:
                what = f"After .to({name}) of the module"
                return _other_angles(patient, what, start, error)
    return None


def _cast(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    return module.to(dtype)


def _contexts(patient: Patient, start: int, reference: Tensor) -> Finding | None:
    for name, wrap in _CONTEXTS.items():
        out = matrices(patient, run(start), wrap(patient.renewed()))
        error = 0.0 if isinstance(out, Failure) else _apart(out, reference)
        if not error <= _OFF:
            return _other_angles(patient, f"Under {name}", start, error)
    return None


def _in_autocast(call: Call) -> Call:
    def wrapped(*args: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return call(*args)

    return wrapped


def _in_default(
    dtype: torch.dtype,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            torch.set_default_dtype(dtype)  # the guard sets it back
            return call(*args)

        return wrapped

    return wrap


_CONTEXTS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "autocast to bfloat16": _in_autocast,
    "the default dtype bfloat16": _in_default(torch.bfloat16),
    "the default dtype float16": _in_default(torch.float16),
}


def _sizes(patient: Patient, start: int, reference: Tensor) -> Verdict:
    out = matrices(patient, run(start), dtype=torch.bfloat16)
    if isinstance(out, Failure):
        return NotApplicable("D-DTYPE", f"bfloat16 inputs: {out}")
    error = _apart(out, reference)
    if error <= _COARSE:
        return Passed("D-DTYPE", "casts and contexts keep the angles", error, _COARSE)
    return Finding(
        "D-DTYPE",
        "note",
        f"With bfloat16 inputs numbers are off by {error:.2g}, more than by rounding.",
        value=error,
        tolerance=_COARSE,
        remedy="Round once, at the end.",
        chapter=ROTATE,
    )


def check_state(patient: Patient) -> list[Verdict]:
    """Gradients, inference mode, outputs written into, other devices."""
    others = ("D-HISTORY", "D-LEN", "D-DTYPE")
    if earlier := explained(patient, "D-STATE", but=others):
        return [earlier]
    finding = (
        _gradient(patient)
        or _inference(patient)
        or _aliased(patient)
        or _moved(patient)
        or Passed("D-STATE", "gradients pass, nothing is shared between calls")
    )
    return [finding, check_export(patient, partial(_heads, patient))]


def _heads(patient: Patient, length: int) -> tuple[Tensor, Tensor]:
    x = random_heads(2, 3, length, head_dim(patient))
    return x, torch.arange(2, 2 + length)


def _gradient(patient: Patient) -> Finding | None:
    """R is linear, so x · ∂(½|Rx|²)/∂x = |Rx|²."""
    x, call = random_heads(1, 2, 4, head_dim(patient)), patient.renewed()
    plain = turned(patient, x, run(5), call)
    gradient = patient.guard.call(partial(_slope, call), x, run(5))
    # writing into a leaf that needs a gradient is D-INPUT's finding
    if isinstance(plain, Failure) or patient.guard.mutated:
        return None
    ratio = 0.0
    if isinstance(gradient, Tensor):
        ratio = float((x * gradient).sum() / plain.square().sum())
    if abs(ratio - 1) <= 1e-3:
        return None
    why = f": {gradient}" if isinstance(gradient, Failure) else ""
    return Finding(
        "D-STATE",
        "wrong",
        f"No right gradient passes{why}; projections of queries and keys would not be "
        "trained.",
        value=ratio,
        tolerance=1e-3,
        remedy="Keep no_grad, detach and .data to the table, and turn x outside.",
        chapter=ROTATE,
    )


def _slope(call: Call, x: Tensor, ids: Tensor) -> Tensor:
    with torch.enable_grad():
        x.requires_grad_()
        out = call(x, ids)
        if not out.requires_grad:
            return torch.zeros_like(x)
        (gradient,) = torch.autograd.grad((out * out.detach()).sum(), x)
        return gradient


def _inference(patient: Patient) -> Finding | None:
    x, call = random_heads(1, 2, 4, head_dim(patient)), patient.renewed()

    def inferred(x: Tensor, ids: Tensor) -> Any:
        with torch.inference_mode():
            call(x, ids)

    def trained(x: Tensor, ids: Tensor) -> Any:
        with torch.enable_grad():
            call(x.requires_grad_(), ids).sum().backward()

    if patient.guard.call(inferred, x, run(0)) is not None:
        return None
    failure = patient.guard.call(trained, x, run(0))
    if not isinstance(failure, Failure) or patient.guard.mutated:
        return None
    return Finding(
        "D-STATE",
        "risky",
        f"After a call under inference_mode it cannot be trained: {failure}",
        remedy="Keep no tables between calls, or make them outside inference mode.",
        chapter=ROTATE,
    )


def _aliased(patient: Patient) -> Finding | None:
    x, call = random_heads(1, 2, 4, head_dim(patient)), patient.renewed()

    def twice(x: Tensor, ids: Tensor) -> Any:
        first = call(x.clone(), ids)
        kept, again = first.clone(), call(x.clone(), ids).clone()
        first.add_(100)
        noise = (again - kept).abs().max()
        return (call(x.clone(), ids) - kept).abs().max() - noise

    apart = patient.guard.call(twice, x, run(3))
    if isinstance(apart, Failure) or float(apart) <= SAME:
        return None
    return Finding(
        "D-STATE",
        "risky",
        "Writing into what it gave changes what it gives next: the output is a view of "
        "something stored.",
        value=float(apart),
        tolerance=SAME,
        remedy="Give out a new tensor.",
        chapter=ROTATE,
    )


def _moved(patient: Patient) -> Finding | None:
    """Tensors that .to() does not move stay behind: seen on the meta device."""
    if not isinstance(patient.subject, nn.Module):
        return None
    x = random_heads(1, 2, 4, head_dim(patient)).to("meta")
    call = patient.renewed(lambda module: module.to("meta"))
    out = patient.guard.call(lambda: call(x, run(0).to("meta")).shape)
    if not isinstance(out, Failure) or not _MIXED.search(str(out)):
        return None
    return Finding(
        "D-STATE",
        "risky",
        f"Moved to another device, it leaves tensors behind: {out}",
        remedy="Register tables with register_buffer(…, persistent=False), or compute "
        "them on the device of x.",
        chapter=ROTATE,
    )
