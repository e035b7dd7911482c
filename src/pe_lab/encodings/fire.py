"""A bias computed from the progress of a distance: FIRE (Li et al. 2024)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.positions import pairwise_offsets

_LEAST = 1e-6  # ψ of anything is 0 if c is, and 0/0 no progress


class Fire(PositionalEncoding):
    """Door 3: f(ψ(m − n) / ψ(max(L, m))), ψ(x) = ln(|c|·x + 1), f a small network.

    Args:
        num_heads: number of heads, H.
        width: of the hidden layer of f.
        c: initial curvature of ψ, trained.
        threshold: initial L; below it distances are not rescaled. Trained as a
            multiple of this number.

    Raises:
        ValueError: for other head counts or numbers that are not positive.
    Convention: m − n is taken without its sign, as in the paper's code; it is meant
        for causal attention.
    Source: Li et al. 2024, equation 4 and appendix.

    Example:
        >>> fire, x = pe_lab.Fire(2), torch.zeros(1, 2, 3, 4)
        >>> ids = torch.tensor([0, 10, 1_000_000])
        >>> bias = fire.bias(x, x, ids, ids)[0, 0]
        >>> bool((bias.diagonal() == bias[0, 0]).all())  # no distance is no progress
        True
    """

    def __init__(
        self,
        num_heads: int,
        *,
        width: int = 32,
        c: float = 0.1,
        threshold: float = 512.0,
    ) -> None:
        super().__init__()
        self.num_heads = refuse.whole("num_heads", num_heads)
        self.initial = (
            refuse.number("c", c, _LEAST),
            refuse.number("threshold", threshold, _LEAST),
        )
        self.net = nn.Sequential(
            nn.Linear(1, refuse.whole("width", width)),
            nn.ReLU(),
            nn.Linear(width, self.num_heads),
        )
        self.c = nn.Parameter(torch.empty(()))
        self.multiplier = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """c and the multiple of L to their first values, the network anew."""
        nn.init.constant_(self.c, self.initial[0])
        nn.init.ones_(self.multiplier)
        for layer in self.net:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """(B or 1, H, Lq, Lk), in the parameters' dtype, or in that of autocast."""
        refuse.heads(q, k, q_pos, k_pos, num_heads=self.num_heads)
        # positions need float32: float16 ends at 65504
        c = self.c.to(torch.promote_types(self.c.dtype, torch.float32)).abs()
        distance = pairwise_offsets(q_pos, k_pos)[:, 0].abs().to(c)
        threshold = (self.multiplier.to(c) * self.initial[1]).abs()
        reach = torch.atleast_2d(torch.maximum(q_pos.to(c), threshold))[..., None]
        progress = torch.log1p(c * distance) / torch.log1p(c * reach)
        return self.net(progress[..., None].to(self.c)).permute(0, 3, 1, 2)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.num_heads}, threshold={self.initial[1]:g}"
