"""Learned absolute positions: one trained row for each place (Gehring et al. 2017)."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.positions import as_positions, table_rows


def resample_rows(table: Tensor, rows: int, *, extra: int = 0) -> Tensor:
    """A table with another number of rows, by straight lines between neighbours.

    Row i of N new rows is read at place i·(n − 1)/(N − 1) of the n old ones, so first
    rows stay first and last ones last.

    Args:
        table: (extra + n, d_model), trained rows.
        rows: extra + N, of the result.
        extra: leading rows that belong to no place, such as [CLS]; they are kept.

    Returns:
        (rows, d_model) in the table's dtype; the arithmetic is float64, rounded once.
        Differentiable; the table is not changed.

    Raises:
        TypeError, ValueError: if there are not more rows than `extra`, before or after.
    Source: linear interpolation, as for feature maps (`align_corners=True` in torch).

    Example:
        >>> pe_lab.resample_rows(torch.tensor([[9.0], [0.0], [4.0]]), 4, extra=1)
        tensor([[9.],
                [0.],
                [2.],
                [4.]])
    """
    kept, places = _split(table, extra)
    count = refuse.whole("rows", rows, len(kept) + 1, f"{len(kept)} rows are extra.")
    new = F.interpolate(
        _wide(places).T[None], count - len(kept), mode="linear", align_corners=True
    )
    return torch.cat((kept, new[0].T.to(table.dtype)))


def resample_grid(
    table: Tensor, old: tuple[int, int], new: tuple[int, int], *, extra: int = 0
) -> Tensor:
    """A table of the cells of an image for another grid, by bicubic interpolation.

    Cells are areas and the image keeps its borders: cell i of N along an axis is read
    at place (i + ½)·n/N − ½ of the n old ones.

    Args:
        table: (extra + h·w, d_model), cells in raster order.
        old, new: (h, w) and (H, W), rows and columns; neither has to be square.
        extra: leading rows that belong to no cell, such as [CLS]; they are kept.

    Returns:
        (extra + H·W, d_model) in the table's dtype; the arithmetic is float64, rounded
        once. Differentiable; the table is not changed.

    Raises:
        TypeError, ValueError: if the table has not extra + h·w rows.
    Convention: cubic kernel with a = −¾, no smoothing when the grid gets smaller.
    Source: Dosovitskiy et al. 2021, section 3.2; ViT and DINOv2 in transformers.

    Example:
        >>> table = torch.randn(1 + 14 * 14, 768)  # ViT at 224 pixels
        >>> pe_lab.resample_grid(table, (14, 14), (24, 32), extra=1).shape
        torch.Size([769, 768])
    """
    kept, places = _split(table, extra)
    height, width = _extents("old", old)
    if len(places) != height * width:
        raise ValueError(
            f"table needs {len(kept)} + {height}·{width} rows for a grid of {height} "
            f"rows and {width} columns, got {len(table)}; leading rows without a cell "
            "are counted by extra."
        )
    image = _wide(places).T.reshape(1, -1, height, width)
    image = F.interpolate(image, _extents("new", new), mode="bicubic")
    return torch.cat((kept, image[0].flatten(1).T.to(table.dtype)))


def _split(table: Tensor, extra: int) -> tuple[Tensor, Tensor]:
    """The extra rows, and at least one that has a place."""
    refuse.float_tensor("table", table, 2, "(rows, d_model)")
    extra = refuse.whole("extra", extra, 0)
    if len(table) <= extra or not table.shape[1]:
        raise ValueError(
            f"table needs channels and more rows than extra = {extra}, got shape "
            f"{tuple(table.shape)}."
        )
    return table[:extra], table[extra:]


def _wide(table: Tensor) -> Tensor:
    # mps has no float64
    return table.float() if table.device.type == "mps" else table.double()


def _extents(name: str, size: tuple[int, int]) -> tuple[int, int]:
    given = refuse.listed(name, size, "two numbers, rows and columns")
    if len(given) != 2:
        raise ValueError(f"{name} needs two numbers, rows and columns, got {given}.")
    height, width = (refuse.whole(name, n) for n in given)
    return height, width


class Learned(PositionalEncoding):
    """Door 1: x + T[positions + offset], T a trained (max_len + offset, d_model) table.

    Args:
        max_len: positions 0 … max_len−1 have a row, later ones none.
        d_model: width of the embeddings.
        offset: rows below that of position 0. Some families reserve them: 2 for OPT
            and BART, padding_idx + 1 for RoBERTa, whose 512 positions make 514 rows.
        std: standard deviation of the normal initialisation.

    Raises:
        IndexError: from `embed`, for a position that has no row.
        TypeError: for fractional positions.
        ValueError: if x is not (B, L, d_model).
    Convention: the reserved rows are those of positions −offset … −1. OPT and RoBERTa
        read position −1 at padding, `from_mask(mask).masked_fill(mask == 0, -1)` here;
        any other id serves as well, since attention does not look there.
    Source: Gehring et al. 2017, section 3.1; Devlin et al. 2019 (std 0.02).

    Example:
        >>> roberta = pe_lab.Learned(512, 768, offset=2)
        >>> roberta.weight.shape
        torch.Size([514, 768])
        >>> roberta.resize(1024).weight.shape
        torch.Size([1026, 768])
    """

    def __init__(
        self, max_len: int, d_model: int, *, offset: int = 0, std: float = 0.02
    ) -> None:
        super().__init__()
        self.max_len = refuse.whole("max_len", max_len)
        self.d_model = refuse.whole("d_model", d_model)
        self.offset = refuse.whole("offset", offset, 0)
        self.std = refuse.number("std", std, 0)
        self.weight = nn.Parameter(torch.empty(self.max_len + offset, self.d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every row anew from N(0, std²)."""
        nn.init.normal_(self.weight, std=self.std)

    def table(self, positions: int | Tensor) -> Tensor:
        """The rows of positions.

        Args:
            positions: n meaning 0 … n−1, or whole numbers of any shape.

        Returns:
            (…, d_model), in the table's dtype.
        """
        places = as_positions(positions, self.weight.device)
        return self.weight[table_rows(places, len(self.weight), offset=self.offset)]

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x + T[positions + offset], in x's dtype."""
        refuse.embeddings(x, positions, self.d_model)
        return (x + self.table(positions)).to(x.dtype)

    def resize(
        self, max_len: int, *, generator: torch.Generator | None = None
    ) -> Learned:
        """A copy with other positions: rows that exist are kept, the rest drawn anew.

        Args:
            max_len: positions of the copy; fewer than here cuts the last rows off.
            generator: of the new rows, which are drawn from N(0, std²).

        Returns:
            a module of its own; this one is not changed.

        Raises:
            TypeError, ValueError: if max_len is not a whole number of at least 1.
        """
        max_len = refuse.whole("max_len", max_len)
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TypeError(
                f"generator needs a torch.Generator, got {generator!r:.80}; leave it "
                "out to draw as everything else does."
            )
        old = self.weight.detach()[: max_len + self.offset]
        home = old.device if generator is None else generator.device
        new = torch.empty(max_len + self.offset - len(old), self.d_model, device=home)
        new.normal_(std=self.std, generator=generator)
        return self._with_rows(torch.cat((old, new.to(old))))

    def resample(self, max_len: int, *, extra: int = 0) -> Learned:
        """A copy with `resample_rows` of the table; reserved rows are kept.

        Args:
            max_len: positions of the copy, the extra ones included.
            extra: leading positions that are kept, as for `resample_rows`.

        Returns:
            a module of its own; this one is not changed.

        Raises:
            TypeError, ValueError: as for `resample_rows`.
        """
        kept = self.offset + refuse.whole("extra", extra, 0)
        rows = self.offset + refuse.whole("max_len", max_len)
        return self._with_rows(resample_rows(self.weight.detach(), rows, extra=kept))

    def resample_grid(
        self, old: tuple[int, int], new: tuple[int, int], *, extra: int = 0
    ) -> Learned:
        """A copy with `resample_grid` of the table; reserved rows are kept.

        Args:
            old, new, extra: as for the function; `extra` is 1 for a ViT with [CLS].

        Returns:
            a module of its own; this one is not changed.

        Raises:
            TypeError, ValueError: as for the function.
        """
        kept = self.offset + refuse.whole("extra", extra, 0)
        rows = resample_grid(self.weight.detach(), old, new, extra=kept)
        return self._with_rows(rows)

    def _with_rows(self, rows: Tensor) -> Learned:
        other = copy.deepcopy(self)
        other.weight = nn.Parameter(rows, self.weight.requires_grad)
        other.max_len = len(rows) - self.offset
        return other

    def extra_repr(self) -> str:
        """The settings that differ between two instances."""
        family = f", offset={self.offset}" if self.offset else ""
        return f"{self.max_len}, {self.d_model}{family}"
