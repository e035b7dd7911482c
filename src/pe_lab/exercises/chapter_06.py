"""Exercises of chapter 6, Score position against position: the kernel and its uses."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .engine import Exercise, Mistake


def _omegas(d_model: int, base: float = 10000.0) -> Tensor:
    """ω_i = base^(−2i/d) in float64, without the package's own function."""
    pair = torch.arange(d_model // 2, dtype=torch.float64)
    return base ** (-2 * pair / d_model)


# 06-kernel


def _kernel(offset: float, d_model: int) -> Tensor:
    """K(Δ) = Σ_i cos(Δ·ω_i)."""
    return (offset * _omegas(d_model)).cos().sum()


def _kernel_of_sines(offset: float, d_model: int) -> Tensor:
    return (offset * _omegas(d_model)).sin().sum()


def _kernel_without_two(offset: float, d_model: int) -> Tensor:
    pair = torch.arange(d_model // 2, dtype=torch.float64)
    return (offset * 10000.0 ** (-pair / d_model)).cos().sum()


def _kernel_per_channel(offset: float, d_model: int) -> Tensor:
    channel = torch.arange(d_model, dtype=torch.float64)
    return (offset * 10000.0 ** (-2 * channel / d_model)).cos().sum()


def _kernel_mean(offset: float, d_model: int) -> Tensor:
    return (offset * _omegas(d_model)).cos().mean()


KERNEL = Exercise(
    id="06-kernel",
    title="The kernel, by hand",
    stars=1,
    reference=_kernel,
    probes=((3, 8), (0, 8), (-5, 8), (6, 4), (43, 64), (1000, 512)),
    praise="K(Δ) needs neither position nor table, only the distance.",
    mistakes=(
        Mistake(
            "sines instead of cosines",
            _kernel_of_sines,
            "This is zero at distance 0, where the score is largest. Which of sine "
            "and cosine does sin a sin b + cos a cos b give?",
        ),
        Mistake(
            "a factor 2 is missing in the exponent",
            _kernel_without_two,
            "Your clocks slow down half as fast as they should: the exponent of pair "
            "i is −2i/d.",
        ),
        Mistake(
            "one clock per channel",
            _kernel_per_channel,
            "You sum over d clocks. There is one clock for each pair of channels: "
            "d/2 of them.",
        ),
        Mistake(
            "the mean instead of the sum",
            _kernel_mean,
            "This is K(Δ)/K(0), which is 1 at distance 0. A dot product is a sum.",
        ),
    ),
)


# 06-row


def _row(query: int, length: int, d_model: int) -> Tensor:
    """Softmax over n of K(query − n)/√d."""
    return _weights(query, length, d_model, math.sqrt(d_model))


def _weights(query: int, length: int, d_model: int, divisor: float) -> Tensor:
    offsets = query - torch.arange(length, dtype=torch.float64)
    scores = (offsets[:, None] * _omegas(d_model)).cos().sum(dim=-1)
    return (scores / divisor).softmax(dim=-1)


def _row_unscaled(query: int, length: int, d_model: int) -> Tensor:
    return _weights(query, length, d_model, 1.0)


def _row_over_width(query: int, length: int, d_model: int) -> Tensor:
    return _weights(query, length, d_model, d_model)


def _row_over_half_width(query: int, length: int, d_model: int) -> Tensor:
    return _weights(query, length, d_model, math.sqrt(d_model / 2))


def _row_of_the_first(query: int, length: int, d_model: int) -> Tensor:
    return _row(0, length, d_model)


ROW = Exercise(
    id="06-row",
    title="A row of weights",
    stars=1,
    reference=_row,
    probes=((0, 6, 8), (2, 6, 8), (5, 6, 8), (10, 32, 64), (63, 64, 512)),
    praise="Each row is one piece of the same curve, cut out at another place.",
    mistakes=(
        Mistake(
            "not scaled",
            _row_unscaled,
            "These are the weights of the raw scores. Divide by √d_model first.",
        ),
        Mistake(
            "divided by the width",
            _row_over_width,
            "You divide by d_model; attention divides by its square root.",
        ),
        Mistake(
            "divided by the wrong root",
            _row_over_half_width,
            "You divide by √(d/2), the length of one encoding. Attention divides by "
            "√d_model.",
        ),
        Mistake(
            "always the first row",
            _row_of_the_first,
            "This is the row of position 0 whatever the query. The distance is "
            "query − n.",
        ),
    ),
)


# 06-rise


def _first_rise(d_model: int, base: float) -> int:
    """The smallest Δ ≥ 0 with K(Δ + 1) > K(Δ)."""
    return int((_curve(d_model, base).diff() > 0).nonzero()[0])


def _curve(d_model: int, base: float) -> Tensor:
    offsets = torch.arange(1001, dtype=torch.float64)
    return (offsets[:, None] * _omegas(d_model, base)).cos().sum(dim=-1)


def _first_rise_late(d_model: int, base: float) -> int:
    return _first_rise(d_model, base) + 1


def _first_rise_one_base(d_model: int, base: float) -> int:
    return _first_rise(d_model, 10000.0)


def _lowest(d_model: int, base: float) -> int:
    return int(_curve(d_model, base).argmin())


def _first_negative(d_model: int, base: float) -> int:
    return int((_curve(d_model, base) < 0).nonzero()[0])


RISE = Exercise(
    id="06-rise",
    title="Where the kernel first rises",
    stars=2,
    reference=_first_rise,
    probes=((8, 1e4), (64, 1e4), (512, 1e4), (512, 100.0), (64, 10.0), (512, 1e6)),
    praise="Width moves it out; a base above 10000 does not.",
    mistakes=(
        Mistake(
            "one too late",
            _first_rise_late,
            "That is where the step ends. Asked is the Δ from which the next step "
            "goes up.",
        ),
        Mistake(
            "the base is not used",
            _first_rise_one_base,
            "Right for base 10000 only: the base that is passed in has to reach the "
            "frequencies.",
        ),
        Mistake(
            "the lowest point",
            _lowest,
            "That is where the kernel is lowest in a long range. Look for the first "
            "step that goes up, however small.",
        ),
        Mistake(
            "the first negative value",
            _first_negative,
            "That is where the kernel falls below zero. Look for the first step that "
            "goes up.",
        ),
    ),
)


# 06-twin


def _nearest_among_the_first(position: int) -> Mistake:
    """The twin that a search through too few positions finds."""
    return Mistake(
        f"the range ends too early ({position})",
        position,
        "Nearest among the first positions only. Look at every position up to 10000.",
    )


TWIN = Exercise(
    id="06-twin",
    title="The nearest stranger",
    stars=2,
    reference=6283,
    praise="6283 is nearly 1000 turns of the first clock, 100 of the second, 10 of "
    "the third and 1 of the last.",
    mistakes=(
        Mistake(
            "the neighbour",
            1,
            "With 8 channels the neighbour is not the nearest: another position comes "
            "closer.",
        ),
        _nearest_among_the_first(6),
        _nearest_among_the_first(63),
        Mistake(
            "counted from the wrong end",
            6282,
            "One off: an argmax over positions 1 … 10000 counts from 0.",
        ),
        Mistake(
            "itself",
            0,
            "The distance of position 0 to itself is zero. Look from position 1 on.",
        ),
        Mistake(
            "the farthest",
            9139,
            "That is the farthest position: the smallest score is the largest "
            "distance.",
        ),
    ),
)


# 06-rope


def _rope_score(q: Tensor, k: Tensor, offset: int) -> Tensor:
    """Σ_i |q_i||k_i| cos(Δ·ω_i + arg q_i − arg k_i) over pairs (2i, 2i + 1)."""
    return _turned(_pairs(q), _pairs(k), offset)


def _pairs(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())


def _turned(q: Tensor, k: Tensor, offset: int) -> Tensor:
    angles = offset * _omegas(2 * q.shape[-1])
    turn = torch.polar(torch.ones_like(angles), angles)
    return (q * turn * k.conj()).real.sum()


def _rope_backwards(q: Tensor, k: Tensor, offset: int) -> Tensor:
    return _rope_score(q, k, -offset)


def _rope_without_phases(q: Tensor, k: Tensor, offset: int) -> Tensor:
    return _turned(_pairs(q).abs() + 0j, _pairs(k).abs() + 0j, offset)


def _rope_in_halves(q: Tensor, k: Tensor, offset: int) -> Tensor:
    (a, b), (c, d) = q.double().chunk(2), k.double().chunk(2)
    return _turned(torch.complex(a, b), torch.complex(c, d), offset)


def _rope_untouched(q: Tensor, k: Tensor, offset: int) -> Tensor:
    return q.double() @ k.double()


_Q = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.25, 1.5, -1.0, 2.0], dtype=torch.float64)
_K = torch.tensor([0.5, 1.0, -1.5, 2.0, 2.5, -0.5, 1.0, 0.75], dtype=torch.float64)
_ONES = torch.ones(8, dtype=torch.float64)

