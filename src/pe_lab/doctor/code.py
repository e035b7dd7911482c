"""Read a table (L, d) as sines and cosines of position: order, frequencies, offset.

A pair of channels is the point z_p = cos-channel + i·sin-channel, which turns by the
same angle at every step. The sense of turning and the first point say which of the two
is the sine, what was negated, and where the positions start (Vaswani et al. 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Residuals of a pair: float32 angles at 512 positions are off by 3e-5, tables stored in
# bfloat16 by 2^-9; two slow channels that are no pair differ by more.
FINE, COARSE = 2e-4, 1.2e-2
_TURN = math.pi / 2


@dataclass(frozen=True)
class Code:
    """What a table is, as far as it is sines and cosines.

    Args:
        sines, cosines: channels of the pairs.
        blocks: whether the sines come in one block, the cosines in another.
        omega: (pairs,) float64, radians per position, never negative.
        gain: amplitude that most pairs share.
        good: (pairs,) whether a pair turns evenly at that amplitude.
        quarter: turn of the first point, in quarters: 0 sin-first, 1 cos-first …
        backward: whether it turns against that.
        offset: position of row 0; NaN if the pairs do not agree on one.
        coarse: whether it is read with the tolerance of 16 bits.
    """

    sines: Tensor
    cosines: Tensor
    blocks: bool
    omega: Tensor
    gain: float
    good: Tensor
    quarter: int
    backward: bool
    offset: float
    coarse: bool

    @property
    def complete(self) -> bool:
        """Whether every pair is one."""
        return bool(self.good.all())

    @property
    def downward(self) -> bool:
        """Whether the positions count down, from the offset in row 0."""
        mirrored = (self.quarter, self.backward) in ((0, True), (1, False))
        return mirrored and abs(self.offset) > 0.5

    @property
    def order(self) -> str:
        """In which order sines and cosines stand, and what is unusual about it."""
        name = "halves" if self.blocks else "interleaved"
        return f"{name}, {_SENSES[self.sense]}" if self.sense else name

    @property
    def sense(self) -> str:
        """Nothing for sine first, "c" for cosine first, else which sign is wrong."""
        backward = self.backward != self.downward
        return _READINGS[self.quarter % 4, backward]


# (first point, turns backward) -> what the two channels of a pair are
_READINGS = {
    (0, False): "",
    (1, True): "c",
    (0, True): "-s",
    (1, False): "c-s",
    (2, True): "-c",
    (2, False): "-s-c",
    (3, True): "-c-s",
    (3, False): "-cs",
}
_SENSES = {
    "c": "cosine first",
    "-s": "negative sine first",
    "c-s": "cosine, then negative sine",
    "-c": "sine, then negative cosine",
    "-s-c": "both negative",
    "-c-s": "negative cosine first, both negative",
    "-cs": "negative cosine first",
}


def read(table: Tensor) -> Code | None:
    """The best reading of a table (L ≥ 4, d ≥ 2), or None if no pair turns evenly."""
    table = table.double()
    if table.shape[0] < 4 or table.shape[1] < 2 or not bool(table.isfinite().all()):
        return None
    for tolerance in (FINE, COARSE):
        readings = [_pairs(table, blocks, tolerance) for blocks in (False, True)]
        found = [r for r in readings if r is not None]
        best = max(found, key=lambda r: int(r.good.sum()), default=None)
        if best is not None and (best.complete or tolerance == COARSE):
            return best
    return None


def _pairs(table: Tensor, blocks: bool, tolerance: float) -> Code | None:
    width = table.shape[1]
    pairs, half = width // 2, (width + 1) // 2
    first = torch.arange(pairs)
    sines = first if blocks else 2 * first
    cosines = sines + half if blocks else sines + 1
    z = torch.complex(table[:, cosines], table[:, sines])
    step, start, size, error = _turning(z)
    moves = step.abs() > 0.5 / len(table)
    gain = float(size[moves].median()) if bool(moves.any()) else float(size.median())
    good = (error <= tolerance * size) & ((size / gain - 1).abs() <= tolerance)
    if not gain > 0 or not bool((good & moves).any()):
        return None
    backward = bool((step[good & moves] < 0).double().mean() > 0.5)
    # the slower a pair, the farther it counts without doubt, as long as it is seen
    seen = good & (step.abs() > (0.5 / len(table) if tolerance == COARSE else 1e-6))
    omega = -step if backward else step
    quarter, offset = _origin(omega[seen], start[seen], backward)
    return Code(
        sines, cosines, blocks, omega.abs(), gain, good & (omega > -tolerance),
        quarter, backward, offset, tolerance == COARSE,
    )  # fmt: skip


def _turning(z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(angle per step, first angle, radius, largest residual) of each column."""
    places = torch.arange(len(z), dtype=torch.float64)[:, None]
    rough = (z[1:] * z[:-1].conj()).sum(0).angle()
    still = torch.polar(torch.ones_like(z.real), -places * rough)
    rest = z * still
    drift = (rest * rest.mean(0).conj()).angle()  # small: what rough left over
    middle = places - places.mean()
    slope = (middle * drift).sum(0) / middle.square().sum()
    step = rough + slope
    first = (rest.mean(0).angle() - slope * places.mean()).remainder(2 * math.pi)
    size = z.abs().square().mean(0).sqrt()
    ideal = torch.polar(size.expand_as(z.real).contiguous(), places * step + first)
    return step, first, size, (z - ideal).abs().amax(0)


def _origin(omega: Tensor, start: Tensor, backward: bool) -> tuple[int, float]:
    """(quarter, offset): the first angle is quarter·π/2 + offset·ω in all pairs.

    Of several that fit, one without a wrong sign and of a whole offset, near to 0.
    """
    order = omega.argsort()
    omega, start = omega[order], start[order]
    fits = [(q, _offset(omega, start, q)) for q in range(4)]
    known = [(q, offset) for q, offset in fits if not math.isnan(offset)]
    if not known:
        return int((start[0] / _TURN).round()) % 4, math.nan

    def odd(fit: tuple[int, float]) -> float:
        quarter, offset = fit
        strange = _READINGS[quarter, backward] not in ("", "c")
        broken = abs(offset - round(offset)) > 0.05
        return 2.0 * broken + strange + 1e-4 * abs(offset)

    return min(known, key=odd)


def _offset(omega: Tensor, start: Tensor, quarter: int) -> float:
    """From the slow pairs, which show it without doubt, to the fast; NaN if none."""
    # cosine first, z = i·e^(−iθ): the first angle falls as the offset grows
    sign = -1.0 if quarter % 2 else 1.0
    rest = sign * (start - quarter * _TURN)
    offset = 0.0
    for w, angle in zip(omega.tolist(), rest.tolist(), strict=True):
        left = math.remainder(angle - offset * w, 2 * math.pi)
        if abs(left) < 1.0 or w == float(omega[0]):
            offset += left / w
    wrong = (rest - offset * omega + math.pi).remainder(2 * math.pi) - math.pi
    return offset if float(wrong.abs().max()) <= 2e-2 else math.nan
