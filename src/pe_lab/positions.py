"""Position ids: which place each token holds. Every door takes these, never a length.

Left padding, packed documents, KV caches and slices of a long sequence are nothing but
ways to make ids; no other module knows about them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lab import refuse

_SIDES = ("right", "left")
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

    Example:
        >>> pe_lab.positions.as_positions(3)
        tensor([0, 1, 2])
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
    if refuse.readable(positions) and not bool(positions.isfinite().all()):
        first = positions[~positions.isfinite()].flatten()[0].item()
        raise ValueError(
            f"positions need finite numbers, got {first}; look for a division by "
            "zero where they are made."
        )
    return positions


def table_rows(positions: int | Tensor, rows: int, *, offset: int = 0) -> Tensor:
    """The positions as indices into a table, if each has a row there.

    Args:
        positions: n meaning 0 … n−1, or a tensor of whole numbers of any shape.
        rows: of the table.
        offset: the row of position 0; positions from −offset on have one.

    Returns:
        positions + offset, int64.

    Raises:
        TypeError: if the positions are not whole numbers, or as for `as_positions`.
        IndexError: if a position is before the first row or past the last.

    Example:
        >>> pe_lab.positions.table_rows(torch.tensor([0, 9]), 12, offset=2)
        tensor([ 2, 11])
    """
    positions = as_positions(positions)
    rows, offset = refuse.whole("rows", rows), refuse.whole("offset", offset, 0)
    if positions.is_floating_point():
        raise TypeError(
            f"a table of {rows} rows needs whole positions, got {positions.dtype}: "
            "there is no row between two rows. Use positions.long(), or resample "
            "the table."
        )
    if positions.numel() and refuse.readable(positions):
        low, high = int(positions.min()), int(positions.max())
        if low < -offset or high >= rows - offset:
            worst = low if low < -offset else high
            raise IndexError(
                f"position {worst} has no row in a table of {rows} rows (positions "
                f"{-offset} … {rows - offset - 1}). Build the table longer, or "
                "resample it; clamping or wrapping would silently merge places."
            )
    return positions + offset if offset else positions


def from_mask(mask: Tensor) -> Tensor:
    """Ids that count the real tokens of each row and ignore padding on either side.

    id[b, t] = (number of real tokens in row b up to and including t) − 1, at least 0.

    Args:
        mask: (B, L) boolean, or integers 0 and 1; true where a token is real.

    Returns:
        (B, L) int64. Padding repeats the id before it (0 at the start): it is the
        attention mask that hides padding, not the ids. `.masked_fill(mask == 0, -1)`
        gives padding the id −1 of tables with reserved rows (`Learned(offset=…)`).

    Raises:
        TypeError, ValueError: if the mask is not a (B, L) mask.

    Example:
        >>> left_padded = torch.tensor([[0, 0, 1, 1, 1]])
        >>> pe_lab.positions.from_mask(left_padded)
        tensor([[0, 0, 0, 1, 2]])
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


def from_lengths(
    lengths: list[int] | Tensor, *, length: int | None = None, side: str = "right"
) -> tuple[Tensor, Tensor]:
    """Ids and padding mask of rows of several lengths in one batch.

    Args:
        lengths: (B,) real tokens of each row, at least 0.
        length: L of the batch; by default that of the longest row.
        side: "right" or "left", where the padding is.

    Returns:
        ids (B, L) int64 that start at 0 with each row's first real token, as from
        `from_mask`, and the mask (B, L) boolean, true where a token is real.

    Raises:
        TypeError, ValueError: if a length is not a whole number from 0 to L.

    Example:
        >>> ids, mask = pe_lab.positions.from_lengths([2, 4], side="left")
        >>> ids
        tensor([[0, 0, 0, 1],
                [0, 1, 2, 3]])
    """
    counts = _counts("lengths", lengths)
    longest = int(counts.max()) if len(counts) and refuse.readable(counts) else 0
    if length is None:
        length = longest
    mend = f"The longest row has {longest} tokens."
    length = refuse.whole("length", length, longest, mend)
    real = torch.arange(length, device=counts.device) < counts[:, None]
    mask = real.flip(-1) if refuse.one_of("side", side, _SIDES) == "left" else real
    return from_mask(mask), mask


