"""Exact tables of cosines and sines.

Angles are made in float64 and rounded once, at the end. A fp32 product p·ω is off by
0.06 rad at p = 10⁶; here the error is the rounding of the result itself.

Consecutive positions are built by the angle-addition theorem, e^{i(a+b)ω} =
e^{iaω} · e^{ibω}: one complex product for each entry instead of a sine and a cosine.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.frequencies import as_inv_freq
from pe_lab.positions import as_positions

_BLOCK = 2**16  # complex128 numbers in a block: 1 MiB, at home in a core's cache


def rope_table(
    positions: int | Tensor,
    inv_freq: Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> tuple[Tensor, Tensor]:
    """cos(p·ω_i) and sin(p·ω_i) for every position p and frequency ω_i.

    Args:
        positions: n meaning 0 … n−1, or a tensor of finite real positions.
        inv_freq: (pairs,) float32 or float64, in radians per position.
        dtype: of the result; the arithmetic is float64 whatever it is.
        device: of the result; by default that of the positions.

    Returns:
        (cos, sin), each (…, pairs). In float32 the error is at most 3.3e-8 for
        integer positions up to 1e7: the rounding itself.

    Raises:
        TypeError, ValueError: as `as_positions` and `as_inv_freq` say.
    Convention: one column per pair of channels, not duplicated.

    Example:
        >>> cos, sin = pe_lab.rope_table(torch.tensor([10**7]), pe_lab.inv_freq(8))
        >>> sin  # of 1e7, 1e6, 1e5 and 1e4 radians
        tensor([[ 0.4205, -0.3500,  0.0357, -0.3056]])
    """
    circle = unit_circle(positions, inv_freq, axis=0, dtype=dtype, device=device)
    return circle[..., 0], circle[..., 1]


def unit_circle(
    positions: int | Tensor,
    inv_freq: Tensor,
    *,
    sine_first: bool = False,
    axis: int = -1,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """The points (cos pω_i, sin pω_i), or (sin, cos) if `sine_first`: (…, pairs, 2).

    Convention: in memory the axis of the two is at `axis`: −1 for neighbours, −2 for
        halves of a row, 0 for two tables.
    """
    refuse.float_dtype(dtype)
    inv_freq = as_inv_freq(inv_freq)
    if dtype != torch.float64 and not torch.compiler.is_compiling():
        start, count, home = _as_range(positions, device)
        if count and home.type != "mps":  # which has no float64: the CPU computes
            turn = inv_freq.to(home)
            return _by_addition(start, count, turn, sine_first, axis, dtype)
    positions = as_positions(positions, device)
    home = positions.device
    if home.type == "mps":
        positions = positions.cpu()
    angles = positions.double()[..., None] * inv_freq.to(positions.device)
    cos, sin = angles.cos(), angles.sin()
    points = torch.stack((sin, cos) if sine_first else (cos, sin), dim=axis)
    return points.to(dtype).to(home).movedim(axis, -1)


def _as_range(
    positions: int | Tensor, device: torch.device | str | None
) -> tuple[int, int, torch.device]:
    """(start, count, device) of a run of consecutive integers, or a count of zero."""
    if not isinstance(positions, Tensor):
        ids = as_positions(positions, "meta")  # refuses what is not a count
        return 0, ids.shape[0], torch.empty(0, device=device).device
    home = torch.device(device) if device is not None else positions.device
    whole = not (positions.is_floating_point() or positions.is_complex())
    plain = positions.dim() == 1 and positions.device.type == "cpu" and whole
    if not plain or positions.dtype == torch.bool or positions.shape[0] < 256:
        return 0, 0, home
    positions = positions.long()  # in uint8, 0 follows 255 by 1
    if not bool((positions.diff() == 1).all()):
        return 0, 0, home
    return int(positions[0]), positions.shape[0], home


def _by_addition(
    start: int,
    count: int,
    inv_freq: Tensor,
    sine_first: bool,
    axis: int,
    dtype: torch.dtype,
) -> Tensor:
    """unit_circle of start … start+count−1 as coarse times fine rotations, in blocks.

    With sine first the point is i·e^{−ipω} = sin pω + i cos pω: the clock runs
    backwards from (0, 1), and the product is the same.
    """
    turn = -inv_freq if sine_first else inv_freq
    rows = min(count, max(16, _BLOCK // turn.shape[0]))
    fine = _rotor(0, rows, 1, turn)
    coarse = _rotor(start, -(-count // rows), rows, turn)
    if sine_first:
        coarse = coarse * 1j
    if turn.device.type != "cpu" or turn.requires_grad:
        product = (coarse[:, None] * fine).flatten(0, 1)[:count]
        points = torch.view_as_real(product).movedim(-1, axis)
        return points.to(dtype).contiguous().movedim(axis, -1)
    shape = list(fine.shape)
    shape[0] = count
    shape.insert(axis % 3, 2)
    points = torch.empty(shape, dtype=dtype, device=turn.device).movedim(axis, -1)
    block = torch.empty_like(fine)
    for row, target in zip(coarse, points.split(rows), strict=True):
        part = block[: target.shape[0]]
        torch.mul(fine[: target.shape[0]], row, out=part)
        target.copy_(torch.view_as_real(part))
    return points


def _rotor(start: int, count: int, step: int, inv_freq: Tensor) -> Tensor:
    """e^{ipω} at p = start, start + step, …: (count, pairs), again by addition."""
    side = max(1, round(count**0.5))
    fine = torch.arange(side, dtype=torch.float64, device=inv_freq.device) * step
    coarse = torch.arange(0, count, side, dtype=torch.float64, device=inv_freq.device)
    angles = torch.cat((fine, start + coarse * step))[:, None] * inv_freq
    rotor = torch.complex(angles.cos(), angles.sin())
    return (rotor[side:, None] * rotor[:side]).flatten(0, 1)[:count]
