"""Attention with three doors, and nothing in it that knows a scheme by name.

Vaswani et al. 2017, section 3.2; the doors are those of `encodings.base`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.base import (
    NoPE,
    PositionalEncoding,
    autocasts,
    device_type,
    in_full,
)

_AXES = "(batch, heads, length, head_dim)"
_PLAIN = NoPE()


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = ..., causal: bool = ...,
    encoding: PositionalEncoding | None = ..., q_pos: Tensor | None = ...,
    k_pos: Tensor | None = ..., scale: float | None = ..., dropout: float = ...,
    return_weights: Literal[False] = ...,
) -> Tensor: ...  # fmt: skip


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = ..., causal: bool = ...,
    encoding: PositionalEncoding | None = ..., q_pos: Tensor | None = ...,
    k_pos: Tensor | None = ..., scale: float | None = ..., dropout: float = ...,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    encoding: PositionalEncoding | None = None,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale · q̂k̂ᵀ + bias) v, with q̂, k̂ and bias from the encoding's doors.

    Args:
        q: (B, H, Lq, D).
        k: (B, H, Lk, D).
        v: (B, H, Lk, Dv).
        mask: boolean, true where a query may look; broadcastable to (B, H, Lq, Lk).
        causal: hide later keys. Order is that of the tensors, the last query being on
            the last key (so a cache of Lk keys and one new query just works);
            `positions.causal(q_pos, k_pos)` makes a mask that goes by ids.
        encoding: its `rotate` and `bias` doors are used; `embed` belongs before.
        q_pos, k_pos: ids (L,) or (B, L). Without them tokens are counted from 0, the
            last query on the last key if causal; unmasked attention between different
            lengths has no such order, so an encoding then needs both.
        scale: of the scores; by default 1/√D.
        dropout: probability of dropping a weight; the rest are scaled up.
        return_weights: return (output, weights) instead of the output.

    Returns:
        (B, H, Lq, Dv) in q's dtype, and weights (B, H, Lq, Lk) if asked for. A query
        that may look nowhere gets zero weights and a zero output. Half precision is
        computed in float32 when weights are returned.

    Raises:
        TypeError, ValueError: if shapes, dtypes or the mask do not fit.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    Example:
        >>> x = torch.zeros(1, 1, 2, 4)
        >>> v = torch.tensor([[[[2.0], [4.0]]]])
        >>> pe_lab.attention(x, x, v, causal=True).flatten()  # the mean of what is seen
        tensor([2., 3.])
        >>> pe_lab.attention(x, x, v, mask=torch.zeros(2, 2).bool()).flatten()
        tensor([0., 0.])
    """
    _refuse(q, k, v)
    if scale is not None:
        scale = refuse.number("scale", scale)
    dropout = refuse.number("dropout", dropout, 0, 1)
    _refuse_order(mask, causal, q, k)
    lengths = (q.shape[2], k.shape[2])
    if encoding is None:
        encoding, q_pos, k_pos = _PLAIN, *map(torch.arange, lengths)
    else:
        refuse.doors(encoding)
        q_pos, k_pos = _default_ids(q_pos, k_pos, lengths, causal, q.device)
        q, k = encoding.rotate(q, k, q_pos, k_pos)
    doors = _Doors(encoding, q_pos, k_pos)
    ordered = causal if q.shape[2] != 1 else False  # a single query sees every key
    # a fused causal kernel multiplies its −∞ by the scale, so it must be above 0
    causal_kernel = q.shape[2] == k.shape[2] and (scale is None or scale > 0)
    aligned = mask is None and (not ordered or causal_kernel)
    if aligned and not (return_weights or doors.reads):
        out = _without_square(q, k, v, ordered, doors, scale, dropout)
        if out is not None:
            return out
    visible = _visible(mask, ordered, q, k)
    out, weights = _attend(q, k, v, visible, doors, scale, dropout, return_weights)
    return out if weights is None else (out, weights)


