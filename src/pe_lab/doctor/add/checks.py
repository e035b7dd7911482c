"""Checks of modules that add positions: axis, sum, scale, batch, arguments, dropout."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.add.call import Add, arguments, parts
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.reading import (
    Reading,
    bad,
    expects,
    passed,
    reading_of,
    rows,
)
from pe_lab.doctor.report import NotApplicable, Verdict
from pe_lab.doctor.sequence import OFFSETS, POSITIONS
from pe_lab.doctor.table.checks import SYMMETRY, sorted_out

SCALE = "07 Add, scale, and find the √d_model bug"
_NEAR = 1e-2  # √d rounded to bfloat16 is off by 4e-3


def embeddings(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Random embeddings, the same at each call."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=source, dtype=torch.float64).float()


def length_of(patient: Patient, most: int = 9) -> int:
    """A length that the subject takes."""
    known = len(reading_of(patient).table) or 7
    reading = reading_of(patient)
    if reading.axes or not isinstance(rows(patient, min(most, known)), Tensor):
        return known
    return min(most, known)


def measure_gain(patient: Patient) -> None:
    """Fit f(x) = scale·x + f(0), and keep the scale; None if that does not fit."""
    reading = reading_of(patient)
    x = embeddings((1, length_of(patient), reading.width))
    got, zero = patient.call(x), patient.call(0 * x)
    patient.facts.update(scale=None, moved=None)
    if not isinstance(got, Tensor) or got.shape != x.shape or isinstance(zero, Failure):
        return
    moved, given = (got.double() - zero.double()), x.double()
    scale = float((moved * given).sum() / given.square().sum())
    rest = float((moved - scale * given).abs().max())
    patient.facts["moved"] = moved / given
    if rest <= 1e-4 * max(1.0, float(got.abs().max())):
        patient.facts["scale"] = scale if abs(scale) > 1e-6 else 0.0


@sorted_out("D-ORDER")
def check_axis(patient: Patient, reading: Reading) -> Verdict:
    """What is added depends on the token's place, not on its row of the batch."""
    length, width = length_of(patient, 7), reading.width
    got = patient.call(torch.zeros(3, length, width))
    if isinstance(got, Tensor) and got.shape == (3, length, width):
        over_rows = float((got[1:] - got[:1]).abs().max())
        over_tokens = float((got[:, 1:] - got[:, :1]).abs().max())
        if over_rows <= 1e-6 or over_tokens > 1e-6:
            return passed("D-ORDER", "position runs along the tokens", over_tokens)
        text = "All tokens of a row get the same code, row b that of position b"
        return _along_batch(patient, text)
    said = f"shape {tuple(got.shape)}" if isinstance(got, Tensor) else got
    return _batches(patient, length, width, str(said))


def _batches(patient: Patient, length: int, width: int, said: str) -> Verdict:
    """What to say where a batch of 3 fails: which do not."""
    one = patient.call(torch.zeros(1, length, width))
    square = patient.call(torch.zeros(length, length, width))
    if isinstance(one, Tensor) and float((one[0, 1:] - one[0, :1]).abs().max()) == 0:
        return _along_batch(patient, f"A batch of one has one code, and 3 fail: {said}")
    fits = [n for n, r in (("1", one), ("L", square)) if isinstance(r, Tensor)]
    return bad(
        patient,
        "D-SHAPE",
        "wrong",
        f"A batch of 3 fails: {said}; one of {' or '.join(fits) or 'no size'} works.",
        "Add a table of shape (L, d) or (1, L, d): it fits every batch.",
        chapter=SYMMETRY,
    )


def _along_batch(patient: Patient, message: str) -> Verdict:
    return bad(
        patient,
        "D-ORDER",
        "wrong",
        f"{message}: the table runs along axis 0. The module takes (L, B, d), or takes "
        "x.size(0) for the length.",
        "Take rows 0 … x.size(1) − 1 for x of shape (B, L, d); if (L, B, d) is meant, "
        "say batch_first=False.",
        chapter=SYMMETRY,
    )


