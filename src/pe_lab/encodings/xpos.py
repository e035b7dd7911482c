"""RoPE with a decay: xPos (Sun et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.encodings.rope import RoPE


class XPos(RoPE):
    """Door 2: pair i of a query times ζ_i^{(m−c)/s}, of a key times ζ_i^{−(n−c)/s}.

    The score of pair i decays as ζ_i^{(m−n)/s}; ζ_i = (2i/D + γ)/(1 + γ), γ = 0.4.

    Args:
        head_dim, base, layout: as for `RoPE`.
        scale_base: s, in positions.
        centre: c, where both factors are 1. It is fixed, so that a query decoded later
            fits keys that were cached before; choose it near the middle of the
            lengths you mean, since factors grow away from it.

    Raises: as for `RoPE`.
    Convention: meant for causal attention, m ≥ n; later keys would be rewarded.
    Source: Sun et al. 2023, section 2 and the released code, whose centre moves with
        the length of the input.

    Example:
        >>> x, far = torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]]), torch.tensor([512])
        >>> q, k = pe_lab.XPos(4).rotate(x, x, far, far)
        >>> q.norm(), k.norm()  # of pair 0, whose ζ is 0.4/1.4
        (tensor(0.2857), tensor(3.5000))
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10000.0,
        layout: str = "half",
        scale_base: float = 512.0,
        centre: float = 0.0,
    ) -> None:
        super().__init__(head_dim, base=base, layout=layout)
        self.scale_base = refuse.number("scale_base", scale_base, 1)
        self.centre = refuse.number("centre", centre)

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys turned, and scaled against each other."""
        refuse.heads(q, k, q_pos, k_pos, head_dim=self.head_dim)
        wide = torch.promote_types(q.dtype, torch.float32)
        turned_q, turned_k = super().rotate(q.to(wide), k.to(wide), q_pos, k_pos)
        q_scale, k_scale = (
            self._scale(turned_q, q_pos, 1),
            self._scale(turned_k, k_pos, -1),
        )
        return (turned_q * q_scale).to(q.dtype), (turned_k * k_scale).to(k.dtype)

    def _scale(self, x: Tensor, positions: Tensor, sign: int) -> Tensor:
        pairs = torch.arange(self.head_dim // 2, dtype=torch.float64, device=x.device)
        zeta = (2 * pairs / self.head_dim + 0.4) / 1.4
        power = (positions.to(x.device).double() - self.centre) / self.scale_base
        scale = zeta ** (sign * power)[..., None]
        if self.layout == "half":
            scale = torch.cat((scale, scale), dim=-1)
        else:
            scale = scale.repeat_interleave(2, dim=-1)
        return scale.to(x.dtype).unsqueeze(-3)
