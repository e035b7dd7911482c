"""Exercises of chapter 7, Add, scale: the factor, the share, four terms, ties, pads."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pe_lab.encodings.sinusoidal import sinusoidal

from .engine import Exercise, Mistake
from .examined import Examined


def _rows(count: int, width: int, seed: int, std: float = 1.0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return std * torch.randn(count, width, generator=rng, dtype=torch.float64)


def _table(count: int, width: int) -> Tensor:
    return sinusoidal(count, width, dtype=torch.float64)


def _join(words: Tensor) -> Tensor:
    """√d · words + PE, for words (L, d) drawn from N(0, 1/d)."""
    length, width = words.shape
    return math.sqrt(width) * words + _table(length, width)


def _join_forgotten(words: Tensor) -> Tensor:
    return words + _table(*words.shape)


def _join_both(words: Tensor) -> Tensor:
    return math.sqrt(words.shape[1]) * (words + _table(*words.shape))


def _join_table_scaled(words: Tensor) -> Tensor:
    return words + math.sqrt(words.shape[1]) * _table(*words.shape)


def _join_length(words: Tensor) -> Tensor:
    return math.sqrt(len(words)) * words + _table(*words.shape)


def _join_divided(words: Tensor) -> Tensor:
    return words + _table(*words.shape) / math.sqrt(words.shape[1])


def _texts(join: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """join, for one text, as a module for several."""
    return lambda x: torch.stack([join(words) for words in x])


_JOINED = {
    "d_model": 32,
    "embedding_std": 32**-0.5,
    "expected": {"order": "interleaved", "base": 1e4},
}
JOIN = Exercise(
    id="07-join",
    title="The sum, with its factor",
    stars=1,
    reference=_join,
    probes=((_rows(3, 8, 0, 8**-0.5),), (_rows(7, 32, 1, 32**-0.5),)),
    praise="Words and places now have second moments 1 and 1/2 in every channel.",
    examined=Examined("add", _texts, _JOINED),
    mistakes=(
        Mistake(
            "the factor is forgotten",
            _join_forgotten,
            "Words of norm 1 meet a table of norm √(d/2). The chapter is about this "
            "sum.",
        ),
        Mistake(
            "the table is scaled too",
            _join_both,
            "The factor stands outside of the sum, so it changes nothing in the ratio.",
        ),
        Mistake(
            "the table is scaled instead",
            _join_table_scaled,
            "The factor belongs to the words. Here it makes the imbalance worse.",
        ),
        Mistake(
            "the length in place of the width",
            _join_length,
            "The factor is the root of the width d, not of the number of tokens.",
        ),
        Mistake(
            "divided instead",
            _join_divided,
            "This has the right ratio, at a size √d smaller. The exercise asks for the "
            "form in which words are multiplied.",
        ),
    ),
)


def _share(words: Tensor, table: Tensor) -> float:
    """Mean |word|² over mean |word|² + |row|²: the words' part of the energy."""
    word = float(words.square().sum(dim=-1).mean())
    place = float(table.square().sum(dim=-1).mean())
    return word / (word + place)


def _share_norm(words: Tensor, table: Tensor) -> float:
    word, place = (float(t.norm(dim=-1).mean()) for t in (words, table))
    return word / (word + place)


def _share_of_place(words: Tensor, table: Tensor) -> float:
    return 1 - _share(words, table)


def _share_ratio(words: Tensor, table: Tensor) -> float:
    share = _share(words, table)
    return share / (1 - share)


SHARE = Exercise(
    id="07-share",
    title="Whose energy is it?",
    stars=1,
    reference=_share,
    tolerance=1e-4,
    probes=(
        (_rows(50, 32, 2, 0.3), _table(20, 32)),
        (_rows(50, 8, 3, 2.0), _table(6, 8)),
    ),
    praise="For N(0, 1/d) words at d = 512 it is 1/257, less than half a per cent.",
    mistakes=(
        Mistake(
            "norms instead of energies",
            _share_norm,
            "This is the share by norm. Energy is the squared norm; norms of "
            "orthogonal parts do not add up, energies do.",
        ),
        Mistake(
            "the other one's share",
            _share_of_place,
            "This is the share of the table. The words' part goes on top of the "
            "fraction.",
        ),
        Mistake(
            "a ratio, not a share",
            _share_ratio,
            "This is words over table. A share is over the sum of both.",
        ),
    ),
)


def _terms(e_m: Tensor, p_m: Tensor, e_n: Tensor, p_n: Tensor) -> Tensor:
    """[e·e', e·p', p·e', p·p']."""
    return torch.stack((e_m @ e_n, e_m @ p_n, p_m @ e_n, p_m @ p_n))


def _terms_two(e_m: Tensor, p_m: Tensor, e_n: Tensor, p_n: Tensor) -> Tensor:
    zero = torch.zeros_like(e_m @ e_n)
    return torch.stack((e_m @ e_n, zero, zero, p_m @ p_n))


def _terms_crossed(e_m: Tensor, p_m: Tensor, e_n: Tensor, p_n: Tensor) -> Tensor:
    return torch.stack((e_m @ e_n, p_m @ e_n, e_m @ p_n, p_m @ p_n))


def _terms_same_token(e_m: Tensor, p_m: Tensor, e_n: Tensor, p_n: Tensor) -> Tensor:
    return torch.stack((e_m @ e_n, e_m @ p_m, e_n @ p_n, p_m @ p_n))


