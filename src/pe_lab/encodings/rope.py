"""Rotary position embedding: queries and keys turned by their positions.

Su et al. 2021, RoFormer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.frequencies import as_inv_freq
from pe_lab.frequencies import inv_freq as make_inv_freq
from pe_lab.tables import rope_table

_LAYOUTS = ("half", "interleaved")


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
    turned, rest = x[..., :width], x[..., width:]
    wide = torch.promote_types(x.dtype, torch.promote_types(cos.dtype, torch.float32))
    turned, cos, sin = turned.to(wide), cos.to(wide), sin.to(wide)
    if layout == "interleaved":
        points = torch.view_as_complex(turned.unflatten(-1, (-1, 2)).contiguous())
        result = torch.view_as_real(points * torch.complex(cos, sin)).flatten(-2)
    else:
        a, b = turned.chunk(2, dim=-1)
        result = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    result = result.to(x.dtype)
    return torch.cat((result, rest), dim=-1) if rest.shape[-1] else result


def _per_head(x: Tensor, name: str, table: Tensor) -> Tensor:
    """The table with an axis for the heads, if it fits x."""
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
    return table.unsqueeze(-3)


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
        if scaling is not None:
            if not callable(scaling):
                raise TypeError(
                    "scaling needs a function from inverse frequencies to inverse "
                    f"frequencies, got {scaling!r:.80}."
                )
            inv_freq = scaling(inv_freq)
        self.gain = refuse.number("gain", gain)
        self._inv_freq = tuple(as_inv_freq(inv_freq, pairs).tolist())

    @property
    def inv_freq(self) -> Tensor:
        """(rotary_dim/2,) float64, in radians per position."""
        return torch.tensor(self._inv_freq, dtype=torch.float64)

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys turned by their own positions."""
        refuse.heads(q, k, q_pos, k_pos, head_dim=self.head_dim)
        return self._turn(q, q_pos), self._turn(k, k_pos)

    def _turn(self, x: Tensor, positions: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        inv_freq = self.inv_freq.to(x.device)
        cos, sin = rope_table(positions.to(x.device), inv_freq, dtype=wide)
        if self.gain != 1:
            cos, sin = cos * self.gain, sin * self.gain
        return apply_rope(x, cos, sin, layout=self.layout)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return (
            f"{self.head_dim}, base={self.base:g}, layout={self.layout!r}, "
            f"rotary_dim={self.rotary_dim}"
        )
