"""Rotary position embedding: queries and keys turned by their positions.

Su et al. 2021, RoFormer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_lab import hf_compat, refuse
from pe_lab.encodings.base import PositionalEncoding, autocasts, in_full
from pe_lab.encodings.layout import LAYOUTS
from pe_lab.encodings.rotation import few_waves, turn, turn_few
from pe_lab.frequencies import as_inv_freq
from pe_lab.frequencies import inv_freq as make_inv_freq
from pe_lab.positions import as_positions
from pe_lab.tables import rope_table

_FEW = 2**15  # numbers in q and k below which the calls cost more than the work


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, *, layout: str) -> Tensor:
    """Turn each pair (a, b) of channels to (a cos − b sin, a sin + b cos).

    Args:
        x: (B, H, L, D) queries or keys.
        cos, sin: (L, r/2) or (B, L, r/2) of `rope_table`; r ≤ D channels are turned,
            the first ones, and the rest pass unchanged.
        layout: "half" pairs channel i with i + r/2 (GPT-NeoX, Hugging Face Llama);
            "interleaved" pairs 2i with 2i + 1 (RoFormer, Meta Llama, GPT-J).

    Returns:
        (B, H, L, D) in x's dtype. The arithmetic is float32 or wider, rounded once;
        norms are kept.

    Raises:
        TypeError, ValueError: if the shapes do not fit, naming what does.
    Source: Su et al. 2021, equations 15 and 34.

    Example:
        >>> omega = torch.tensor([torch.pi / 2, torch.pi])  # a quarter and a half turn
        >>> cos, sin = pe_lab.rope_table(torch.tensor([1]), omega)
        >>> x = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
        >>> pe_lab.apply_rope(x, cos, sin, layout="interleaved").round().tolist()
        [[[[-2.0, 1.0, -3.0, -4.0]]]]
    """
    refuse.one_of("layout", layout, LAYOUTS)
    refuse.float_tensor("x", x, 4, "(batch, heads, length, head_dim)")
    cos, sin = _per_head(x, "cos", cos), _per_head(x, "sin", sin)
    if cos.shape[-1] != sin.shape[-1]:
        raise ValueError(
            f"cos and sin need the same number of pairs, got {cos.shape[-1]} and "
            f"{sin.shape[-1]}; rope_table makes both."
        )
    wide = torch.promote_types(x.dtype, torch.promote_types(cos.dtype, torch.float32))
    return _turn_first(x, cos.to(wide), sin.to(wide), layout)


def _turn_first(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """The first channels turned, as many as the table has; the rest as they are."""
    width = 2 * cos.shape[-1]
    turned = turn(x[..., :width], cos, sin, layout)
    rest = x[..., width:]
    if not rest.shape[-1]:
        return turned
    with in_full(x):  # autocast refuses to put float16 side by side
        return torch.cat((turned, rest), dim=-1)


def _per_head(x: Tensor, name: str, table: Tensor) -> Tensor:
    """The table as (1 or B, 1, L, pairs), if it fits x."""
    if not isinstance(table, Tensor) or not table.is_floating_point():
        raise TypeError(
            f"{name} needs a floating-point table, got "
            f"{getattr(table, 'dtype', type(table).__name__)}; rope_table makes one."
        )
    batch, _, length, head_dim = x.shape
    fits = table.dim() in (2, 3) and table.shape[-2] == length
    fits = fits and 2 * table.shape[-1] <= head_dim
    if not fits or (table.dim() == 3 and table.shape[0] not in (1, batch)):
        raise ValueError(
            f"{name} needs shape ({length}, pairs) or ({batch}, {length}, pairs) with "
            f"at most {head_dim // 2} pairs, got {tuple(table.shape)}; x is read as "
            f"(batch, heads, length, head_dim) = {tuple(x.shape)}, so if it came as "
            "(batch, length, heads, head_dim), transpose axes 1 and 2 first."
        )
    return table[None, None] if table.dim() == 2 else table.unsqueeze(1)


def _scaled(inv_freq: Tensor, scaling: Callable[[Tensor], Tensor]) -> Tensor:
    if not callable(scaling):
        raise TypeError(
            "scaling needs a function from inverse frequencies to inverse frequencies, "
            f"got {scaling!r:.80}."
        )
    return scaling(inv_freq)


class RoPE(PositionalEncoding):
    """Door 2: the score of m and n depends on m − n, because R_mᵀ R_n = R_{n−m}.

    Args:
        head_dim: channels of one head.
        base: wavelengths run from 2π towards 2π·base positions.
        layout: "half" or "interleaved", as for `apply_rope`.
        rotary_dim: how many of the first channels turn; by default all.
        scaling: from inverse frequencies to inverse frequencies, for example
            `lambda w: pe_lab.scaling.yarn(w, 4, original_length=4096)`.
        gain: factor on cos and sin, such as `scaling.yarn_gain(4)`; norms of queries
            and keys grow by it, scores by its square.
        compat: "hf" for the numbers of Hugging Face's transformers instead of the
            exact ones, bit for bit: frequencies, angles and the table in float32,
            products in x's dtype. `pe_lab.hf_compat` has its scaling rules.

    Convention: angles are made in float64 and tables in float32 or wider on every
        call, from Python numbers that no cast can touch; compat changes that.
    Raises:
        ValueError: for odd widths, or tensors that do not fit.
    Source: Su et al. 2021.

    Example:
        >>> rope, x = pe_lab.RoPE(64), torch.randn(2, 1, 1, 1, 64, dtype=torch.float64)
        >>> def score(m, n):
        ...     q, k = rope.rotate(*x, torch.tensor([m]), torch.tensor([n]))
        ...     return q @ k.mT
        >>> torch.allclose(score(7, 3), score(1_000_007, 1_000_003))
        True
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10000.0,
        layout: str = "half",
        rotary_dim: int | None = None,
        scaling: Callable[[Tensor], Tensor] | None = None,
        gain: float = 1.0,
        compat: str | None = None,
    ) -> None:
        super().__init__()
        mend = "Channels turn in pairs; use an even width."
        self.head_dim = refuse.whole("head_dim", head_dim)
        given = self.head_dim if rotary_dim is None else rotary_dim
        self.rotary_dim = refuse.even("rotary_dim", given, mend)
        if self.rotary_dim > self.head_dim:
            raise ValueError(
                f"rotary_dim needs at most head_dim = {self.head_dim} channels, got "
                f"{rotary_dim}."
            )
        self.base = refuse.frequency_base(base)
        self.layout = refuse.one_of("layout", layout, LAYOUTS)
        pairs = self.rotary_dim // 2
        if compat is None:
            inv_freq = make_inv_freq(self.rotary_dim, base=base, device="cpu")
        else:
            refuse.one_of("compat", compat, ("hf",))
            inv_freq = hf_compat.inv_freq(self.rotary_dim, base=base)
        inv_freq = inv_freq if scaling is None else _scaled(inv_freq, scaling)
        self.compat, self.gain = compat, refuse.number("gain", gain)
        exact = as_inv_freq(inv_freq, pairs)
        # neither a buffer nor a tensor: no .to(), .half() or checkpoint can round it
        self._inv_freq = tuple(exact.tolist())
        self._waves = few_waves(exact, self.gain, layout)

    @property
    def inv_freq(self) -> Tensor:
        """(rotary_dim/2,) float64, in radians per position."""
        return torch.tensor(self._inv_freq, dtype=torch.float64, device="cpu")

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys turned by their own positions."""
        refuse.heads(q, k, q_pos, k_pos, head_dim=self.head_dim)
        if q_pos is k_pos and q.dtype == k.dtype:
            if self._are_few(q, k):
                ids = as_positions(q_pos, q.device)
                both = turn_few(torch.cat((q, k), dim=1), ids, self._waves)
                turned_q, turned_k = both.split_with_sizes((q.shape[1], k.shape[1]), 1)
                return turned_q, turned_k
            table = self._table(q, q_pos)
            return self._turn(q, table), self._turn(k, table)
        return self._turn(q, self._table(q, q_pos)), self._turn(
            k, self._table(k, k_pos)
        )

    def _are_few(self, q: Tensor, k: Tensor) -> bool:
        if not refuse.readable(q) or autocasts(q):  # a tracer would keep the answer
            return False
        whole = self.rotary_dim == self.head_dim and self.compat is None
        return whole and q.dtype != torch.float64 and q.numel() + k.numel() <= _FEW

    def _table(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        positions, inv_freq = positions.to(x.device), self.inv_freq.to(x.device)
        if self.compat == "hf":
            return hf_compat.table(positions, inv_freq, self.gain, x.dtype)
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = rope_table(positions, inv_freq, dtype=wide)
        return (cos, sin) if self.gain == 1 else (cos * self.gain, sin * self.gain)

    def _turn(self, x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = (_per_head(x, "table", t) for t in table)
        return _turn_first(x, cos, sin, self.layout)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        compat = "" if self.compat is None else f", compat={self.compat!r}"
        return (
            f"{self.head_dim}, base={self.base:g}, layout={self.layout!r}, "
            f"rotary_dim={self.rotary_dim}{compat}"
        )