def _counts(name: str, given: list[int] | Tensor) -> Tensor:
    """One whole number of at least 0 for each row: (B,) int64."""
    if not isinstance(given, Tensor):
        rows = refuse.listed(name, given, "whole numbers, one per row")
        return torch.tensor([refuse.whole(name, n, 0) for n in rows], dtype=torch.long)
    real = given.is_floating_point() or given.is_complex()
    if real or given.dtype == torch.bool or given.dim() != 1:
        raise TypeError(
            f"{name} needs whole numbers of shape (batch,), got {given.dtype} "
            f"{tuple(given.shape)}; mask.sum(-1) counts real tokens."
        )
    if refuse.readable(given) and bool((given < 0).any()):
        raise ValueError(
            f"{name} needs counts of at least 0, got {int(given.min())}; it is how "
            "many tokens there are, not an offset."
        )
    return given.long()


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

    Example:
        >>> ids, mask = pe_lab.positions.packed([3, 2])
        >>> ids
        tensor([0, 1, 2, 0, 1])
        >>> mask[3].int()  # the second document's first token
        tensor([0, 0, 0, 1, 1], dtype=torch.int32)
    """
    given = refuse.listed("lengths", lengths, "whole numbers, one per document")
    sizes = [refuse.whole("lengths", n) for n in given]
    if not sizes:
        return torch.zeros(0, dtype=torch.long), torch.zeros(0, 0, dtype=torch.bool)
    ids = torch.cat([torch.arange(n) for n in sizes])
    document = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return ids, document[:, None] == document[None, :]


def causal(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Mask of who may look at whom by position: key n is visible from m iff n ≤ m.

    `attention(causal=True)` goes by the order of the tensors; this goes by the ids,
    for permuted tokens and for slices of a sequence in any order.

    Args:
        q_pos, k_pos: (Lq,) and (Lk,), or (B, Lq) and (B, Lk).

    Returns:
        (Lq, Lk), or (B, 1, Lq, Lk) for rows of ids, boolean.

    Raises:
        TypeError, ValueError: as for `pairwise_offsets`.

    Example:
        >>> share = pe_lab.positions.zigzag(4, 1, 2)  # tokens 1 and 2 of 4
        >>> pe_lab.positions.causal(share, torch.arange(4)).int()
        tensor([[1, 1, 0, 0],
                [1, 1, 1, 0]], dtype=torch.int32)
    """
    visible = pairwise_offsets(q_pos, k_pos) >= 0
    return visible if q_pos.dim() == 2 or k_pos.dim() == 2 else visible[0, 0]


