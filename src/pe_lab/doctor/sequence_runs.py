"""Decoding, repeated calls, long inputs and other dtypes of layers and models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.bench import Bench, Unable, check
from pe_lab.doctor.decoding import decode
from pe_lab.doctor.guard import Failure, fresh
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.sequence import Sequence, gap, modules_of

_FIND, _SCALE = "18 Find the bug", "07 Add, scale, and find the √d_model bug"
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
    return None if here.facts["causal"] else _repeats(here, out)


def _repeats(here: Bench, out: Tensor) -> Finding | None:
    """The first position that is another one again."""
    size = float(out.pow(2).mean().sqrt())
    apart = torch.cdist(out, out) + torch.eye(len(out)) * 1e9
    pairs = (apart < here.tolerance * size).nonzero()
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    if not len(pairs) or int(pairs[:, 1].min()) < 9:
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
