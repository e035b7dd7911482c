"""What a layer or model is: which scheme, and who sees whom."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.sequence import gap
from pe_lab.doctor.sequence.bench import Bench, Unable, bench, parameters
from pe_lab.doctor.sequence.layers import order_in_layers


def identify(patient: Patient) -> dict[str, Any]:
    """What it is: its scheme as far as it can be seen, who sees whom, what it takes."""
    here = bench(patient)
    try:
        here.facts["seen"] = who_sees_whom(here)
        here.facts["causal"] = _causal(here)
        here.facts["scheme"] = scheme(here)
    except Unable as error:
        here.facts.setdefault("scheme", f"not seen ({error})")
    plan, given = here.plan, here.facts
    named = (plan.mask, plan.positions, plan.documents)
    takes = [
        *filter(None, named),
        *(["a cache"] if here.decodes and given.get("causal") else []),
    ]
    identity = {
        "scheme": given["scheme"],
        "causal": given.get("causal"),
        "enters": enters(here),
        "takes": ", ".join(takes) or "tokens only",
        "offset": plan.first if plan.positions else None,
        "parameters": parameters(patient.subject),
    }
    return {name: value for name, value in identity.items() if value is not None}


def who_sees_whom(here: Bench) -> Tensor:
    """(L, L): by how much output i moves when token j changes, at [j, i]."""
    length = here.plan.length
    base, other = here.x(1), here.x(1, seed=2)
    if base.dtype == torch.long:
        other = torch.where(other == base, base - 1, other)
    rows = base.repeat(length + 1, *[1] * (base.dim() - 1))
    for j in range(length):
        rows[j + 1, j] = other[0, j]
    # one row a call, so that rows that see each other do not blur it
    out = torch.cat([here.run(row[None]) for row in rows]).double()
    here.facts["plain"] = out[:1]
    moved = (out[1:] - out[:1]).abs().amax(-1)
    return moved / out.pow(2).mean().sqrt().clamp_min(1e-12)


def _causal(here: Bench) -> bool:
    """Whether later tokens do not matter."""
    return not bool((future(here) > here.tolerance).any())


def future(here: Bench) -> Tensor:
    """Effects of token j on an earlier output i."""
    seen = here.facts["seen"]
    length = len(seen)
    i, j = torch.tril_indices(length, length, -1)[[1, 0]]
    return seen[j, i]


def past(here: Bench) -> Tensor:
    """Effects of token j on a later output i."""
    seen = here.facts["seen"]
    length = len(seen)
    j, i = torch.triu_indices(length, length, 1)
    return seen[j, i]


def scheme(here: Bench) -> str:
    """Whether it is none, relative or absolute, or what could not be told apart."""
    constant = _differs_on_equal_tokens(here)
    here.facts["constant"] = constant
    ordered = _ordered(here, constant)
    here.facts["ordered"] = ordered
    if ordered is False:
        return "none"
    moved = _moved_by_a_shift(here)
    here.facts["shift"] = moved
    if moved is None:
        absolute = constant > here.tolerance
        unsure = "relative" if ordered else "relative or none"
        return "absolute" if absolute else unsure
    return "absolute" if moved > 10 * here.tolerance else "relative"


def _differs_on_equal_tokens(here: Bench) -> float:
    """Largest difference between outputs in the middle when all tokens are equal.

    Weights of any kind over equal values give the same value: only a position that is
    part of the token, or of the value, is seen here. The ends may be special.
    """
    one = here.x(1)[:, :1]
    same = one.expand(1, 15, *one.shape[2:]).clone()
    out = here.attempt(same)
    if isinstance(out, Failure):
        out = here.run(same[:, : here.plan.length])
    edge = out.shape[1] // 3
    return max(gap(row, out[0, edge]) for row in out[0, edge + 1 : -edge])


def _ordered(here: Bench, constant: float) -> bool | None:
    """Whether anything besides a causal mask tells the order; None if unknown."""
    if not here.facts["causal"]:
        x, order = here.x(1), shuffled(here.plan.length)
        moved = gap(here.run(x[:, order]), here.run(x)[:, order])
        return moved > here.tolerance
    if constant > here.tolerance:
        return True
    if here.plan.positions:
        wide = here.plan.first + 2 * torch.arange(here.plan.length)[None]
        out = here.attempt(here.x(1), None, wide)
        if not isinstance(out, Failure) and gap(out, here.run(here.x(1))) > 1e-4:
            return True
    try:
        return max(order_in_layers(here)) > here.tolerance
    except Unable:
        x = here.x(1)
        last = here.plan.length - 1
        swap = torch.tensor([*range(last - 1, -1, -1), last])
        moved = gap(here.run(x[:, swap])[:, -1], here.run(x)[:, -1])
        return None if moved > here.tolerance else False


def shuffled(length: int) -> Tensor:
    """An order of the tokens, the same each time."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(5))


def _moved_by_a_shift(here: Bench) -> float | None:
    """How much outputs change when every token moves by 3 places."""
    plan, x = here.plan, here.x(2)
    if plan.positions:
        far = here.attempt(x, None, here.steps(2) + 3)
        if not isinstance(far, Failure):
            return gap(far, here.run(x, None, here.steps(2)))
    if plan.mask:
        pads = here.x(2, 3, seed=4)
        mask = torch.ones(2, plan.length + 3, dtype=torch.bool)
        mask[:, :3] = False
        out = here.attempt(torch.cat((pads, x), 1), mask)
        if not isinstance(out, Failure):
            moved = gap(out[:, 3:], here.run(x))
            return None if moved == float("inf") else moved
    return None


def enters(here: Bench) -> str | None:
    """Where position enters, if layers are found inside."""
    if here.facts.get("ordered") is not True:
        return None
    try:
        moved = order_in_layers(here)
    except Unable:
        return None
    inside = [m > here.tolerance for m in moved]
    here.facts["layers"] = inside
    if all(inside):
        return "in every layer"
    if not any(inside):
        return "before the first layer"
    which = ", ".join(str(i) for i, yes in enumerate(inside) if yes)
    return f"in layers {which} of 0 … {len(inside) - 1}"


def reach(here: Bench, sign: int) -> int:
    """How many tokens ahead (−1) or back (1) anything is seen."""
    seen = here.facts["seen"]
    effects = [float(seen.diagonal(sign * k).max()) for k in range(1, len(seen))]
    return max((k for k, e in enumerate(effects, 1) if e > here.tolerance), default=0)
