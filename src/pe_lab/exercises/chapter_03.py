"""Exercises of chapter 3, Compute the tables by hand: entries, slips, orders, bases."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pe_lab.encodings.sinusoidal import sinusoidal
from pe_lab.frequencies import inv_freq

from .engine import Exercise, Mistake
from .examined import Examined

# One entry of the table


def _entry(position: float, channel: int, d_model: int) -> float:
    """PE[p, c]: sine for an even channel, cosine for an odd one, of p·10000^(−2i/d)."""
    pair = channel // 2
    angle = position * 10000 ** (-2 * pair / d_model)
    return math.sin(angle) if channel % 2 == 0 else math.cos(angle)


def _entry_at(
    power: Callable[[int, int], float], even: Callable[[float], float] = math.sin
) -> Callable[[float, int, int], float]:
    """A wrong entry: another power of 10000, or another function in even channels."""

    def entry(position: float, channel: int, d_model: int) -> float:
        angle = position * 10000 ** power(channel, d_model)
        other = math.sin if even is math.cos else math.cos
        return even(angle) if channel % 2 == 0 else other(angle)

    return entry


def _entry_in_degrees(position: float, channel: int, d_model: int) -> float:
    angle = math.radians(position * 10000 ** (-2 * (channel // 2) / d_model))
    return math.sin(angle) if channel % 2 == 0 else math.cos(angle)


def _entry_sines(position: float, channel: int, d_model: int) -> float:
    return math.sin(position * 10000 ** (-2 * (channel // 2) / d_model))


def _filled(entry: Callable[[int, int, int], float]) -> Callable[[int, int], Tensor]:
    """The table whose entries a function gives."""

    def table(length: int, d_model: int) -> Tensor:
        rows = [[entry(p, c, d_model) for c in range(d_model)] for p in range(length)]
        return torch.tensor(rows, dtype=torch.float64)

    return table


_PAPER = {"d_model": 16, "expected": {"order": "interleaved", "base": 1e4}}
ENTRY = Exercise(
    id="03-entry",
    title="One entry of any table",
    stars=1,
    reference=_entry,
    probes=((3, 2, 8), (5, 7, 8), (0, 1, 4), (10, 4, 6), (7, 0, 4), (100, 301, 512)),
    praise="Every table of this chapter is this function, called once for each cell.",
    examined=Examined("table", _filled, _PAPER),
    mistakes=(
        Mistake(
            "a frequency for each channel",
            _entry_at(lambda channel, d_model: -channel / d_model),
            "Your odd channels turn more slowly than their even neighbours. A sine and "
            "its cosine share one frequency: the exponent goes by the pair.",
        ),
        Mistake(
            "the factor 2 is missing",
            _entry_at(lambda channel, d_model: -(channel // 2) / d_model),
            "Your exponent runs from 0 towards 1/2. Pair i owns the channels 2i and "
            "2i + 1, and its exponent is 2i / d_model.",
        ),
        Mistake(
            "sine and cosine exchanged",
            _entry_at(lambda channel, d_model: -2 * (channel // 2) / d_model, math.cos),
            "Even channels hold the sine, odd channels the cosine. What should "
            "position 0 look like?",
        ),
        Mistake(
            "upside down",
            _entry_at(lambda channel, d_model: 2 * (channel // 2) / d_model),
            "Your frequencies grow with the pair, to thousands of radians per "
            "position. The position is divided by 10000^(2i/d_model).",
        ),
        Mistake(
            "degrees",
            _entry_in_degrees,
            "The angle went through degrees. It is in radians, as sin and cos take it.",
        ),
        Mistake(
            "sines only",
            _entry_sines,
            "Even channels are right. Odd channels hold the cosine.",
        ),
    ),
)


# The slips of a printed table


def _slips(printed: Tensor, decimals: int) -> Tensor:
    """Rows [position, channel] of the cells that are not the exact value, rounded."""
    positions, d_model = printed.shape
    exact = sinusoidal(positions, d_model, dtype=torch.float64)
    unit = 10**decimals
    return ((exact * unit).round() != (printed * unit).round()).nonzero()


def _slips_unrounded(printed: Tensor, decimals: int) -> Tensor:
    positions, d_model = printed.shape
    return (sinusoidal(positions, d_model, dtype=torch.float64) != printed).nonzero()


def _slips_truncated(printed: Tensor, decimals: int) -> Tensor:
    positions, d_model = printed.shape
    exact = sinusoidal(positions, d_model, dtype=torch.float64)
    unit = 10**decimals
    return ((exact * unit).trunc() != (printed * unit).round()).nonzero()


def _slips_three_decimals(printed: Tensor, decimals: int) -> Tensor:
    return _slips(printed, 3)


def _slips_flipped(printed: Tensor, decimals: int) -> Tensor:
    return _slips(printed, decimals).flip(-1)


def _table_with_slips(
    positions: int, d_model: int, decimals: int, cells: dict[tuple[int, int], int]
) -> Tensor:
    """A correctly rounded table, but for some cells that are units off at the end."""
    unit = 10**decimals
    table = (sinusoidal(positions, d_model, dtype=torch.float64) * unit).round()
    for cell, units in cells.items():
        table[cell] += units
    return table / unit


SLIPS = Exercise(
    id="03-slips",
    title="Proofread a table",
    stars=2,
    reference=_slips,
    probes=(
        (_table_with_slips(5, 6, 3, {(1, 2): -1, (4, 1): 1, (4, 4): 20}), 3),
        (_table_with_slips(4, 4, 4, {(1, 3): -1, (2, 0): 1}), 4),
        (_table_with_slips(9, 10, 2, {(8, 0): -1, (3, 5): 1}), 2),
    ),
    praise="Four lines proofread a table of any size: better than any eye.",
    mistakes=(
        Mistake(
            "compares without rounding",
            _slips_unrounded,
            "You report nearly every cell: a printed number is a rounding, so round "
            "the exact value to as many decimals before you compare.",
        ),
        Mistake(
            "cuts off instead of rounding",
            _slips_truncated,
            "You cut the exact value off where it should be rounded to the nearest.",
        ),
        Mistake(
            "always three decimals",
            _slips_three_decimals,
            "Right for tables with three decimals. Use the argument `decimals`.",
        ),
        Mistake(
            "channel before position",
            _slips_flipped,
            "These are the right cells as [channel, position]; give [position, "
            "channel].",
        ),
    ),
)


# From one channel order to the other


def _to_halves(table: Tensor) -> Tensor:
    """(sin, cos, sin, cos, …) becomes (sin, sin, …, cos, cos, …)."""
    return torch.cat([table[..., 0::2], table[..., 1::2]], dim=-1)


def _to_pairs(table: Tensor) -> Tensor:
    return table.unflatten(-1, (2, -1)).transpose(-2, -1).flatten(-2)


def _to_halves_cosines_first(table: Tensor) -> Tensor:
    return torch.cat([table[..., 1::2], table[..., 0::2]], dim=-1)


def _rows_to_halves(table: Tensor) -> Tensor:
    return torch.cat([table[..., 0::2, :], table[..., 1::2, :]], dim=-2)


def _unchanged(table: Tensor) -> Tensor:
    return table.reshape(table.shape)


_batch = torch.arange(2 * 3 * 10, dtype=torch.float64).reshape(2, 3, 10).cos()

ORDERS = Exercise(
    id="03-orders",
    title="From one order to the other",
    stars=2,
    reference=_to_halves,
    probes=(
        (sinusoidal(5, 8, dtype=torch.float64),),
        (sinusoidal(3, 6, dtype=torch.float64),),
        (_batch,),
    ),
    praise="One line, and a table of one family fits the checkpoints of the other, if "
    "the spacing fits too.",
    mistakes=(
        Mistake(
            "the way back",
            _to_pairs,
            "This turns halves into pairs: the inverse of what is asked. With four "
            "channels the two are the same, so test with at least six.",
        ),
        Mistake(
            "cosines first",
            _to_halves_cosines_first,
            "Two halves, in the wrong order: the sines come first.",
        ),
        Mistake(
            "rows instead of channels",
            _rows_to_halves,
            "You moved the positions. Channels are the last axis.",
        ),
        Mistake(
            "nothing moved",
            _unchanged,
            "Every channel is where it was. A reshape alone moves nothing: it needs a "
            "transpose in between, or slices with step 2.",
        ),
    ),
)


# A base for a length


def _base_for(length: float, d_model: int) -> float:
    """2π·b^((d−2)/d) = length, solved for b."""
    return (length / (2 * math.pi)) ** (d_model / (d_model - 2))


def _base_upside_down(length: float, d_model: int) -> float:
    return (length / (2 * math.pi)) ** ((d_model - 2) / d_model)


BASE = Exercise(
    id="03-base",
    title="The smallest base for a length",
    stars=2,
    reference=_base_for,
    probes=((512, 512), (512, 4), (8192, 64), (100, 8), (60611.47716626106, 512)),
    praise="Far smaller than 10000 for 512 positions: the customary base leaves about "
    "half of the pairs short of a turn there.",
    mistakes=(
        Mistake(
            "the ladder ends one rung early",
            lambda length, d_model: length / (2 * math.pi),
            "This takes the slowest period for 2π·base. The last pair is i = d/2 − 1, "
            "so its exponent is (d − 2)/d, not 1.",
        ),
        Mistake(
            "radians for turns",
            lambda length, d_model: length ** (d_model / (d_model - 2)),
            "The exponent is right. A full turn is 2π radians, so the period is "
            "2π/ω, not 1/ω.",
        ),
        Mistake(
            "the exponent is upside down",
            lambda length, d_model: (
                (length / (2 * math.pi)) ** ((d_model - 2) / d_model)
            ),
            "b^((d − 2)/d) = L/2π: solving for b takes the inverse of that exponent.",
        ),
        Mistake(
            "both at once",
            lambda length, d_model: float(length),
            "You ask for a base equal to the length. Write down the period of the last "
            "pair, 2π·b^((d − 2)/d), and solve for b.",
        ),
    ),
)


# A table that is exact far out

_FAR = torch.tensor([0, 1, 511, 100_003, 999_983, 1_000_000, 9_999_991])
_WIDTH = 64


def _exact_table(positions: Tensor, d_model: int) -> Tensor:
    """Angles in float64, rounded once, at the end."""
    angles = positions[:, None].double() * inv_freq(d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()


_Table = Callable[[Tensor, int], Tensor]


def _counted(table: _Table) -> Callable[[int, int], Tensor]:
    """A table of positions as a table of so many rows."""
    return lambda length, d_model: table(torch.arange(length), d_model)


def _worst(table: _Table, positions: Tensor) -> float:
    """The largest error against float64, over every entry."""
    exact = sinusoidal(positions, _WIDTH, dtype=torch.float64)
    got = table(positions, _WIDTH)
    if got.shape != exact.shape:
        raise ValueError(
            f"shape {tuple(got.shape)} where {tuple(exact.shape)} is needed"
        )
    return (got - exact).abs().max().item()


def _is_exact(table: _Table) -> bool:
    """Within one float32 rounding, also at ten million, also on other widths."""
    narrow = table(_FAR, 6) - sinusoidal(_FAR, 6, dtype=torch.float64)
    return _worst(table, _FAR) <= 1e-7 and narrow.abs().max().item() <= 1e-7


def _shift_gap(table: _Table) -> float:
    """How much the score of neighbours changes between position 0 and a million."""
    near, far = (table(torch.tensor([p, p + 1]), _WIDTH) for p in (0, 1_000_000))
    return abs((near[0] @ near[1] - far[0] @ far[1]).item())


def _only_frequencies_rounded(table: _Table) -> bool:
    return 1e-4 < _worst(table, _FAR[:-1]) < 0.3 and _shift_gap(table) < 1e-5


def _angles_rounded(table: _Table) -> bool:
    return _worst(table, _FAR[:3]) < 1e-3 < _worst(table, _FAR[:-1]) < 0.3


def _wrong_from_the_start(table: _Table) -> bool:
    return _worst(table, _FAR[:2]) > 0.01


def _float32_table(positions: Tensor, d_model: int) -> Tensor:
    angles = positions[:, None].float() * inv_freq(d_model).float()
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def _float32_frequencies(positions: Tensor, d_model: int) -> Tensor:
    angles = positions[:, None].double() * inv_freq(d_model).float().double()
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def _half_table(positions: Tensor, d_model: int) -> Tensor:
    return _exact_table(positions, d_model).half()


def _cosine_table(positions: Tensor, d_model: int) -> Tensor:
    return sinusoidal(positions, d_model).roll(1, -1)


def _float16_result(table: _Table) -> bool:
    return 1e-4 < _worst(table, _FAR[:2]) < 1e-2


ACCURATE = Exercise(
    id="03-accurate",
    title="Right at a million",
    stars=3,
    reference=_exact_table,
    probes=((_FAR, _WIDTH),),
    accepts=_is_exact,
    need="A table (positions, d_model), pairs side by side, within 1e-7 of the exact "
    "value at every position up to ten million.",
    praise="One rounding, at the very end: that is all the accuracy float32 has.",
    examined=Examined("table", _counted, _PAPER),
    mistakes=(
        Mistake(
            "wrong from the start",
            _cosine_table,
            "Position 0 or 1 is already wrong, so rounding is not the trouble. Compare "
            "with pe_lab.sinusoidal(2, d_model).",
            test=_wrong_from_the_start,
        ),
        Mistake(
            "the result is too coarse",
            _half_table,
            "Small positions are off by a 16-bit rounding. Return float32 or float64.",
            test=_float16_result,
        ),
        Mistake(
            "only the frequencies are rounded",
            _float32_frequencies,
            "Your angles are exact multiples of slightly wrong frequencies. Make the "
            "frequencies in float64 as well: arange, power and all.",
            test=_only_frequencies_rounded,
        ),
        Mistake(
            "the angles are rounded",
            _float32_table,
            "Right at small positions, off by hundredths at a million. An angle near "
            "10⁶ in float32 is rounded to a multiple of 1/16 of a radian: multiply in "
            "float64.",
            test=_angles_rounded,
        ),
    ),
)

EXERCISES = (ENTRY, SLIPS, ORDERS, BASE, ACCURATE)
