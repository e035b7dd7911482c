"""Exercises of chapter 9, Train short, test long: perplexity, window, base, flaws."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .engine import Exercise, Mistake


def _losses(count: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return 1 + 3 * torch.rand(count, generator=rng, dtype=torch.float64)


# 09-perplexity


def _perplexity(losses: Tensor, length: int) -> Tensor:
    """exp of the mean loss over the first `length` places."""
    return losses[:length].mean().exp()


def _perplexity_all(losses: Tensor, length: int) -> Tensor:
    return losses.mean().exp()


def _perplexity_mean_last(losses: Tensor, length: int) -> Tensor:
    return losses[:length].exp().mean()


def _perplexity_of_one(losses: Tensor, length: int) -> Tensor:
    return losses[length - 1].exp()


def _perplexity_bits(losses: Tensor, length: int) -> Tensor:
    return 2 ** losses[:length].mean()


def _perplexity_one_more(losses: Tensor, length: int) -> Tensor:
    return losses[: length + 1].mean().exp()


PERPLEXITY = Exercise(
    id="09-perplexity",
    title="From losses to a perplexity",
    stars=1,
    reference=_perplexity,
    probes=((_losses(64, 0), 32), (_losses(9, 1), 1), (_losses(40, 2), 25)),
    praise="One number for many places: it cannot say at which of them a model fails.",
    mistakes=(
        Mistake(
            "all places",
            _perplexity_all,
            "This is over every place that was measured. Read `length` of them.",
        ),
        Mistake(
            "the mean of perplexities",
            _perplexity_mean_last,
            "The mean comes first and the exponential last. In this order one bad "
            "place outweighs many good ones.",
        ),
        Mistake(
            "one place only",
            _perplexity_of_one,
            "This is the last of the places alone. A perplexity of a text is over all "
            "of them.",
        ),
        Mistake(
            "the wrong base",
            _perplexity_bits,
            "The losses are in nats, so e and not 2 is raised to their mean.",
        ),
        Mistake(
            "one place too many",
            _perplexity_one_more,
            "Places count from 0: the first `length` of them end before `length`.",
        ),
    ),
)


# 09-beyond


def _beyond(short: float, long: float, trained: int, length: int) -> float:
    """exp((T ln P_T − T₀ ln P_T₀)/(T − T₀))."""
    total = length * math.log(long) - trained * math.log(short)
    return math.exp(total / (length - trained))


def _beyond_subtracted(short: float, long: float, trained: int, length: int) -> float:
    return (length * long - trained * short) / (length - trained)


def _beyond_half(short: float, long: float, trained: int, length: int) -> float:
    return long**2 / short


def _beyond_ratio(short: float, long: float, trained: int, length: int) -> float:
    return long / short


def _beyond_not_divided(short: float, long: float, trained: int, length: int) -> float:
    total = length * math.log(long) - trained * math.log(short)
    return math.exp(total / length)


BEYOND = Exercise(
    id="09-beyond",
    title="What the mean hides",
    stars=2,
    reference=_beyond,
    probes=((5.0, 8.0, 32, 64), (5.4, 17.0, 32, 128), (20.0, 25.0, 100, 150)),
    praise="At twice the length it is P²/P₀: from 5 to 8 overall is 12.8 beyond.",
    mistakes=(
        Mistake(
            "perplexities subtracted",
            _beyond_subtracted,
            "Losses add up over places; perplexities do not. Take logarithms first.",
        ),
        Mistake(
            "right at twice the length only",
            _beyond_half,
            "This is right where one half is trained and one is not. Weigh the two "
            "parts by their numbers of places.",
        ),
        Mistake(
            "a ratio",
            _beyond_ratio,
            "This says by which factor the perplexity grew. Asked is the perplexity of "
            "the untrained places.",
        ),
        Mistake(
            "divided by all places",
            _beyond_not_divided,
            "The sum of losses is that of the untrained places; there are T − T₀ of "
            "them.",
        ),
    ),
)


# 09-window


def _window(length: int, window: int) -> Tensor:
    """True where query m sees key n: 0 ≤ m − n < window."""
    back = torch.arange(length)[:, None] - torch.arange(length)
    return (back >= 0) & (back < window)


def _window_one_more(length: int, window: int) -> Tensor:
    return _window(length, window + 1)


def _window_both_sides(length: int, window: int) -> Tensor:
    return _window(length, window) | _window(length, window).T


def _window_transposed(length: int, window: int) -> Tensor:
    return _window(length, window).T


def _window_inverted(length: int, window: int) -> Tensor:
    return ~_window(length, window)


def _window_blocks(length: int, window: int) -> Tensor:
    block = torch.arange(length) // window
    return (block[:, None] == block) & _window(length, length)


def _window_without_end(length: int, window: int) -> Tensor:
    return _window(length, length)


WINDOW = Exercise(
    id="09-window",
    title="Only the last few",
    stars=2,
    reference=_window,
    probes=((6, 3), (5, 1), (4, 9), (9, 4)),
    praise="With scores that depend on offsets alone, this mask makes every place "
    "beyond the window like every other.",
    mistakes=(
        Mistake(
            "one key too many",
            _window_one_more,
            "A window of w has w keys, and the query's own token is one of them.",
        ),
        Mistake(
            "sees what comes after",
            _window_both_sides,
            "A decoder must not look ahead: m − n is at least 0.",
        ),
        Mistake(
            "rows and columns exchanged",
            _window_transposed,
            "Rows are queries and columns keys. Here each token sees what comes after.",
        ),
        Mistake(
            "true where it is hidden",
            _window_inverted,
            "In this book true means visible.",
        ),
        Mistake(
            "blocks, not a sliding window",
            _window_blocks,
            "These are separate blocks: the first token of each sees itself alone.",
        ),
        Mistake(
            "no window at all",
            _window_without_end,
            "This is the causal mask. What is further back than the window is missing.",
        ),
    ),
)


# 09-base


def _base(head_dim: int, trained: int) -> float:
    """b with 2π·b^((d−2)/d) = T."""
    return float((trained / math.tau) ** (head_dim / (head_dim - 2)))


def _base_infinite(head_dim: int, trained: int) -> float:
    return trained / math.tau


def _base_upside_down(head_dim: int, trained: int) -> float:
    return float((trained / math.tau) ** ((head_dim - 2) / head_dim))


def _base_without_turn(head_dim: int, trained: int) -> float:
    return float(trained ** (head_dim / (head_dim - 2)))


def _base_half_turn(head_dim: int, trained: int) -> float:
    return float((trained / math.pi) ** (head_dim / (head_dim - 2)))


def _base_pairs(head_dim: int, trained: int) -> float:
    pairs = head_dim // 2
    return float((trained / math.tau) ** (pairs / (pairs - 2)))


BASE = Exercise(
    id="09-base",
    title="Every hand turns once",
    stars=2,
    reference=_base,
    probes=((16, 32), (64, 512), (128, 4096)),
    tolerance=1e-4,
    praise="At head dimension 16 and T = 32 it is 6.4; the experiment took 5.",
    mistakes=(
        Mistake(
            "the slowest exponent taken for 1",
            _base_infinite,
            "The last pair has the exponent (d − 2)/d, not 1, so this base is a little "
            "too small.",
        ),
        Mistake(
            "the exponent upside down",
            _base_upside_down,
            "Solve 2π·b^((d−2)/d) = T for b: the exponent changes sides as its "
            "inverse.",
        ),
        Mistake(
            "2π is missing",
            _base_without_turn,
            "A full turn takes 2π/ω positions, not 1/ω.",
        ),
        Mistake(
            "half a turn",
            _base_half_turn,
            "π is half a turn; a hand has shown all of its angles after 2π.",
        ),
        Mistake(
            "pairs in place of channels",
            _base_pairs,
            "ω_i = b^(−2i/d), with d the channels of a head and i up to d/2 − 1.",
        ),
    ),
)


# 09-ends


def _ends(positions: Tensor, rows: int) -> Tensor:
    """Clamped to the last row, and wrapped around; stacked."""
    return torch.stack((positions.clamp(max=rows - 1), positions % rows))


def _ends_one_more(positions: Tensor, rows: int) -> Tensor:
    return torch.stack((positions.clamp(max=rows), positions % rows))


def _ends_short_wrap(positions: Tensor, rows: int) -> Tensor:
    return torch.stack((positions.clamp(max=rows - 1), positions % (rows - 1)))


def _ends_exchanged(positions: Tensor, rows: int) -> Tensor:
    return _ends(positions, rows).flip(0)


def _ends_mirrored(positions: Tensor, rows: int) -> Tensor:
    turn = positions % (2 * rows)
    mirrored = torch.minimum(turn, 2 * rows - 1 - turn)
    return torch.stack((positions.clamp(max=rows - 1), mirrored))


ENDS = Exercise(
    id="09-ends",
    title="Where a table ends",
    stars=1,
    reference=_ends,
    probes=(
        (torch.arange(10), 4),
        (torch.tensor([3, 4, 5, 11, 12]), 6),
        (torch.tensor([0, 31, 32, 63, 64, 255]), 32),
    ),
    praise="Both run without an error, and neither says a word about what they lose.",
    mistakes=(
        Mistake(
            "clamped one row too far",
            _ends_one_more,
            "A table of R rows ends with row R − 1; row R is the IndexError again.",
        ),
        Mistake(
            "wrapped one row too soon",
            _ends_short_wrap,
            "Counting on from 0 after row R − 1 is counting modulo R.",
        ),
        Mistake(
            "the two exchanged",
            _ends_exchanged,
            "Your first row counts on from 0, and your second stays at the end. The "
            "task names them in the other order.",
        ),
        Mistake(
            "there and back",
            _ends_mirrored,
            "After the last row yours counts down again. Wrapping starts anew at 0.",
        ),
    ),
)


# 09-flaws

FLAWS = Exercise(
    id="09-flaws",
    title="Four reports, four flaws",
    stars=3,
    reference=["early", "seed", "scale", "seen"],
    praise="Each of the four has a cure that costs less than the training did.",
    mistakes=(
        Mistake(
            "early tokens and seen text exchanged",
            ["seen", "seed", "scale", "early"],
            "The first report says how its text was cut, the last where its text came "
            "from.",
        ),
        Mistake(
            "seed and scale exchanged",
            ["early", "scale", "seed", "seen"],
            "In the second report the models read the same tokens; in the third they "
            "do not.",
        ),
        Mistake(
            "early tokens and seed exchanged",
            ["seed", "early", "scale", "seen"],
            "The first report has one model and two lengths. What else changes with "
            "the length of the pieces?",
        ),
    ),
)

EXERCISES = (ENDS, PERPLEXITY, BEYOND, WINDOW, BASE, FLAWS)
