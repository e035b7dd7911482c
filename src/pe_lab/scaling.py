"""Longer contexts: functions from inverse frequencies to inverse frequencies.

One family: each pair of channels is slowed down by a factor between 1 and s. They
differ in which pairs, and all of them apply to sinusoids as well as to rotations.
Chen et al. 2023 (linear), Peng et al. 2023 (NTK-aware, by parts, YaRN), Dubey et al.
2024 (Llama 3), Ding et al. 2024 (LongRoPE).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.frequencies import as_inv_freq


def linear(inv_freq: Tensor, factor: float) -> Tensor:
    """Position interpolation: ω_i / s for every pair, as if positions were p/s.

    Args:
        inv_freq: (pairs,) radians per position.
        factor: s ≥ 1, the new length over the trained one.

    Returns:
        (pairs,) float64.

    Raises:
        TypeError, ValueError: if inv_freq is no list of frequencies, or factor < 1.
    Source: Chen et al. 2023.

    Example:
        >>> pe_lab.scaling.linear(torch.tensor([1.0, 0.1]), 4)
        tensor([0.2500, 0.0250], dtype=torch.float64)
    """
    return as_inv_freq(inv_freq) / _factor(factor)


def ntk(inv_freq: Tensor, factor: float) -> Tensor:
    """NTK-aware: ω_i · s^(−i/(n−1)), the base multiplied by s^(d/(d−2)), d = 2n.

    The fastest pair is kept, the slowest divided by s, the others in between.

    Args, Returns, Raises: as for `linear`; ValueError for a single pair, which would be
        fastest and slowest at once.
    Source: the NTK-aware proposal of 2023, written up in Peng et al. 2023, section 3.1.

    Example:
        >>> w = pe_lab.inv_freq(8)
        >>> pe_lab.scaling.ntk(w, 8) / w
        tensor([1.0000, 0.5000, 0.2500, 0.1250], dtype=torch.float64)
    """
    inv_freq = as_inv_freq(inv_freq)
    pairs = inv_freq.shape[0]
    if pairs < 2:
        raise ValueError(
            "ntk needs at least 2 frequencies, got 1: the fastest is kept and the "
            "slowest divided. Use linear."
        )
    step = torch.arange(pairs, dtype=torch.float64, device=inv_freq.device)
    return inv_freq * _factor(factor) ** (-step / (pairs - 1))


def dynamic_ntk(
    inv_freq: Tensor, factor: float, *, length: int, original_length: int
) -> Tensor:
    """NTK-aware with a factor that grows with the text: s·L/L₀ − (s − 1), at least 1.

    Args:
        inv_freq, factor: as for `ntk`.
        length: L, how many positions are in use; an argument and not a memory, so the
            same text always gets the same angles. Keys cached at one length do not
            fit queries of another.
        original_length: L₀, the trained length.

    Returns, Raises: as for `ntk`.
    Source: Peng et al. 2023, appendix B; the formula of Hugging Face's "dynamic".

    Example:
        >>> w = pe_lab.inv_freq(8)
        >>> slow = pe_lab.scaling.dynamic_ntk(w, 2, length=8192, original_length=4096)
        >>> slow / w  # as by ntk with the factor 2·2 − 1
        tensor([1.0000, 0.6934, 0.4807, 0.3333], dtype=torch.float64)
    """
    length = refuse.whole("length", length)
    original_length = refuse.whole("original_length", original_length)
    factor = _factor(factor)
    return ntk(inv_freq, max(1.0, factor * length / original_length - (factor - 1)))


def ntk_by_parts(
    inv_freq: Tensor,
    factor: float,
    *,
    original_length: int,
    slow_turns: float = 1.0,
    fast_turns: float = 32.0,
) -> Tensor:
    """Keep pairs that turn often within the trained length, divide those that do not.

    With r_i = L₀·ω_i/2π turns, the share kept is γ = (r − slow)/(fast − slow), within
    0 and 1, and the result is (1 − γ)·ω/s + γ·ω.

    Args:
        inv_freq, factor: as for `linear`.
        original_length: L₀, the trained length.
        slow_turns, fast_turns: fewer turns are divided, more are kept.

    Returns, Raises: as for `linear`; ValueError if slow_turns > fast_turns; equal
        ones make a step.
    Source: Peng et al. 2023, section 3.2.

    Example:
        >>> w = pe_lab.inv_freq(8)  # 652, 65, 6.5 and 0.65 turns in 4096 positions
        >>> pe_lab.scaling.ntk_by_parts(w, 4, original_length=4096) / w
        tensor([1.0000, 1.0000, 0.3835, 0.2500], dtype=torch.float64)
    """
    inv_freq = as_inv_freq(inv_freq)
    turns = inv_freq * refuse.whole("original_length", original_length) / math.tau
    return _blend(inv_freq, _factor(factor), _ramp(turns, slow_turns, fast_turns))


def llama3(
    inv_freq: Tensor,
    factor: float,
    *,
    original_length: int,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
) -> Tensor:
    """The rule of Llama 3.1: `ntk_by_parts` that keeps pairs from four turns on.

    Args:
        inv_freq, factor, original_length: as for `ntk_by_parts`.
        low_freq_factor, high_freq_factor: its slow_turns and fast_turns, under the
            names that Llama's configurations use.

    Returns, Raises: as for `ntk_by_parts`.
    Source: Dubey et al. 2024 and Meta's released code.

    Example:
        >>> w = pe_lab.inv_freq(128, base=500_000.0)  # Llama 3.1 8B
        >>> ratio = pe_lab.scaling.llama3(w, 8, original_length=8192) / w
        >>> ratio[[0, 28, 32, 36, 63]]
        tensor([1.0000, 1.0000, 0.3711, 0.1250, 0.1250], dtype=torch.float64)
    """
    return ntk_by_parts(
        inv_freq,
        factor,
        original_length=original_length,
        slow_turns=low_freq_factor,
        fast_turns=high_freq_factor,
    )


def yarn(
    inv_freq: Tensor,
    factor: float,
    *,
    original_length: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Tensor:
    """YaRN's frequencies: by parts, but the ramp is straight in the index of the pair.

    Pair i is kept up to the index where a pair makes beta_fast turns in L₀ positions,
    divided from the index with beta_slow turns on.

    Args:
        inv_freq: (pairs,) at least two, a geometric ladder as `pe_lab.inv_freq` makes.
        factor, original_length: as for `ntk_by_parts`.
        beta_fast, beta_slow: the two numbers of turns; Kimi K2 has 1 for both, and
            the rounding outwards leaves a ramp of one pair.
        truncate: round the two indices outwards, as the released code does.

    Returns, Raises: as for `ntk_by_parts`.
    Source: Peng et al. 2023, and the released code, which the ramp follows. The other
        half of YaRN is `yarn_gain`.

    Example:
        >>> w = pe_lab.inv_freq(8)
        >>> pe_lab.scaling.yarn(w, 4, original_length=4096) / w
        tensor([1.0000, 1.0000, 0.6250, 0.2500], dtype=torch.float64)
    """
    inv_freq = as_inv_freq(inv_freq)
    pairs = inv_freq.shape[0]
    _turns(refuse.number("beta_slow", beta_slow, 1e-6), beta_fast, equal=True)
    if pairs < 2 or not bool(inv_freq[-1] > 0 and inv_freq[1] < inv_freq[0]):
        raise ValueError(
            "yarn needs at least 2 frequencies above 0 that fall from pair to pair; "
            "pe_lab.inv_freq(dim) makes them."
        )
    length = refuse.whole("original_length", original_length)
    fall = -math.log(inv_freq[-1] / inv_freq[0]) / (pairs - 1)  # ln of ω_i / ω_{i+1}
    first = float(inv_freq[0])
    low, high = (
        math.log(first * length / (math.tau * turns)) / fall
        for turns in (beta_fast, beta_slow)
    )
    if refuse.flag("truncate", truncate):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    if high < low:  # not even the fastest pair makes beta_slow turns
        return inv_freq / _factor(factor)
    high = high + 0.001 if high == low else high
    index = torch.arange(pairs, dtype=torch.float64, device=inv_freq.device)
    divided = ((index - low) / (high - low)).clamp(0, 1)
    return _blend(inv_freq, _factor(factor), 1 - divided)


def yarn_gain(
    factor: float, *, mscale: float = 1.0, mscale_all_dim: float = 0.0
) -> float:
    """Gain on cos and sin, so on q and k each: g(mscale) / g(mscale_all_dim).

    g(m) = 0.1 · m · ln s + 1. With both numbers given (DeepSeek) the gain may be 1 and
    the correction sits in the softmax scale instead: multiply that by
    yarn_gain(factor, mscale=mscale_all_dim)².

    Args:
        factor: s ≥ 1.
        mscale, mscale_all_dim: DeepSeek's pair; the second counts if it is not 0.

    Returns:
        a factor of at least 1 for the default pair.

    Raises:
        TypeError, ValueError: for numbers that are not finite, or factor < 1.
    Source: Peng et al. 2023, section 3.4; DeepSeek-V2's released code.

    Example:
        >>> round(pe_lab.scaling.yarn_gain(4), 4)
        1.1386
        >>> pe_lab.scaling.yarn_gain(40, mscale=0.7, mscale_all_dim=0.7)
        1.0
    """
    log = math.log(_factor(factor))
    mscale = refuse.number("mscale", mscale)
    mscale_all_dim = refuse.number("mscale_all_dim", mscale_all_dim)
    return (0.1 * mscale * log + 1) / (0.1 * mscale_all_dim * log + 1)


def longrope(
    inv_freq: Tensor,
    short_factor: Tensor | list[float],
    long_factor: Tensor | list[float],
    *,
    length: int,
    original_length: int,
) -> Tensor:
    """LongRoPE: ω_i divided by a searched factor of its own, one list up to L₀.

    Args:
        inv_freq: (pairs,) radians per position.
        short_factor, long_factor: one positive factor per pair.
        length: the length that decides, as an argument: beyond original_length the
            long list is used. Decide once for a whole batch and a whole generation.
        original_length: L₀, the trained length.

    Returns:
        (pairs,) float64.

    Raises:
        TypeError, ValueError: if a list does not fit the frequencies.
    Source: Ding et al. 2024; Phi-3's released code.

    Example:
        >>> w, short, long = torch.tensor([1.0, 0.1]), [1.0, 1.0], [1.0, 10.0]
        >>> pe_lab.scaling.longrope(w, short, long, length=4096, original_length=4096)
        tensor([1.0000, 0.1000], dtype=torch.float64)
        >>> pe_lab.scaling.longrope(w, short, long, length=4097, original_length=4096)
        tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    inv_freq = as_inv_freq(inv_freq)
    beyond = refuse.whole("length", length, 0) > refuse.whole(
        "original_length", original_length
    )
    name = "long_factor" if beyond else "short_factor"
    chosen = refuse.numbers(name, long_factor if beyond else short_factor)
    chosen = chosen.to(inv_freq)
    if chosen.shape != inv_freq.shape or not bool((chosen > 0).all()):
        raise ValueError(
            f"{name} needs {inv_freq.shape[0]} positive factors, one per pair, got "
            f"shape {tuple(chosen.shape)}."
        )
    return inv_freq / chosen


