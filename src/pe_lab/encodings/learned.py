"""Learned absolute positions: one trained row for each place (Gehring et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.positions import as_positions, table_rows


class Learned(PositionalEncoding):
    """Door 1: x + T[positions], T a trained (max_len, d_model) table.

    Args:
        max_len: number of rows; positions 0 … max_len−1 have one, others none.
        d_model: width of the embeddings.
        std: standard deviation of the normal initialisation.

    Raises:
        IndexError: from `embed`, for a position that has no row.
        TypeError: for fractional positions.
        ValueError: if x is not (B, L, d_model).
    Source: Gehring et al. 2017, section 3.1; Devlin et al. 2019 (std 0.02).
    """

    def __init__(self, max_len: int, d_model: int, *, std: float = 0.02) -> None:
        super().__init__()
        self.max_len = refuse.whole("max_len", max_len)
        self.d_model = refuse.whole("d_model", d_model)
        self.std = refuse.number("std", std, 0)
        self.weight = nn.Parameter(torch.empty(self.max_len, self.d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every row anew from N(0, std²)."""
        nn.init.normal_(self.weight, std=self.std)

    def table(self, positions: int | Tensor) -> Tensor:
        """The rows of these positions: (…, d_model), in the table's dtype."""
        rows = as_positions(positions, self.weight.device)
        return self.weight[table_rows(rows, self.max_len)]

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x + T[positions], in x's dtype."""
        refuse.embeddings(x, positions, self.d_model)
        return (x + self.table(positions)).to(x.dtype)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.max_len}, {self.d_model}"
