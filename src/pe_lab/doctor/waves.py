"""Which ladder of frequencies it is: base, spacing and scaling rule, from the numbers.

A ladder fits several names: base 10⁴ spaced as tensor2tensor does it is some odd base
spaced as in the paper, and so is NTK-aware scaling. The name with the round numbers is
taken. Rules: Chen et al. 2023 (linear), Peng et al. 2023 (NTK-aware, YaRN), Dubey et
al. 2024 (Llama 3), Ding et al. 2024 (LongRoPE).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from pe_lab import scaling

# Bases of released models; what is none of them needs two digits to be called round.
USUAL = (1e4, 5e5, 1e6, 1e5, 1e3, 100.0, 1.5e5, 1.6e5, 5e6, 1e7)
# Of frequencies read off float32 outputs; a wrong rule is off by percents.
FIT = 1e-4
_SAME = 3e-5  # of bases; Falcon 3's 1000042 is no million
_LENGTHS = tuple(2**k for k in range(4, 21))
_PARTS: dict[str, Callable[..., Tensor]] = {
    "llama3": scaling.llama3,
    "yarn": scaling.yarn,
    "by parts": scaling.ntk_by_parts,
}


def name_ladder(inv_freq: Tensor, *, dim: int) -> dict[str, Any]:
    """Name a ladder of inverse frequencies.

    Args:
        inv_freq: (pairs,) radians per position, the pair of channels 0 first.
        dim: number of channels that the exponents 2i/dim divide by.

    Returns:
        "base" (NaN if one pair leaves it open), "spacing" ("paper" or
        "tensor2tensor"), "scaling" ("none", "linear 4", "ntk 4", "llama3 8", "yarn 4",
        "by parts 4", "step 4": kept or divided without a ramp, "longrope" or
        "unknown"), "error": the largest relative distance
        from the ladder so named; "ladder": that ladder, exact; "original_length" where
        the rule has one; "rounded" where a 16-bit dtype has rounded the frequencies.
    """
    w = inv_freq.detach().to("cpu", torch.float64)
    if w.dim() != 1 or not len(w) or not bool(w.isfinite().all() and (w > 0).all()):
        return _named(w, math.nan, "unknown", torch.full_like(w, math.nan))
    if len(w) == 1:
        slow = 1 / float(w[0])
        rule = "none" if abs(slow - 1) <= FIT else f"linear {short(slow)}"
        return _named(w, math.nan, rule, w)
    start, base = _geometric(w, dim)
    fit = start * geometric(base, dim, len(w))
    if _distance(w, fit) <= FIT:
        return _name_geometric(w, start, base, dim)
    return (
        _name_rounded(w, dim)
        or _name_parts(w, dim)
        or _name_ramp(w, dim)
        or _name_free(w, dim)
    )


def short(value: float) -> str:
    """A number in the digits that it has: 4, 2.5, 1.3335."""
    return f"{round(value):d}" if abs(value - round(value)) <= 1e-3 else f"{value:.4g}"


def is_round(value: float) -> bool:
    """Whether a base needs at most two digits, or is that of a released model."""
    if not 1 < value < math.inf:
        return False
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    near = round(value / unit) * unit
    return any(abs(value / b - 1) <= _SAME for b in (near, *USUAL))


def geometric(base: float, dim: int, pairs: int) -> Tensor:
    """base^(−2i/dim), i < pairs; the base may be below 1, a rising ladder."""
    step = torch.arange(pairs, dtype=torch.float64)
    return torch.tensor(base, dtype=torch.float64) ** (-2 * step / dim)


def _geometric(w: Tensor, dim: int) -> tuple[float, float]:
    """First frequency and base of the straight line through the logarithms."""
    fall = float(w[-1].log() - w[0].log()) / (len(w) - 1)
    exponent = min(max(-fall * dim / 2, -700.0), 700.0)
    return float(w[0]), math.exp(exponent)


def _distance(w: Tensor, fit: Tensor) -> float:
    return float((w / fit - 1).abs().max())


def _named(
    w: Tensor,
    base: float,
    rule: str,
    ladder: Tensor,
    spacing: str = "paper",
    **more: Any,
) -> dict[str, Any]:
    error = _distance(w, ladder) if len(w) else math.nan
    named = {"base": base, "spacing": spacing, "scaling": rule, "error": error}
    return {**named, "ladder": ladder, **more}


def _name_geometric(w: Tensor, start: float, base: float, dim: int) -> dict[str, Any]:
    base, spacing, rule = _name_base(base, dim)
    last = dim - 2 if spacing == "tensor2tensor" else dim
    ladder = geometric(base, last, len(w))
    if rule.startswith("ntk"):
        ladder = scaling.ntk(ladder, float(rule.split()[1]))
    if abs(start - 1) > FIT:
        slow = short(1 / start)
        ladder = ladder / (float(slow) if _is(float(slow), 1 / start) else 1 / start)
        rule = f"linear {slow}" if rule == "none" else f"linear {slow} {rule}"
    return _named(w, base, rule, ladder, spacing)


def _name_base(base: float, dim: int) -> tuple[float, str, str]:
    """(base, spacing, rule) with the roundest numbers that give this paper base."""
    even = dim > 2 and dim % 2 == 0
    last = base ** ((dim - 2) / dim) if even else math.nan  # 1 / the slowest
    for given, spacing in ((base, "paper"), (last, "tensor2tensor")):
        for usual in USUAL:
            if _is(given, usual):
                return usual, spacing, "none"
    if is_round(base):
        return _rounded(base), "paper", "none"
    for usual in USUAL[:3] if even else ():
        factor = (base / usual) ** ((dim - 2) / dim)
        whole = round(2 * factor) / 2
        if 1 < whole <= 128 and _is(factor, whole):
            return usual, "paper", f"ntk {short(whole)}"
    if is_round(last):
        return _rounded(last), "tensor2tensor", "none"
    return base, "paper", "none"


def _is(value: float, wanted: float) -> bool:
    return abs(value / wanted - 1) <= _SAME


def _rounded(base: float) -> float:
    near = float(f"{base:.1e}")
    return near if _is(base, near) else base


def _name_rounded(w: Tensor, dim: int) -> dict[str, Any] | None:
    """A usual ladder whose frequencies went through a 16-bit dtype."""
    for base in USUAL:
        exact = geometric(base, dim, len(w))
        for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
            if _distance(w, exact.to(dtype).double().clamp_min(1e-30)) <= FIT:
                return _named(w, base, "none", exact, rounded=name)
    return None


def _name_parts(w: Tensor, dim: int) -> dict[str, Any] | None:
    """The rule that keeps fast pairs and divides slow ones, if one fits."""
    best: tuple[float, dict[str, Any]] = (10 * FIT, {})
    for base in _likely_bases(w, dim):
        plain = geometric(base, dim, len(w))
        for rule, length, kept in _shares(plain):
            i = int(kept.argmin())
            share, left = float(kept[i]), float(w[i] / plain[i])
            if share > 0.99 or not share < left < 1:
                continue
            factor = (1 - share) / (left - share)
            ladder = plain / factor * (1 - kept) + plain * kept
            error = max(_distance(w, ladder), FIT / 100)
            if error < 0.5 * best[0]:  # else the first, which is the more usual
                name = f"{rule} {short(factor)}"
                named = _named(w, base, name, ladder, original_length=length)
                best = (error, named)
    return best[1] or None


def _likely_bases(w: Tensor, dim: int) -> Iterator[float]:
    if abs(float(w[0]) - 1) <= FIT and float(w[1]) < 1:
        yield _rounded(float(w[1]) ** (-dim / 2))
    yield from USUAL


def _shares(plain: Tensor) -> Iterator[tuple[str, int, Tensor]]:
    """(rule, trained length, share of each pair that is kept)."""
    for rule, function in _PARTS.items():
        for length in _LENGTHS:
            halved = function(plain, 2.0, original_length=length)
            yield rule, length, 2 * halved / plain - 1


def _name_ramp(w: Tensor, dim: int) -> dict[str, Any] | None:
    """YaRN or by parts with other lengths or turns, by the shape of the ramp alone.

    The share that is kept falls in a straight line: over the index of the pair in YaRN,
    over the frequency by parts.
    """
    if abs(float(w[0]) - 1) > FIT or not 0 < float(w[1]) < 1:
        return None
    base = _rounded(float(w[1]) ** (-dim / 2))
    plain = geometric(base, dim, len(w))
    factor = float(plain[-1] / w[-1])
    if not factor > 1 + FIT:
        return None
    share = (w / plain - 1 / factor) / (1 - 1 / factor)
    inside = (share > 0.01) & (share < 0.99)
    falls = share.diff(prepend=share[:1]) < FIT
    tidy = bool((falls & (share > -FIT) & (share < 1 + FIT)).all())
    if int(inside.sum()) < 3 or not tidy:
        return None
    index = torch.arange(len(w), dtype=torch.float64)
    for rule, x in (("yarn", index), ("by parts", plain)):
        slope, start = _line(x[inside], share[inside])
        ladder = plain / factor + (plain - plain / factor) * (
            (slope * x + start).clamp(0, 1)
        )
        if _distance(w, ladder) <= 10 * FIT:
            like = rule == "by parts" and abs(start + 1 / 3) < 0.01
            name = "llama3" if like else rule
            return _named(w, base, f"{name} {short(factor)}", ladder)
    return None


def _line(x: Tensor, y: Tensor) -> tuple[float, float]:
    """Slope and start of the line through the first and the last point."""
    slope = float((y[-1] - y[0]) / (x[-1] - x[0]))
    return slope, float(y[0]) - slope * float(x[0])


def _name_free(w: Tensor, dim: int) -> dict[str, Any]:
    """A factor of its own for each pair, growing from about 1: LongRoPE; or unknown."""
    for base in _likely_bases(w, dim):
        factors = geometric(base, dim, len(w)) / w
        last = float(factors[-1])
        two = (factors - 1).abs().minimum((factors - last).abs()) <= FIT * last
        if last > 1 + FIT and bool(two.all()):
            return _named(w, base, f"step {short(last)}", w)
    for base in USUAL[:3]:
        factors = geometric(base, dim, len(w)) / w
        starts = 1 - FIT <= float(factors[0]) <= 1.5
        grows = bool((factors[1:] >= 0.95 * factors[:-1]).all())
        if starts and grows and float(factors[-1]) > 1:
            return _named(w, base, "longrope", w)
    start, base = _geometric(w, dim)
    return _named(w, base, "unknown", start * geometric(base, dim, len(w)))
