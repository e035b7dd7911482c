"""Pairs of channels turned by a table: the formula, and a form that stays in the cache.

Su et al. 2021. Both give (a cos − b sin, b cos + a sin) for each pair (a, b), bit for
bit: every product and sum is rounded for itself, so that no result depends on how the
numbers fall into vectors, and none on what shares the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pe_lab.encodings.base import autocasts, in_full

_SMALL = 2**15  # numbers below which one pass more costs less than the bookkeeping
_BLOCK = 2**19  # numbers in a block: 2 MiB in float32, at home in a CPU's cache
_VECTOR = 16  # channels that fill the widest vector; left-overs are fused, not rounded


def turn(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """x (B, H, L, D) with all its channels turned, in x's dtype.

    cos, sin: (1 or B, 1, L, D/2), float32 or wider. The arithmetic is in their dtype,
    rounded once.
    """
    if autocasts(x):  # it joins no float16
        with in_full(x):
            return turn(x, cos, sin, layout)
    learned = cos.requires_grad or sin.requires_grad
    eager = x.device.type == "cpu" and not torch.compiler.is_compiling()
    whole = layout == "half" or x.shape[-1] % _VECTOR == 0
    if eager and whole and x.numel() >= _SMALL and not learned:
        return _Rotation.apply(x, cos, sin, layout)
    return by_formula(x, cos, sin, layout)


def by_formula(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """The definition, each layout in the form that a compiler makes one pass over x."""
    wide = x.to(cos.dtype)
    if layout == "half":  # (a, b)·cos + (b, a)·(−sin, sin)
        pairs, signed = wide.unflatten(-1, (2, -1)), torch.stack((-sin, sin), dim=-2)
        turned = pairs * cos.unsqueeze(-2) + pairs.flip(-2) * signed
    else:
        a, b = wide.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1)
    return turned.flatten(-2).to(x.dtype)


class Waves(NamedTuple):
    """Phases and frequencies whose sines are cos and (−sin, sin), as NumPy arrays."""

    phase: Any
    frequency: Any
    gain: float
    layout: str


def few_waves(inv_freq: Tensor, gain: float, layout: str) -> Waves:
    """What `turn_few` needs of a scheme, made once."""
    axis = 0 if layout == "half" else 1
    rows = [torch.stack((sign * inv_freq, inv_freq), dim=axis) for sign in (1, -1)]
    frequency = torch.stack(rows).flatten().numpy()
    phase = torch.zeros_like(inv_freq).repeat(4)
    phase[: phase.shape[0] // 2] = math.pi / 2  # cos θ = sin(θ + π/2)
    return Waves(phase.numpy(), frequency, gain, layout)


def turn_few(x: Tensor, positions: Tensor, waves: Waves) -> Tensor:
    """Table and rotation of a step of decoding, in as few calls as it allows.

    positions: (L,) or (B, L). The angles are float64, the arithmetic float32 or wider.
    """
    phase, frequency = map(torch.from_numpy, (waves.phase, waves.frequency))
    if x.device.type != "cpu":
        phase, frequency = phase.to(x.device), frequency.to(x.device)
    if positions.dim() == 2:
        positions = positions.unsqueeze(1)
    angles = torch.addcmul(phase, positions.double().unsqueeze(-1), frequency)
    wide = torch.promote_types(x.dtype, torch.float32)
    table = angles.sin().to(wide)
    cos, signed = (table if waves.gain == 1 else table * waves.gain).chunk(2, dim=-1)
    if waves.layout == "half":
        a, b = x.chunk(2, dim=-1)
        swapped = torch.cat((b, a), dim=-1)
    else:
        swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    turned = x * cos + swapped * signed
    return turned if x.dtype == wide else turned.to(x.dtype)


class _Rotation(torch.autograd.Function):
    """R_m x. Its gradient is turned the other way, as R_mᵀ = R_{−m}: x is not kept."""

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
        return in_blocks(x, cos, sin, layout)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        _, cos, sin, ctx.layout = inputs
        ctx.save_for_backward(cos, sin)
        ctx.save_for_forward(cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        return turn(grad, cos, -sin, ctx.layout), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        cos, sin = ctx.saved_tensors
        return turn(tangent, cos, sin, ctx.layout)

    @staticmethod
    def vmap(info: Any, axes: Any, *inputs: Any) -> tuple[Tensor, int]:
        return torch.vmap(by_formula, axes)(*inputs), 0


def in_blocks(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """The turned x without temporaries of x's size, each block while it is at hand."""
    kernel: Callable[..., None]
    table: tuple[Tensor, ...]
    if layout == "half":
        kernel, table = _half, (torch.cat((cos, cos), dim=-1), sin)
    else:
        kernel, table = _interleaved, (torch.complex(cos, sin),)
        x = x if _pairs_lie_together(x) else x.contiguous()
        if x.dtype == cos.dtype:
            return torch.view_as_real(_as_complex(x) * table[0]).flatten(-2)
    out = torch.empty(x.shape, dtype=x.dtype)
    same = x.dtype == cos.dtype
    size = 0 if same else min(x.numel(), max(_BLOCK, x.shape[-1]))
    scratch = torch.empty(2 if layout == "half" else 1, size, dtype=cos.dtype)
    for given, result, *rows in blocks((x, out, *table)):
        if same:
            kernel(given, result, *rows)
            continue
        wide = [s[: given.numel()].view(given.shape) for s in scratch]
        kernel(wide[0].copy_(given), wide[-1], *rows)
        result.copy_(wide[-1])
    return out


def blocks(tensors: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, ...]]:
    """The tensors cut alike along batch, heads or positions; axes of 1 stay whole."""
    shape, size = tensors[0].shape, tensors[0].numel()
    axis = next((a for a in range(3) if shape[a] > 1), None)
    if size <= _BLOCK or axis is None:
        yield tensors
        return
    step = max(1, _BLOCK * shape[axis] // size)
    number = -(-shape[axis] // step)
    cuts = [t.split(step, axis) if t.shape[axis] > 1 else [t] * number for t in tensors]
    for part in zip(*cuts, strict=True):
        yield from blocks(part)


def _half(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> None:
    """out = R x, the table's cosines given twice."""
    torch.mul(x, cos, out=out)
    (a, b), (to_a, to_b) = x.chunk(2, dim=-1), out.chunk(2, dim=-1)
    to_a.sub_(b * sin)
    to_b.add_(a * sin)


def _interleaved(x: Tensor, out: Tensor, table: Tensor) -> None:
    """out = R x as a product of complex numbers, a + ib times cos + i sin."""
    torch.mul(_as_complex(x), table, out=_as_complex(out))


def _pairs_lie_together(x: Tensor) -> bool:
    steps = (*x.stride()[:-1], x.storage_offset())
    return x.stride(-1) == 1 and not any(step % 2 for step in steps)


def _as_complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