@sorted_out("D-SCALE")
def check_random(patient: Patient, reading: Reading) -> Verdict:
    """In eval mode nothing is random."""
    call = patient.renewed()
    x = embeddings((2, length_of(patient), reading.width)) + 3.0

    def seeded(seed: int) -> Any:
        torch.manual_seed(seed)
        return call(x.clone())

    first, second = (patient.guard.call(seeded, seed) for seed in (1, 2))
    if isinstance(first, Failure) or isinstance(second, Failure):
        return NotApplicable("D-SCALE", f"it fails: {first or second}")
    if torch.equal(first, second):
        return passed("D-SCALE", "eval mode is not random")
    zeros = float((first == 0).double().mean())
    return bad(
        patient,
        "D-SCALE",
        "wrong",
        f"In eval mode two calls differ, and {zeros:.0%} of the entries are 0: dropout "
        "is on.",
        "Use nn.Dropout, or F.dropout(x, p, self.training).",
        value=zeros,
        tolerance=0.0,
        chapter=SCALE,
    )


@sorted_out("D-SCALE")
def check_sum(patient: Patient, reading: Reading) -> Verdict:
    """The encoding is added, not multiplied, and x is still there."""
    scale, moved = patient.facts["scale"], patient.facts["moved"]
    if scale:
        return passed("D-SCALE", f"f(x) = {scale:.4g}·x + encoding", scale)
    if scale is not None:
        text = "It gives the encoding alone: x is not in it."
        mend = "Add the result to the embeddings where it is called."
        return bad(patient, "D-SCALE", "differs", text, mend, chapter=SCALE)
    if moved is None:
        return NotApplicable("D-SCALE", "it fails on embeddings")
    alone = float(reading.table.abs().max()) <= 1e-6 if reading.table.numel() else True
    return bad(
        patient,
        "D-SCALE",
        "wrong",
        f"x comes back multiplied by numbers from {float(moved.min()):.3g} to "
        f"{float(moved.max()):.3g} that differ from place to place: the encoding is "
        + ("multiplied instead of added." if alone else "multiplied and added."),
        "Return x + encoding.",
        value=float(moved.max() - moved.min()),
        tolerance=1e-4,
        chapter=SCALE,
    )


@sorted_out("D-SCALE")
def check_scale(patient: Patient, reading: Reading) -> Verdict:
    """x is scaled by 1 or √d, and the code by 1."""
    scale = patient.facts["scale"]
    if scale is None or abs(scale) <= 1e-6:
        return NotApplicable("D-SCALE", "x is not in the result")
    root = math.sqrt(reading.width)
    code = reading.code.gain if reading.code is not None else math.nan
    trouble = _unbalanced(patient, scale, root, code)
    if trouble is None:
        rms = float(reading.table.square().mean().sqrt())
        return passed(
            "D-SCALE", f"x times {scale:.4g}, encoding of rms {rms:.3g}", scale
        )
    severity, message = trouble
    return bad(
        patient,
        "D-SCALE",
        severity,
        message,
        "Multiply embeddings of standard deviation 1/√d by √d once, where they are "
        "looked up, and the code by nothing.",
        value=scale,
        chapter=SCALE,
    )


def _unbalanced(
    patient: Patient, scale: float, root: float, code: float
) -> tuple[str, str] | None:
    said = _against_embeddings(patient, scale)
    if said is not None or expects(patient, "scale"):
        return None if said is None else ("wrong", said)
    if _is(scale, root):
        both = (
            "The sum is multiplied by √d, the code as well as x: it has amplitude √d."
        )
        return ("wrong", both) if _is(code, root) else None
    if _is(scale, 1.0):
        only = "The code is multiplied by √d, and x is not: it drowns the embeddings."
        return ("wrong", only) if _is(code, root) and not _is(root, 1.0) else None
    names = {root**2: "by d: √d is there twice", 1 / root: "by 1/√d: divided, not "
             "multiplied", 1 / root**2: "by 1/d", 2.0: "by 2: it is added twice",
             -1.0: "by −1"}  # fmt: skip
    for value, name in names.items():
        if _is(scale, value):
            return "risky" if value == 2.0 else "wrong", f"x is multiplied {name}."
    alone = _is(code, 1.0)  # a sum that is scaled as a whole is what LayerNorm undoes
    text = f"x is multiplied by {scale:.4g}, neither 1 nor √d."
    return "risky" if alone else "differs", text


