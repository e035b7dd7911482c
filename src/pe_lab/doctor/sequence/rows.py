"""Padding and packing: what lies beside a text in its row changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.sequence import gap
from pe_lab.doctor.sequence.bench import Bench, Unable, check

_FIND, _BREAK = "18 Find the bug", "01 Break the symmetry"
_PADS = 3
_CAUSES = ("D-CAUSAL", "D-ORDER", "D-SHIFT", "D-LAYER", "D-HISTORY")


@check("D-PAD", after=_CAUSES)
def check_padding(here: Bench) -> Verdict | list[Verdict]:
    """A padded row is the row, on its real tokens."""
    if not here.plan.mask:
        return NotApplicable("D-PAD", "it takes no mask")
    return _leaks(here) or _sides(here) + _reading(here)


def _reading(here: Bench) -> list[Verdict]:
    """Whether the mask is read as its name says."""
    name, hides = here.plan.mask, here.plan.form.hides
    usual = {
        "attention_mask": False,
        "key_padding_mask": True,
        "src_key_padding_mask": True,
    }.get(name, hides)
    if hides == usual:
        return []
    told = "hides" if hides else "shows"
    return [
        _finding(
            here,
            "risky" if hides else "differs",
            f"Where {name} is true or 1 "
            f"it {told} a token, the other way than elsewhere.",
            1.0,
            "Rename the argument, or invert it.",
        )
    ]


def padded(here: Bench, x: Tensor, side: str, seed: int = 4) -> tuple[Tensor, Tensor]:
    """The rows with some tokens before or after them, and their mask."""
    pads = here.plan.inputs(len(x), _PADS, seed)
    real = torch.ones(x.shape[:2], dtype=torch.bool)
    none = torch.zeros(len(x), _PADS, dtype=torch.bool)
    if side == "left":
        return torch.cat((pads, x), 1), torch.cat((none, real), 1)
    return torch.cat((x, pads), 1), torch.cat((real, none), 1)


def _real(out: Tensor, side: str) -> Tensor:
    return out[:, _PADS:] if side == "left" else out[:, :-_PADS]


def _leaks(here: Bench) -> Finding | None:
    """What masked tokens are makes no difference to real ones."""
    x = here.x(2)
    for side in ("left", "right"):
        (one, mask), (two, _) = (padded(here, x, side, seed) for seed in (4, 6))
        first, second, free, other = (
            _real(here.run(*asked), side)
            for asked in ((one, mask), (two, mask), (one,), (two,))
        )
        moved = gap(second, first)
        if moved == float("inf"):
            return _nan(here, side)
        if moved > here.tolerance:
            share = moved / max(gap(other, free), 1e-9)
            text = f"Masked tokens still change real ones, {share:.2g} times as much as"
            text = f"{text} unmasked ones do"
            if gap(first, free) == 0:
                text = f"It takes {here.plan.mask} and ignores it"
            remedy = (
                "Set scores of masked keys to −∞ before the softmax, in each layer."
            )
            return _finding(here, "wrong", f"{text} (on the {side}).", moved, remedy)
    return None


def _nan(here: Bench, side: str) -> Finding:
    return _finding(
        here,
        "wrong",
        f"With padding on the {side}, real tokens get NaN.",
        1.0,
        "Give queries that may look nowhere a finite score; keep NaN out of values.",
    )


def _sides(here: Bench) -> list[Verdict]:
    x = here.x(2)
    alone = here.run(x)
    rows, mask = padded(here, x, "right")
    moved = gap(_real(here.run(rows, mask), "right"), alone)
    if moved > here.tolerance:
        text = "Padding on the right changes real tokens."
        remedy = "Leave masked tokens out of every sum, mean and length."
        return [_finding(here, "wrong", text, moved, remedy)]
    return _left(here, x, alone) or [_ragged(here, x)]


def _left(here: Bench, x: Tensor, alone: Tensor) -> list[Verdict]:
    """Padding on the left, with positions where they can be given, and without."""
    rows, mask = padded(here, x, "left")
    plain = gap(_real(here.run(rows, mask), "left"), alone)
    allowed = 10 * here.tolerance  # angles at other positions are rounded otherwise
    if not here.plan.positions:
        return [] if plain <= allowed else [_uncounted(here, plain)]
    out = here.run(rows, mask, here.places(mask))
    moved = gap(_real(out, "left"), alone)
    if moved > allowed:
        text = "Padding on the left changes real tokens, even with positions that count"
        remedy = "Use the positions that are given, row by row."
        return [_finding(here, "wrong", f"{text} real tokens.", moved, remedy)]
    if plain <= allowed:
        return []
    text = "Without position ids it counts padding on the left as tokens."
    remedy = "Give position ids: mask.cumsum(-1) − 1."
    note = _finding(here, "note", text, plain, remedy)
    return [note, _ragged(here, x)]


def _uncounted(here: Bench, moved: float) -> Finding:
    severity = "risky" if here.facts["causal"] else "note"
    return _finding(
        here,
        severity,
        "Padding on the left changes real tokens: positions count the padding, and "
        "cannot be given.",
        moved,
        "Count positions from the mask, mask.cumsum(-1) − 1, or take them.",
    )


def _ragged(here: Bench, x: Tensor) -> Verdict:
    """Rows of several lengths in one batch are the rows alone."""
    length, worst, at = x.shape[1], 0.0, 0
    lengths = [length, length - 3, 2]
    x = here.x(3)
    mask = torch.stack([torch.arange(length) >= length - n for n in lengths])
    places = here.places(mask) if here.plan.positions else None
    together = here.run(x, mask, places)
    for row, n in enumerate(lengths):
        alone = here.run(x[row : row + 1, length - n :])
        moved = gap(together[row : row + 1, length - n :], alone)
        if moved > worst:
            worst, at = moved, n
    if worst > 10 * here.tolerance:
        text = (
            f"In a batch padded on the left, the row of {at} tokens is not what it is"
        )
        text = f"{text} alone: one row's positions or mask are used for all."
        remedy = "Keep positions and mask for each row."
        return _finding(here, "wrong", text, worst, remedy)
    return Passed("D-PAD", "padding changes nothing", worst, 10 * here.tolerance)


def _finding(
    here: Bench, severity: str, message: str, moved: float, remedy: str
) -> Finding:
    return Finding(
        "D-PAD", severity, message, moved, 10 * here.tolerance, remedy, _FIND
    )


@check("D-PACK", after=(*_CAUSES, "D-PAD"))
def check_packing(here: Bench) -> Verdict:
    """Two documents in one row are the two documents alone."""
    x = here.x(1)
    cut = 4
    alone = torch.cat((here.run(x[:, :cut]), here.run(x[:, cut:])), 1)
    document = (torch.arange(x.shape[1]) >= cut).long()[None]
    steps = torch.cat((here.steps(1, cut), here.steps(1, x.shape[1] - cut)), 1)
    if here.plan.documents:
        return _by_documents(here, x, alone, document, steps)
    if (
        not here.plan.mask
        or here.facts.get("scheme") == "absolute"
        and not here.plan.positions
    ):
        raise Unable("it takes no mask of queries and keys, or no positions")
    return _by_mask(here, x, alone, document, steps)


def _by_documents(
    here: Bench, x: Tensor, alone: Tensor, document: Tensor, steps: Tensor
) -> Verdict:
    place = steps if here.plan.positions else None

    def run(x: Tensor) -> Any:
        return here.attempt(x, None, place, document)

    moved = min(gap(run(x), alone), gap(here.attempt(x, None, None, document), alone))
    if moved <= 10 * here.tolerance:
        return Passed("D-PACK", "packed documents are the documents", moved)
    return _packing(here, x, moved, run)


def _by_mask(
    here: Bench, x: Tensor, alone: Tensor, document: Tensor, steps: Tensor
) -> Verdict:
    visible = document[:, :, None] == document[:, None, :]
    every = torch.ones_like(visible)
    if here.facts["causal"]:
        visible, every = visible.tril(), every.tril()
    given = (steps,) if here.plan.positions else ()
    worst: Finding | None = None
    for form in _mask_forms():
        # a mask that replaces more than it says, such as a window, decides nothing
        if gap(_masked(here, form(every), ())(x), here.run(x)) > 10 * here.tolerance:
            continue
        run = _masked(here, form(visible), given)
        moved = gap(run(x), alone)
        if moved <= 10 * here.tolerance:
            return Passed("D-PACK", "packed documents are the documents", moved)
        if _hides(here, run, x):
            worst = _packing(here, x, moved, run)
    if worst is None:
        raise Unable("no mask of queries and keys has an effect")
    return worst


def _mask_forms() -> list[Callable[[Tensor], Tensor]]:
    """(B, L, L) and (B, 1, L, L), of booleans or to be added."""
    lowest = torch.finfo(torch.float32).min
    return [
        lambda m: m,
        lambda m: (~m).float() * lowest,
        lambda m: m[:, None],
        lambda m: (~m[:, None]).float() * lowest,
    ]


def _masked(here: Bench, mask: Tensor, given: tuple[Tensor, ...]) -> Any:
    plan, guard = here.plan, here.patient.guard

    def run(x: Tensor) -> Any:
        own = mask if mask.is_floating_point() or not plan.form.hides else ~mask
        asked = plan.arguments(x, {"positions": given[0] if given else None})
        return guard.call(here.sequence().ask, x, {**asked, plan.mask: own})

    return run


def _hides(here: Bench, run: Any, x: Tensor) -> bool:
    """Whether the second document does not see the first."""
    out, other = run(x), run(torch.cat((here.x(1, 4, seed=8), x[:, 4:]), 1))
    if isinstance(out, Failure) or isinstance(other, Failure):
        return False
    return gap(other[:, 4:], out[:, 4:]) <= here.tolerance


def _packing(here: Bench, x: Tensor, moved: float, run: Any) -> Finding:
    sealed = _hides(here, run, x)
    return Finding(
        "D-PACK",
        "wrong",
        "In a row of two documents the second is not what it is alone: "
        + (
            "its positions go on from the first."
            if sealed
            else "it sees the first document."
        ),
        moved,
        10 * here.tolerance,
        "Start positions anew in each document, and hide the others.",
        _FIND,
    )
