"""Long inputs, 16 bits, and how strong positions are in layers and models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure, fresh
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.sequence import Sequence, gap, modules_of
from pe_lab.doctor.sequence.bench import Bench, Unable, check
from pe_lab.doctor.sequence.layers import entering

_FIND, _SCALE = "18 Find the bug", "07 Add, scale, and find the √d_model bug"


@check("D-LEN", after=("D-CAUSAL", "D-ORDER", "D-HISTORY"))
def check_length(here: Bench) -> list[Verdict]:
    """Past its limit it refuses; up to there every position is its own."""
    limit, longest, why = _limit(here)
    if limit is not None:
        here.facts["limit"] = limit
    verdicts: list[Verdict] = []
    for examine in (_finite, _alone, _same_places, _past_the_limit):
        found = examine(here, longest)
        if found is not None:
            return [found]
    if limit is None:
        verdicts.append(Passed("D-LEN", f"no limit up to {longest} tokens"))
    else:
        verdicts.append(
            Finding(
                "D-LEN",
                "note",
                f"It takes {limit} tokens at most, and refuses more ({why:.80}).",
            )
        )
    return verdicts


def _limit(here: Bench) -> tuple[int | None, int, str]:
    """(longest length that works or None, longest tried that works, the error)."""
    works, failed, why = here.plan.length, 0, ""
    for length in (16, 33, 64, 130, 300, 520):
        out = here.attempt(here.x(1, length))
        if isinstance(out, Failure):
            failed, why = length, str(out)
            break
        works = length
    if not failed:
        return None, works, why
    low = works
    while failed - low > 1:
        middle = (low + failed) // 2
        if isinstance(here.attempt(here.x(1, middle)), Failure):
            failed = middle
        else:
            low = middle
    return low, low, why


def _length(severity: str, message: str, value: float) -> Finding:
    return Finding(
        "D-LEN",
        severity,
        message,
        value,
        remedy="Refuse positions that the table does not have, or make it longer.",
        chapter=_FIND,
    )


def _finite(here: Bench, longest: int) -> Finding | None:
    out = here.run(here.x(1, longest))
    if bool(torch.isfinite(out).all()):
        return None
    return _length("wrong", f"{longest} tokens give NaN or infinite outputs.", longest)


def _added(here: Bench) -> bool:
    """Whether an absolute position is part of the token."""
    absolute = here.facts["scheme"] == "absolute"
    return absolute and bool(here.facts["constant"] > here.tolerance)


def _alone(here: Bench, longest: int) -> Finding | None:
    """Single tokens at many positions: which positions are the same?"""
    plan = here.plan
    if not _added(here) or not (plan.positions and plan.rows):
        return None
    end = min(here.facts.get("limit") or 600, 600)
    steps = plan.first + torch.arange(end)[:, None]
    out = here.attempt(_copies(here, end), None, steps)
    return _repeats(here, out[:, 0].double()) if isinstance(out, Tensor) else None


def _copies(here: Bench, rows: int) -> Tensor:
    """One token, as often as there are rows."""
    one = here.x(1)[:, :1]
    return one.expand(rows, *one.shape[1:]).clone()


def _same_places(here: Bench, longest: int) -> Finding | None:
    """Absolute positions far out that are no longer told apart."""
    if not _added(here):
        return None
    one = here.x(1)[:, :1]
    same = one.expand(1, longest, *one.shape[2:]).clone()
    out = here.run(same)[0].double()
    step = (out[1:] - out[:-1]).norm(dim=-1)
    usual = float(step[2:9].median())
    low = (i for i, n in enumerate(step) if i > 9 and n < 0.3 * usual)
    at = next(low, len(step))
    # what a table ends falls at once, and what only fades falls little by little
    far = step[at + 30 :]
    if len(far) and step[at] < 0.35 * step[at - 1] and far.max() < 0.1 * usual:
        text = f"From position {at} on, all positions are the same: the table ends"
        return _length("risky", f"{text} there.", at)
    if not here.facts["causal"]:
        return _repeats(here, out)
    # a causal layer mixes in another number of tokens at each position
    try:
        return _repeats(here, entering(here, same)[0].double(), earliest=2)
    except Unable:
        return None


def _repeats(here: Bench, out: Tensor, earliest: int = 9) -> Finding | None:
    """The first position that is another one again."""
    size = float(out.pow(2).mean().sqrt())
    apart = torch.cdist(out, out) + torch.eye(len(out)) * 1e9
    pairs = (apart < here.tolerance * size).nonzero()
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    if not len(pairs) or int(pairs[:, 1].min()) < earliest:
        return None
    one, two = pairs[pairs[:, 1].argmin()].tolist()
    why = "wrap around" if two - one > 1 else "are clamped, or rounded to 16 bits"
    return _length(
        "risky", f"Position {two} is the same as position {one}: positions {why}.", two
    )


def _past_the_limit(here: Bench, longest: int) -> Finding | None:
    """Decoding past the limit is refused too."""
    limit = here.facts.get("limit")
    able = (
        here.decodes and here.facts["causal"] and here.facts.get("cause") != "D-CACHE"
    )
    if limit is None or limit > 130 or not able or limit <= here.plan.length:
        return None
    for last in ([1, 1], [2]):
        try:
            here.decode(here.x(1, limit + 1), [limit - 1, *last])
        except Unable:
            continue
        return _length(
            "wrong",
            f"One pass refuses {limit + 1} tokens, but decoding goes past the limit "
            "without a word.",
            limit,
        )
    return None


@check("D-DTYPE", after=("D-CAUSAL", "D-HISTORY", "D-LEN"))
def check_dtype(here: Bench) -> Verdict | list[Verdict]:
    """In 16 bits, far positions are as near to float32 as the first ones."""
    if here.facts["scheme"] == "none":
        return NotApplicable("D-DTYPE", "it has no positions")
    if here.sequence().dtype != torch.float32 or here.facts.get("large"):
        return NotApplicable("D-DTYPE", "it is not in float32, or too large to copy")
    rounded = _far_shift(here)
    if rounded is not None:
        return rounded
    ways = {"after .to(torch.bfloat16)": _cast, "under autocast": _autocast}
    found: list[Verdict] = []
    for name, run in ways.items():
        near, far = _errors(here, run)
        if near == float("inf") or far == float("inf"):
            continue
        # rounding is alike everywhere; a position that is rounded away is not
        if far > max(4 * near, 0.08):
            return _coarse(here, name, near, far)
        found.append(Passed("D-DTYPE", f"{name} far positions are kept", far, 4 * near))
    return found[:1] or NotApplicable("D-DTYPE", "it does not run in 16 bits")


def _far_shift(here: Bench) -> Finding | None:
    """A relative scheme in float32, shifted far: angles are rounded to 1e-3 at most."""
    if here.facts["scheme"] != "relative" or not here.plan.positions:
        return None
    x = here.x(2)
    for shift in (1000, 5000):
        pair = [here.attempt(x, None, here.steps(2) + shift + n) for n in (0, 1)]
        moved = gap(*pair) if isinstance(pair[1], Tensor) else 0.0
        if moved > 0.05:
            return Finding(
                "D-DTYPE",
                "wrong",
                f"Positions from {shift} and from {shift + 1} on give other outputs, "
                "from 0 and from 3 they give the same: far positions are rounded.",
                moved,
                0.05,
                "Keep positions as integers, or in float32, until they are angles.",
                "03 Compute the tables by hand",
            )
    return None


def _coarse(here: Bench, name: str, near: float, far: float) -> Finding:
    return Finding(
        "D-DTYPE",
        "risky",
        f"{name[0].upper()}{name[1:]}, outputs at far positions are off by {far:.2g} "
        f"and at the first by {near:.2g}: positions or angles are made in 16 bits, "
        "where 257 is 256.",
        far,
        max(4 * near, 0.08),
        "Make positions and angles in float32 or wider, and round the result once.",
        "03 Compute the tables by hand",
    )


def _errors(here: Bench, run: Any) -> tuple[float, float]:
    """Errors in 16 bits of the first tokens, and of tokens far out."""
    length = here.plan.length
    if here.plan.positions:
        x, start = here.x(2), 1000
        if isinstance(here.attempt(x, None, here.steps(2) + start), Failure):
            start = here.facts.get("limit", 300) - length
        asked = [(x, None, here.steps(2)), (x, None, here.steps(2) + max(start, 0))]
        pairs = [(run(here, *a), here.run(*a)) for a in asked]
        near, far = (_error(a, b) for a, b in pairs)
        return near, far
    x = here.x(2, min(here.facts.get("limit") or 520, 520))
    out, exact = run(here, x), here.run(x)
    if isinstance(out, Failure):
        return float("inf"), float("inf")
    return (
        _error(out[:, :64], exact[:, :64]),
        _error(out[:, -64:], exact[:, -64:]),
    )


def _error(out: Any, exact: Tensor) -> float:
    """Root mean square of the differences, relative to that of the outputs."""
    if not isinstance(out, Tensor) or not bool(torch.isfinite(out).all()):
        return float("inf")
    difference = (out.double() - exact.double()).pow(2).mean().sqrt()
    return float(difference / exact.double().pow(2).mean().sqrt())


def _cast(here: Bench, *asked: Any) -> Any:
    twin = fresh(here.prototype)
    for module in modules_of(twin):
        module.to(torch.bfloat16)
    return here.patient.guard.call(Sequence(twin, here.plan), *asked)


def _autocast(here: Bench, *asked: Any) -> Any:
    sequence = here.sequence()

    def run(*given: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return sequence(*given)

    return here.patient.guard.call(run, *asked)


@check("D-SCALE", after=("D-CAUSAL", "D-ORDER"))
def check_scale(here: Bench) -> Verdict:
    """How strong position is beside the tokens; absolute positions only."""
    if here.plan.kind != "model" or not _added(here):
        return NotApplicable("D-SCALE", "positions are not added to its tokens")
    balance = _balance(here)
    here.facts["balance"] = balance
    wanted = here.expected("balance")
    if wanted is not None and not 0.5 < balance / wanted < 2:
        return Finding(
            "D-SCALE",
            "wrong",
            f"Positions move the output {balance:.2g} times as much as tokens do, "
            f"expected {wanted:.2g}: the factor √d_model is missing or doubled.",
            balance,
            2 * wanted,
            "Multiply token embeddings by √d_model once, where they are looked up.",
            _SCALE,
        )
    if 1 / 3 < balance < 3:
        return Passed("D-SCALE", "tokens and positions are heard", balance)
    return Finding(
        "D-SCALE",
        "note",
        f"Positions move the output {balance:.2g} times as much as tokens do.",
        balance,
        chapter=_SCALE,
    )


def _balance(here: Bench) -> float:
    """Spread of outputs over positions, by that over tokens; weights as they are."""
    plan, guard = here.plan, here.patient.guard
    sequence = Sequence(fresh(here.patient.subject), plan)
    ids = torch.arange(3 if plan.width > 6 else 0, plan.width)[:, None]
    length = plan.length
    rows = here.given(guard.call(sequence, ids.expand(-1, length).clone())).double()
    over_positions = (rows - rows.mean(1, keepdim=True)).pow(2).mean().sqrt()
    over_tokens = (rows - rows.mean(0, keepdim=True)).pow(2).mean().sqrt()
    return float(over_positions / over_tokens.clamp_min(1e-12))