ROPE = Exercise(
    id="06-rope",
    title="A RoPE score without rotating",
    stars=2,
    reference=_rope_score,
    probes=((_Q, _K, 3), (_ONES, _ONES, 6), (_Q, _K, 0), (_K, _Q, -40), (_Q, _Q, 1)),
    praise="One cosine for each pair, with its own size and its own phase.",
    mistakes=(
        Mistake(
            "the offset has the wrong sign",
            _rope_backwards,
            "Right for −Δ. Δ = m − n: the query is turned by Δ more than the key.",
        ),
        Mistake(
            "no phases",
            _rope_without_phases,
            "You use the lengths of the pairs only. Query and key may point in "
            "different directions within a pair: add the angle from k to q.",
        ),
        Mistake(
            "the other layout",
            _rope_in_halves,
            "You pair channel i with i + d/2. Asked are the pairs (2i, 2i + 1).",
        ),
        Mistake(
            "no position",
            _rope_untouched,
            "This is q · k: the offset does not enter.",
        ),
    ),
)


# 06-look-back


def _look_back() -> Tensor:
    """M_3: PE(m)ᵀ M_3 PE(n) = PE(m)·PE(n + 3) = K(m − n − 3)."""
    blocks = []
    for omega in _omegas(8).tolist():
        cos, sin = math.cos(3 * omega), math.sin(3 * omega)
        blocks.append(torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64))
    return torch.block_diag(*blocks)