def pairwise_offsets(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Δ = m − n for every query and key, with an axis for the heads.

    Positive offsets look back. Whole numbers are subtracted in int64: in uint8, 0 − 1
    would be 255.

    Args:
        q_pos, k_pos: (Lq,) and (Lk,), or (B, Lq) and (B, Lk).

    Returns:
        (1 or B, 1, Lq, Lk) int64 or floating.

    Raises:
        TypeError, ValueError: as for `as_positions`, or if the shapes do not fit.

    Example:
        >>> ids = torch.arange(3)
        >>> pe_lab.positions.pairwise_offsets(ids, ids)[0, 0]
        tensor([[ 0, -1, -2],
                [ 1,  0, -1],
                [ 2,  1,  0]])
    """
    for name, value in (("q_pos", q_pos), ("k_pos", k_pos)):
        refuse.id_rows(name, value)
    rows = [value.shape[0] for value in (q_pos, k_pos) if value.dim() == 2]
    # a list, not a set: the open batch of an export cannot be hashed
    if len(rows) == 2 and rows[0] != rows[1] and 1 not in rows:
        raise ValueError(
            f"q_pos and k_pos need the same number of rows, got {tuple(q_pos.shape)} "
            f"and {tuple(k_pos.shape)}."
        )
    q_pos, k_pos = map(torch.atleast_2d, (as_positions(q_pos), as_positions(k_pos)))
    return q_pos[:, None, :, None] - k_pos[:, None, None, :]


def grid(*sizes: int) -> Tensor:
    """Ids of the cells of a grid in raster order, the last axis running fastest.

    Args:
        sizes: extent of each axis, slowest first: (height, width) for an image,
            (frames, height, width) for a video.

    Returns:
        (cells, axes) int64; of a 2 × 3 grid, rows 0 0 0 1 1 1 and columns 0 1 2 0 1 2.

    Raises:
        TypeError, ValueError: if a size is not a whole number, or none is given.

    Example:
        >>> pe_lab.positions.grid(2, 3).T
        tensor([[0, 0, 0, 1, 1, 1],
                [0, 1, 2, 0, 1, 2]])
    """
    extents = [refuse.whole("sizes", n, 0) for n in sizes]
    if not extents:
        raise ValueError("grid needs at least one size, such as grid(height, width).")
    return torch.cartesian_prod(*map(torch.arange, extents)).view(-1, len(extents))


def mrope(segments: list[int | tuple[int, int, int]]) -> tuple[Tensor, int]:
    """Ids on three axes (time, row, column) for text with images or videos.

    Text counts on all axes alike; the cells of an image share a time and count rows
    and columns from where the text stopped; what follows starts after the largest
    number so far.

    Args:
        segments: in order, n for n text tokens, or (frames, height, width) in tokens.

    Returns:
        ids (L, 3) int64, and the delta to add to a token's index to get its id while
        decoding: after [2, (1, 2, 2), 1] the next token, index 7, has id 7 − 2 = 5.

    Raises:
        TypeError, ValueError: for what is neither a count nor three counts.
    Source: Wang et al. 2024 (Qwen2-VL), section 2.1.

    Example:
        >>> ids, delta = pe_lab.positions.mrope([2, (1, 2, 2), 1])
        >>> ids.T, delta
        (tensor([[0, 1, 2, 2, 2, 2, 4],
                [0, 1, 2, 2, 3, 3, 4],
                [0, 1, 2, 3, 2, 3, 4]]), -2)
    """
    parts, start = [torch.zeros(0, 3, dtype=torch.long)], 0
    for segment in refuse.listed("segments", segments, "counts or three counts"):
        if isinstance(segment, tuple):
            if len(segment) != 3:
                raise ValueError(
                    f"segments need n or (frames, height, width), got {segment}."
                )
            part = grid(*segment)
        else:
            count = refuse.whole("segments", segment, 0)
            part = torch.arange(count)[:, None].expand(count, 3)
        parts.append(start + part)
        start += int(part.max()) + 1 if len(part) else 0
    ids = torch.cat(parts)
    return ids, start - len(ids)


def contiguous(length: int, rank: int, world_size: int) -> Tensor:
    """Ids of one process's share of a sequence, cut into consecutive pieces.

    The first length mod world_size processes have one token more than the others.

    Args:
        length: of the whole sequence.
        rank: from 0 to world_size − 1.
        world_size: number of processes.

    Returns:
        (⌊length / world_size⌋ or one more,) int64; all shares in order of rank are
        0 … length−1.

    Raises:
        TypeError, ValueError: if there is no such share.

    Example:
        >>> [pe_lab.positions.contiguous(7, rank, 3).tolist() for rank in range(3)]
        [[0, 1, 2], [3, 4], [5, 6]]
    """
    length, rank, world_size = _share(length, rank, world_size)
    return torch.arange(length).tensor_split(world_size)[rank]


def zigzag(length: int, rank: int, world_size: int) -> Tensor:
    """Ids of one process's share of a sequence, balanced for causal attention.

    The sequence is cut into 2·world_size pieces; process r takes pieces r and
    2·world_size − 1 − r, so that each has as many visible keys as any other.

    Args:
        length: of the whole sequence, a multiple of 2 · world_size.
        rank: r, from 0 to world_size − 1.
        world_size: number of processes.

    Returns:
        (length / world_size,) int64.

    Raises:
        TypeError, ValueError: if the sequence cannot be cut that way.

    Example:
        >>> pe_lab.positions.zigzag(8, 0, 2), pe_lab.positions.zigzag(8, 1, 2)
        (tensor([0, 1, 6, 7]), tensor([2, 3, 4, 5]))
    """
    length, rank, world_size = _share(length, rank, world_size)
    if length % (2 * world_size):
        raise ValueError(
            f"length needs a multiple of 2 · world_size = {2 * world_size}, got "
            f"{length}; pad the sequence."
        )
    pieces = torch.arange(length).view(2 * world_size, -1)
    return torch.cat((pieces[rank], pieces[2 * world_size - 1 - rank]))


def _share(length: int, rank: int, world_size: int) -> tuple[int, int, int]:
    world_size = refuse.whole("world_size", world_size)
    rank, length = refuse.whole("rank", rank, 0), refuse.whole("length", length, 0)
    if rank >= world_size:
        raise ValueError(
            f"rank needs a number from 0 to world_size − 1 = {world_size - 1}, got "
            f"{rank}."
        )
    return length, rank, world_size


def cached(past: Tensor | int, new: int) -> Tensor:
    """Ids of `new` tokens after `past` ones: past … past + new − 1.

    Args:
        past: how many real tokens came before; one number, or (B,) for ragged rows.
        new: how many follow.

    Returns:
        (new,) or (B, new) int64.

    Raises:
        TypeError, ValueError: if the numbers are not whole and at least 0.

    Example:
        >>> pe_lab.positions.cached(torch.tensor([2, 4]), 1)  # rows of 2 and 4 tokens
        tensor([[2],
                [4]])
    """
    steps = torch.arange(refuse.whole("new", new, 0))
    if not isinstance(past, Tensor) or past.dim() == 0:
        return steps + refuse.whole("past", past, 0)
    past = _counts("past", past)
    return past[:, None] + steps.to(past.device)
