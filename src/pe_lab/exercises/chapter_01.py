"""Exercises of chapter 1, Break the symmetry: permutations, masks, floors."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .engine import Exercise, Mistake

ORDERS = ((2, 0, 1), (0, 1, 2, 3), (3, 1, 0, 2), (1, 2, 3, 4, 0))


def _matrix(order: list[int]) -> Tensor:
    """P with (P x)[t] = x[order[t]]: row t has its one in column order[t]."""
    return torch.eye(len(order), dtype=torch.float64)[list(order)]


def _matrix_inverse(order: list[int]) -> Tensor:
    return _matrix(order).T


def _matrix_identity(order: list[int]) -> Tensor:
    return torch.eye(len(order), dtype=torch.float64)


MATRIX = Exercise(
    id="01-matrix",
    title="A permutation as a matrix",
    stars=1,
    reference=_matrix,
    probes=tuple((list(order),) for order in ORDERS),
    praise="Its transpose undoes it: one 1 in each row and each column.",
    mistakes=(
        Mistake(
            "the inverse permutation",
            _matrix_inverse,
            "This matrix sends row t to place order[t]. Here row t of the result has "
            "to be row order[t] of x.",
        ),
        Mistake(
            "nothing is moved",
            _matrix_identity,
            "This is the identity, whatever the order is.",
        ),
    ),
)


def _pair(answer: Tensor) -> tuple[list[float], list[float]] | None:
    if not isinstance(answer, Tensor) or answer.shape != (2, 4):
        return None
    first, second = answer.tolist()
    return first, second


def _confuses(answer: Tensor) -> bool:
    pair = _pair(answer)
    if pair is None or not set(pair[0] + pair[1]) <= {0, 1, 2}:
        return False
    return pair[0] != pair[1] and sorted(pair[0]) == sorted(pair[1])


def _same_sentence(answer: Tensor) -> bool:
    pair = _pair(answer)
    return pair is not None and pair[0] == pair[1]


def _same_words_other_counts(answer: Tensor) -> bool:
    pair = _pair(answer)
    return pair is not None and set(pair[0]) == set(pair[1]) and not _confuses(answer)


CONFUSE = Exercise(
    id="01-confuse",
    title="Two sentences for one answer",
    stars=1,
    reference=[[0, 1, 2, 2], [2, 2, 1, 0]],
    accepts=_confuses,
    need=(
        "Two different sentences of four token ids from 0, 1, 2, which have each "
        "token equally often."
    ),
    praise=(
        "The same bag of tokens in another order: pooling cannot see the difference."
    ),
    mistakes=(
        Mistake(
            "the same sentence twice",
            [[0, 1, 2, 2], [0, 1, 2, 2]],
            "Two equal sentences are told apart by no model at all.",
            test=_same_sentence,
        ),
        Mistake(
            "other counts",
            [[0, 1, 2, 2], [0, 1, 1, 2]],
            "The same tokens occur, but not equally often. A mean over the outputs "
            "notices how often.",
            test=_same_words_other_counts,
        ),
    ),
)


def _attend(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    scores = (x @ w_q) @ (x @ w_k).T / math.sqrt(w_q.shape[1])
    return scores.softmax(dim=-1) @ (x @ w_v)


def _attend_unscaled(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    return ((x @ w_q) @ (x @ w_k).T).softmax(dim=-1) @ (x @ w_v)


def _attend_columns(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    scores = (x @ w_q) @ (x @ w_k).T / math.sqrt(w_q.shape[1])
    return scores.softmax(dim=0) @ (x @ w_v)


def _attend_swapped(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    return _attend(x, w_k, w_q, w_v)


def _attend_model_width(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    scores = (x @ w_q) @ (x @ w_k).T / math.sqrt(x.shape[1])
    return scores.softmax(dim=-1) @ (x @ w_v)


def _attend_raw_values(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    scores = (x @ w_q) @ (x @ w_k).T / math.sqrt(w_q.shape[1])
    out = scores.softmax(dim=-1) @ x
    return out[:, : w_v.shape[1]]


def _inputs(length: int, seed: int) -> tuple[Tensor, ...]:
    """X (L, 6) and three weights (6, 4)."""
    rng = torch.Generator().manual_seed(seed)
    shapes = [(length, 6), (6, 4), (6, 4), (6, 4)]
    return tuple(torch.randn(s, generator=rng, dtype=torch.float64) for s in shapes)


ATTENTION = Exercise(
    id="01-attention",
    title="Self-attention in three lines",
    stars=2,
    reference=_attend,
    probes=(_inputs(5, 0), _inputs(1, 1), _inputs(8, 2)),
    praise="Every factor acts on rows alike; that is all the proof needs.",
    mistakes=(
        Mistake(
            "the scores are not scaled",
            _attend_unscaled,
            "The scores have to be divided by the root of the head's width.",
        ),
        Mistake(
            "softmax along the wrong axis",
            _attend_columns,
            "Here the weights of a key sum to one. Those of a query should: each row.",
        ),
        Mistake(
            "queries and keys exchanged",
            _attend_swapped,
            "Row m of the scores belongs to query m, which comes from w_q.",
        ),
        Mistake(
            "scaled by the model's width",
            _attend_model_width,
            "The divisor is the root of the width of queries and keys, not of x.",
        ),
        Mistake(
            "values left out",
            _attend_raw_values,
            "The weights average the rows of x; they should average the values x w_v.",
        ),
    ),
)


def _move_mask(mask: Tensor, order: list[int]) -> Tensor:
    """P M Pᵀ: entry (s, t) of the result is entry (order[s], order[t])."""
    return mask[list(order)][:, list(order)]


def _move_mask_rows(mask: Tensor, order: list[int]) -> Tensor:
    return mask[list(order)]


def _move_mask_columns(mask: Tensor, order: list[int]) -> Tensor:
    return mask[:, list(order)]


def _move_mask_back(mask: Tensor, order: list[int]) -> Tensor:
    back = torch.tensor(order).argsort()
    return mask[back][:, back]


def _mask(length: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(length, length, generator=rng) < 0.5


MASK = Exercise(
    id="01-mask",
    title="Take the mask along",
    stars=2,
    reference=_move_mask,
    probes=tuple((_mask(len(o), n), list(o)) for n, o in enumerate(ORDERS)),
    praise="P M Pᵀ: a mask that travels with its tokens costs no symmetry.",
    mistakes=(
        Mistake(
            "only the queries moved",
            _move_mask_rows,
            "The rows moved and the columns stayed. Tokens are queries and keys.",
        ),
        Mistake(
            "only the keys moved",
            _move_mask_columns,
            "The columns moved and the rows stayed. Tokens are keys and queries.",
        ),
        Mistake(
            "the inverse permutation",
            _move_mask_back,
            "Entry (s, t) of the result should be entry (order[s], order[t]).",
        ),
    ),
)

Map = Callable[[Tensor], Tensor]


def _error(f: Map, x: Tensor, order: list[int]) -> Tensor:
    """max |f(PX) − P f(X)|."""
    return (f(x[list(order)]) - f(x)[list(order)]).abs().max()


def _error_invariance(f: Map, x: Tensor, order: list[int]) -> Tensor:
    return (f(x[list(order)]) - f(x)).abs().max()


def _error_signed(f: Map, x: Tensor, order: list[int]) -> Tensor:
    return (f(x[list(order)]) - f(x)[list(order)]).max()


def _error_mean(f: Map, x: Tensor, order: list[int]) -> Tensor:
    return (f(x[list(order)]) - f(x)[list(order)]).abs().mean()


def _running_mean(x: Tensor) -> Tensor:
    return x.cumsum(0) / torch.arange(1, len(x) + 1)[:, None]


def _numbered(x: Tensor) -> Tensor:
    return x + torch.arange(len(x))[:, None]


def _squares(x: Tensor) -> Tensor:
    return x**2 - x.mean(0)


ERROR = Exercise(
    id="01-error",
    title="Measure the symmetry",
    stars=2,
    reference=_error,
    probes=(
        (_running_mean, _inputs(3, 3)[0], [2, 0, 1]),
        (_numbered, _inputs(4, 4)[0], [3, 1, 0, 2]),
        (_squares, _inputs(5, 5)[0], [1, 2, 3, 4, 0]),
    ),
    praise="Zero for a set function, up to rounding. It takes no training to find out.",
    mistakes=(
        Mistake(
            "compared with f(X)",
            _error_invariance,
            "This asks whether shuffling changes nothing, which is invariance. The "
            "outputs of f(X) have to be shuffled before they are compared.",
        ),
        Mistake(
            "signs are left in",
            _error_signed,
            "The largest difference may be a negative one; take absolute values first.",
        ),
        Mistake(
            "averaged",
            _error_mean,
            "A mean hides one bad entry among many good ones; take the maximum.",
        ),
    ),
)


def _floor(length: int, known: int) -> float:
    """(n − k)/n · ln(n − k): known places cost nothing, the others are all alike."""
    blind = length - known
    return blind / length * math.log(blind) if blind else 0.0


def _floor_all(length: int, known: int) -> float:
    return math.log(length)


def _floor_unaveraged(length: int, known: int) -> float:
    return math.log(max(length - known, 1))


def _floor_bits(length: int, known: int) -> float:
    return _floor(length, known) / math.log(2)


def _floor_full_choice(length: int, known: int) -> float:
    return (length - known) / length * math.log(length)


FLOOR = Exercise(
    id="01-floor",
    title="How low can the loss go?",
    stars=3,
    reference=_floor,
    probes=((16, 0), (16, 4), (3, 1), (8, 7), (5, 5)),
    praise="No training, no width and no depth goes below it.",
    mistakes=(
        Mistake(
            "no place is known",
            _floor_all,
            "This is the floor when no token tells its place. Marked tokens cost "
            "nothing.",
        ),
        Mistake(
            "not averaged over all tokens",
            _floor_unaveraged,
            "This is the loss of an unmarked token. The mean runs over marked ones "
            "too.",
        ),
        Mistake(
            "bits",
            _floor_bits,
            "This is in bits; losses here are in nats, from the natural logarithm.",
        ),
        Mistake(
            "marked places still guessed",
            _floor_full_choice,
            "An unmarked token cannot be at a marked place: fewer places are left.",
        ),
    ),
)

EXERCISES = (MATRIX, CONFUSE, ATTENTION, MASK, ERROR, FLOOR)