def _scores(matrix: Tensor, start: int = 0) -> Tensor:
    """PE(m)ᵀ A PE(n) for m, n = start … start + 24."""
    positions = torch.arange(start, start + 25, dtype=torch.float64)
    angles = positions[:, None] * _omegas(8)
    table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    return table @ matrix @ table.T


def _is_toeplitz(matrix: Tensor) -> bool:
    """Whether the scores stay the same one, 500 and 5000 positions further on."""
    scores = _scores(matrix)
    gaps = [(_scores(matrix, start) - scores).abs().max() for start in (1, 500, 5000)]
    return bool(max(gaps) <= 1e-4 * scores.abs().max())


def _peak(matrix: Tensor) -> int:
    """The offset m − n in −12 … 12 at which row 12 is largest."""
    return 12 - int(_scores(matrix)[12].argmax())


def _looks_back(matrix: Tensor) -> bool:
    scores = _scores(matrix)
    top = scores[12].topk(2).values
    clear = bool(top[0] - top[1] > 1e-3 * scores.abs().max())
    return _is_toeplitz(matrix) and clear and _peak(matrix) == 3


LOOK_BACK = Exercise(
    id="06-look-back",
    title="A head that looks three back",
    stars=3,
    reference=_look_back(),
    accepts=_looks_back,
    need="An 8 × 8 matrix A for which PE(m)ᵀ A PE(n) depends on m − n only and is "
    "largest at m − n = 3.",
    praise="Nearness was never promised: a rotation moves the peak wherever W puts it.",
    mistakes=(
        Mistake(
            "looks ahead",
            _look_back().T,
            "The peak lies at m − n = −3: this head looks three positions ahead. The "
            "opposite rotation is the transpose.",
            test=lambda a: _is_toeplitz(a) and _peak(a) == -3,
        ),
        Mistake(
            "looks at itself",
            torch.eye(8, dtype=torch.float64),
            "The peak lies at m − n = 0, as with A = I. Something has to turn.",
            test=lambda a: _is_toeplitz(a) and _peak(a) == 0,
        ),
        Mistake(
            "not a function of the distance",
            torch.arange(64, dtype=torch.float64).reshape(8, 8),
            "Scores along a diagonal differ, so A does not commute with the rotations: "
            "build it of 2 × 2 blocks [[a, b], [−b, a]].",
            test=lambda a: a.shape == (8, 8) and not _is_toeplitz(a),
        ),
    ),
)

EXERCISES = (KERNEL, ROW, RISE, TWIN, ROPE, LOOK_BACK)
