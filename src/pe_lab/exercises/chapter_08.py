"""Exercises of chapter 8, Learn a table: rows read, ways out, ids, rank, blindness."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .engine import Exercise, Mistake


def _reads(lengths: Tensor, rows: int) -> Tensor:
    """How many tokens of a batch read each row; texts count from position 0."""
    return (lengths[:, None] > torch.arange(rows)).sum(dim=0)


def _reads_last_too(lengths: Tensor, rows: int) -> Tensor:
    return (lengths[:, None] >= torch.arange(rows)).sum(dim=0)


def _reads_ends(lengths: Tensor, rows: int) -> Tensor:
    return (lengths[:, None] - 1 == torch.arange(rows)).sum(dim=0)


def _reads_padded(lengths: Tensor, rows: int) -> Tensor:
    return len(lengths) * (lengths.max() > torch.arange(rows)).long()


def _reads_at_all(lengths: Tensor, rows: int) -> Tensor:
    return (lengths[:, None] > torch.arange(rows)).any(dim=0).long()


ROWS = Exercise(
    id="08-rows",
    title="Who reads row p?",
    stars=1,
    reference=_reads,
    probes=(
        (torch.tensor([3, 5]), 8),
        (torch.tensor([1, 1, 4, 2]), 4),
        (torch.tensor([7, 9, 9]), 12),
    ),
    praise="Rows with a zero get no gradient, and the first row gets one from every "
    "text.",
    mistakes=(
        Mistake(
            "one position too many",
            _reads_last_too,
            "A text of 3 tokens has the positions 0, 1, 2. It does not read row 3.",
        ),
        Mistake(
            "only where texts end",
            _reads_ends,
            "This counts the texts whose last token stands at p. A text reads the "
            "rows of all its tokens.",
        ),
        Mistake(
            "padding is counted",
            _reads_padded,
            "Short texts were counted up to the longest one: their padding reads no "
            "row that matters.",
        ),
        Mistake(
            "whether, not how often",
            _reads_at_all,
            "This says whether a row is read. How many tokens read it?",
        ),
    ),
)


def _ways(positions: Tensor, rows: int, length: int) -> Tensor:
    """Where positions are read: clamped, wrapped, resampled; (3, L) float64."""
    p = positions.double()
    return torch.stack((p.clamp(max=rows - 1), p % rows, p * (rows - 1) / (length - 1)))


def _ways_clamped_late(positions: Tensor, rows: int, length: int) -> Tensor:
    ways = _ways(positions, rows, length)
    ways[0] = positions.double().clamp(max=rows)
    return ways


def _ways_wrapped_early(positions: Tensor, rows: int, length: int) -> Tensor:
    ways = _ways(positions, rows, length)
    ways[1] = positions.double() % (rows - 1)
    return ways


def _ways_ratio(positions: Tensor, rows: int, length: int) -> Tensor:
    ways = _ways(positions, rows, length)
    ways[2] = positions.double() * rows / length
    return ways


def _ways_rounded(positions: Tensor, rows: int, length: int) -> Tensor:
    return _ways(positions, rows, length).floor()


WAYS = Exercise(
    id="08-past",
    title="Three ways past the end",
    stars=2,
    reference=_ways,
    probes=(
        (torch.arange(20), 8, 20),
        (torch.tensor([0, 31, 32, 100, 255]), 32, 256),
    ),
    praise="Clamping and wrapping give whole places, resampling places between rows.",
    mistakes=(
        Mistake(
            "clamped one too late",
            _ways_clamped_late,
            "The last row of a table of N rows is row N − 1.",
        ),
        Mistake(
            "wrapped one too early",
            _ways_wrapped_early,
            "Position N is the first that comes back to row 0, so the period is N.",
        ),
        Mistake(
            "the last position misses the last row",
            _ways_ratio,
            "First rows stay first and last ones last: position L − 1 is read at "
            "N − 1. What is the step between two positions?",
        ),
        Mistake(
            "rounded down",
            _ways_rounded,
            "A place between two rows is a mixture of both. Rounding it would be a "
            "fourth way.",
        ),
    ),
)


def _roberta(tokens: Tensor, pad: int) -> Tensor:
    """Row of each token: pad + 1, pad + 2, … for real ones, pad for padding."""
    real = (tokens != pad).long()
    return real.cumsum(dim=1) * real + pad


def _roberta_all(tokens: Tensor, pad: int) -> Tensor:
    return torch.arange(tokens.shape[1]).expand_as(tokens) + pad + 1


def _roberta_zero(tokens: Tensor, pad: int) -> Tensor:
    real = (tokens != pad).long()
    return real.cumsum(dim=1) * real


def _roberta_early(tokens: Tensor, pad: int) -> Tensor:
    real = (tokens != pad).long()
    return (real.cumsum(dim=1) - 1) * real + pad


def _roberta_pads(tokens: Tensor, pad: int) -> Tensor:
    return (tokens != pad).long().cumsum(dim=1) + pad


ROBERTA = Exercise(
    id="08-roberta",
    title="Count like RoBERTa",
    stars=2,
    reference=_roberta,
    probes=(
        (torch.tensor([[0, 5, 6, 2, 1, 1], [1, 1, 0, 8, 9, 2]]), 1),
        (torch.tensor([[7, 3, 3, 4]]), 3),
    ),
    praise="The rows are the same wherever the padding stands.",
    mistakes=(
        Mistake(
            "padding is counted",
            _roberta_all,
            "With padding on the left, the first real token gets another row here than "
            "without. Count real tokens only.",
        ),
        Mistake(
            "the offset is missing",
            _roberta_zero,
            "The rows up to that of the padding are reserved: the first real token "
            "reads row pad + 1.",
        ),
        Mistake(
            "one row too early",
            _roberta_early,
            "The first real token reads the row of the padding here.",
        ),
        Mistake(
            "pads behind a text read its last row",
            _roberta_pads,
            "A cumulative sum stands still at a pad. Padding reads row pad.",
        ),
    ),
)


def _shares(table: Tensor, power: int = 2) -> Tensor:
    values = torch.linalg.svdvals(table.double() - table.double().mean(dim=0))
    return values**power / (values**power).sum()


def _entropy(shares: Tensor) -> Tensor:
    return -torch.special.xlogy(shares, shares).sum()


def _rank(table: Tensor) -> float:
    """e to the entropy of the shares of variance of the principal components."""
    return float(_entropy(_shares(table)).exp())


def _rank_raw(table: Tensor) -> float:
    values = torch.linalg.svdvals(table.double()).square()
    return float(_entropy(values / values.sum()).exp())


def _rank_values(table: Tensor) -> float:
    return float(_entropy(_shares(table, 1)).exp())


def _rank_entropy(table: Tensor) -> float:
    return float(_entropy(_shares(table)))


def _rank_participation(table: Tensor) -> float:
    return float(1 / _shares(table).square().sum())


def _rank_exact(table: Tensor) -> int:
    return int(torch.linalg.matrix_rank(table - table.mean(dim=0)))


def _table(rows: int, width: int, seed: int) -> Tensor:
    """A table whose components differ in size."""
    rng = torch.Generator().manual_seed(seed)
    table = torch.randn(rows, width, generator=rng, dtype=torch.float64) + 1
    return table * 0.7 ** torch.arange(width)


RANK = Exercise(
    id="08-rank",
    title="Effective rank",
    stars=2,
    reference=_rank,
    tolerance=1e-4,
    probes=((_table(40, 12, 0),), (_table(9, 30, 1),)),
    praise="It is k for k components of equal variance, and it needs no threshold.",
    mistakes=(
        Mistake(
            "not centred",
            _rank_raw,
            "The mean row belongs to every position. Subtract it first.",
        ),
        Mistake(
            "singular values, not variances",
            _rank_values,
            "The variance along a component is the squared singular value. With the "
            "values themselves it is the effective rank as Roy and Vetterli define it.",
        ),
        Mistake(
            "the entropy itself",
            _rank_entropy,
            "This is the entropy, in nats. Its exponential is a number of components.",
        ),
        Mistake(
            "the participation ratio",
            _rank_participation,
            "One over the sum of squared shares is another measure of the same thing. "
            "The exercise asks for the entropy.",
        ),
        Mistake(
            "the exact rank",
            _rank_exact,
            "The exact rank counts every component that is not zero, however small.",
        ),
    ),
)

Encode = Callable[[Tensor], Tensor]


def _gap(encode: Encode, ids: Tensor, order: Tensor) -> float:
    """How far the mean over tokens moves when the tokens are put in another order."""
    here, there = encode(ids).mean(dim=1), encode(ids[:, order]).mean(dim=1)
    return float((here - there).abs().max())


def _gap_rows(encode: Encode, ids: Tensor, order: Tensor) -> float:
    return float((encode(ids) - encode(ids[:, order])).abs().max())


def _gap_back(encode: Encode, ids: Tensor, order: Tensor) -> float:
    return float((encode(ids)[:, order] - encode(ids[:, order])).abs().max())


def _gap_texts(encode: Encode, ids: Tensor, order: Tensor) -> float:
    here, there = encode(ids).mean(dim=0), encode(ids[:, order]).mean(dim=0)
    return float((here - there).abs().max())


def _gap_states(encode: Encode, ids: Tensor, order: Tensor) -> float:
    states = encode(ids)
    return float((states.mean(dim=1) - states[:, order].mean(dim=1)).abs().max())


def _toy(ids: Tensor) -> Tensor:
    """States that know the neighbour on the left and the place: (B, L, 3)."""
    x = ids.double()[..., None] * torch.tensor([0.1, 0.2, -0.3]).double()
    place = torch.arange(ids.shape[1]).double()[:, None]
    return (x + x.roll(1, dims=1) * x + 0.1 * place * x).tanh()


GAP = Exercise(
    id="08-blind",
    title="Is it blind?",
    stars=3,
    reference=_gap,
    probes=(
        (_toy, torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([0, 3, 1, 2, 4])),
        (
            _toy,
            torch.tensor([[2, 7, 1, 8, 2, 8], [9, 8, 7, 6, 5, 4]]),
            torch.tensor([0, 4, 3, 2, 1, 5]),
        ),
    ),
    praise="With equal rows, zeros among them, it is rounding; with MiniLM's own it is "
    "not.",
    mistakes=(
        Mistake(
            "not pooled",
            _gap_rows,
            "These are the states of single tokens: they differ because another token "
            "stands there. Take the mean over tokens first.",
        ),
        Mistake(
            "a test of equivariance",
            _gap_back,
            "This puts the states back in order and compares token by token, which is "
            "a stricter question. Asked is the mean over tokens.",
        ),
        Mistake(
            "the mean over texts",
            _gap_texts,
            "States are (texts, tokens, channels). The mean has to go over tokens.",
        ),
        Mistake(
            "the states were shuffled, not the tokens",
            _gap_states,
            "The encoder has to read the tokens in the new order; shuffled states "
            "have the same mean whatever it does.",
        ),
    ),
)

EXERCISES = (ROWS, WAYS, ROBERTA, RANK, GAP)
