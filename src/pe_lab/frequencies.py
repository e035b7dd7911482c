"""Inverse frequencies: how fast each pair of channels turns.

Vaswani et al. 2017, section 3.5; the other spacing is that of tensor2tensor's code.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lab import refuse


def inv_freq(
    dim: int,
    *,
    base: float = 10000.0,
    spacing: str = "paper",
    device: torch.device | str | None = None,
) -> Tensor:
    """Angular frequencies ω_i of the sine-cosine pairs, fastest first.

    "paper":          ω_i = base^(−2i/dim)
    "tensor2tensor":  ω_i = base^(−i/(dim/2 − 1)), so that the last is exactly 1/base

    Args:
        dim: number of channels; an odd one has a last sine without a cosine.
        base: wavelengths run from 2π towards 2π·base positions.
        spacing: "paper" or "tensor2tensor".

    Returns:
        (⌈dim/2⌉,) float64, in radians per position, decreasing from 1.

    Raises:
        TypeError, ValueError: if dim < 1, base ≤ 1, an unknown spacing, or fewer
            than two pairs with "tensor2tensor", which would divide by zero.
    Source: Vaswani et al. 2017, section 3.5; tensor2tensor `get_timing_signal_1d`.

    Example:
        >>> pe_lab.inv_freq(6, base=100.0)
        tensor([1.0000, 0.2154, 0.0464], dtype=torch.float64)
        >>> pe_lab.inv_freq(6, base=100.0, spacing="tensor2tensor")
        tensor([1.0000, 0.1000, 0.0100], dtype=torch.float64)
    """
    dim = refuse.whole("dim", dim)
    base = refuse.frequency_base(base)
    refuse.one_of("spacing", spacing, ("paper", "tensor2tensor"))
    pairs = (dim + 1) // 2
    step = torch.arange(pairs, dtype=torch.float64, device=device)
    if spacing == "paper":
        return base ** (-2 * step / dim)
    if dim < 4 or dim % 2:
        raise ValueError(
            f'spacing="tensor2tensor" needs an even dim of at least 4, got {dim}: it '
            'divides by dim/2 − 1. Use spacing="paper".'
        )
    return base ** (-step / (dim // 2 - 1))


def as_inv_freq(given: Tensor, pairs: int | None = None) -> Tensor:
    """Caller's own frequencies in float64, if they are finite and one per pair."""
    given = refuse.float_tensor("inv_freq", given, 1, "(pairs,)")
    if given.shape[0] != (pairs or max(given.shape[0], 1)):
        raise ValueError(
            f"inv_freq needs {pairs or 'some'} frequencies, one per pair of channels, "
            f"got {given.shape[0]}; pe_lab.inv_freq(dim) makes them."
        )
    if given.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(
            f"inv_freq needs float32 or float64, got {given.dtype}: rounded "
            "frequencies turn by radians within a thousand positions. "
            "pe_lab.inv_freq(dim) makes exact ones."
        )
    if refuse.readable(given) and not bool(given.isfinite().all()):
        raise ValueError("inv_freq needs finite frequencies; some are NaN or infinite.")
    return given.double()
