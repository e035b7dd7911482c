"""T5's relative bias: one trained number per head and bucket of distance.

Raffel et al. 2020, section 2.1.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.base import Offset, PositionalEncoding, ScoreMod
from pe_lab.positions import pairwise_offsets


def t5_bucket(
    relative_position: Tensor,
    *,
    bidirectional: bool,
    num_buckets: int = 32,
    max_distance: int = 128,
) -> Tensor:
    """The bucket of each distance: exact near by, logarithmic further, one far away.

    With N buckets for a direction and e = N/2 exact ones, a distance n < e is bucket n,
    and n ≥ e is bucket e + ⌊(N − e)·ln(n/e) / ln(max_distance/e)⌋, at most N − 1.

    Args:
        relative_position: key position − query position, integers of any shape.
        bidirectional: half of the buckets for keys after the query; otherwise those
            all count as distance 0.
        num_buckets: at least 2, or an even number of at least 4 if bidirectional.
        max_distance: where the last bucket begins; beyond the exact ones.

    Returns:
        int64 of the same shape, each in [0, num_buckets).

    Raises:
        TypeError, ValueError: for fractional positions or sizes that leave no bucket.
    Convention: the sign is that of T5's code, k − q, opposite to Δ = m − n.
    Source: Raffel et al. 2020 and the released code. Boundaries are found in whole
        numbers, so no logarithm can round to the wrong side of one.

    Example:
        >>> behind = -torch.tensor([0, 1, 15, 16, 20, 127, 128, 10_000])
        >>> pe_lab.t5_bucket(behind, bidirectional=False)
        tensor([ 0,  1, 15, 16, 17, 31, 31, 31])
    """
    buckets = _one_sided(num_buckets, refuse.flag("bidirectional", bidirectional))
    starts = _starts(buckets, refuse.whole("max_distance", max_distance))
    return _bucket(relative_position, starts, bidirectional)


def _bucket(
    relative_position: Tensor, starts: tuple[int, ...], bidirectional: bool
) -> Tensor:
    """`t5_bucket` by the smallest distance in each bucket of one direction."""
    if not isinstance(relative_position, Tensor) or relative_position.dtype not in (
        torch.int32,
        torch.int64,
    ):
        given = getattr(relative_position, "dtype", type(relative_position).__name__)
        raise TypeError(
            f"relative_position needs a tensor of integers, got {given}; buckets "
            "count whole positions."
        )
    after = torch.zeros_like(relative_position)
    if bidirectional:
        after = (relative_position > 0).long() * len(starts)
        distance = relative_position.abs()
    else:
        distance = (-relative_position).clamp(min=0)
    bounds = torch.tensor(starts, device=distance.device)
    return after + torch.bucketize(distance, bounds, right=True) - 1


def _one_sided(num_buckets: int, bidirectional: bool) -> int:
    least = 4 if bidirectional else 2
    num_buckets = refuse.whole("num_buckets", num_buckets, least)
    if bidirectional and num_buckets % 2:
        raise ValueError(
            f"num_buckets needs an even number for two directions, got {num_buckets}."
        )
    return num_buckets // 2 if bidirectional else num_buckets


@lru_cache(maxsize=16)
def _starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """The smallest distance in each bucket.

    Bucket e + j starts at the least n with (n/e)^(N−e) ≥ (max/e)^j, that is
    n^(N−e) · e^j ≥ e^(N−e) · max^j.
    """
    exact = buckets // 2
    refuse.whole("max_distance", max_distance, exact + 1)
    wide = buckets - exact
    starts, n = list(range(exact)), exact
    for j in range(wide):
        while n**wide * exact**j < exact**wide * max_distance**j:
            n += 1
        starts.append(n)
    return tuple(starts)


class T5Bias(PositionalEncoding):
    """Door 3: weight[bucket(n − m), h], shared by every layer that it is given to.

    Args:
        num_heads: number of heads, H.
        bidirectional: for encoders; decoders see no later key.
        num_buckets, max_distance: as for `t5_bucket`.

    Raises:
        TypeError, ValueError: as for `t5_bucket`, or for other head counts.
    Convention: T5 does not divide scores by √D; here `attention` does unless its
        scale is 1.
    Source: Raffel et al. 2020, section 2.1.

    Example:
        >>> t5, x, origin = pe_lab.T5Bias(8), torch.zeros(1, 8, 1, 4), torch.tensor([0])
        >>> near = t5.bias(x, x, torch.tensor([128]), origin)
        >>> far = t5.bias(x, x, torch.tensor([9_999]), origin)
        >>> t5.weight.shape, torch.equal(near, far)
        (torch.Size([32, 8]), True)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        bidirectional: bool = False,
        num_buckets: int = 32,
        max_distance: int = 128,
    ) -> None:
        super().__init__()
        self.num_heads = refuse.whole("num_heads", num_heads)
        self.bidirectional = refuse.flag("bidirectional", bidirectional)
        self.num_buckets = num_buckets
        self.max_distance = refuse.whole("max_distance", max_distance)
        buckets = _one_sided(num_buckets, bidirectional)
        # found once, in Python numbers: a compiler would trace the search
        self._starts = _starts(buckets, self.max_distance)
        self.weight = nn.Parameter(torch.zeros(num_buckets, self.num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every number anew from N(0, 1)."""
        nn.init.normal_(self.weight)

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """(B or 1, H, Lq, Lk), in the weight's dtype."""
        refuse.heads(q, k, q_pos, k_pos, num_heads=self.num_heads)
        offsets = pairwise_offsets(q_pos, k_pos)[:, 0]
        bucket = _bucket(-offsets, self._starts, self.bidirectional)
        return self.weight[bucket.to(self.weight.device)].permute(0, 3, 1, 2)

    def score_mod(self, offset: Offset, device: torch.device) -> ScoreMod:
        """The bias for FlexAttention, its buckets looked up."""
        far = self.max_distance
        places = torch.arange(-far, far + 1, device=device)
        buckets = _bucket(places, self._starts, self.bidirectional)
        weight = self.weight.to(device)

        def add(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
            ahead = (-offset(b, m, n)).clamp(-far, far)
            return score + weight[buckets[ahead + far], h]

        return add

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.num_heads}, bidirectional={self.bidirectional}"