def longrope_gain(factor: float, *, original_length: int) -> float:
    """Gain on cos and sin: √(1 + ln s / ln L₀).

    Args:
        factor: s ≥ 1, the extended length over the trained one.
        original_length: L₀ ≥ 2.

    Returns:
        a factor of at least 1.

    Raises:
        TypeError, ValueError: for other numbers.
    Source: Ding et al. 2024; Phi-3's released code.

    Example:
        >>> round(pe_lab.scaling.longrope_gain(32, original_length=4096), 4)
        1.1902
    """
    length = refuse.whole("original_length", original_length, 2)
    return math.sqrt(1 + math.log(_factor(factor)) / math.log(length))


def _factor(value: float) -> float:
    return refuse.number("factor", value, 1)


def _turns(slow: float, fast: float, *, equal: bool = False) -> None:
    slow, fast = (refuse.number("turns", t, 0) for t in (slow, fast))
    if not (slow < fast or (equal and slow == fast)):
        raise ValueError(
            f"the ramp needs fewer slow turns than fast ones, got {slow} and {fast}."
        )


def _ramp(turns: Tensor, slow: float, fast: float) -> Tensor:
    """0 up to slow turns, 1 from fast turns on, straight in between.

    With as many slow turns as fast ones, as in Llama 4 Scout, it is a step.
    """
    _turns(slow, fast, equal=True)
    if slow == fast:
        return (turns >= fast).to(turns)
    return ((turns - slow) / (fast - slow)).clamp(0, 1)


def _blend(inv_freq: Tensor, factor: float, kept: Tensor) -> Tensor:
    return inv_freq / factor * (1 - kept) + inv_freq * kept
