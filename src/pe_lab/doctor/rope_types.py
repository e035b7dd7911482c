"""Casts, contexts and modes that must not change a rotation's angles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.rope_survey import (
    SAME,
    as_matrices,
    basis,
    head_dim,
    matrices,
    random_heads,
    run,
)
from pe_lab.doctor.rope_words import ROTATE, explained, found_wrong

# Where 16 bits count no more: bfloat16 past 256, float16 past 2048; and below that.
_PLACES = (2051, 1021, 509, 253, 125, 61, 11)
_COARSE = 0.012  # three roundings to bfloat16 of numbers below 1
_OFF = 0.05  # no rounding of sines: the angle itself is another


def check_dtype(patient: Patient) -> list[Verdict]:
    """16-bit inputs, casts of the module, autocast and default dtypes."""
    cause = patient.facts.get("cause")
    if cause and cause not in ("D-HISTORY", "D-LEN"):
        return [NotApplicable("D-DTYPE", f"explained by {cause}")]
    start, reference = _place(patient)
    if reference is None:
        return [NotApplicable("D-DTYPE", "no place to compare at")]
    for test in (_inputs, _casts, _contexts):
        if finding := test(patient, start, reference):
            return [finding]
    return [_sizes(patient, start, reference)]


def _place(patient: Patient) -> tuple[int, Tensor | None]:
    for start in _PLACES:
        there = matrices(patient, run(start))
        if isinstance(there, Tensor):
            return start, there
    return 0, None


def _inputs(patient: Patient, start: int, reference: Tensor) -> Finding | None:
    for dtype in (torch.bfloat16, torch.float16):
        x = basis(head_dim(patient), 4, dtype)
        raw = patient.guard.call(patient.renewed(), x, run(start))
        out = as_matrices(raw, x)
        name = str(dtype).removeprefix("torch.")
        if isinstance(out, Failure):
            continue
        error = _apart(out, reference)
        if not error <= _OFF:
            return found_wrong(
                patient,
                "D-DTYPE",
                f"With {name} inputs, positions {start} … {start + 3} are turned by "
                f"other angles, off by up to {error:.2g}: positions, frequencies or "
                f"angles are in {name}.",
                value=error,
                tolerance=_OFF,
                remedy="Make angles in float32 or wider, whatever the dtype of x.",
            )
        if raw.dtype != dtype:
            given = str(raw.dtype).removeprefix("torch.")
            return Finding(
                "D-DTYPE",
                "risky",
                f"For {name} inputs the output is {given}.",
                remedy="End with .to(x.dtype).",
                chapter=ROTATE,
            )
    return None


def _apart(out: Tensor, reference: Tensor) -> float:
    return float((out - reference).abs().max().nan_to_num(10.0))


def _casts(patient: Patient, start: int, reference: Tensor) -> Finding | None:
    if not isinstance(patient.subject, nn.Module):
        return None
    for dtype in (torch.bfloat16, torch.float16):
        call = patient.renewed(lambda m, d=dtype: m.to(d))
        name = str(dtype).removeprefix("torch.")
        for given in (dtype, torch.float32):
            out = matrices(patient, run(start), call, given)
            error = 0.0 if isinstance(out, Failure) else _apart(out, reference)
            if not error <= _OFF:
                return found_wrong(
                    patient,
                    "D-DTYPE",
                    f"After .to({name}) of the module, positions {start} … {start + 3} "
                    f"are turned by other angles, off by up to {error:.2g}: the cast "
                    "rounds the frequencies.",
                    severity="risky",
                    value=error,
                    tolerance=_OFF,
                    remedy="Keep frequencies as Python numbers, and compute angles from "
                    "them in float32 or wider.",
                )
    return None


def _contexts(patient: Patient, start: int, reference: Tensor) -> Finding | None:
    for name, wrap in _CONTEXTS.items():
        out = matrices(patient, run(start), wrap(patient.renewed()))
        if isinstance(out, Failure):
            continue
        error = _apart(out, reference)
        if not error <= _OFF:
            return found_wrong(
                patient,
                "D-DTYPE",
                f"Under {name}, positions {start} … {start + 3} are turned by other "
                f"angles, off by up to {error:.2g}.",
                severity="risky",
                value=error,
                tolerance=_OFF,
                remedy="Name the dtype of every angle, and fence matrix products by "
                "torch.autocast(x.device.type, enabled=False).",
            )
    return None


def _in_autocast(call: Callable[..., Any]) -> Callable[..., Any]:
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
        f"With bfloat16 inputs numbers are off by {error:.2g}, more than their rounding.",
        value=error,
        tolerance=_COARSE,
        remedy="Round once, at the end.",
        chapter=ROTATE,
    )


def check_state(patient: Patient) -> list[Verdict]:
    """Gradients, inference mode, outputs written into, other devices."""
    cause = patient.facts.get("cause")
    if cause and cause not in ("D-HISTORY", "D-LEN", "D-DTYPE"):
        return [NotApplicable("D-STATE", f"explained by {cause}")]
    for test in (_gradient, _inference, _aliased, _moved):
        if finding := test(patient):
            return [finding]
    passed = Passed("D-STATE", "gradients pass, nothing is shared between calls")
    return [passed, NotApplicable("D-EXPORT", "compiling takes longer than a look")]


def _gradient(patient: Patient) -> Finding | None:
    x = random_heads(1, 2, 4, head_dim(patient))
    call = patient.renewed()
    plain = patient.guard.call(call, x, run(5))

    def slope(x: Tensor, ids: Tensor) -> Any:
        with torch.enable_grad():
            x.requires_grad_()
            out = call(x, ids)
            if not out.requires_grad:
                return torch.zeros_like(x)
            (gradient,) = torch.autograd.grad((out * out.detach()).sum(), x)
            return gradient

    gradient = patient.guard.call(slope, x, run(5))
    if isinstance(gradient, Failure) or isinstance(plain, Failure):
        # writing into a leaf is D-INPUT's finding
        silent = isinstance(plain, Failure) or patient.guard.mutated
        return None if silent else _no_training(gradient)
    # R is linear: x · ∂(½|Rx|²)/∂x = |Rx|²
    ratio = float((x * gradient).sum() / plain.square().sum())
    if abs(ratio - 1) <= 1e-3:
        return None
    message = (
        "No gradient passes" if ratio == 0 else "The gradient is another function's"
    )
    return Finding(
        "D-STATE",
        "wrong",
        f"{message}: projections of queries and keys would not be trained.",
        value=ratio,
        tolerance=1e-3,
        remedy="Keep no_grad, detach and .data to the table; turn x outside of them.",
        chapter=ROTATE,
    )


def _no_training(failure: Failure) -> Finding:
    return Finding(
        "D-STATE",
        "wrong",
        f"It cannot be trained through: {failure}",
        remedy="Make new tensors instead of writing into those that need gradients.",
        chapter=ROTATE,
    )


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
        kept = first.clone()
        first.add_(100)
        return kept, call(x.clone(), ids)

    both = patient.guard.call(twice, x, run(3))
    if isinstance(both, Failure) or float((both[0] - both[1]).abs().max()) <= SAME:
        return None
    return Finding(
        "D-STATE",
        "risky",
        "Writing into what it gave changes what it gives next: the output is a view of "
        "something stored.",
        value=float((both[0] - both[1]).abs().max()),
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
