"""Attention with linear biases: a penalty that grows with distance (Press 2022)."""

from __future__ import annotations

from math import isfinite

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.encodings.base import Offset, PositionalEncoding, ScoreMod
from pe_lab.encodings.channels import (
    alibi_channels,
    bias_is_smaller,
    fit_in_channels,
)
from pe_lab.positions import pairwise_offsets


def alibi_slopes(num_heads: int) -> Tensor:
    """Slopes m_h of the penalty m_h · (m − n), one for each head.

    H a power of two: m_h = 2^(−8h/H), h = 1 … H. Otherwise the slopes of the power of
    two below H, then every other slope of the power above, in that order: not sorted.

    Args:
        num_heads: H, at least 1.

    Returns:
        (H,) float64, each in (0, 1), in score units per position.

    Raises:
        TypeError, ValueError: if num_heads is not a whole number of at least 1.
    Source: Press et al. 2022, section 3, and the released code.

    Example:
        >>> pe_lab.alibi_slopes(3)  # 2⁻⁴, 2⁻⁸, and 2⁻² of the four slopes above
        tensor([0.0625, 0.0039, 0.2500], dtype=torch.float64)
    """
    num_heads = refuse.whole("num_heads", num_heads)
    below = 1 << (num_heads.bit_length() - 1)
    exponents = [8 * h / below for h in range(1, below + 1)]
    exponents += [8 * h / (2 * below) for h in range(1, 2 * below, 2)]
    slopes = [2.0**-e for e in exponents[:num_heads]]
    return torch.tensor(slopes, dtype=torch.float64, device="cpu")


def alibi_bias(
    q_pos: Tensor, k_pos: Tensor, slopes: Tensor, *, symmetric: bool = False
) -> Tensor:
    """The term −m_h · (m − n), or −m_h · |m − n| if symmetric.

    Args:
        q_pos, k_pos: (Lq,) and (Lk,), or (B, Lq) and (B, Lk).
        slopes: (H,), in score units per position.
        symmetric: penalise keys after the query too, for attention without a causal
            mask; otherwise they would be rewarded.

    Returns:
        (1, H, Lq, Lk), or (B, H, Lq, Lk), in the slopes' dtype.

    Raises:
        TypeError, ValueError: if ids or slopes are not such tensors.
    Convention: made from the difference, never as m_h·n: 16 bits hold −m_h·(m − n)
        near the diagonal, where it matters, but not m_h·n at n = 4096.

    Example:
        >>> ids, slopes = torch.arange(3), torch.tensor([0.5])
        >>> pe_lab.alibi_bias(ids, ids, slopes, symmetric=True)[0, 0]
        tensor([[-0.0000, -0.5000, -1.0000],
                [-0.5000, -0.0000, -0.5000],
                [-1.0000, -0.5000, -0.0000]])
    """
    refuse.float_tensor("slopes", slopes, 1, "(heads,)")
    offsets = pairwise_offsets(q_pos, k_pos).to(slopes.device)
    distance = offsets.abs() if refuse.flag("symmetric", symmetric) else offsets
    return (-slopes[:, None, None] * distance).to(slopes.dtype)


class ALiBi(PositionalEncoding):
    """Door 3: −m_h · (m − n), with fixed slopes and no parameters.

    Args:
        num_heads: H, at least 1.
        symmetric: −m_h · |m − n|, for attention in both directions.
        slopes: (H,) other slopes than `alibi_slopes(num_heads)`, for checkpoints whose
            code divides them or starts from another power.

    Raises:
        TypeError, ValueError: as for `alibi_slopes`; ValueError for other head counts.
    Source: Press et al. 2022.

    Example:
        >>> halving = pe_lab.ALiBi(1, slopes=[0.6931471805599453])  # ln 2
        >>> x = torch.zeros(1, 1, 4, 2, dtype=torch.float64)
        >>> doors = {"encoding": halving, "causal": True, "return_weights": True}
        >>> _, weights = pe_lab.attention(x, x, x, **doors)
        >>> (15 * weights[0, 0, -1]).round(decimals=3)
        tensor([1., 2., 4., 8.], dtype=torch.float64)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        symmetric: bool = False,
        slopes: Tensor | list[float] | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = refuse.whole("num_heads", num_heads)
        self.symmetric = refuse.flag("symmetric", symmetric)
        given = alibi_slopes(num_heads) if slopes is None else slopes
        self._slopes = tuple(refuse.numbers("slopes", given).flatten().tolist())
        if len(self._slopes) != self.num_heads or not all(map(isfinite, self._slopes)):
            raise ValueError(
                f"slopes need {self.num_heads} finite numbers, one per head, got "
                f"{slopes!r:.80}."
            )

    @property
    def slopes(self) -> Tensor:
        """(H,) float64, in score units per position."""
        return torch.tensor(self._slopes, dtype=torch.float64, device="cpu")

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """(B or 1, H, Lq, Lk), float32 or wider."""
        refuse.heads(q, k, q_pos, k_pos, num_heads=self.num_heads)
        wide = torch.promote_types(q.dtype, torch.float32)
        slopes = self.slopes.to(device=q.device, dtype=wide)
        return alibi_bias(q_pos, k_pos, slopes, symmetric=self.symmetric)

    def channels(
        self,
        q: Tensor,
        k: Tensor,
        q_pos: Tensor,
        k_pos: Tensor,
        *,
        scale: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor] | None:
        """`alibi_channels` with slopes / scale.

        None where they would not be exact, or where the bias is the smaller tensor.
        """
        refuse.heads(q, k, q_pos, k_pos, num_heads=self.num_heads)
        if self.symmetric or scale == 0 or not fit_in_channels(q_pos, k_pos):
            return None
        if bias_is_smaller(q, k, max(q_pos.dim(), k_pos.dim()) > 1, dtype):
            return None
        steepest = max(abs(slope / scale) for slope in self._slopes)
        if 256 * steepest > torch.finfo(dtype).max:
            return None
        slopes = self.slopes.to(q.device) / scale
        return alibi_channels(q_pos, k_pos, slopes, dtype=dtype)

    def score_mod(self, offset: Offset, device: torch.device) -> ScoreMod:
        """The penalty for FlexAttention."""
        slopes = self.slopes.to(device, torch.float32)

        def add(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
            distance = offset(b, m, n)
            return score - slopes[h] * (distance.abs() if self.symmetric else distance)

        return add

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.num_heads}, symmetric={self.symmetric}"