def _against_embeddings(patient: Patient, scale: float) -> str | None:
    """The two sizes, where the caller said how large the embeddings are."""
    std = patient.options.get("embedding_std")
    size = float(reading_of(patient).table.square().mean().sqrt())
    if std is None or size == 0:
        return None
    ratio = abs(scale) * float(std) / size
    if 0.5 <= ratio <= 4:  # √2 for unit embeddings beside sinusoids
        return None
    how = "missing" if ratio < 1 else "there twice"
    return (
        f"Embeddings arrive with rms {abs(scale) * float(std):.3g} beside a code of "
        f"rms {size:.3g}: √d is {how}."
    )


def _is(value: float, wanted: float) -> bool:
    return abs(value / wanted - 1) <= _NEAR


@sorted_out("D-BATCH")
def check_batch(patient: Patient, reading: Reading) -> Verdict:
    """A row's result does not depend on the other rows, nor on how many there are."""
    x = embeddings((3, length_of(patient), reading.width))
    whole = patient.call(x)
    if not isinstance(whole, Tensor) or whole.shape != x.shape:
        said = whole if isinstance(whole, Failure) else f"shape {tuple(whole.shape)}"
        text = f"A batch of 3 fails after other batches: {said}."
        return bad(patient, "D-HISTORY", "wrong", text, "Keep no shape of a call.")
    alone = [patient.guard.call(patient.renewed(), x[b : b + 1]) for b in range(3)]
    pairs = [(a, w) for a, w in zip(alone, whole, strict=True) if isinstance(a, Tensor)]
    gap = max((float((a - w).abs().max()) for a, w in pairs), default=0.0)
    if gap <= 1e-5 * max(1.0, float(whole.abs().max())):
        return passed("D-BATCH", "rows of the batch are independent", gap)
    return bad(
        patient,
        "D-BATCH",
        "wrong",
        "A row of the batch gets other values when other rows are beside it.",
        "Add the same table to every row.",
        value=gap,
        tolerance=1e-5,
        chapter=SYMMETRY,
    )


@sorted_out("D-LEN", grids=False)
def check_single(patient: Patient, reading: Reading) -> Verdict:
    """Two texts of one token keep their axes."""
    x = torch.zeros(2, 1, reading.width)
    if not isinstance(rows(patient, 3), Tensor):
        return NotApplicable("D-LEN", "it has one length only")
    got = patient.call(x)
    if isinstance(got, Tensor) and got.shape == x.shape:
        return passed("D-LEN", "texts of one token keep their shape")
    said = f"gives shape {tuple(got.shape)}" if isinstance(got, Tensor) else got
    return bad(
        patient,
        "D-LEN",
        "wrong",
        f"Two texts of one token, (2, 1, {reading.width}): {said}.",
        "Keep the axis of positions when it has length 1; name the axis to squeeze.",
    )


@sorted_out("D-OFFSET")
def check_arguments(patient: Patient, reading: Reading) -> Verdict:
    """An offset, or positions, that are accepted are used."""
    form, count = patient.facts["form"], 5
    names = [] if reading.axes else arguments(patient.subject, form)
    longer = rows(patient, count + 3)
    for name in names:
        if name not in (*OFFSETS, *POSITIONS) or not isinstance(longer, Tensor):
            continue
        for value in _shifts(name, count):
            got = patient.call(torch.zeros(1, count, reading.width), **{name: value})
            if isinstance(got, Tensor) and got.shape == (1, count, reading.width):
                return _shifted(patient, name, got[0], longer)
    return NotApplicable("D-OFFSET", "it takes neither offset nor positions")


