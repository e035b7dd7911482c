"""Repeated calls and decoding of layers and models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.sequence import gap
from pe_lab.doctor.sequence.bench import Bench, Unable, check
from pe_lab.doctor.sequence.decoding import decode

_FIND = "18 Find the bug"
_LONG = 40  # tokens of the longer runs; past the tables and limits of small subjects
_SEEN = ("D-CAUSAL", "D-ORDER", "D-SHIFT", "D-LAYER")


@check("D-HISTORY", after=("D-CAUSAL",))
def check_history(here: Bench) -> Verdict:
    """What was called before does not change what comes after."""
    x, longer = here.x(2), here.x(2, _LONG)
    if isinstance(here.attempt(longer), Failure):
        longer = here.x(2, here.plan.length + 1)
    asked: dict[str, tuple[Any, ...]] = {
        "the same input": (x,),
        "a longer input": (longer,),
        "a single row": (here.x(1),),
        "more rows": (here.x(5),),
    }
    if here.plan.mask:
        mask = torch.ones(x.shape[:2], dtype=torch.bool)
        mask[:, :3] = False
        asked["a masked input"] = (x, mask)
    if here.plan.positions:
        asked["other positions"] = (x, None, here.steps(2) + 3)
    worst, call = 0.0, here.patient.guard.call
    for name, earlier in asked.items():
        kept = here.sequence()
        before = call(kept, *earlier)
        for later in ((x,), (longer,)):
            moved = gap(call(kept, *later), here.run(*later))
            worst = max(worst, moved)
            if moved > here.tolerance and not isinstance(before, Failure):
                return _remembers(here, name, later[0].shape[1], moved)
    return Passed("D-HISTORY", "calls leave nothing behind", worst, here.tolerance)


def _remembers(here: Bench, name: str, length: int, moved: float) -> Finding:
    return Finding(
        "D-HISTORY",
        "wrong",
        f"{length} tokens give another output after a call with {name} than on a fresh "
        "copy: something of the earlier call is kept.",
        moved,
        here.tolerance,
        "Make positions, tables and masks from the arguments of each call, or key what "
        "is kept by all that it depends on.",
        _FIND,
    )


@check("D-CACHE", after=(*_SEEN, "D-HISTORY"))
def check_cache(here: Bench) -> Verdict | list[Verdict]:
    """Tokens fed one after the other give what they give at once."""
    if not here.facts.get("causal", True):
        return NotApplicable("D-CACHE", "it sees later tokens, so it has no cache")
    if not here.decodes:
        return NotApplicable(
            "D-CACHE", "it has no cache that is known here; give step="
        )
    length = here.plan.length
    feeds = {
        "all at once": [length],
        "a prompt, then one token at a time": [length - 4, 1, 1, 1, 1],
        "one token at a time": [1] * length,
        "a prompt, then several tokens at once": [3, length - 5, 2],
    }
    x, worst = here.x(2), 0.0
    full = here.run(x)
    for name in feeds:
        out = _fed(here, x, feeds[name], several="several" in name)
        if out is None:
            continue
        moved = gap(out, full)
        worst = max(worst, moved)
        if moved > here.tolerance:
            return _differs(here, name, feeds[name], out, full, x)
    return _far(here) or _again(here) or _ragged(here, worst)


def _fed(here: Bench, x: Tensor, sizes: list[int], several: bool) -> Tensor | None:
    """Decoded rows; None where a chunk after others is not taken at all."""
    try:
        out = here.decode(x, sizes)
    except Unable:
        if several:
            return None
        raise
    if out.shape[1] == x.shape[1]:
        return out
    raise Unable(f"of {x.shape[1]} tokens it gives {out.shape[1]} outputs")


def _differs(
    here: Bench, name: str, sizes: list[int], out: Tensor, full: Tensor, x: Tensor
) -> Finding:
    at = next(
        i for i in range(x.shape[1]) if gap(out[:, i], full[:, i]) > here.tolerance
    )
    place = _as_if_at(here, x[:, : at + 1], out[:, at])
    return _cache(
        here,
        f"Fed with {name} ({', '.join(map(str, sizes))}), output {at} is the first "
        f"that is not that of one pass.{place}",
        gap(out, full),
    )


def _cache(here: Bench, message: str, moved: float, severity: str = "wrong") -> Finding:
    return Finding(
        "D-CACHE",
        severity,
        message,
        moved,
        here.tolerance,
        "Number new tokens on from the cache, turn keys once before they are kept, and "
        "align the last query with the last key.",
        _FIND,
    )


def _as_if_at(here: Bench, x: Tensor, out: Tensor) -> str:
    """Which position the token seems to have had, if positions can be given."""
    at = x.shape[1] - 1
    if not here.plan.positions:
        return ""
    for place in range(2 * x.shape[1] + 2):
        steps = here.steps(len(x), x.shape[1]).clone()
        steps[:, -1] = place + here.plan.first
        one = here.attempt(x, None, steps)
        if isinstance(one, Tensor) and gap(one[:, -1], out) <= 10 * here.tolerance:
            return f" It is what token {at} gives at position {place}."
    return ""


def _far(here: Bench) -> Finding | None:
    """Many steps, and outputs of a short pass against those of a long one."""
    x = here.x(1, _LONG)
    full = here.attempt(x)
    if isinstance(full, Failure):
        return None
    try:
        out = here.decode(x, [5] + [1] * (_LONG - 5))
    except Unable as error:
        return _cache(
            here, f"Decoding {_LONG} tokens fails where one pass works: {error}.", 1.0
        )
    moved = gap(out, full)
    if moved <= here.tolerance:
        return None
    last = [gap(out[:, i], full[:, i]) > here.tolerance for i in range(_LONG)].index(
        True
    )
    return _cache(
        here,
        f"After {_LONG} tokens decoded one at a time, output {last} is "
        "the first that is not that of one pass, though shorter runs agree: "
        "something depends on the length so far.",
        moved,
    )


def _again(here: Bench) -> Finding | None:
    """A second generation on the same copy, of other lengths."""
    sequence, call = here.sequence(), here.patient.guard.call
    one, two = here.x(2, 7, seed=1), here.x(2)
    first = call(decode, sequence, one, [3, 1, 1, 1, 1])
    second = call(decode, sequence, two, [here.plan.length - 2, 1, 1])
    if isinstance(first, Failure):
        return None
    moved, plain = gap(second, here.run(two)), gap(call(sequence, two), here.run(two))
    if max(moved, plain) <= here.tolerance:
        return None
    what = "A second generation" if moved > here.tolerance else "A plain pass"
    return Finding(
        "D-HISTORY",
        "wrong",
        f"{what} after a first generation is not what it is on a fresh copy: offset or "
        "cache of the first is kept.",
        max(moved, plain),
        here.tolerance,
        "Keep offset and cache with the caller, or forget them when a text begins.",
        _FIND,
    )


def _ragged(here: Bench, worst: float) -> Verdict:
    """Left-padded rows go on decoding where each of them is."""
    passed = Passed("D-CACHE", "decoding is the full pass", worst, here.tolerance)
    if not here.plan.mask or here.facts.get("cause") == "D-PAD":
        return passed
    length, steps = here.plan.length, 2
    lengths = [length, 3]
    x = here.x(2, length + steps)
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    for row, n in enumerate(lengths):
        mask[row, : length - n] = False
    places = here.places(mask) if here.plan.positions else None
    try:
        out = here.decode(x, [length] + [1] * steps, mask, places)
    except Unable:
        return passed
    for row, n in enumerate(lengths):
        alone = here.run(x[row : row + 1, length - n :])
        moved = gap(out[row : row + 1, length - n :], alone)
        if moved > 10 * here.tolerance and not _uncounted(here):
            return _cache(
                here,
                f"In a batch padded on the left, the row of {n} tokens "
                "does not decode as it does alone.",
                moved,
            )
    return passed


def _uncounted(here: Bench) -> bool:
    """Whether left padding moves positions anyway, as D-PAD says."""
    return here.facts["scheme"] == "absolute" and not here.plan.positions
