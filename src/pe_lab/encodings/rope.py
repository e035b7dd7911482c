"""Rotary position embedding: queries and keys turned by their positions.

Su et al. 2021, RoFormer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.encodings.rotation import turn
from pe_lab.frequencies import as_inv_freq
from pe_lab.frequencies import inv_freq as make_inv_freq
from pe_lab.positions import as_positions
from pe_lab.tables import rope_table

_LAYOUTS = ("half", "interleaved")
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
    """
    refuse.one_of("layout", layout, _LAYOUTS)
    refuse.float_tensor("x", x, 4, "(batch, heads, length, head_dim)")
    cos, sin = _per_head(x, "cos", cos), _per_head(x, "sin", sin)
    if cos.shape[-1] != sin.shape[-1]:
        raise ValueError(
            f"cos and sin need the same number of pairs, got {cos.shape[-1]} and "
            f"{sin.shape[-1]}; rope_table makes both."
        )
    width = 2 * cos.shape[-1]
    wide = torch.promote_types(x.dtype, torch.promote_types(cos.dtype, torch.float32))
    turned = turn(x[..., :width], cos.to(wide), sin.to(wide), layout)
    rest = x[..., width:]
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


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


def convert_layout(
    weight: Tensor,
    num_heads: int,
    *,
    num_kv_heads: int | None = None,
    frm: str,
    to: str,
) -> Tensor:
    """The rows of a query or key projection, reordered for the other layout.

    With both projections converted, scores under the new layout are the scores under
    the old one. Converting one of the two, or the values, breaks a model.

    Args:
        weight: (num_heads · head_dim, …), a weight matrix or its bias.
        num_heads: H, of the projection's heads.
        num_kv_heads: of a key projection that has fewer heads than there are queries
            (grouped-query attention); its rows are then shared out among these.
        frm, to: "half" or "interleaved", as for `apply_rope`.

    Returns:
        a tensor of the same shape; converting back gives the one that was given.

    Raises:
        TypeError, ValueError: for an unknown layout, or rows that do not make heads of
            an even width.
    Source: the reordering that converts Meta's Llama weights for Hugging Face.
    """
    refuse.one_of("frm", frm, _LAYOUTS)
    refuse.one_of("to", to, _LAYOUTS)
    heads = refuse.whole("num_heads", num_heads)
    if num_kv_heads is not None:
        heads = refuse.whole("num_kv_heads", num_kv_heads)
        if num_heads % heads:
            raise ValueError(
                f"num_kv_heads needs a divisor of num_heads = {num_heads}, got {heads}."
            )
    rows = weight.shape[0] if isinstance(weight, Tensor) and weight.dim() else 0
    if rows == 0 or rows % (2 * heads):
        given = getattr(weight, "shape", type(weight).__name__)
        raise ValueError(
            f"weight needs {heads} heads of an even width along its first axis, got "
            f"{given}; a key projection of grouped-query attention needs num_kv_heads."
        )
    if frm == to:
        return weight
    pairs = rows // heads // 2
    shape = (heads, pairs, 2) if frm == "interleaved" else (heads, 2, pairs)
    return weight.unflatten(0, shape).transpose(1, 2).flatten(0, 2)


def _waves(inv_freq: Tensor, layout: str) -> tuple[Any, Any]:
    """Phases and frequencies, as NumPy arrays, whose sines are cos and (−sin, sin)."""
    axis = 0 if layout == "half" else 1
    turns = [
        torch.stack(p, dim=axis).flatten()
        for p in ((inv_freq,) * 2, (-inv_freq, inv_freq))
    ]
    phase = torch.zeros(2, turns[0].shape[0], dtype=torch.float64, device="cpu")
    phase[0] = math.pi / 2  # cos θ = sin(θ + π/2)
    return phase.flatten().numpy(), torch.cat(turns).numpy()


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

    Convention: angles are made in float64 and tables in float32 or wider on every
        call, from Python numbers that no cast can touch.
    Raises:
        ValueError: for odd widths, or tensors that do not fit.
    Source: Su et al. 2021.
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
        self.layout = refuse.one_of("layout", layout, _LAYOUTS)
        pairs = self.rotary_dim // 2
        inv_freq = make_inv_freq(self.rotary_dim, base=base, device="cpu")
        inv_freq = inv_freq if scaling is None else _scaled(inv_freq, scaling)
        self.gain = refuse.number("gain", gain)
        exact = as_inv_freq(inv_freq, pairs)
        # neither a buffer nor a tensor: no .to(), .half() or checkpoint can round it
        self._inv_freq = tuple(exact.tolist())
        self._waves = _waves(exact, layout)

    @property
    def inv_freq(self) -> Tensor:
        """(rotary_dim/2,) float64, in radians per position."""
        return torch.tensor(self._inv_freq, dtype=torch.float64)

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys turned by their own positions."""
        refuse.heads(q, k, q_pos, k_pos, head_dim=self.head_dim)
        heads = (q.shape[1], k.shape[1])
        few = q_pos is k_pos and q.numel() + k.numel() <= _FEW
        few = few and self.rotary_dim == self.head_dim and q.dtype != torch.float64
        if few and refuse.readable(q):
            both = self._turn_few(
                torch.cat((q, k), dim=1), as_positions(q_pos, q.device)
            )
            q, k = both.split_with_sizes(heads, dim=1)
            return q, k
        table = self._table(q, q_pos)
        turned = apply_rope(q, *table, layout=self.layout)
        if k_pos is not q_pos or k.dtype != q.dtype:
            table = self._table(k, k_pos)
        return turned, apply_rope(k, *table, layout=self.layout)

    def _table(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(x.dtype, torch.float32)
        inv_freq = self.inv_freq.to(x.device)
        cos, sin = rope_table(positions.to(x.device), inv_freq, dtype=wide)
        return (cos, sin) if self.gain == 1 else (cos * self.gain, sin * self.gain)

    def _turn_few(self, x: Tensor, positions: Tensor) -> Tensor:
        """x·cos + swapped·(−sin, sin), in as few calls as a step of decoding allows."""
        phase, frequency = map(torch.from_numpy, self._waves)
        if x.device.type != "cpu":
            phase, frequency = phase.to(x.device), frequency.to(x.device)
        if positions.dim() == 2:
            positions = positions.unsqueeze(1)
        waves = torch.addcmul(phase, positions.double().unsqueeze(-1), frequency)
        wide = torch.promote_types(x.dtype, torch.float32)
        waves = waves.sin().to(wide)
        if self.gain != 1:
            waves = waves * self.gain
        cos, sin = waves.chunk(2, dim=-1)
        if self.layout == "half":
            a, b = x.chunk(2, dim=-1)
            swapped = torch.cat((b, a), dim=-1)
        else:
            swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        turned = x * cos + swapped * sin
        return turned if x.dtype == wide else turned.to(x.dtype)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return (
            f"{self.head_dim}, base={self.base:g}, layout={self.layout!r}, "
            f"rotary_dim={self.rotary_dim}"
        )
