"""Position ids: which place each token holds. Every door takes these, never a length.

Left padding, packed documents, KV caches and slices of a long sequence are nothing but
ways to make ids; no other module knows about them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab import refuse

_EXACT = "float32 counts exactly up to 16777216, float16 to 2048, bfloat16 only to 256"


def as_positions(
    positions: int | Tensor, device: torch.device | str | None = None
) -> Tensor:
    """Position ids as a tensor: n means 0 … n−1, a tensor means itself.

    Args:
        positions: a count, or a tensor of finite positions of any shape. Whole
            numbers may have any integer dtype; fractional positions need float32
            or float64. Negative positions are places before the origin.
        device: where the result lives; by default where the tensor is, or the CPU.

    Returns:
        a tensor of int64 or of the floating dtype that was given.

    Raises:
        TypeError: for booleans, complex numbers, 16-bit floats, or no number at all.
        ValueError: for a negative count, or a NaN or infinite position.
    """
    if not isinstance(positions, Tensor):
        mend = "Pass a tensor of positions if you do not mean 0 … n−1."
        count = refuse.whole("positions", positions, 0, mend)
        return torch.arange(count, device=device)
    positions = positions.to(device=device) if device is not None else positions
    if positions.is_floating_point():
        return _finite(positions)
    if positions.dtype == torch.bool or positions.is_complex():
        raise TypeError(
            f"positions need whole or real numbers, got {positions.dtype}; for an "
            "attention mask use pe_lab.positions.from_mask(mask)."
        )
    return positions.long()


def _finite(positions: Tensor) -> Tensor:
    if positions.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"positions need an integer dtype, float32 or float64, got "
            f"{positions.dtype}: {_EXACT}. positions.long() mends ids that "
            "are still whole."
        )
    hidden = positions.is_meta or torch.compiler.is_compiling()
    if not hidden and not bool(positions.isfinite().all()):
        first = positions[~positions.isfinite()].flatten()[0].item()
        raise ValueError(
            f"positions need finite numbers, got {first}; look for a division by "
            "zero where they are made."
        )
    return positions


def table_rows(positions: Tensor, rows: int) -> Tensor:
    """The positions as indices into a table, if each has a row there.

    Raises:
        TypeError: if the positions are not whole numbers.
        IndexError: if a position is negative or past the last row.
    """
    if positions.is_floating_point():
        raise TypeError(
            f"a table of {rows} rows needs whole positions, got {positions.dtype}: "
            "there is no row between two rows. Use positions.long(), or resample "
            "the table."
        )
    if positions.numel() and not (positions.is_meta or torch.compiler.is_compiling()):
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high >= rows:
            worst = low if low < 0 else high
            raise IndexError(
                f"position {worst} has no row in a table of {rows} rows (0 … "
                f"{rows - 1}). Build the table longer, or resample it; clamping or "
                "wrapping would silently merge places."
            )
    return positions


def from_mask(mask: Tensor) -> Tensor:
    """Ids that count the real tokens of each row and ignore padding on either side.

    id[b, t] = (number of real tokens in row b up to and including t) − 1, at least 0.

    Args:
        mask: (B, L) boolean, or integers 0 and 1; true where a token is real.

    Returns:
        (B, L) int64. Padding repeats the id before it (0 at the start): it is the
        attention mask that hides padding, not the ids.

    Raises:
        TypeError, ValueError: if the mask is not a (B, L) mask.
    """
    if not isinstance(mask, Tensor) or mask.is_floating_point() or mask.is_complex():
        given = getattr(mask, "dtype", type(mask).__name__)
        raise TypeError(
            f"mask needs booleans or integers 0 and 1, got {given}; an additive "
            "float mask converts by mask == 0."
        )
    if mask.dim() != 2:
        raise ValueError(
            f"mask needs shape (batch, length), got {tuple(mask.shape)}; derive ids "
            "from the mask of tokens, not from an expanded attention mask."
        )
    if mask.dtype != torch.bool and bool(((mask != 0) & (mask != 1)).any()):
        raise ValueError("mask needs only 0 and 1; other integers were given.")
    return (mask.long().cumsum(dim=-1) - 1).clamp(min=0)


def packed(lengths: list[int] | Tensor) -> tuple[Tensor, Tensor]:
    """Ids and attention mask of several documents laid end to end in one row.

    Args:
        lengths: the documents' lengths, each at least 1, in order.

    Returns:
        ids (L,) int64 that start at 0 in each document, and a mask (L, L) boolean,
        true where two tokens belong to the same document. Both are needed: ids
        alone do not stop a document from reading its neighbour.

    Raises:
        TypeError, ValueError: if a length is not a whole number of at least 1.
    """
    sizes = [refuse.whole("lengths", n) for n in _as_list(lengths)]
    if not sizes:
        return torch.zeros(0, dtype=torch.long), torch.zeros(0, 0, dtype=torch.bool)
    ids = torch.cat([torch.arange(n) for n in sizes])
    document = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return ids, document[:, None] == document[None, :]


def _as_list(lengths: Any) -> list[Any]:
    if isinstance(lengths, Tensor) and lengths.dim() == 1:
        return lengths.tolist()
    if not isinstance(lengths, list | tuple):
        raise TypeError(
            f"lengths needs a list of whole numbers, one per document, got "
            f"{lengths!r:.80}."
        )
    return list(lengths)


def causal(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Mask of who may look at whom by position: key n is visible from m iff n ≤ m.

    `attention(causal=True)` goes by the order of the tensors; this goes by the ids,
    for permuted tokens and for slices of a sequence in any order.

    Args:
        q_pos, k_pos: (Lq,) and (Lk,), or (B, Lq) and (B, Lk).

    Returns:
        (Lq, Lk) or (B, 1, Lq, Lk) boolean.
    """
    return pairwise_offsets(q_pos, k_pos) >= 0


def pairwise_offsets(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Δ = m − n for every query and key: (Lq, Lk), or (B, 1, Lq, Lk) for rows of ids.

    Positive offsets look back. The extra axis is the one of the heads.
    """
    for name, value in (("q_pos", q_pos), ("k_pos", k_pos)):
        refuse.id_rows(name, value)
    rows = {value.shape[0] for value in (q_pos, k_pos) if value.dim() == 2}
    if len(rows - {1}) > 1:
        raise ValueError(
            f"q_pos and k_pos need the same number of rows, got {tuple(q_pos.shape)} "
            f"and {tuple(k_pos.shape)}."
        )
    offsets = q_pos[..., :, None] - k_pos[..., None, :]
    return offsets if offsets.dim() == 2 else offsets[:, None]
