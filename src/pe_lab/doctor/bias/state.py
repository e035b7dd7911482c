"""Whether a bias stays what it is: between calls, in 16 bits, in training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.bias.common import (
    MOVED,
    apart,
    found,
    needs,
    seen_of,
    small,
    starts_at_first,
)
from pe_lab.doctor.bias.profile import (
    LOOSE,
    Profile,
    arrange,
    by_ids,
    read,
    reading,
)
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict

LONG = 2048


@needs("D-HISTORY")
def check_random(patient: Patient) -> Verdict:
    """Two calls give one bias, whatever the random state is."""
    call, size = patient.renewed(patient.facts["change"]), small(patient)

    def drawing(seed: int) -> Callable[..., Any]:
        def draw(q: Any, k: Any) -> Any:
            torch.manual_seed(seed)  # the guard sets it back
            return call(q, k)

        return draw

    first, second = (read(patient, size, size, drawing(seed)) for seed in (1, 2))
    if isinstance(first, Failure) or isinstance(second, Failure):
        return NotApplicable("D-HISTORY", "a square could not be read twice")
    error = apart(first, second)
    if error <= 1e-6:
        return Passed("D-HISTORY", "two calls give one bias", error, 1e-6)
    return found(
        patient,
        "D-HISTORY",
        "wrong",
        "Two calls with the same lengths give two biases: something in it is drawn at "
        "random.",
        "Draw it once, when it is built.",
        error,
        1e-6,
    )


@needs("D-HISTORY")
def check_history(patient: Patient) -> Verdict:
    """The same lengths give the same bias, whatever was asked in between."""
    size = small(patient)
    call = patient.renewed(patient.facts["change"])
    order = [
        (3, size),
        (size, size),
        (1, size),
        (2, 3),
        (1, 2),
        (size, size),
        (3, size),
    ]
    for q, k in order:
        fresh, used = read(patient, q, k), read(patient, q, k, call)
        if isinstance(fresh, Failure):
            continue
        what = f"{q} queries with {k} keys"
        if isinstance(used, Failure):
            return _remembers(patient, f"After other lengths, {what} fail: {used}")
        error = apart(used, fresh)
        if error > 1e-6:
            return _remembers(
                patient, f"After other lengths, {what} get another bias", error
            )
    return Passed("D-HISTORY", "earlier calls change nothing", 0.0, 1e-6)


def _remembers(patient: Patient, what: str, value: float | None = None) -> Finding:
    return found(
        patient,
        "D-HISTORY",
        "wrong",
        f"{what}: something is kept between calls.",
        "Key what is kept by both lengths, or make it anew.",
        value,
        1e-6,
    )


@needs("D-DTYPE")
def check_cast(patient: Patient) -> Verdict:
    """The same probabilities from a 16-bit copy, and under 16-bit defaults."""
    plain = _long(patient, patient.renewed(patient.facts["change"]))
    if isinstance(plain, Failure):
        return NotApplicable("D-DTYPE", f"long rows: {plain}")
    worst, trials = 0.0, _casts(patient)
    for name, call in trials.items():
        rows = _long(patient, call)
        if isinstance(rows, Failure):
            if "not implemented" in str(rows):
                continue
            # models are cast late; another default dtype fails in the first call
            severity = "note" if "default" in name else "risky"
            message = f"{name[0].upper()}{name[1:]} it fails: {rows}."
            mend = "Make what it needs in the dtype of its weights."
            return found(patient, "D-DTYPE", severity, message, mend)
        error = float((rows.softmax(-1) - plain.softmax(-1)).abs().max())
        worst = max(worst, error)
        if error > MOVED or error != error:
            return _cast_finding(patient, name, error)
    names = ", ".join(trials)
    return Passed("D-DTYPE", f"the same probabilities {names}", worst, MOVED)


def _cast_finding(patient: Patient, name: str, error: float) -> Finding:
    absolute = seen_of(patient).absolute
    what = "slope·j is rounded" if absolute else "positions or distances are rounded"
    return found(
        patient,
        "D-DTYPE",
        "risky",
        f"{name[0].upper()}{name[1:]} probabilities move by {error:.2g}: {what} to 16 "
        "bits, which count to 256 or 2048.",
        "Make distances in whole numbers and the product in float32; round last.",
        error,
        MOVED,
    )


def _casts(patient: Patient) -> dict[str, Callable[..., Any]]:
    change = patient.facts["change"]
    trials: dict[str, Callable[..., Any]] = {}
    if isinstance(patient.subject, nn.Module):
        for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
            cast = patient.renewed(_then_cast(change, dtype))
            trials[f"after .to({name})"] = _with_dtype(patient, cast, dtype)

    def default(q: Any, k: Any) -> Any:
        torch.set_default_dtype(torch.bfloat16)  # the guard sets it back
        return patient.renewed(change)(q, k)

    def autocast(q: Any, k: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return patient.renewed(change)(q, k)

    trials["under autocast"] = autocast
    # last, as a failure here is only a note
    trials["with bfloat16 as the default dtype"] = default
    return trials


def _then_cast(
    change: Callable[[Any], Any], dtype: torch.dtype
) -> Callable[[Any], Any]:
    return lambda copy: change(copy).to(dtype)


def _with_dtype(
    patient: Patient, call: Callable[..., Any], dtype: torch.dtype
) -> Callable[..., Any]:
    if reading(patient).form != "encoding":
        return call
    return lambda q, k: call(q, k, dtype)


def _long(patient: Patient, call: Callable[..., Any]) -> Tensor | Failure:
    """The last row at a length where 16 bits run out of whole numbers."""
    seen = seen_of(patient)
    longest = seen.past.shape[1]
    length = min(longest, LONG)
    if by_ids(patient):
        keys = torch.arange(length)
        row = read(patient, keys[-1:], keys, call)
    elif starts_at_first(patient):
        row = read(patient, length, length, call)
    else:
        row = read(patient, 1, length, call)
    return row if isinstance(row, Failure) else row[:, -1]


@needs("D-BATCH")
def check_batch(patient: Patient) -> Verdict:
    """Rows of ids in a batch, each as if it were alone."""
    if not by_ids(patient):
        return NotApplicable("D-BATCH", "lengths have no rows")
    size = small(patient)
    ids = torch.stack((torch.arange(size), torch.arange(size) * 2 + 5))
    call = patient.renewed(patient.facts["change"])
    both = patient.guard.call(call, ids, ids)
    if not isinstance(both, Tensor) or both.dim() != 4 or both.shape[0] != 2:
        return NotApplicable("D-BATCH", "it takes one row of ids")
    how = reading(patient)
    how = replace(how, axes="1" + how.axes.lstrip("1")[-3:])
    for row in (0, 1):
        alone = read(patient, ids[row], ids[row])
        one = arrange(both[row : row + 1], how, size, size)
        if isinstance(alone, Failure) or isinstance(one, Failure):
            return NotApplicable("D-BATCH", "rows of ids cannot be compared")
        if (error := apart(one, alone)) > LOOSE:
            message = f"Row {row} of a batch gets another bias than alone."
            mend = "Make distances for each row of ids."
            return found(patient, "D-BATCH", "wrong", message, mend, error, LOOSE)
    return Passed("D-BATCH", "each row of ids has its own distances")


@needs("D-STATE", sound=False)
def check_state(patient: Patient) -> list[Verdict]:
    """Training after inference, editing a result, and moving to another device."""
    return [_after_inference(patient), _edited(patient), _on_meta(patient)]


def _after_inference(patient: Patient) -> Verdict:
    change = patient.facts["change"]

    def train(q: int, k: int) -> Any:
        call = patient.renewed(change)
        with torch.inference_mode():
            call(q, k)
        with torch.enable_grad():
            weight = torch.ones((), requires_grad=True)
            (call(q, k) * weight).nan_to_num().sum().backward()
        return torch.zeros(())

    failed = patient.guard.call(train, *(small(patient),) * 2)
    if not isinstance(failed, Failure):
        return Passed("D-STATE", "training goes on after a call under inference mode")
    if "nference tensor" not in str(failed):
        return NotApplicable("D-STATE", f"training: {failed}")
    message = (
        "A bias made under inference_mode is kept and handed out again, so training "
        "after an evaluation fails."
    )
    mend = "Keep nothing, or make what is kept outside inference mode."
    return found(patient, "D-STATE", "risky", message, mend)


def _edited(patient: Patient) -> Verdict:
    if patient.facts.get("cause") == "D-HISTORY":
        return NotApplicable("D-STATE", "explained by D-HISTORY")
    size = small(patient)
    change = patient.facts["change"]

    def edit(q: int, k: int) -> Any:
        call = patient.renewed(change)
        before = call(q, k)
        kept = before.clone()
        before.fill_(101.0)
        return torch.stack((kept, call(q, k)))

    both = patient.guard.call(edit, size, size)
    if isinstance(both, Failure):
        return NotApplicable("D-STATE", f"results cannot be edited: {both}")
    if torch.equal(*both.nan_to_num()):
        return Passed("D-STATE", "editing a result changes no later one")
    return found(
        patient,
        "D-STATE",
        "note",
        "Its result is its memory: editing it in place changes every later result.",
        "Return a clone, or never write into a bias.",
    )


def _on_meta(patient: Patient) -> Verdict:
    """Tensors that are no buffers stay behind when a module moves."""
    subject = patient.subject
    if not isinstance(subject, nn.Module) or reading(patient).form == "encoding":
        return NotApplicable("D-STATE", "nothing to move")
    if not any(True for _ in (*subject.parameters(), *subject.buffers())):
        return NotApplicable("D-STATE", "it has no tensors that move")
    moved = patient.guard.call(
        lambda q, k: patient.renewed(lambda copy: copy.to("meta"))(q, k).is_meta,
        *((3, 3) if not by_ids(patient) else (torch.arange(3).to("meta"),) * 2),
    )
    if isinstance(moved, Failure) and "device" not in str(moved):
        return NotApplicable("D-STATE", f"on another device: {moved}")
    if moved is True:
        return Passed("D-STATE", "its tensors move with it")
    return found(
        patient,
        "D-STATE",
        "risky",
        "Moved to another device, it "
        + (f"fails: {moved}" if isinstance(moved, Failure) else "stays behind")
        + "; some of its tensors are plain attributes or made where they are not used.",
        "Register them as buffers, or make them on the device of the weights.",
    )


def check_expected(patient: Patient) -> list[Verdict]:
    """What the caller expects of the identity."""
    seen = patient.facts["profile"]
    said = seen.scheme if isinstance(seen, Profile) else {}
    verdicts: list[Verdict] = []
    for name, wanted in patient.options.get("expected", {}).items():
        if name not in said:
            verdicts.append(NotApplicable("D-BIAS", f"nothing is known of {name}"))
            continue
        if _equal(said[name], wanted):
            verdicts.append(Passed("D-BIAS", f"{name} is as expected"))
            continue
        verdicts.append(
            found(
                patient,
                "D-BIAS",
                "wrong",
                f"{name} is {_short(said[name])} instead of {_short(wanted)}.",
                "Build it with the numbers that the checkpoint was trained with.",
            )
        )
    return verdicts


def _short(value: Any) -> str:
    return f"{value.tolist() if isinstance(value, Tensor) else value!s:.80}"


def _equal(seen: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return wanted.lower() in str(seen).lower()
    try:
        a, b = (torch.as_tensor(v, dtype=torch.float64) for v in (seen, wanted))
    except (TypeError, ValueError, RuntimeError):
        return bool(seen == wanted)
    return a.shape == b.shape and bool(((a - b).abs() <= 1e-2 * b.abs()).all())
