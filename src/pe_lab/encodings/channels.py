"""ALiBi as a few more channels, so that any fused attention adds it by itself.

Press et al. 2022. −m_h · (m − n) multiplies what a query knows with what a key knows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pe_lab import refuse
from pe_lab.positions import as_positions

_WIDTH = 8  # channels; kernels want widths in multiples of 8
_FARTHEST = 2**17  # slope · distance is then a sum that float32 rounds by 2^-7 at most
# Significant bits of a piece of a slope. Times a digit it fits the dtype exactly.
_BITS = {torch.bfloat16: 8, torch.float16: 8, torch.float32: 12, torch.float64: 26}


def alibi_channels(
    q_pos: Tensor, k_pos: Tensor, slopes: Tensor, *, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Channels whose product is −m_h · (m − n); no tensor with L×L numbers is made.

    With these before the other channels, the product of queries and keys becomes
    q·k − m_h · (m − n). A scale that comes later multiplies both: give slopes / scale.

    Args:
        q_pos, k_pos: (Lq,) and (Lk,), or (B, Lq) and (B, Lk), whole numbers that are
            less than 2^24 apart.
        slopes: (H,) float64.
        dtype: of queries and keys.

    Returns:
        (1 or B, H, Lq, 8) and (1 or B, 1, Lk, 8).

    Raises:
        TypeError, ValueError: if ids, slopes or dtype are not such.
    Convention: slopes and positions are cut into pieces whose products are exact. From
        float32 on, m_h·m is taken off piece by piece, so a sum that runs through the
        channels in order starts with the exact difference. In 16 bits no channel can
        hold m_h·m, and it is left out: the softmax does not see what a row shares.
    Source: Press et al. 2022, section 3.

    Example:
        >>> ids, slopes = torch.arange(3), torch.ones(1, dtype=torch.float64)
        >>> q, k = pe_lab.alibi_channels(ids, ids, slopes, dtype=torch.float32)
        >>> (q @ k.mT)[0, 0]
        tensor([[ 0.,  1.,  2.],
                [-1.,  0.,  1.],
                [-2., -1.,  0.]])
    """
    refuse.float_tensor("slopes", slopes, 1, "(heads,)")
    refuse.float_dtype(dtype)
    queries, keys = _from_first_key(q_pos, k_pos, slopes.device)
    narrow = dtype in (torch.float16, torch.bfloat16)
    columns: list[tuple[Tensor, Tensor]] = []
    for slope in _pieces(slopes.double()[:, None], _BITS.get(dtype, 8)):
        if narrow:
            columns += _narrow_columns(slope, keys)
        else:
            columns += _wide_columns(slope, queries, keys)
    query_side, key_side = zip(*columns, strict=True)
    shape = torch.broadcast_shapes(queries.shape, keys[..., :1].shape, (len(slopes), 1))
    q = torch.stack([column.expand(shape) for column in query_side], dim=-1)
    k = torch.stack([column.expand_as(keys) for column in key_side], dim=-1)
    fill = (0, _WIDTH - len(columns))
    return F.pad(q, fill).to(dtype), F.pad(k, fill).to(dtype)


def fit_in_channels(q_pos: Tensor, k_pos: Tensor) -> bool:
    """Whether whole numbers are so near that no order of sums costs digits."""
    if q_pos.is_floating_point() or k_pos.is_floating_point() or not k_pos.numel():
        return False
    if not (refuse.readable(k_pos) and k_pos.device.type == "cpu" and q_pos.numel()):
        return True  # only a look at the numbers could tell
    low = min(int(q_pos.min()), int(k_pos.min()))
    return max(int(q_pos.max()), int(k_pos.max())) - low < _FARTHEST


def bias_is_smaller(
    q: Tensor, k: Tensor, ids_per_row: bool, dtype: torch.dtype
) -> bool:
    """Whether a bias has no more numbers than its channels; a CPU adds it faster then.

    Never in 16 bits, where channels are the more exact, nor where to compare a length
    would fix it: while compiling.
    """
    if q.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    batch, _, q_len, _ = q.shape
    numbers = q_len * k.shape[2] * (batch if ids_per_row else 1)
    in_channels = _WIDTH * batch * (q_len + k.shape[2])
    return dtype in (torch.float32, torch.float64) and numbers <= in_channels


def _from_first_key(
    q_pos: Tensor, k_pos: Tensor, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Ids as (1 or B, 1, L) float64, counted from the first key of each row."""
    rows = []
    for name, value in (("q_pos", q_pos), ("k_pos", k_pos)):
        refuse.id_rows(name, value)
        if value.is_floating_point():
            raise TypeError(
                f"{name} needs whole positions, got {value.dtype}; alibi_bias takes "
                "fractions."
            )
        ids = as_positions(value, device)
        rows.append((ids if ids.dim() == 2 else ids[None])[:, None])
    first = rows[1].amin(dim=-1, keepdim=True) if rows[1].shape[-1] else 0
    return (rows[0] - first).double(), (rows[1] - first).double()


def _pieces(slopes: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Two numbers of so many bits each, whose sum is the slope but for 2^−2·bits."""
    coarse = _rounded(slopes, bits)
    return coarse, _rounded(slopes - coarse, bits)


def _rounded(x: Tensor, bits: int) -> Tensor:
    step = torch.exp2(torch.floor(torch.log2(x.abs().clamp(min=1e-300))) + 1 - bits)
    return torch.round(x / step) * step


def _narrow_columns(slope: Tensor, keys: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Slope times each of a key's three digits in base 256: all fit 8 bits."""
    high, middle, low = keys // 65536, keys // 256 % 256, keys % 256
    return [(256 * slope, 256 * high), (slope, 256 * middle), (slope, low)]


def _wide_columns(
    slope: Tensor, queries: Tensor, keys: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Slope times the difference of two digits in base 4096, the high one first."""
    one = torch.ones_like(keys)
    result = []
    for m, n in (
        (queries // 4096 * 4096, keys // 4096 * 4096),
        (queries % 4096, keys % 4096),
    ):
        result += [(slope, n), (-slope * m, one)]
    return result