def _shifts(name: str, count: int) -> list[Any]:
    ids = torch.arange(count) + 3
    return [3] if name in OFFSETS else [ids, ids[None], 3]


def _shifted(patient: Patient, name: str, got: Tensor, longer: Tensor) -> Verdict:
    gap = float((got.double() - longer[3:].double()).abs().max())
    if gap <= 1e-5:
        return passed("D-OFFSET", f"{name} is used", gap)
    ignored = torch.allclose(got, longer[: len(got)], atol=1e-6)
    return bad(
        patient,
        "D-OFFSET",
        "wrong",
        f"{name} is accepted and ignored: tokens 3, 4, … get the rows of 0, 1, …."
        if ignored
        else f"With {name} of 3 the rows are not those of positions 3, 4, ….",
        "Add the rows of the positions that are asked for.",
        value=gap,
        tolerance=1e-5,
    )


@sorted_out("D-SCALE")
def check_dropout(patient: Patient, reading: Reading) -> Verdict:
    """In training, entries of the sum are dropped once, and the rest is made up for."""
    if not isinstance(patient.subject, nn.Module):
        return NotApplicable("D-SCALE", "a function has no training mode")
    shape = (64, length_of(patient, 32), reading.width)
    x = embeddings(shape).abs() + 5.0
    call: Add = patient.renewed()  # type: ignore[assignment]
    calm = patient.guard.call(call, x)
    call.training = True
    wild = patient.guard.call(call, x)
    if isinstance(calm, Failure) or isinstance(wild, Failure):
        return NotApplicable("D-SCALE", f"it fails in training: {calm or wild}")
    rate = _configured(patient)
    trouble = _dropped(x, calm.double(), wild.double(), rate, reading)
    if trouble is None:
        return passed("D-SCALE", "dropout is as it should be")
    severity, message, value = trouble
    return bad(
        patient,
        "D-SCALE",
        severity,
        message,
        "Apply dropout once, to the sum of embeddings and encoding.",
        value=value,
        chapter=SCALE,
    )


def _configured(patient: Patient) -> float:
    """The dropout rate that the module was built with, as far as it shows."""
    if patient.options.get("dropout") is not None:
        return float(patient.options["dropout"])
    found = []
    for part in parts(patient.subject):
        for name in ("p", "dropout", "dropout_rate", "dropout_p", "drop", "rate"):
            value = getattr(part, name, None)
            if isinstance(value, float) and 0 < value < 1:
                found.append(value)
    return max(found, default=0.0)


def _dropped(
    x: Tensor, calm: Tensor, wild: Tensor, rate: float, reading: Reading
) -> tuple[str, str, float] | None:
    ratio = wild / calm
    zeros = float((ratio.abs() < 1e-6).double().mean())
    if torch.allclose(wild, calm):
        lost = f"It is built with dropout {rate:g}, and in training nothing is dropped."
        return ("wrong", lost, zeros) if rate > 0 else None
    kept = ratio[ratio.abs() >= 1e-6]
    spread, size = float(kept.max() - kept.min()), float(kept.mean())
    if zeros == 0 or spread > 1e-3:
        return "risky", (
            "In training entries of the sum are changed, but not dropped: dropout is "
            "on the encoding or on x alone."
        ), spread  # fmt: skip
    if abs(zeros - (1 - 1 / size)) > 0.03:
        return "wrong", (
            f"In training {zeros:.0%} of the entries are dropped, and the rest is "
            f"multiplied by {size:.3g} instead of {1 / (1 - zeros):.3g}."
        ), size  # fmt: skip
    twice = 1 - (1 - rate) ** 2
    if rate and abs(zeros - rate) > 0.4 * abs(twice - rate):
        return "wrong", (
            f"In training {zeros:.0%} of the entries are dropped, with a rate of "
            f"{rate:.0%}: dropout is there twice."
        ), zeros  # fmt: skip
    shared = bool(((wild == 0) == (wild[:1] == 0)).all())
    return ("risky", "All rows of a batch lose the same.", zeros) if shared else None
