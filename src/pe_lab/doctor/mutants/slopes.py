"""Slopes with one bug each, and the correct ones in the shapes that people write."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.mutants import Healthy, Mutant
from pe_lab.encodings.alibi import alibi_slopes

Slopes = Callable[[int], Any]


def _power(heads: int) -> list[float]:
    return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]


def _plain(heads: int) -> Tensor:
    return torch.tensor(_power(heads))


def _sorted(heads: int) -> Tensor:
    return alibi_slopes(heads).sort(descending=True).values


def _only_powers(heads: int) -> Tensor:
    if not math.log2(heads).is_integer():
        raise ValueError("number of heads must be a power of two")
    return alibi_slopes(heads)


def _rounded_up(heads: int) -> Tensor:
    return _plain(2 ** math.ceil(math.log2(heads)))


def _cut(heads: int) -> Tensor:
    return _rounded_up(heads)[:heads]


def _from_second(heads: int) -> Tensor:
    below = 2 ** math.floor(math.log2(heads))
    return torch.tensor((_power(below) + _power(2 * below)[1::2])[:heads])


def _extras_first(heads: int) -> Tensor:
    below = 2 ** math.floor(math.log2(heads))
    extra = _power(2 * below)[0::2][: heads - below]
    return torch.tensor(extra + _power(below))


class _Remembers:
    """Keeps the first answer, and cuts it for every later one."""

    def __init__(self) -> None:
        self.kept: Tensor | None = None

    def __call__(self, heads: int) -> Tensor:
        if self.kept is None or len(self.kept) < heads:
            self.kept = alibi_slopes(heads)
        return self.kept[:heads]


def _mutant(
    name: str, slopes: Slopes, smallest: str, checks: tuple[str, ...], source: str = ""
) -> Mutant:
    return Mutant(name, "slopes", lambda: slopes, checks, source, smallest)


_VALUES = ("D-BIAS",)
_EXPONENTS: dict[str, tuple[Callable[[int, int], float], str]] = {
    "heads counted from 0": (
        lambda h, n: 2 ** (-8 * (h - 1) / n),
        "8 heads: the first slope is 1, right 1/2",
    ),
    "heads counted from 2": (
        lambda h, n: 2 ** (-8 * (h + 1) / n),
        "8 heads: the first slope is 1/4, right 1/2",
    ),
    "ratio of one half for any number of heads": (
        lambda h, n: 2.0**-h,
        "4 heads: the last slope is 1/16, right 1/256",
    ),
    "8/h for 8h/H": (
        lambda h, n: 2 ** (-8 / h),
        "2 heads: 1/256, 1/16; right reversed",
    ),
    "no 8 in the exponent": (
        lambda h, n: 2 ** (-h / n),
        "1 head: the slope is 1/2, right 1/256",
    ),
    "sign of the exponent": (lambda h, n: 2 ** (8 * h / n), "1 head: 256, right 1/256"),
    "divided by H + 1": (
        lambda h, n: 2 ** (-8 * h / (n + 1)),
        "1 head: the slope is 1/16, right 1/256",
    ),
    "exponents from 0 to 8": (
        lambda h, n: 2 ** (-8 * (h - 1) / max(1, n - 1)),
        "2 heads: 1, 1/256; right 1/16, 1/256",
    ),
    "base e": (lambda h, n: math.exp(-8 * h / n), "1 head: 3.4e-4, right 3.9e-3"),
    "exponents instead of powers": (lambda h, n: 8 * h / n, "1 head: 8, right 1/256"),
    "a straight line": (lambda h, n: h / n, "1 head: 1, right 1/256"),
    "one over the head": (lambda h, n: 1 / h, "1 head: 1, right 1/256"),
    "whole division in the exponent": (
        lambda h, n: 2.0 ** -(8 * h // n),
        "16 heads: the first two slopes are 1 and 1/2; right 2^-0.5 and 1/2",
    ),
    "one slope for all": (lambda h, n: 1 / 256, "2 heads: 1/256 twice"),
    "no bracket around the exponent": (
        lambda h, n: 2**-8 * h / n,
        "2 heads: 1/512, 1/256; right 1/16, 1/256",
    ),
    "linspace between the right ends": (
        lambda h, n: 2 ** (-8 / n) + (2**-8 - 2 ** (-8 / n)) * (h - 1) / max(1, n - 1),
        "4 heads: the second slope is 0.168, right 1/16",
    ),
}


def _by(exponent: Callable[[int, int], float]) -> Slopes:
    return lambda heads: torch.tensor([exponent(h, heads) for h in range(1, heads + 1)])


MUTANTS = (
    *(
        _mutant(name, _by(slope), smallest, _VALUES)
        for name, (slope, smallest) in _EXPONENTS.items()
    ),
    _mutant(
        "one sequence for 6 heads too",
        _plain,
        "3 heads: 0.157, 0.0248, 0.0039; right 1/16, 1/256, 1/4",
        _VALUES,
        "ml-explore/mlx#343",
    ),
    _mutant("sorted", _sorted, "3 heads: 1/4 first; right last", _VALUES),
    _mutant(
        "reversed", lambda n: alibi_slopes(n).flip(0), "2 heads: 1/256 first", _VALUES
    ),
    _mutant(
        "refuses 12 heads",
        _only_powers,
        "3 heads: an error; right 1/16, 1/256, 1/4",
        ("D-SHAPE",),
        "huggingface/transformers#28380",
    ),
    _mutant("as many as the power above", _rounded_up, "3 heads: 4", ("D-SHAPE",)),
    _mutant("the power above, cut", _cut, "3 heads: 1/4, 1/16, 1/64", _VALUES),
    _mutant(
        "extras from the second", _from_second, "3 heads: the last is 1/16", _VALUES
    ),
    _mutant("extras first", _extras_first, "3 heads: 1/4 comes first", _VALUES),
    _mutant("negative", lambda n: -alibi_slopes(n), "1 head: −1/256", _VALUES),
    _mutant(
        "truncated to whole numbers",
        lambda n: alibi_slopes(n).long(),
        "1 head: 0, right 1/256",
        _VALUES,
    ),
    Mutant(
        "cut from an earlier answer",
        "slopes",
        _Remembers,
        ("D-HISTORY",),
        "",
        "2 heads after 4: 1/4, 1/16; right 1/16, 1/256",
    ),
    Mutant(
        "right, but not the checkpoint's",
        "slopes",
        lambda: alibi_slopes,
        _VALUES,
        "",
        "expected 2^(−16h/H) of MPT-30B-like configs",
        {"expected": {"slopes": [2 ** (-2.0 * h) for h in range(1, 9)]}},
    ),
)

_RELEASED = {"order": "released"}
HEALTHY: tuple[Healthy, ...] = (
    Healthy("pe_lab.alibi_slopes", "slopes", lambda: alibi_slopes, _RELEASED),
    Healthy(
        "a list of Python numbers",
        "slopes",
        lambda: lambda heads: alibi_slopes(heads).tolist(),
        _RELEASED,
    ),
    Healthy(
        "float32 with axes for the scores",
        "slopes",
        lambda: lambda heads: alibi_slopes(heads).float()[None, :, None, None],
        _RELEASED,
    ),
    Healthy(
        "bfloat16",
        "slopes",
        lambda: lambda heads: alibi_slopes(heads).bfloat16(),
        _RELEASED,
    ),
    Healthy(
        "from 2^-16",
        "slopes",
        lambda: lambda heads: alibi_slopes(heads) ** 2,
        {"order": "2^(−16h/H)"},
    ),
    Healthy(
        "divided by the root of the head's width",
        "slopes",
        lambda: lambda heads: alibi_slopes(heads) / 8,
        {"order": "released slopes × 0.125"},
    ),
)


def _bloom() -> Slopes:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    row = torch.ones(1, 2)
    return lambda heads: build_alibi_tensor(row, heads, torch.float32)[:, 0, 1]


def _mpt() -> Slopes:
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    return lambda heads: -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]


def _x_transformers() -> Slopes:
    from x_transformers.x_transformers import AlibiPositionalBias

    return AlibiPositionalBias._get_slopes


if find_spec("transformers"):
    HEALTHY += (
        Healthy("BLOOM of transformers", "slopes", _bloom, _RELEASED),
        Healthy("MPT of transformers", "slopes", _mpt, _RELEASED),
    )
if find_spec("x_transformers"):
    HEALTHY += (Healthy("x-transformers", "slopes", _x_transformers, _RELEASED),)
