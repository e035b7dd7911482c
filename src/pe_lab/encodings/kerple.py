"""Penalties with trained curvature: KERPLE, logarithm or power (Chi et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.base import Offset, PositionalEncoding, ScoreMod
from pe_lab.positions import pairwise_offsets

_LEAST = 1e-2  # both numbers of a head stay positive


class Kerple(PositionalEncoding):
    """Door 3: −r₁·ln(1 + r₂·|m − n|), or −r₁·|m − n|^{r₂}, two numbers per head.

    Args:
        num_heads: number of heads, H.
        kind: "log" or "power".

    Raises:
        ValueError: for another kind or other head counts.
    Convention: r₁ and r₂ are kept above 0.01 where they are used, and r₂ below 2 for
        the power, which is where the kernel is conditionally positive definite.
    Source: Chi et al. 2022, section 4.

    Example:
        >>> kerple, x, ids = pe_lab.Kerple(1), torch.zeros(1, 1, 3, 4), torch.arange(3)
        >>> kerple = kerple.requires_grad_(False)
        >>> kerple.weight.fill_(1.0).shape  # r₁ and r₂ of one head
        torch.Size([2, 1])
        >>> kerple.bias(x, x, ids, ids)[0, 0, 2]  # −ln 3, −ln 2, −ln 1
        tensor([-1.0986, -0.6931, -0.0000])
    """

    def __init__(self, num_heads: int, *, kind: str = "log") -> None:
        super().__init__()
        self.num_heads = refuse.whole("num_heads", num_heads)
        self.kind = refuse.one_of("kind", kind, ("log", "power"))
        self.weight = nn.Parameter(torch.empty(2, self.num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """r₁ from U(0, 2), r₂ from U(0, 1); the other way round for the power.

        Source: the released code.
        """
        height, bend = (2, 1) if self.kind == "log" else (1, 2)
        nn.init.uniform_(self.weight[0].data, 0, height)
        nn.init.uniform_(self.weight[1].data, 0, bend)

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """(B or 1, H, Lq, Lk), float32 or wider."""
        refuse.heads(q, k, q_pos, k_pos, num_heads=self.num_heads)
        height, bend = self._positive()[:, :, None, None]
        distance = pairwise_offsets(q_pos, k_pos).abs().to(height)
        return -height * self._grown(distance, bend)

    def score_mod(self, offset: Offset, device: torch.device) -> ScoreMod:
        """The penalty for FlexAttention."""
        height, bend = self._positive().to(device)

        def add(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
            distance = offset(b, m, n).abs().to(height.dtype)
            return score - height[h] * self._grown(distance, bend[h])

        return add

    def _positive(self) -> Tensor:
        wide = torch.promote_types(self.weight.dtype, torch.float32)
        return self.weight.to(wide).clamp(min=_LEAST)

    def _grown(self, distance: Tensor, bend: Tensor) -> Tensor:
        if self.kind == "log":
            return torch.log1p(bend * distance)
        # |Δ|^r has no finite slope in r at 0; where Δ = 0 the term is 0
        power = distance.clamp(min=1e-9) ** bend.clamp(max=2)
        return torch.where(distance > 0, power, torch.zeros_like(power))

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.num_heads}, kind={self.kind!r}"
