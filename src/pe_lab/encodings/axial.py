"""RoPE on more than one axis: grids (axial) and text with images (M-RoPE).

Ids have one number per axis in their last dimension: (L, axes) or (B, L, axes).
"""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding, in_full
from pe_lab.encodings.rope import apply_rope
from pe_lab.frequencies import inv_freq
from pe_lab.tables import rope_table


class AxialRoPE(PositionalEncoding):
    """Door 2: the channels shared out among the axes, each share turned by its axis.

    Args:
        head_dim: D, a multiple of 2 · axes.
        axes: how many numbers a place has; 2 for an image.
        base: of each axis' ladder, which has D/axes channels.
        layout: of the pairs within a share, as for `apply_rope`.

    Raises:
        ValueError: for a width that cannot be shared out, or ids without `axes`.
    Source: the two-axis rotary embedding of vision transformers; `positions.grid`
        makes its ids, row first.

    Example:
        >>> turn, x = pe_lab.AxialRoPE(8), torch.ones(1, 1, 2, 8, dtype=torch.float64)
        >>> cells = torch.tensor([[0, 0], [3, 1]])  # row and column
        >>> q, k = turn.rotate(x, x, cells, cells)
        >>> far_q, far_k = turn.rotate(x, x, cells + 50, cells + 50)
        >>> torch.allclose(q @ k.mT, far_q @ far_k.mT)
        True
    """

    def __init__(
        self,
        head_dim: int,
        *,
        axes: int = 2,
        base: float = 10000.0,
        layout: str = "half",
    ) -> None:
        super().__init__()
        self.axes = refuse.whole("axes", axes)
        self.head_dim = refuse.whole("head_dim", head_dim)
        if head_dim % (2 * axes):
            raise ValueError(
                f"head_dim needs a multiple of {2 * axes} for {axes} axes, got "
                f"{head_dim}."
            )
        self.base = refuse.frequency_base(base)
        self.layout = refuse.one_of("layout", layout, ("half", "interleaved"))

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys turned, share by share."""
        return self._turn("q", q, q_pos), self._turn("k", k, k_pos)

    def _turn(self, name: str, x: Tensor, positions: Tensor) -> Tensor:
        refuse.axis_ids(name, x, positions, self.head_dim, self.axes)
        share = self.head_dim // self.axes
        wide = torch.promote_types(x.dtype, torch.float32)
        frequencies = inv_freq(share, base=self.base, device=x.device)
        cos, sin = rope_table(positions.to(x.device), frequencies, dtype=wide)
        parts = [
            apply_rope(part, cos[..., a, :], sin[..., a, :], layout=self.layout)
            for a, part in enumerate(x.split(share, dim=-1))
        ]
        with in_full(x):  # autocast to bfloat16 joins no float16
            return torch.cat(parts, dim=-1)

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.head_dim}, axes={self.axes}, base={self.base:g}"


class MRoPE(PositionalEncoding):
    """Door 2: one ladder of frequencies, its pairs shared out among time, row, column.

    Args:
        head_dim: D, even.
        sections: pairs of each axis, adding up to D/2; Qwen2-VL has (16, 24, 24).
        base: of the one ladder.

    Raises:
        ValueError: for sections that do not add up, or ids without three numbers.
    Convention: "half" layout; text has the same number on all axes and is then turned
        as by `RoPE`.
    Source: Wang et al. 2024 (Qwen2-VL), section 2.1; `positions.mrope` makes its ids.

    Example:
        >>> x, text = torch.ones(1, 1, 3, 8, dtype=torch.float64), torch.arange(3)
        >>> ids, delta = pe_lab.positions.mrope([3])  # three tokens of text, no image
        >>> turned, _ = pe_lab.MRoPE(8, (2, 1, 1)).rotate(x, x, ids, ids)
        >>> torch.allclose(turned, pe_lab.RoPE(8).rotate(x, x, text, text)[0])
        True
    """

    def __init__(
        self, head_dim: int, sections: tuple[int, ...], *, base: float = 10000.0
    ) -> None:
        super().__init__()
        mend = "Channels turn in pairs; use an even width."
        self.head_dim = refuse.even("head_dim", head_dim, mend)
        given = refuse.listed("sections", sections, "whole numbers, one per axis")
        self.sections = tuple(refuse.whole("sections", n) for n in given)
        if sum(self.sections) != head_dim // 2:
            raise ValueError(
                f"sections need to add up to head_dim/2 = {head_dim // 2} pairs, got "
                f"{self.sections}."
            )
        self.base = refuse.frequency_base(base)

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys turned, each pair by the position on its own axis."""
        return self._turn("q", q, q_pos), self._turn("k", k, k_pos)

    def _turn(self, name: str, x: Tensor, positions: Tensor) -> Tensor:
        refuse.axis_ids(name, x, positions, self.head_dim, len(self.sections))
        wide = torch.promote_types(x.dtype, torch.float32)
        frequencies = inv_freq(self.head_dim, base=self.base, device=x.device)
        columns = []
        for axis, part in enumerate(frequencies.split(self.sections)):
            places = positions[..., axis].to(x.device)
            columns.append(rope_table(places, part, dtype=wide))
        cos, sin = (torch.cat(parts, dim=-1) for parts in zip(*columns, strict=True))
        return apply_rope(x, cos, sin, layout="half")

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        return f"{self.head_dim}, {self.sections}, base={self.base:g}"