@dataclass(frozen=True)
class _Doors:
    """A scheme and the ids that its third door is asked for."""

    encoding: PositionalEncoding
    q_pos: Tensor
    k_pos: Tensor

    @property
    def reads(self) -> bool:
        return type(self.encoding).read is not PositionalEncoding.read

    @property
    def biases(self) -> bool:
        return type(self.encoding).bias is not PositionalEncoding.bias


def _without_square(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    doors: _Doors,
    scale: float | None,
    dropout: float,
) -> Tensor | None:
    """Attention without a tensor of Lq·Lk numbers; None if the bias needs one."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    width, dtype = v.shape[-1], q.dtype
    if doors.biases:
        extra = doors.encoding.channels(
            q, k, doors.q_pos, doors.k_pos, scale=scale, dtype=_product_dtype(q)
        )
        if extra is None:
            return None
        if width == q.shape[-1]:  # fused kernels want all widths alike
            v = F.pad(v, (0, extra[0].shape[-1]))
        q, k = (_before(e, t) for e, t in zip(extra, (q, k), strict=True))
    out = F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, dropout_p=dropout, scale=scale
    )
    return out[..., :width].to(dtype)  # autocast would change it


def _before(extra: Tensor, x: Tensor) -> Tensor:
    """The channels of x, after those that every batch row or head may share."""
    extra = extra.to(x.device, x.dtype).expand(*x.shape[:3], -1)
    with in_full(x):  # autocast refuses to put float16 side by side
        return torch.cat((extra, x), dim=-1)


def _product_dtype(x: Tensor) -> torch.dtype:
    """In which dtype a fused kernel will take x."""
    if x.dtype == torch.float32 and autocasts(x):
        return torch.get_autocast_dtype(device_type(x))
    return x.dtype


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor | None,
    doors: _Doors,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of queries and keys that are already rotated: output and weights."""
    bias = doors.encoding.bias(q, k, doors.q_pos, doors.k_pos)
    if not (return_weights or doors.reads):
        return _fused(q, k, v, visible, bias, scale, dropout), None
    out, weights = _by_formula(q, k, v, visible, bias, scale, dropout)
    if doors.reads:
        marked = doors.encoding.read(weights, doors.q_pos, doors.k_pos)
        out = out if marked is None else out + _as_wide_as(out, marked)
    return out.to(q.dtype), weights.to(q.dtype) if return_weights else None


def _as_wide_as(out: Tensor, marked: Tensor) -> Tensor:
    if marked.shape != out.shape:
        raise ValueError(
            f"v needs {marked.shape[-1]} channels, one for each of what the encoding "
            f"adds to values, got {out.shape[-1]}."
        )
    return marked


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    dropout: float,
) -> Tensor:
    extra = visible
    if bias is not None:
        extra = bias if visible is None else bias.masked_fill(~visible, -torch.inf)
        extra = _narrow(extra, q.dtype)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=extra, dropout_p=dropout, scale=scale
    )
    return out.to(q.dtype)  # autocast would change it


