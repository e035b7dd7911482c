"""Sinusoids on more than one axis: images, videos, volumes.

Each axis has a share of the channels, with the code of Vaswani et al. 2017 of the
position along it; the shares stand side by side (Carion et al. 2020, DETR).
"""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.encodings.sinusoidal import ORDERS, sinusoidal
from pe_lab.frequencies import as_inv_freq
from pe_lab.frequencies import inv_freq as make_inv_freq


def axial_sinusoidal(
    positions: Tensor,
    d_model: int,
    *,
    base: float = 10000.0,
    order: str = "interleaved",
    inv_freq: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """The codes of a place on every axis, side by side: [PE(p_1), PE(p_2), …].

    Of d channels each of n axes has s = 2·⌈d/2n⌉ with frequencies base^(−2i/s), the
    last axis what is left, from the fastest frequency on.

    Args:
        positions: (…, axes) finite real numbers; `positions.grid` makes those of an
            image, row first. Whole cells, or fractions of any extent.
        d_model: number of channels.
        base: wavelengths of every axis run from 2π towards 2π·base.
        order: of the sines and cosines within a share, as for `sinusoidal`.
        inv_freq: other frequencies, (⌈s/2⌉,) radians per position, for every axis.
        dtype, device: as for `sinusoidal`.

    Returns:
        (…, d_model). Entries are as exact as those of `sinusoidal`.

    Raises:
        TypeError, ValueError: as for `sinusoidal`; ValueError for a width that would
            leave the last axis without a channel.
    Convention: the first axis has the first channels. ViT-MAE stores the column's
        share first: give it `positions.flip(-1)` and order="halves".
    Source: Carion et al. 2020 (DETR); the sharing of odd widths is that of the package
        positional-encodings.

    Example:
        >>> cells = pe_lab.positions.grid(2, 3)
        >>> pe_lab.axial_sinusoidal(cells, 4)[:, 1].tolist()[:3]  # cos(row) of row 0
        [1.0, 1.0, 1.0]
        >>> pe_lab.axial_sinusoidal(cells, 4)[:, 2]  # sin(column)
        tensor([0.0000, 0.8415, 0.9093, 0.0000, 0.8415, 0.9093])
    """
    if not isinstance(positions, Tensor) or positions.dim() == 0:
        raise TypeError(
            f"positions need a tensor (…, axes), got {positions!r:.80}; "
            "pe_lab.positions.grid(height, width) makes ids of an image."
        )
    widths = _shares(d_model, positions.shape[-1])
    ladder = _ladder(widths[0], base, inv_freq)
    codes = [
        sinusoidal(
            positions[..., axis],
            width,
            order=order,
            inv_freq=ladder[: (width + 1) // 2],
            dtype=dtype,
            device=device,
        )
        for axis, width in enumerate(widths)
    ]
    return torch.cat(codes, dim=-1)


def _shares(d_model: int, axes: int) -> list[int]:
    """The number of channels of each axis."""
    d_model, axes = refuse.whole("d_model", d_model), refuse.whole("axes", axes)
    share = 2 * -(-d_model // (2 * axes))
    rest = d_model - (axes - 1) * share
    if rest < 1:
        raise ValueError(
            f"d_model needs a channel for each of {axes} axes, got {d_model}, which in "
            f"shares of {share} leaves the last none; use a multiple of {2 * axes}, "
            f"such as {axes * share}."
        )
    return [share] * (axes - 1) + [rest]


def _ladder(width: int, base: float, inv_freq: Tensor | None) -> Tensor:
    """The frequencies of a whole share."""
    if inv_freq is None:
        return make_inv_freq(width, base=base, device="cpu")
    return as_inv_freq(inv_freq, (width + 1) // 2)


class AxialSinusoidal(PositionalEncoding):
    """Door 1: x + scale · [PE(p_1), PE(p_2), …], ids with one number per axis.

    Args:
        d_model: width of the embeddings.
        axes: how many numbers a place has; 2 for an image, 3 for a video.
        base, order, inv_freq: as for `axial_sinusoidal`.
        scale: a factor on the table.

    Convention: ids are (L, axes) or (B, L, axes), in whole cells or fractions; the
        table is added in float32 or wider and rounded once, as by `Sinusoidal`.
    Raises:
        TypeError, ValueError: as for `axial_sinusoidal`, or for ids without `axes`.
    Source: as for `axial_sinusoidal`.

    Example:
        >>> code = pe_lab.AxialSinusoidal(8, axes=2)
        >>> image = torch.zeros(1, 6, 8)  # 2 rows of 3 patches
        >>> code.embed(image, pe_lab.positions.grid(2, 3)).shape
        torch.Size([1, 6, 8])
    """

    def __init__(
        self,
        d_model: int,
        *,
        axes: int = 2,
        base: float = 10000.0,
        order: str = "interleaved",
        inv_freq: Tensor | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.axes = refuse.whole("axes", axes)
        self.d_model = refuse.whole("d_model", d_model)
        self.order = refuse.one_of("order", order, ORDERS)
        self.base = refuse.frequency_base(base)
        self.scale = refuse.number("scale", scale)
        share = _shares(self.d_model, self.axes)[0]
        # a plain tuple: no .to(), .half() or checkpoint can round it
        self._inv_freq = tuple(_ladder(share, base, inv_freq).tolist())

    @property
    def inv_freq(self) -> Tensor:
        """(⌈s/2⌉,) float64, in radians per position, of every axis."""
        return torch.tensor(self._inv_freq, dtype=torch.float64, device="cpu")

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x + scale · PE(positions), in x's dtype."""
        refuse.embeddings(x, positions, self.d_model, self.axes)
        wide = torch.promote_types(x.dtype, torch.float32)
        table = axial_sinusoidal(
            positions.to(x.device),
            self.d_model,
            order=self.order,
            inv_freq=self.inv_freq,
            dtype=wide,
        )
        return (x.to(wide) + self.scale * table).to(x.dtype)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.d_model}, axes={self.axes}, order={self.order!r}"
