"""Sinusoidal position encoding, its rotation matrix and its kernel.

Vaswani et al. 2017, section 3.5.
"""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.frequencies import as_inv_freq
from pe_lab.frequencies import inv_freq as make_inv_freq
from pe_lab.positions import as_positions
from pe_lab.tables import unit_circle

ORDERS = ("interleaved", "halves")
_EVEN = "A last sine without its cosine cannot be turned; use an even width."


def sinusoidal(
    positions: int | Tensor,
    d_model: int,
    *,
    base: float = 10000.0,
    order: str = "interleaved",
    inv_freq: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """The table PE[p, 2i] = sin(p·ω_i), PE[p, 2i+1] = cos(p·ω_i), ω_i = base^(−2i/d).

    Args:
        positions: n meaning 0 … n−1, or a tensor of finite real positions, any shape.
        d_model: number of channels; an odd width ends in a sine.
        base: wavelengths run from 2π towards 2π·base positions.
        order: "interleaved" (sin, cos, sin, cos, …) or "halves" (all the sines, then
            all the cosines). Checkpoints of one order do not fit the other.
        inv_freq: other frequencies, (⌈d_model/2⌉,) radians per position; `base` is
            then not used.
        dtype: of the result; the arithmetic is float64, rounded once.
        device: of the result; by default that of the positions.

    Returns:
        (…, d_model). Each entry of a float32 table is within 3.3e-8 of the exact
        value at integer positions up to 1e7.

    Raises:
        TypeError, ValueError: for a width below 1, a base not above 1, an unknown
            order, positions that are not finite real numbers, or a non-float dtype.
    Source: Vaswani et al. 2017, section 3.5.

    Example:
        >>> pe_lab.sinusoidal(3, 4)
        tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
                [ 0.8415,  0.5403,  0.0100,  0.9999],
                [ 0.9093, -0.4161,  0.0200,  0.9998]])
    """
    d_model = refuse.whole("d_model", d_model)
    refuse.one_of("order", order, ORDERS)
    pairs = (d_model + 1) // 2
    if inv_freq is None:
        inv_freq = make_inv_freq(d_model, base=base, device="cpu")
    inv_freq = as_inv_freq(inv_freq, pairs)
    points = unit_circle(
        positions, inv_freq, sine_first=True, dtype=dtype, device=device
    )
    if order == "halves":
        points = points.transpose(-2, -1)
    return points.flatten(-2)[..., :d_model]


def rotation_matrix(
    offset: int | float | Tensor,
    d_model: int,
    *,
    base: float = 10000.0,
    order: str = "interleaved",
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The matrix M_k with PE(p + k) = M_k · PE(p) at every position p.

    Block-diagonal, one block [[cos kω, sin kω], [−sin kω, cos kω]] for each
    (sin, cos) pair. M_j M_k = M_{j+k}, M_k⁻¹ = M_kᵀ = M_{−k}, det M_k = 1.

    Args:
        offset: k, a finite real number of either sign, or a tensor of them.
        d_model: an even number of channels.
        base, order: as for `sinusoidal`.
        dtype: of the result; the arithmetic is float64.

    Returns:
        (…, d_model, d_model), acting on column vectors.

    Raises:
        TypeError, ValueError: for an odd width, or as for `sinusoidal`.
    Source: Vaswani et al. 2017, section 3.5, which states that it exists.

    Example:
        >>> table = pe_lab.sinusoidal(10, 8, dtype=torch.float64)
        >>> by_3 = pe_lab.rotation_matrix(3, 8)
        >>> torch.allclose(by_3 @ table[5], table[8])
        True
    """
    d_model = refuse.even("d_model", d_model, _EVEN)
    refuse.one_of("order", order, ORDERS)
    offsets = _as_offsets(offset)
    inv_freq = make_inv_freq(d_model, base=base)
    circle = unit_circle(offsets, inv_freq, dtype=refuse.float_dtype(dtype))
    cos, sin = circle[..., 0], circle[..., 1]
    channels = torch.arange(d_model, device=circle.device)
    halves = order == "halves"
    sines, cosines = channels.chunk(2) if halves else (channels[::2], channels[1::2])
    matrix = cos.new_zeros(*offsets.shape, d_model, d_model)
    matrix[..., sines, sines] = matrix[..., cosines, cosines] = cos
    matrix[..., sines, cosines] = sin
    matrix[..., cosines, sines] = -sin
    return matrix


def position_kernel(
    offset: int | float | Tensor, d_model: int, *, base: float = 10000.0
) -> Tensor:
    """K(Δ) = PE(p)·PE(p + Δ) = Σ_i cos(Δ·ω_i), whatever p is. K(0) = d_model/2.

    Args:
        offset: Δ, a finite real number of either sign, or a tensor of them.
        d_model: an even number of channels.
        base: as for `sinusoidal`.

    Returns:
        float64, of the offset's shape.

    Raises:
        TypeError, ValueError: for an odd width (the last sine has no cosine, and the
            product depends on p), or as for `sinusoidal`.
    Source: Vaswani et al. 2017, section 3.5, and the addition theorem.

    Example:
        >>> pe_lab.position_kernel(torch.tensor([-3, 0, 3]), 8)
        tensor([1.9649, 4.0000, 1.9649], dtype=torch.float64)
    """
    d_model = refuse.even("d_model", d_model, _EVEN)
    inv_freq = make_inv_freq(d_model, base=base)
    offsets = _as_offsets(offset)
    return unit_circle(offsets, inv_freq, dtype=torch.float64)[..., 0].sum(dim=-1)


def score_matrix(
    positions: int | Tensor, d_model: int, *, base: float = 10000.0
) -> Tensor:
    """The scores PE·PEᵀ of positions with each other: entry (m, n) is K(m − n).

    Args:
        positions: n meaning 0 … n−1, or a tensor (L,) of finite real positions.
        d_model: an even number of channels.
        base: as for `sinusoidal`.

    Returns:
        (L, L) float64, symmetric; constant along diagonals for consecutive positions.

    Raises:
        TypeError, ValueError: as for `position_kernel`, or if positions are not 1-D.
    Source: Vaswani et al. 2017, section 3.5, and the addition theorem.

    Example:
        >>> pe_lab.score_matrix(3, 8)
        tensor([[4.0000, 3.5353, 2.5637],
                [3.5353, 4.0000, 3.5353],
                [2.5637, 3.5353, 4.0000]], dtype=torch.float64)
    """
    refuse.even("d_model", d_model, _EVEN)
    ids = as_positions(positions)
    if ids.dim() != 1:
        raise ValueError(
            f"positions need one axis (L,), got shape {tuple(ids.shape)}; pass one "
            "row of a batch at a time."
        )
    table = sinusoidal(ids, d_model, base=base, dtype=torch.float64)
    return table @ table.T


def _as_offsets(offset: int | float | Tensor) -> Tensor:
    if isinstance(offset, Tensor):
        return as_positions(offset)
    if isinstance(offset, bool) or not isinstance(offset, Real):
        raise TypeError(
            f"offset needs a real number or a tensor of them, got {offset!r} "
            f"({type(offset).__name__})."
        )
    return as_positions(torch.tensor(float(offset), dtype=torch.float64))


class Sinusoidal(PositionalEncoding):
    """Door 1: x + scale · PE(positions).

    Args:
        d_model: width of the embeddings; odd widths end in a sine.
        base, order: as for `sinusoidal`.
        inv_freq: other frequencies, such as those of a rule of `pe_lab.scaling`.
        scale: a factor on the table; the embeddings are never scaled here, so the
            √d_model of Vaswani et al. stays with the embedding layer.

    Convention: the table is made in float64, added in float32 or wider, and the sum
        is rounded once to x's dtype. There is no table to outgrow.
    Raises:
        TypeError, ValueError: as for `sinusoidal`, or if x is not (B, L, d_model).
    Source: Vaswani et al. 2017, section 3.5.

    Example:
        >>> slow = pe_lab.scaling.linear(pe_lab.inv_freq(4), 2)
        >>> code = pe_lab.Sinusoidal(4, inv_freq=slow)  # position 2 is read as 1
        >>> code.embed(torch.zeros(1, 1, 4), torch.tensor([2]))
        tensor([[[0.8415, 0.5403, 0.0100, 0.9999]]])
    """

    def __init__(
        self,
        d_model: int,
        *,
        base: float = 10000.0,
        order: str = "interleaved",
        inv_freq: Tensor | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.d_model = refuse.whole("d_model", d_model)
        self.order = refuse.one_of("order", order, ORDERS)
        self.base = refuse.frequency_base(base)
        self.scale = refuse.number("scale", scale)
        if inv_freq is None:
            inv_freq = make_inv_freq(self.d_model, base=base, device="cpu")
        inv_freq = as_inv_freq(inv_freq, (self.d_model + 1) // 2)
        # a plain tuple: no .to(), .half() or checkpoint can round it
        self._inv_freq = tuple(inv_freq.tolist())

    @property
    def inv_freq(self) -> Tensor:
        """(⌈d_model/2⌉,) float64, in radians per position."""
        return torch.tensor(self._inv_freq, dtype=torch.float64, device="cpu")

    def table(self, positions: int | Tensor, dtype: torch.dtype) -> Tensor:
        """The rows that `embed` adds.

        Args:
            positions, dtype: as for `sinusoidal`.

        Returns:
            (…, d_model), times the scale.
        """
        return self.scale * sinusoidal(
            positions,
            self.d_model,
            order=self.order,
            inv_freq=self.inv_freq,
            dtype=dtype,
        )

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x + scale · PE(positions), in x's dtype."""
        refuse.embeddings(x, positions, self.d_model)
        wide = torch.promote_types(x.dtype, torch.float32)
        table = self.table(positions.to(x.device), wide)
        return (x.to(wide) + table).to(x.dtype)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.d_model}, base={self.base:g}, order={self.order!r}"
