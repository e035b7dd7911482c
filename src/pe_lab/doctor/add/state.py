"""Checks of what a module keeps: gradients, dtype, device, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.add.call import parts, tensors_of
from pe_lab.doctor.add.checks import embeddings, length_of
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.reading import Reading, bad, expects, passed, reading_of, rows
from pe_lab.doctor.report import NotApplicable, Verdict
from pe_lab.doctor.table.checks import sorted_out

CHAPTER = "03 Compute the tables by hand"
# of angles that were rounded; a finished table in bfloat16 is off by 2^-9 of its size
_ANGLE = 2e-2


def held(
    patient: Patient, change: Callable[[Any], Any] | None = None
) -> tuple[Any, Callable[..., Any]]:
    """The copy, and the call on it."""
    kept: list[Any] = []

    def keep(copy: Any) -> Any:
        kept.append(copy if change is None else change(copy))
        return kept[0]

    call = patient.renewed(keep)
    return kept[0], call


def learns(patient: Patient, width: int) -> bool:
    """Whether gradients reach a parameter that is more than a factor."""
    for length in (7, *patient.facts["sizes"]):
        module, call = held(patient)
        if not isinstance(module, nn.Module):
            return False
        grads = _gradients(patient, module, call, (2, length, width))
        if isinstance(grads, dict):
            return any(seen and n >= width // 2 for seen, n in grads.values())
    return False


def _gradients(
    patient: Patient,
    module: nn.Module,
    call: Callable[..., Any],
    shape: tuple[int, ...],
) -> Any:
    """Of each parameter: whether a gradient came back, and how many entries it has."""
    weight = embeddings(shape, seed=1)

    def run() -> dict[str, tuple[bool, int]]:
        with torch.enable_grad():
            x = torch.zeros(shape, requires_grad=True)
            (call(x * 1.0) * weight).sum().backward()
        return {
            name: (p.grad is not None, p.numel())
            for name, p in module.named_parameters()
            if p.requires_grad
        }

    return patient.guard.call(run)


@sorted_out("D-GRAD")
def check_grad(patient: Patient, reading: Reading) -> Verdict:
    """Gradients pass to x unchanged, and reach what should learn."""
    shape = (2, length_of(patient), reading.width)
    weight, scale = embeddings(shape, seed=1), patient.facts["scale"]
    grad = patient.guard.call(_of_x(patient.renewed(), weight))
    if isinstance(grad, Failure) or scale is None:
        return NotApplicable("D-GRAD", f"no gradient could be taken: {grad}")
    gap = float((grad - scale * weight).abs().max())
    if gap > 1e-4 * max(1.0, abs(scale)):
        how = "no gradient" if not bool(grad.any()) else "a wrong gradient"
        return bad(
            patient,
            "D-GRAD",
            "wrong",
            f"The embeddings get {how} through it: they are detached, or changed "
            "outside of autograd.",
            "Return x + encoding, with neither .data, .detach() nor torch.no_grad().",
            value=gap,
            tolerance=1e-4,
        )
    dead = _dead(patient, shape)
    if dead:
        text = f"The parameter {dead[0]} gets no gradient: it never learns."
        mend = "Use the parameter itself, not its .data nor under torch.no_grad()."
        return bad(patient, "D-GRAD", "wrong", text, mend)
    return passed("D-GRAD", "gradients pass", gap, 1e-4)


def _of_x(call: Callable[..., Any], weight: Tensor) -> Callable[[], Tensor]:
    """The gradient that comes back to the embeddings, if `weight` goes in."""

    def run() -> Tensor:
        with torch.enable_grad():
            leaf = embeddings(tuple(weight.shape)).requires_grad_()
            result = call(leaf * 1.0)
            if not result.requires_grad:
                return torch.zeros(())
            (result * weight).sum().backward()
            return torch.zeros(()) if leaf.grad is None else leaf.grad

    return run


def _dead(patient: Patient, shape: tuple[int, ...]) -> list[str]:
    module, call = held(patient)
    if not isinstance(module, nn.Module):
        return []
    grads = _gradients(patient, module, call, shape)
    if not isinstance(grads, dict):
        return []
    least = shape[-1] // 2
    return [n for n, (seen, size) in grads.items() if not seen and size >= least]


@sorted_out("D-STATE")
def check_device(patient: Patient, reading: Reading) -> Verdict:
    """All of it moves with .to(device)."""
    if not isinstance(patient.subject, nn.Module):
        return NotApplicable("D-STATE", "a function does not move")
    _, call = held(patient, lambda module: module.to("meta"))
    shape = (2, length_of(patient), reading.width)
    got = patient.guard.call(
        lambda: str(call(torch.zeros(shape, device="meta")).device)
    )
    plain = _plain_attributes(patient.subject)
    what = f"the plain attribute {plain[0]}" if plain else "what it makes in forward"
    if isinstance(got, Failure) and "device" in str(got.error):
        return bad(
            patient,
            "D-STATE",
            "risky",
            f"After .to(device) {what} stays on the CPU, and the call fails.",
            "Register the table as a buffer, or make it on x.device.",
        )
    if plain and reading.code is not None:
        text = (
            f"The tensor {plain[0]} is a plain attribute: neither .to(), .half() nor "
            "state_dict() know of it, and it is copied to the device at each call."
        )
        return bad(patient, "D-STATE", "note", text, "Register it as a buffer.")
    return passed("D-STATE", "it moves with .to(device)")


def _plain_attributes(subject: Any) -> list[str]:
    """Names of tensors that are neither parameters nor buffers."""
    return [
        name
        for part in parts(subject)
        for name, tensor, home in tensors_of(part)
        if home == "attribute" and tensor.numel() > 1
    ]


@sorted_out("D-STATE")
def check_trains(patient: Patient, reading: Reading) -> Verdict:
    """Sinusoids do not train."""
    if reading.code is None or not reading.learns or expects(patient, "parameters"):
        return passed("D-STATE", "what should train trains, the rest does not")
    return bad(
        None,
        "D-STATE",
        "risky",
        "The sinusoids are trained: they, or their frequencies, are a parameter that "
        "gets gradients, and the first step of the optimiser makes them something "
        "else.",
        "Register them as a buffer; if they are only a start, say "
        "expected={'parameters': 'trained'}.",
        chapter=CHAPTER,
    )


@sorted_out("D-HISTORY")
def check_history(patient: Patient, reading: Reading) -> Verdict:
    """Other dtypes, batches and edits before a call do not change it."""
    x = torch.zeros(2, length_of(patient), reading.width)
    fresh = patient.guard.call(patient.renewed(), x)
    if not isinstance(fresh, Tensor):
        return NotApplicable("D-HISTORY", f"it fails: {fresh}")
    for name, first in _befores(x).items():
        call = patient.renewed()
        patient.guard.call(_and_edit(call), first)
        again = patient.guard.call(call, x)
        if isinstance(again, Tensor) and again.shape == fresh.shape:
            gap = float((again.double() - fresh.double()).abs().max())
            if gap <= 1e-6 and again.dtype == fresh.dtype:
                continue
            said = f"it is off by {gap:.3g}" if gap > 1e-6 else f"it is {again.dtype}"
        else:
            said = f"it fails: {again}" if isinstance(again, Failure) else "shape"
        return bad(
            None,
            "D-HISTORY",
            "risky" if "edit" in name or "float" in name else "wrong",
            f"After {name}, the same call gives something else: {said}.",
            "Key what is kept by shape, dtype and device, give out copies, or keep "
            "nothing.",
        )
    return passed("D-HISTORY", "earlier calls change nothing")


def _befores(x: Tensor) -> dict[str, Tensor]:
    batch, length, width = x.shape
    return {
        "an edit of an earlier result": x,
        "a call in bfloat16": x.bfloat16(),
        "a call in float64": x.double(),
        "a call with another batch": torch.zeros(batch + 3, length, width),
    }


def _and_edit(call: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Tensor) -> Any:
        got = call(x.clone())
        got.add_(100.0)
        return got

    return run


@sorted_out("D-STATE")
def check_inference(patient: Patient, reading: Reading) -> Verdict:
    """A first call in inference mode does not keep it from being trained."""
    shape = (2, length_of(patient), reading.width)
    runs = (_trained(patient.renewed(), shape, first) for first in (False, True))
    plain, after = (patient.guard.call(run) for run in runs)
    if isinstance(after, Failure) and not isinstance(plain, Failure):
        return bad(
            None,
            "D-STATE",
            "risky",
            f"After a first call in inference mode it cannot be trained: {after}.",
            "Build the table in __init__, or keep none that inference mode has made.",
        )
    return passed("D-STATE", "inference mode leaves nothing behind")


def _trained(
    call: Callable[..., Any], shape: tuple[int, ...], first: bool
) -> Callable[[], bool]:
    """A step of training, after a call in inference mode or without one."""

    def run() -> bool:
        if first:
            with torch.inference_mode():
                call(embeddings(shape))
        with torch.enable_grad():
            leaf = embeddings(shape).requires_grad_()
            result = call(leaf * 1.0)
            (result * (result if result.requires_grad else leaf)).sum().backward()
        return True

    return run


def check_cast(patient: Patient) -> list[Verdict]:
    """Casts, 16-bit input and autocast do not reach angles and positions."""
    if patient.facts.get("cause"):
        return [NotApplicable("D-DTYPE", f"explained by {patient.facts['cause']}")]
    found = [v for name in _CASTS if (v := _cast(patient, name)) is not None]
    if any(getattr(v, "severity", "") == "risky" for v in found):
        found = [v for v in found if getattr(v, "severity", "") == "risky"][:1]
    return found or [passed("D-DTYPE", "casts do not reach the angles")]


_CASTS = {
    "module in bfloat16": torch.bfloat16,
    "module in float16": torch.float16,
    "bfloat16 input": torch.bfloat16,
    "autocast": torch.float32,
}


def _cast(patient: Patient, name: str) -> Verdict | None:
    reading = reading_of(patient)
    count = _longest(patient, reading)
    exact = rows(patient, count)
    dtype, module = _CASTS[name], name.startswith("module")
    castable = isinstance(patient.subject, nn.Module) or not module
    if not isinstance(exact, Tensor) or not castable:
        return None
    _, call = held(patient, (lambda m: m.to(dtype)) if module else None)
    x = torch.zeros(1, count, reading.width, dtype=dtype)

    def run() -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=name == "autocast"):
            return call(x)

    got = patient.guard.call(run)
    if isinstance(got, Failure) or got.shape != x.shape:
        return None
    gap = float((got[0].double() - exact.double()).abs().nan_to_num(9e9).max())
    allowed = _ANGLE * max(float(exact.abs().max()), 1e-9)
    if gap > allowed:
        return _misread(patient, name, gap, allowed, count)
    if name != "autocast" and got.dtype != dtype:
        return _widened(patient, name, got.dtype, module)
    return None


def _misread(
    patient: Patient, name: str, gap: float, allowed: float, count: int
) -> Verdict:
    return bad(
        None,
        "D-DTYPE",
        "risky",
        f"With {name} the encoding is off by {gap:.2g} within {count} positions: "
        "positions, frequencies or angles are rounded, not only the result.",
        "Make positions, frequencies and angles in float32 or float64 whatever the "
        "dtype of module and input is, and cast the finished rows.",
        value=gap,
        tolerance=allowed,
    )


def _widened(patient: Patient, name: str, dtype: torch.dtype, module: bool) -> Verdict:
    return bad(
        None,
        "D-DTYPE",
        "risky" if module else "note",
        f"With {name} the result is {str(dtype).removeprefix('torch.')}: the next "
        "layer refuses it, or the rest runs wide.",
        "Return (x + rows).to(x.dtype).",
    )


def _longest(patient: Patient, reading: Reading) -> int:
    if reading.axes:
        return len(reading.table)
    for count in (1024, 512, patient.facts.get("limit") or 256):
        if isinstance(rows(patient, count), Tensor):
            return count
    return len(reading.table)


def check_state_dict(patient: Patient) -> Verdict:
    """What a checkpoint holds of it."""
    reading = reading_of(patient)
    if not isinstance(patient.subject, nn.Module):
        return NotApplicable("D-STATE", "a function has no state")
    fixed = [n for n, _ in patient.subject.named_buffers()]
    saved = [n for n in fixed if n in patient.subject.state_dict()]
    if not fixed or reading.code is None:
        return passed("D-STATE", "a checkpoint holds what was trained")
    if saved:
        return bad(
            patient,
            "D-STATE",
            "note",
            f"The buffer {saved[0]} is in state_dict(), though it can be computed: "
            "checkpoints of another length or version do not load.",
            "Register it with persistent=False, or make it at each call.",
        )
    return bad(
        patient,
        "D-STATE",
        "note",
        f"The buffer {fixed[0]} is not in state_dict(): built on the meta device and "
        "then filled from a checkpoint, the module holds whatever memory held.",
        "Make it at each call, or anew after loading.",
    )
