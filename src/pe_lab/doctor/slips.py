"""Wrong formulas of a sinusoidal table that people write, by the numbers they give.

A ladder of frequencies that is geometric is named by its base, any other table by its
first rows, where even an angle multiplied instead of divided is still exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Angle = Callable[[Tensor, Tensor, Tensor, int], Tensor]
BASE = 1e4
_WIDTHS = (64, 128, 256, 384, 512, 768, 1024)
_ROWS = 12


def _fall(exponent: Tensor) -> Tensor:
    return BASE**-exponent


# angle of (position p, pair i, channel c, width d), all float64; in the order in which
# they are tried
_ANGLES: dict[str, Angle] = {
    "the position is multiplied by 10000^(2i/d) instead of divided by it": (
        lambda p, i, c, d: p * BASE ** (2 * i / d)
    ),
    "the angle is divided in whole numbers (// instead of /)": (
        lambda p, i, c, d: (p * _fall(2 * i / d) + 1e-9).floor()
    ),
    "each channel has a frequency of its own, exponent c/d of channel c: sine and "
    "cosine of a pair need the same, 2·(c//2)/d": lambda p, i, c, d: p * _fall(c / d),
    "the step of two is counted twice, exponent 2c/d of channel c: sine and cosine of "
    "a pair need the same, 2·(c//2)/d": lambda p, i, c, d: p * _fall(2 * c / d),
    "the cosine has the frequency of the next pair": (
        lambda p, i, c, d: p * _fall(2 * (i + (c > 2 * i)) / d)
    ),
    "position and channel are swapped: the pair index is divided by 10000^(2p/d)": (
        lambda p, i, c, d: i * _fall(2 * p / d)
    ),
    "position and channel are swapped: the channel is divided by 10000^(2p/d)": (
        lambda p, i, c, d: c * _fall(2 * p / d)
    ),
    "position and channel are swapped: the even channel is divided by 10000^(2p/d)": (
        lambda p, i, c, d: 2 * i * _fall(2 * p / d)
    ),
    "positions are multiplied by 2π, which no whole position shows in the first pair": (
        lambda p, i, c, d: 2 * math.pi * p * _fall(2 * i / d)
    ),
    "positions are multiplied by π": lambda p, i, c, d: math.pi * p * _fall(2 * i / d),
    "10000 is multiplied by 2i/d instead of raised to it": (
        lambda p, i, c, d: p / (BASE * 2 * i / d)
    ),
    "10000 is squared, then multiplied by i/d: ** binds before *": (
        lambda p, i, c, d: p / (BASE**2 * i / d)
    ),
    "the frequency is added to the position instead of multiplied with it": (
        lambda p, i, c, d: p + _fall(2 * i / d)
    ),
    "cosines are taken of the sines, whose columns were overwritten first": (
        lambda p, i, c, d: torch.where(
            c > 2 * i, (p * _fall(2 * i / d)).sin(), p * _fall(2 * i / d)
        )
    ),
    "the exponent has no position in it: every row is the same": (
        lambda p, i, c, d: _fall(2 * i / d) + 0 * p
    ),
}


def of_rows(table: Tensor) -> str | None:
    """The slip that gives these first rows (positions 0, 1, …), or None."""
    rows, width = min(_ROWS, table.shape[0]), table.shape[1]
    p = torch.arange(rows, dtype=torch.float64)[:, None]
    seen = table[:rows].double()
    half = (width + 1) // 2
    for name, angle in _ANGLES.items():
        for blocks in (False, True):
            order = torch.arange(width, dtype=torch.float64)
            i = order % half if blocks else order // 2
            odd = order >= half if blocks else order % 2 == 1
            turned = angle(p, i, 2 * i + odd, width)
            if _same(torch.where(odd, turned.cos(), turned.sin()), seen):
                return name
    return None


def _same(wrong: Tensor, seen: Tensor) -> bool:
    # tolerance: float32 angles of 10⁵ radians are off by 7e-3
    both = wrong.isfinite() & seen.isfinite()
    if int(both.sum()) <= both.numel() // 2:
        return False
    if bool((seen == seen[:1]).all()) and not bool((wrong == wrong[:1]).all()):
        return False  # rows that are one and the same, not rows that differ a little
    return float((wrong - seen)[both].abs().max()) <= 2e-2


def of_base(omega: Tensor, width: int) -> tuple[str, bool] | None:
    """(slip, sure) of a geometric ladder, or None; unsure if it may be meant so.

    Args:
        omega: (pairs,) radians per position.
        width: channels of the table.
    """
    w = omega.double()
    if len(w) < 2 or not bool((w > 0).all()):
        return None
    step = float(-(w[-1] / w[0]).log() / (len(w) - 1))
    if float((w.log() - w[0].log() + step * torch.arange(len(w))).abs().max()) > 1e-3:
        return None
    for name, wanted, first, sure in _steps(width):
        if abs(step - wanted) <= 2e-4 * abs(wanted) + 1e-7:
            begins = w[0] if first is None else w[0] / first
            if abs(float(begins) - 1) <= 1e-3:
                return name, sure
    return None


def _steps(d: int) -> list[tuple[str, float, float | None, bool]]:
    """(slip, fall of the logarithm per pair, first frequency, whether for sure)."""
    log, right = math.log(BASE), 2 * math.log(BASE) / d
    # fmt: off
    found: list[tuple[str, float, float | None, bool]] = [
        ("the exponent is 2i/(d − 1), not 2i/d", 2 * log / (d - 1), None, d % 2 == 0),
        ("the exponent is 2i/(d + 1), not 2i/d", 2 * log / (d + 1), None, d % 2 == 0),
        ("the pairs are counted from 1, not 0", right, math.exp(-right), True),
        ("the exponent is (2i + 1)/d, not 2i/d", right, math.exp(-right / 2), True),
        ("angles are in degrees", right, math.pi / 180, True),
        ("all pairs have the same frequency: the exponent was divided in whole numbers",
         0.0, None, True),
        ("frequencies rise: the sign of the exponent is lost", -right, None, True),
        ("log10 stands for the natural logarithm", 8 / d, None, True),
        ("log2 stands for the natural logarithm", 2 * math.log2(BASE) / d, None, True),
        ("the exponent is i/d, not 2i/d, as of base 100", log / d, None, False),
        ("the exponent is 4i/d, not 2i/d, as of base 10⁸: the step of two is counted "
         "twice", 4 * log / d, None, False),
    ]
    # fmt: on
    for k in (1, 2):
        name = f"each frequency is e^−{k} of the one before: a/b//2 divides in whole "
        found.append((name + "numbers, (−log(10000)/d)//2 = −1", float(k), None, True))
    name = "the exponent is 2i/{}, of another width, in a table of width {}"
    others = [m for m in _WIDTHS if m != d]
    return found + [(name.format(m, d), 2 * log / m, None, True) for m in others]
