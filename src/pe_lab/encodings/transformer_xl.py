"""Relative scores from a sinusoid of the offset (Dai et al. 2019; also XLNet)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding, in_full
from pe_lab.frequencies import inv_freq
from pe_lab.tables import rope_table


class TransformerXL(PositionalEncoding):
    """Door 3: (u·k_n + (q_m + v)·W r(m − n)) / √D, r the sinusoid of the offset.

    Args:
        num_heads, head_dim: H and D; the sinusoid has H·D channels, sines first.
        base: of the sinusoid.

    Raises:
        ValueError: if H·D is odd, or tensors do not fit.
    Convention: offsets of both signs are meant, so no shift trick and no mask is
        needed, and any real positions will do.
    Source: Dai et al. 2019, section 3.3. By angle addition, a·sin Δω + b·cos Δω =
        (a sin mω + b cos mω) cos nω + (b sin mω − a cos mω) sin nω: the score of all
        offsets is one product of a query-side and a key-side table.

    Example:
        >>> xl, ids = pe_lab.TransformerXL(2, 4).double(), torch.arange(3)
        >>> x = torch.ones(1, 2, 3, 4, dtype=torch.float64)
        >>> here, there = xl.bias(x, x, ids, ids), xl.bias(x, x, ids + 999, ids + 999)
        >>> torch.allclose(here, there)
        True
    """

    def __init__(self, num_heads: int, head_dim: int, *, base: float = 10000.0) -> None:
        super().__init__()
        self.num_heads = refuse.whole("num_heads", num_heads)
        self.head_dim = refuse.whole("head_dim", head_dim)
        mend = "num_heads · head_dim is the width of a sinusoid."
        self.d_model = refuse.even("d_model", num_heads * head_dim, mend)
        self.base = refuse.frequency_base(base)
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim, self.d_model))
        self.u = nn.Parameter(torch.empty(num_heads, 1, head_dim))
        self.v = nn.Parameter(torch.empty(num_heads, 1, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """W from N(0, 1/d_model); u and v from N(0, 0.02²)."""
        nn.init.normal_(self.weight, std=self.d_model**-0.5)
        nn.init.normal_(self.u, std=0.02)
        nn.init.normal_(self.v, std=0.02)

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """(B, H, Lq, Lk), float32 or wider."""
        refuse.heads(
            q, k, q_pos, k_pos, num_heads=self.num_heads, head_dim=self.head_dim
        )
        wide = torch.promote_types(q.dtype, torch.float32)
        weight, u, v = (p.to(wide) for p in (self.weight, self.u, self.v))
        q_cos, q_sin = self._table(q_pos.to(q.device), wide)
        k_cos, k_sin = self._table(k_pos.to(q.device), wide)
        with in_full(q):
            content = u @ k.to(wide).transpose(-2, -1)
            along_sine, along_cosine = ((q.to(wide) + v) @ weight).chunk(2, dim=-1)
            with_cosine = along_sine * q_sin + along_cosine * q_cos
            with_sine = along_cosine * q_sin - along_sine * q_cos
            position = with_cosine @ k_cos.mT + with_sine @ k_sin.mT
        return (content + position) * self.head_dim**-0.5

    def _table(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        frequencies = inv_freq(self.d_model, base=self.base, device=positions.device)
        cos, sin = rope_table(positions, frequencies, dtype=dtype)
        return cos.unsqueeze(-3), sin.unsqueeze(-3)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.num_heads}, {self.head_dim}, base={self.base:g}"
