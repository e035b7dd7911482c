"""Exercises of chapter 18, Find the bug: blind cases, a test that fails, a lambda."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_lab.encodings.rope import RoPE
from pe_lab.encodings.sinusoidal import sinusoidal

from .cases import WORDS, numbers, word
from .engine import Exercise, Mistake

Front = Callable[[Tensor], Tensor]
Turn = Callable[[Tensor, int], Tensor]

# Where each bug would show, for those who named it and were wrong.
SIGNS = {
    "healthy": "Something is wrong with it. Ask at other places: other sizes, long "
    "texts, a second call, 16 bits.",
    "ladder": "A wrong ladder shows at position 1: the angle of each pair that turns.",
    "layout": "A mixed layout shows in basis vectors: lengths change, because two "
    "partners turn by different angles.",
    "direction": "A wrong sense shows in the scores of queries and keys: they no "
    "longer depend on the offset alone.",
    "offset": "An offset shows at position 0, which then turns or has another row.",
    "size": "A wrong factor shows in lengths, by one and the same number everywhere.",
    "axis": "A wrong axis shows when you shuffle tokens, then texts: the wrong one "
    "matters.",
    "range": "A bound shows in two distant positions that get the same answer.",
    "precision": "Lost precision shows past position 256, in 16 bits against 64.",
    "memory": "A memory shows when you ask the same twice, with something else in "
    "between.",
    "alignment": "A wrong alignment shows when there are more keys than queries: the "
    "last rows of the full matrix are not what one gets.",
}
# What the general sign does not settle, case by case.
CLOSER = {
    (1, "layout"): "Every pair keeps its length. Measure by how much each one turns.",
    (1, "size"): "No length changes. Measure by how much each pair turns.",
    (3, "ladder"): "Both partners have speeds of the right ladder, but not the same "
    "one. What does that say?",
    (3, "size"): "Lengths change, but not by one factor: it depends on the position.",
    (4, "range"): "It has no bound: in float64 it is right at every position.",
    (8, "size"): "Lengths change, and in the scores the factors of query and key make "
    "one that depends on their offset alone. That is a known scheme.",
    (8, "direction"): "The scores depend on the offset alone: shift all positions.",
    (8, "ladder"): "Angles are those of base 10000. What changes besides is a length, "
    "and in the scores it depends on the offset alone.",
}
TITLES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 6: 1, 7: 2, 8: 3}  # the stars of each case
PRAISE = {
    "ladder": "The ladder spans the whole head, and only a part of it turns.",
    "memory": "It keeps its longest answer and cuts all others from it.",
    "layout": "Neighbours mix, with a table that was tiled for halves.",
    "precision": "The angle is computed in the dtype of the input.",
    "alignment": "Queries are counted from the first key.",
    "range": "Every row from 511 on is row 511.",
    "axis": "The table runs along the batch.",
    "healthy": "It is xPos: queries shrink and keys grow, and scores see the offset.",
}


def _sign(number: int, other: str) -> str:
    return CLOSER.get((number, other), f"It is not that. {SIGNS[other]}")


def _case(number: int) -> Exercise:
    right = word(number)
    return Exercise(
        id=f"18-case-{number}",
        title=f"Case {number}",
        stars=TITLES[number],
        reference=right,
        praise=PRAISE[right],
        mistakes=tuple(
            Mistake(f"not {other}", other, _sign(number, other))
            for other in WORDS
            if other != right
        ),
    )


CASES = tuple(_case(number) for number in numbers())


# ------------------------------------------------------------- a test that fails


def _table(rows: int) -> Tensor:
    return sinusoidal(rows, 8, dtype=torch.float64)


def adds_rows(x: Tensor) -> Tensor:
    """Sinusoids along the tokens."""
    return x + _table(x.shape[1])


def adds_late(x: Tensor) -> Tensor:
    """Rows that are alike up to position 2."""
    return x + _table(x.shape[1])[(torch.arange(x.shape[1]) - 2).clamp(min=0)]


def adds_nothing(x: Tensor) -> Tensor:
    """No position at all."""
    return x.clone()


def adds_one_row(x: Tensor) -> Tensor:
    """The same row for every token."""
    return x + _table(2)[1]


def adds_along_batch(x: Tensor) -> Tensor:
    """A row for each text."""
    return x + _table(x.shape[0])[:, None]


def _random(batch: int, length: int) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.randn(batch, length, 8, generator=rng, dtype=torch.float64)


def _shuffled(f: Front, batch: int, length: int, tokens: bool) -> bool:
    x, axis = _random(batch, length), 1 if tokens else 0
    return not torch.allclose(f(x.flip(axis)), f(x).flip(axis))


def _order(f: Front) -> bool:
    return _shuffled(f, 2, 6, tokens=True)


def _order_changes(f: Front) -> bool:
    x = _random(2, 6)
    return not torch.allclose(f(x), x)


def _order_texts(f: Front) -> bool:
    return _shuffled(f, 2, 6, tokens=False)


def _order_unsorted(f: Front) -> bool:
    x = _random(2, 6)
    return not torch.allclose(f(x.flip(1)), f(x))


def _order_two(f: Front) -> bool:
    return _shuffled(f, 2, 2, tokens=True)


def _order_opposite(f: Front) -> bool:
    return not _order(f)


ORDER = Exercise(
    id="18-order",
    title="A test that fails when it should",
    stars=2,
    reference=_order,
    probes=(
        (adds_rows,),
        (adds_nothing,),
        (adds_along_batch,),
        (adds_one_row,),
        (adds_late,),
    ),
    praise="It sees sinusoids, and it sees that a table along the batch is none.",
    mistakes=(
        Mistake(
            "asks whether anything changed",
            _order_changes,
            "This is true as soon as something is added, be it one row for all tokens.",
        ),
        Mistake(
            "shuffles the texts",
            _order_texts,
            "Axis 0 counts texts. A table along the batch passes this test.",
        ),
        Mistake(
            "compares without shuffling back",
            _order_unsorted,
            "f(PX) differs from f(X) for everyone, even without positions. Compare "
            "with P f(X).",
        ),
        Mistake(
            "two tokens are too few",
            _order_two,
            "One of the suspects has equal rows at first. Take more tokens.",
        ),
        Mistake(
            "the other way round",
            _order_opposite,
            "This is true where order is *not* seen.",
        ),
    ),
)


# ----------------------------------------------------------------- an adapter


def tokens_first(x: Tensor, start: int) -> Tensor:
    """Somebody's rotation: x (B, L, H, D), token t at position start + t."""
    ids = start + torch.arange(x.shape[1])
    q = x.transpose(1, 2)
    return RoPE(x.shape[-1]).rotate(q, q, ids, ids)[0].transpose(1, 2)


