"""Untied positions: words score words, places score places (TUPE, Ke et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.positions import as_positions, table_rows


class TUPE(PositionalEncoding):
    """Doors 2 and 3: q·k/√(2D) + (p_m U_Q)·(p_n U_K)/√(2D), p a trained table.

    With `reset_cls` the scores from and to position 0, the [CLS] token, are two trained
    numbers per head instead: that token belongs to no place.

    Args:
        max_len: number of rows of the table.
        d_model, num_heads: sizes.
        reset_cls: untie position 0.

    Raises:
        IndexError: for a position without a row.
        ValueError: if num_heads does not divide d_model, or tensors do not fit.
    Convention: `rotate` divides queries by √2, so that both terms have one scale. The
        table is used after LayerNorm, as in the released code.
    Source: Ke et al. 2021, equations 7 to 10 (TUPE-A).

    Example:
        >>> tupe, x, ids = pe_lab.TUPE(9, 8, 2), torch.ones(1, 2, 4, 4), torch.arange(4)
        >>> tupe.bias(x, x, ids, ids)[0, 0, 0].tolist()  # from [CLS], before training
        [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(
        self, max_len: int, d_model: int, num_heads: int, *, reset_cls: bool = True
    ) -> None:
        super().__init__()
        self.max_len = refuse.whole("max_len", max_len)
        self.num_heads = refuse.whole("num_heads", num_heads)
        self.d_model = refuse.whole("d_model", d_model)
        if d_model % num_heads:
            raise ValueError(
                f"d_model needs a multiple of num_heads = {num_heads}, got {d_model}."
            )
        self.head_dim = d_model // num_heads
        self.table = nn.Parameter(torch.empty(max_len, d_model))
        self.norm = nn.LayerNorm(d_model)
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.reset_cls = refuse.flag("reset_cls", reset_cls)
        self.cls = nn.Parameter(torch.zeros(2, num_heads)) if reset_cls else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table from N(0, 0.02²) and the projections anew; [CLS] from 0."""
        nn.init.normal_(self.table, std=0.02)
        if self.cls is not None:
            nn.init.zeros_(self.cls)
        for module in (self.norm, self.w_q, self.w_k):
            module.reset_parameters()

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return (q/√2, k)."""
        return q * 2**-0.5, k

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """(B or 1, H, Lq, Lk)."""
        refuse.heads(
            q, k, q_pos, k_pos, num_heads=self.num_heads, head_dim=self.head_dim
        )
        home = self.table.device
        q_rows, k_rows = (
            torch.atleast_2d(table_rows(as_positions(positions, home), self.max_len))
            for positions in (q_pos, k_pos)
        )
        place_q = self._heads(self.w_q(self.norm(self.table[q_rows])))
        place_k = self._heads(self.w_k(self.norm(self.table[k_rows])))
        scores = place_q @ place_k.mT * (2 * self.head_dim) ** -0.5
        if self.cls is None:
            return scores
        out_of, into = self.cls[:, :, None, None]
        first_q, first_k = (q_rows == 0)[:, None, :, None], (k_rows == 0)[:, None, None]
        return torch.where(first_q, out_of, torch.where(first_k, into, scores))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.max_len}, {self.d_model}, {self.num_heads}"