def _four(seed: int, width: int) -> tuple[Tensor, ...]:
    return tuple(_rows(4, width, seed))


TERMS = Exercise(
    id="07-terms",
    title="Four terms",
    stars=2,
    reference=_terms,
    probes=(_four(4, 6), _four(5, 16)),
    praise="Their sum is (e + p)·(e' + p'), whatever the vectors.",
    mistakes=(
        Mistake(
            "cross terms left out",
            _terms_two,
            "A product of sums has four terms. Words meet places, too.",
        ),
        Mistake(
            "cross terms exchanged",
            _terms_crossed,
            "The second term is word m with place n, the third place m with word n.",
        ),
        Mistake(
            "word and place of one token",
            _terms_same_token,
            "A score has one factor from m and one from n in each term.",
        ),
    ),
)


def _tie(weight: Tensor) -> Tensor:
    """[W, W], the weight that makes of [e; p] what W makes of e + p."""
    return torch.cat((weight, weight), dim=1)


def _tie_stacked(weight: Tensor) -> Tensor:
    return torch.cat((weight, weight), dim=0)


def _tie_word_only(weight: Tensor) -> Tensor:
    return torch.cat((weight, torch.zeros_like(weight)), dim=1)


def _tie_halved(weight: Tensor) -> Tensor:
    return torch.cat((weight, weight), dim=1) / 2


TIE = Exercise(
    id="07-tie",
    title="Addition inside concatenation",
    stars=2,
    reference=_tie,
    probes=((_rows(3, 4, 6),), (_rows(5, 2, 7),)),
    praise="Addition is concatenation with two blocks tied: it saves parameters, and "
    "can do nothing that concatenation cannot.",
    mistakes=(
        Mistake(
            "stacked the wrong way",
            _tie_stacked,
            "The input got wider, so the weight needs more columns, not more rows.",
        ),
        Mistake(
            "the place is dropped",
            _tie_word_only,
            "This weight does not read p at all.",
        ),
        Mistake(
            "halved",
            _tie_halved,
            "W e + W p is a sum, not a mean.",
        ),
    ),
)

CULPRIT = Exercise(
    id="07-culprit",
    title="Name the culprit",
    stars=2,
    reference="forgotten",
    praise="Words of norm 1 under a table of norm 8: what was lost is the factor √d.",
    mistakes=(
        Mistake(
            "position is there",
            "none",
            "Without any position the loss stops near 0.5. The suspect goes on "
            "falling, only late.",
        ),
        Mistake(
            "the words are small, not large",
            "both",
            "With both factors the words would outweigh the table by far. Look at the "
            "norms again.",
        ),
        Mistake(
            "size alone is innocent",
            "small",
            "Small words and a small table in the right ratio learn almost as fast as "
            "the healthy model. Look at the table's norm.",
        ),
        Mistake(
            "all is large there, in the right ratio",
            "large",
            "In that control the words have norm 128. Look at the norm of the "
            "suspect's words.",
        ),
        Mistake(
            "this one is healthy",
            "right",
            "That is model A, which the suspect is compared with.",
        ),
        Mistake(
            "this one has large words",
            "default",
            "N(0, 1) words have norm √d already, without a factor. Look at the norm of "
            "the suspect's words.",
        ),
    ),
)


def _embed(ids: Tensor, weight: Tensor, pad: int) -> Tensor:
    """√d · weight[ids] + PE for real tokens, zeros for padding."""
    length, width = len(ids), weight.shape[1]
    rows = math.sqrt(width) * weight[ids] + _table(length, width)
    return rows * (ids != pad)[:, None]


def _embed_pad_marked(ids: Tensor, weight: Tensor, pad: int) -> Tensor:
    width = weight.shape[1]
    words = weight[ids] * (ids != pad)[:, None]
    return math.sqrt(width) * words + _table(len(ids), width)


def _embed_pad_kept(ids: Tensor, weight: Tensor, pad: int) -> Tensor:
    width = weight.shape[1]
    return math.sqrt(width) * weight[ids] + _table(len(ids), width)


def _embed_unscaled(ids: Tensor, weight: Tensor, pad: int) -> Tensor:
    rows = weight[ids] + _table(len(ids), weight.shape[1])
    return rows * (ids != pad)[:, None]


PAD = Exercise(
    id="07-pad",
    title="A pad is nowhere",
    stars=3,
    reference=_embed,
    probes=(
        (torch.tensor([3, 1, 4, 0, 0]), _rows(6, 8, 8, 8**-0.5), 0),
        (torch.tensor([2, 5]), _rows(6, 4, 9, 0.5), 5),
    ),
    praise="Zeros in the input still need the attention mask: LayerNorm's bias and a "
    "key of zeros are not nothing.",
    mistakes=(
        Mistake(
            "pads got a place",
            _embed_pad_marked,
            "The word of a pad is zero here, and its row is PE(p): a zero word plus a "
            "place is not zero.",
        ),
        Mistake(
            "pads are tokens",
            _embed_pad_kept,
            "Padding has a word and a place here, like every other token.",
        ),
        Mistake(
            "the factor is forgotten",
            _embed_unscaled,
            "The words lack the factor √d.",
        ),
    ),
)

EXERCISES = (CULPRIT, JOIN, SHARE, TERMS, TIE, PAD)
