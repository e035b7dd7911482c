"""The float32 arithmetic of Hugging Face's transformers, operation by operation.

pe_lab computes angles in float64; transformers in float32, so that its angles drift at
long positions. A checkpoint was trained with that drift, and a port may have to
reproduce it: `RoPE(…, compat="hf")` does, to the bit. Order of operations checked
against transformers 5.24, `modeling_rope_utils`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lab import refuse, scaling
from pe_lab.frequencies import as_inv_freq
from pe_lab.frequencies import inv_freq as make_inv_freq
from pe_lab.positions import as_positions


def inv_freq(dim: int, *, base: float = 10000.0) -> Tensor:
    """1 / base^(2i/dim), every step rounded to float32.

    Args:
        dim: rotated channels, even.
        base: of the wavelengths.

    Returns:
        (dim/2,) float32.

    Raises:
        TypeError, ValueError: for an odd dim or a base not above 1.
    Source: transformers, `compute_default_rope_parameters`.

    Example:
        >>> ours, theirs = pe_lab.inv_freq(128), pe_lab.hf_compat.inv_freq(128)
        >>> gap = (ours - theirs).abs().max().item()
        >>> 1e-8 < gap < 1e-7  # of 1 radian per position: 0.05 at a million
        True
    """
    return 1.0 / _powers(dim, base)


def linear(dim: int, factor: float, *, base: float = 10000.0) -> Tensor:
    """`hf_compat.inv_freq` divided by the factor.

    Args:
        dim, base: as for `hf_compat.inv_freq`.
        factor: s ≥ 1.

    Returns:
        (dim/2,) float32.

    Raises:
        TypeError, ValueError: as for `hf_compat.inv_freq`, or for factor < 1.
    Source: transformers, `_compute_linear_scaling_rope_parameters`.

    Example:
        >>> pe_lab.hf_compat.linear(4, 8, base=4.0)
        tensor([0.1250, 0.0625])
    """
    return inv_freq(dim, base=base) / refuse.number("factor", factor, 1)


def dynamic_ntk(
    dim: int, factor: float, *, length: int, original_length: int, base: float = 10000.0
) -> Tensor:
    """`hf_compat.inv_freq` of the base b·(s·L/L₀ − (s − 1))^(d/(d−2)), L at least L₀.

    Args:
        dim, base: as for `hf_compat.inv_freq`.
        factor: s, as for `scaling.dynamic_ntk`.
        length: L, as for `scaling.dynamic_ntk`.
        original_length: L₀, as for `scaling.dynamic_ntk`.

    Returns:
        (dim/2,) float32.

    Raises:
        TypeError, ValueError: as for `scaling.dynamic_ntk`.
    Source: transformers, `_compute_dynamic_ntk_parameters`.

    Example:
        >>> short = {"length": 100, "original_length": 4096}  # not yet stretched
        >>> same = pe_lab.hf_compat.dynamic_ntk(128, 2.0, **short)
        >>> torch.equal(same, pe_lab.hf_compat.inv_freq(128))
        True
    """
    sizes = {"length": length, "original_length": original_length}
    scaling.dynamic_ntk(_exact(dim, base), factor, **sizes)  # refuses what is wrong
    longest = max(length, original_length)
    stretch = (factor * longest / original_length) - (factor - 1)
    return inv_freq(dim, base=base * stretch ** (dim / (dim - 2)))


def llama3(
    dim: int,
    factor: float,
    *,
    original_length: int,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    base: float = 10000.0,
) -> Tensor:
    """Llama 3's rule in float32, from wavelengths.

    Args:
        dim, base: as for `hf_compat.inv_freq`.
        factor, original_length, low_freq_factor, high_freq_factor: as for
            `scaling.llama3`.

    Returns:
        (dim/2,) float32.

    Raises:
        TypeError, ValueError: as for `scaling.llama3`.
    Source: transformers, `_compute_llama3_parameters`.

    Example:
        >>> theirs = pe_lab.hf_compat.llama3(128, 8.0, original_length=8192)
        >>> ours = pe_lab.scaling.llama3(pe_lab.inv_freq(128), 8, original_length=8192)
        >>> torch.allclose(theirs.double(), ours, rtol=1e-5)
        True
    """
    low = refuse.number("low_freq_factor", low_freq_factor, 1e-6)
    high = high_freq_factor
    scaling.llama3(  # refuses what is wrong
        _exact(dim, base), factor, original_length=original_length,
        low_freq_factor=low, high_freq_factor=high,
    )  # fmt: skip
    omega = inv_freq(dim, base=base)
    wavelength = 2 * math.pi / omega
    share = (original_length / wavelength - low) / (high - low)
    blended = (1 - share) * omega / factor + share * omega
    slow = wavelength > original_length / low
    fast = wavelength < original_length / high
    ends = torch.where(slow, omega / factor, omega)
    return torch.where(slow | fast, ends, blended)


def yarn(
    dim: int,
    factor: float,
    *,
    original_length: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    base: float = 10000.0,
) -> Tensor:
    """YaRN's rule in float32: a ramp over the index, not over the turns.

    Args:
        dim, base: as for `hf_compat.inv_freq`.
        factor, original_length, beta_fast, beta_slow, truncate: as for `scaling.yarn`.

    Returns:
        (dim/2,) float32.

    Raises:
        TypeError, ValueError: as for `scaling.yarn`.
    Source: transformers, `_compute_yarn_parameters`.

    Example:
        >>> theirs = pe_lab.hf_compat.yarn(128, 4.0, original_length=4096)
        >>> ours = pe_lab.scaling.yarn(pe_lab.inv_freq(128), 4, original_length=4096)
        >>> torch.allclose(theirs.double(), ours, rtol=1e-5)
        True
    """
    scaling.yarn(  # refuses what is wrong
        _exact(dim, base), factor, original_length=original_length,
        beta_fast=beta_fast, beta_slow=beta_slow, truncate=truncate,
    )  # fmt: skip
    low, high = (
        dim * math.log(original_length / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (beta_fast, beta_slow)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    high = high + 0.001 if low == high else high
    ramp = (torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)
    kept = 1 - ramp.clamp(0, 1)
    powers = _powers(dim, base)
    return 1.0 / (factor * powers) * (1 - kept) + 1.0 / powers * kept


def longrope(
    dim: int, factors: list[float] | Tensor, *, base: float = 10000.0
) -> Tensor:
    """LongRoPE's rule in float32: 1 / (λ_i · base^(2i/dim)).

    Args:
        dim, base: as for `hf_compat.inv_freq`.
        factors: λ, one for each pair; the short or the long list of the config.

    Returns:
        (dim/2,) float32.

    Raises:
        TypeError, ValueError: as for `scaling.longrope`.
    Source: transformers, `_compute_longrope_parameters`.

    Example:
        >>> pe_lab.hf_compat.longrope(4, [1.0, 4.0], base=16.0)
        tensor([1.0000, 0.0625])
    """
    exact = _exact(dim, base)
    scaling.longrope(exact, factors, factors, length=1, original_length=1)  # refuses
    each = refuse.numbers("factors", factors).to(torch.float32)
    return 1.0 / (each * _powers(dim, base))


def table(
    positions: Tensor, inv_freq: Tensor, gain: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin of float32 angles, times the gain, then rounded to the dtype.

    Args:
        positions: (L,) or (B, L).
        inv_freq: (pairs,), each exact in float32.
        gain: factor on both.
        dtype: of queries and keys.

    Returns:
        (cos, sin), each (…, pairs).

    Raises:
        TypeError, ValueError: as for `rope_table`, or for a gain that is no number.
    Source: transformers, `LlamaRotaryEmbedding`.

    Example:
        >>> exact = pe_lab.inv_freq(128)
        >>> far = torch.tensor([10**6])
        >>> drifted, _ = pe_lab.hf_compat.table(far, exact, 1.0, torch.float32)
        >>> bool((drifted - pe_lab.rope_table(far, exact)[0]).abs().max() > 0.01)
        True
    """
    inv_freq, gain = as_inv_freq(inv_freq), refuse.number("gain", gain)
    refuse.float_dtype(dtype)
    angles = as_positions(positions)[..., None].float() * inv_freq.float()
    twice = torch.cat((angles, angles), dim=-1)  # as there: vectors fall alike
    pairs = inv_freq.shape[0]
    cos, sin = ((t * gain).to(dtype)[..., :pairs] for t in (twice.cos(), twice.sin()))
    return cos, sin


def _exact(dim: int, base: float) -> Tensor:
    return make_inv_freq(dim, base=base, device="cpu")


def _powers(dim: int, base: float) -> Tensor:
    dim = refuse.even("dim", dim, "Channels turn in pairs; use an even width.")
    step = torch.arange(0, dim, 2, dtype=torch.int64, device="cpu").float()
    return refuse.frequency_base(base) ** (step / dim)
