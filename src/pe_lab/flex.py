"""Biases as score_mod functions for PyTorch's FlexAttention (Dong et al. 2024).

FlexAttention computes the bias while it multiplies, so no L×L tensor is made; compiled
on a GPU it is as fast as fused attention. It knows indices, not positions: these
functions look positions up, so ids stay data.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from pe_lab import refuse
from pe_lab.encodings.base import Offset, PositionalEncoding, ScoreMod
from pe_lab.positions import as_positions


def score_mod(
    encoding: PositionalEncoding, q_pos: Tensor, k_pos: Tensor
) -> ScoreMod | None:
    """The encoding's bias as f(score, b, h, m, n) = score + bias[b, h, m, n].

    Queries and keys are still to be turned by `encoding.rotate`, before.

    Args:
        encoding: one whose bias depends on positions and head alone: ALiBi, T5,
            KERPLE; or one without a bias.
        q_pos: (Lq,) or (B, Lq).
        k_pos: (Lk,) or (B, Lk).

    Returns:
        what PyTorch's `flex_attention` takes as score_mod; None for an encoding without
        a bias, which it takes as well.

    Raises:
        TypeError: for what is no encoding, or has a bias that depends on more (Shaw,
            Transformer-XL, TUPE, FIRE), or ids that are none.
    Source: PyTorch's documentation of flex_attention.

    Example:
        >>> ids = torch.arange(4)
        >>> bias = pe_lab.flex.score_mod(pe_lab.ALiBi(2), ids, ids)
        >>> b, h, m, n = torch.tensor([0, 1, 3, 1])  # head 1: slope 2⁻⁸, 2 places back
        >>> bias(torch.tensor(5.0), b, h, m, n)
        tensor(4.9922)
    """
    refuse.doors(encoding)
    offset = _offset(_look_up("q_pos", q_pos), _look_up("k_pos", k_pos))
    if type(encoding).bias is PositionalEncoding.bias:
        return None
    made = encoding.score_mod(offset, q_pos.device)
    if made is None:
        raise TypeError(
            "encoding needs a bias that depends on positions and head alone, got "
            f"{type(encoding).__name__}; pe_lab.attention computes it."
        )
    return made


def _look_up(name: str, ids: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    refuse.id_rows(name, ids)
    ids = as_positions(ids)
    if ids.dim() == 1:
        return lambda b, index: ids[index]
    return lambda b, index: ids[b, index]


def _offset(
    query: Callable[[Tensor, Tensor], Tensor], key: Callable[[Tensor, Tensor], Tensor]
) -> Offset:
    return lambda b, m, n: query(b, m) - key(b, n)