def _narrow(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias in another dtype; in 16 bits each row's largest term becomes 0.

    The softmax does not see the shift. Far from every key, 16 bits would otherwise
    round the differences away, or overflow to a row that looks nowhere.
    """
    if dtype in (torch.float16, torch.bfloat16) and bias.shape[-1] > 0:
        top = bias.detach().amax(dim=-1, keepdim=True)
        bias = bias - top.masked_fill(top.isinf(), 0.0)
    return bias.to(dtype)


def _by_formula(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    with in_full(q):
        scores = q.to(wide) @ k.to(wide).transpose(-2, -1) * scale
    if bias is not None:
        scores = scores + bias.to(wide)
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    weights = scores.softmax(dim=-1)
    if visible is not None:  # a row of −∞ has softmax NaN; it looks nowhere
        weights = weights.masked_fill(~visible, 0.0)
    weights = F.dropout(weights, dropout)
    with in_full(q):
        return weights @ v.to(wide), weights


def _visible(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor | None:
    """The boolean mask of both rules together, or None if every key is visible."""
    if not causal:
        return mask
    q_len, k_len = q.shape[2], k.shape[2]
    order = torch.ones(q_len, k_len, dtype=torch.bool, device=q.device)
    order = order.tril(k_len - q_len)
    return order if mask is None else mask & order


def _refuse_order(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> None:
    q_len, k_len = q.shape[2], k.shape[2]
    refuse.flag("causal", causal)
    if mask is not None:
        _refuse_mask(mask, (q.shape[0], q.shape[1], q_len, k_len))
    if causal and q_len > k_len:
        raise ValueError(
            f"causal attention needs a key for every query, got {q_len} queries and "
            f"{k_len} keys; pass the whole cache as k and v, or a mask instead."
        )


def _default_ids(
    q_pos: Tensor | None,
    k_pos: Tensor | None,
    lengths: tuple[int, int],
    causal: bool,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    q_len, k_len = lengths
    if (q_pos is None) != (k_pos is None) or (
        q_pos is None and q_len != k_len and not causal
    ):
        raise ValueError(
            f"an encoding needs q_pos and k_pos for {q_len} queries and {k_len} keys "
            "when they differ in number or one of the two is given; pass both, for "
            "example torch.arange(length)."
        )
    if q_pos is None or k_pos is None:
        k_pos = torch.arange(k_len, device=device)
        q_pos = k_pos if q_len == k_len else k_pos[k_len - q_len :]
    return q_pos, k_pos


def _refuse(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, value in (("q", q), ("k", k), ("v", v)):
        refuse.float_tensor(name, value, 4, _AXES)
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            f"q, k and v need one dtype, got {q.dtype}, {k.dtype} and {v.dtype}."
        )
    if not q.shape[:2] == k.shape[:2] == v.shape[:2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            "q, k and v need the same batch and heads, and q and k the same head_dim, "
            f"got {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}, read as {_AXES}"
            "."
        )
    if k.shape[2] != v.shape[2]:
        raise ValueError(
            f"each key needs its value, got {k.shape[2]} keys and {v.shape[2]} values."
        )


def _refuse_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        given = getattr(mask, "dtype", type(mask).__name__)
        raise TypeError(
            f"mask needs a boolean tensor, true where a query may look, got {given}; "
            "an additive mask converts by mask == 0, ones and zeros by mask.bool()."
        )
    try:
        fits = mask.dim() >= 2 and torch.broadcast_shapes(mask.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask needs a shape that broadcasts to (batch, heads, queries, keys) = "
            f"{shape}, got {tuple(mask.shape)}; a padding mask (batch, keys) becomes "
            "mask[:, None, None, :]."
        )


@dataclass(frozen=True)
class KeyValueCache:
    """Keys (rotated once), values, ids and padding of the tokens a layer has seen.

    Attributes:
        k, v: (B, H, L, D).
        positions: (B, L) ids, or (B, L, axes).
        visible: (B, L) boolean, false for padding.

    Convention: never changed in place; `MultiHeadAttention.extend` returns a longer
        one, and `cache + new` puts one after the other.

    Example:
        >>> model = pe_lab.Transformer(5, 8, 2, 1)
        >>> logits, (cache,) = model.extend(torch.tensor([[3, 1]]))
        >>> cache.k.shape, cache.positions
        (torch.Size([1, 2, 2, 4]), tensor([[0, 1]]))
    """

    k: Tensor
    v: Tensor
    positions: Tensor
    visible: Tensor

    def __add__(self, new: KeyValueCache) -> KeyValueCache:
        """This cache followed by the new tokens."""
        return KeyValueCache(
            torch.cat((self.k, new.k), dim=2),
            torch.cat((self.v, new.v), dim=2),
            torch.cat((self.positions, new.positions), dim=1),
            torch.cat((self.visible, new.visible), dim=1),
        )


class MultiHeadAttention(nn.Module):
    """Projections around `attention`: (B, L, d_model) to (B, L, d_model).

    Args:
        d_model: width, a multiple of num_heads.
        num_heads: number of heads, H.
        dropout: of the attention weights, in training.

    Convention: the encoding is an argument of each call, not a part of the module, so
        that layers can share one.
    Raises:
        ValueError: if num_heads does not divide d_model.
    Source: Vaswani et al. 2017, section 3.2.2.

    Example:
        >>> attend, order = pe_lab.MultiHeadAttention(8, 2).double(), [2, 0, 3, 1]
        >>> x = torch.randn(1, 4, 8, dtype=torch.float64)
        >>> for encoding in (pe_lab.NoPE(), pe_lab.RoPE(4)):  # is it blind to order?
        ...     y, z = (attend(v, encoding=encoding) for v in (x, x[:, order]))
        ...     print(torch.allclose(y[:, order], z), end=" ")
        True False
    """

    def __init__(self, d_model: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = refuse.whole("num_heads", num_heads)
        self.d_model = refuse.whole("d_model", d_model)
        if d_model % num_heads:
            raise ValueError(
                f"d_model needs a multiple of num_heads = {num_heads}, got {d_model}."
            )
        self.w_q, self.w_k, self.w_v, self.w_o = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )
        self.dropout = refuse.number("dropout", dropout, 0, 1)

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        encoding: PositionalEncoding | None = None,
        q_pos: Tensor | None = None,
        k_pos: Tensor | None = None,
    ) -> Tensor:
        """Attend from x (B, Lq, d_model) to source (B, Lk, d_model), by default x.

        Args: mask, causal, encoding, q_pos, k_pos as for `attention`.

        Returns:
            (B, Lq, d_model).
        """
        q, k, v = self._project(x, x if source is None else source)
        out = attention(
            q, k, v, mask=mask, causal=causal, encoding=encoding, q_pos=q_pos,
            k_pos=k_pos, dropout=self.dropout if self.training else 0.0,
        )  # fmt: skip
        return self.w_o(out.transpose(1, 2).flatten(2))

    def extend(
        self,
        x: Tensor,
        positions: Tensor,
        visible: Tensor,
        cache: KeyValueCache | None,
        encoding: PositionalEncoding,
    ) -> tuple[Tensor, KeyValueCache]:
        """Causal self-attention of new tokens over a cache and themselves.

        Args:
            x: (B, L, d_model), the new tokens only.
            positions: (B, L) ids.
            visible: (B, L) boolean, false for padding.
            cache: what came before, or None.
            encoding: the scheme; keys are rotated once, when they are new.

        Returns:
            (B, L, d_model) and the longer cache.
        """
        q, k, v = self._project(x, x)
        q, k = encoding.rotate(q, k, positions, positions)
        new = KeyValueCache(k, v, positions, visible)
        seen = new if cache is None else cache + new
        mask = _visible(seen.visible[:, None, None, :], True, q, seen.k)
        doors = _Doors(encoding, positions, seen.positions)
        out, _ = _attend(q, seen.k, seen.v, mask, doors)
        return self.w_o(out.transpose(1, 2).flatten(2)), seen

    def _project(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        for name, value in (("x", x), ("source", source)):
            refuse.float_tensor(name, value, 3, "(batch, length, d_model)")
            if value.shape[-1] != self.d_model or value.shape[0] != x.shape[0]:
                raise ValueError(
                    f"{name} needs shape ({x.shape[0]}, length, {self.d_model}), got "
                    f"{tuple(value.shape)}."
                )
        projected = (self.w_q(x), self.w_k(source), self.w_v(source))
        q, k, v = (
            t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in projected
        )
        return q, k, v