def _adapt(theirs: Turn, x: Tensor, positions: Tensor) -> Tensor:
    steps = [
        theirs(x[:, :, [t]].transpose(1, 2), int(p)) for t, p in enumerate(positions)
    ]
    return torch.cat(steps, dim=1).transpose(1, 2)


def _adapt_start(theirs: Turn, x: Tensor, positions: Tensor) -> Tensor:
    return theirs(x.transpose(1, 2), int(positions[0])).transpose(1, 2)


def _adapt_axes(theirs: Turn, x: Tensor, positions: Tensor) -> Tensor:
    return theirs(x, int(positions[0]))


def _adapt_back(theirs: Turn, x: Tensor, positions: Tensor) -> Tensor:
    return _adapt(theirs, x, positions).transpose(1, 2)


def _adapt_zero(theirs: Turn, x: Tensor, positions: Tensor) -> Tensor:
    return theirs(x.transpose(1, 2), 0).transpose(1, 2)


def _heads(length: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, length, 8, generator=rng, dtype=torch.float64)


ADAPT = Exercise(
    id="18-adapt",
    title="Put it on the table",
    stars=2,
    reference=_adapt,
    probes=(
        (tokens_first, _heads(4, 0), torch.tensor([0, 1, 2, 3])),
        (tokens_first, _heads(4, 1), torch.tensor([7, 8, 9, 10])),
        (tokens_first, _heads(5, 2), torch.tensor([3, 5, 4, 900, 0])),
    ),
    praise="With functools.partial or a lambda it is ready for pe_lab.diagnose.",
    mistakes=(
        Mistake(
            "only the first position counts",
            _adapt_start,
            "Right for positions that follow one another. The doctor also asks for "
            "3, 5, 4: call it once for each token.",
        ),
        Mistake(
            "axes left as they are",
            _adapt_axes,
            "Theirs takes (B, L, H, D): yours goes along the heads.",
        ),
        Mistake(
            "not turned back",
            _adapt_back,
            "The result has to be (B, H, L, D) again.",
        ),
        Mistake(
            "always from 0",
            _adapt_zero,
            "The positions are not used: every token is turned by its place from 0.",
        ),
    ),
)

EXERCISES = (*CASES, ORDER, ADAPT)
