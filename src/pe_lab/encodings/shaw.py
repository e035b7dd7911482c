"""Relative position vectors for keys and values (Shaw et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding, in_full
from pe_lab.positions import pairwise_offsets


class Shaw(PositionalEncoding):
    """Door 3, and the values: keys k_n + a^K[Δ], values v_n + a^V[Δ].

    Δ = n − m clipped to ±max_distance; row Δ + max_distance of each table, one pair of
    tables for all heads.

    Args:
        head_dim: D; the values' width must be the same.
        max_distance: where distances stop being told apart.
        values: whether values get vectors too.

    Raises:
        TypeError: for fractional positions.
        ValueError: for tensors of another width.
    Convention: a^K enters divided by √D, as `attention` divides q·k.
    Source: Shaw et al. 2018, equations 3 to 5.

    Example:
        >>> ids = torch.arange(6)
        >>> pe_lab.Shaw(8, 2).rows(ids, ids)[0, 0, 3]  # Δ = −3 … 2, clipped
        tensor([0, 0, 1, 2, 3, 4])
    """

    def __init__(
        self, head_dim: int, max_distance: int, *, values: bool = True
    ) -> None:
        super().__init__()
        self.head_dim = refuse.whole("head_dim", head_dim)
        self.max_distance = refuse.whole("max_distance", max_distance)
        rows = 2 * self.max_distance + 1
        self.keys = nn.Parameter(torch.empty(rows, self.head_dim))
        both = refuse.flag("values", values)
        self.values = nn.Parameter(torch.empty(rows, self.head_dim)) if both else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every vector anew from N(0, 1/D)."""
        for table in self.parameters():
            nn.init.normal_(table, std=self.head_dim**-0.5)

    def rows(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Row of the tables for each query and key: Δ clipped, from 0.

        Args:
            q_pos, k_pos: (Lq,) and (Lk,), or (B, Lq) and (B, Lk), whole numbers.

        Returns:
            (1 or B, 1, Lq, Lk) int64.

        Raises:
            TypeError: for fractional positions.
        """
        offsets = pairwise_offsets(q_pos, k_pos)
        if offsets.is_floating_point():
            raise TypeError(
                f"Shaw needs whole positions, got {offsets.dtype}: there is no vector "
                "between two distances."
            )
        return (-offsets).clamp(-self.max_distance, self.max_distance) + (
            self.max_distance
        )

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """q · a^K[Δ] / √D: (B, H, Lq, Lk)."""
        refuse.heads(q, k, q_pos, k_pos, head_dim=self.head_dim)
        # score every distance once, then pick: no (Lq, Lk, D) tensor
        wide = torch.promote_types(q.dtype, torch.float32)
        with in_full(q):
            scores = q.to(wide) @ self.keys.to(wide).T * self.head_dim**-0.5
        rows = self.rows(q_pos, k_pos).to(q.device)
        return scores.gather(-1, rows.expand(*q.shape[:3], k.shape[2]))

    def read(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Σ_n weights[m, n] · a^V[n − m]: (B, H, Lq, D), added to the output."""
        if self.values is None:
            return None
        rows = self.rows(q_pos, k_pos).to(weights.device).expand(weights.shape)
        mass = weights.new_zeros(*weights.shape[:-1], self.values.shape[0])
        with in_full(weights):
            return mass.scatter_add(-1, rows, weights) @ self.values.to(weights.dtype)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.head_dim}, {self.max_distance}, values={self.values is not None}"
