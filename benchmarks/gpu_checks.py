"""Every scheme on a device, against the same scheme in float64 on the CPU.

Inputs are drawn in float64 and rounded to the dtype; both sides get the rounded ones.
An error is the largest difference over the largest number of the reference. Ids start
far from zero where a scheme has no last row, since that is where coarse angles show.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import pe_lab
from pe_lab.encodings.base import PositionalEncoding

FAR = 100_000  # first id of schemes that count on for ever
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DOORS = ("embed", "rotate", "bias")


@dataclass(frozen=True)
class Scheme:
    """A scheme, and ids that it takes: first id, and how many numbers a place has."""

    name: str
    make: Callable[[], PositionalEncoding]
    start: int = 0
    axes: int = 0


@dataclass(frozen=True)
class Check:
    """One comparison."""

    scheme: str
    door: str
    dtype: str
    error: float
    limit: float
    ok: bool


@dataclass(frozen=True)
class Sizes:
    """Of the tensors that are compared."""

    batch: int = 2
    heads: int = 8
    length: int = 384
    head_dim: int = 64


QUICK = Sizes(1, 2, 12, 16)


def schemes(sizes: Sizes) -> list[Scheme]:
    """One of each, and both layouts and forms where there are two."""
    return [*embedded(sizes), *rotated(sizes), *biased(sizes)]


def embedded(sizes: Sizes) -> list[Scheme]:
    model, length = sizes.heads * sizes.head_dim, sizes.length
    return [
        Scheme("Sinusoidal", partial(pe_lab.Sinusoidal, model), FAR),
        Scheme("AxialSinusoidal", partial(pe_lab.AxialSinusoidal, model), axes=2),
        Scheme("Learned", partial(pe_lab.Learned, length, model)),
        Scheme("NoPE", pe_lab.NoPE, FAR),
    ]


def rotated(sizes: Sizes) -> list[Scheme]:
    width = sizes.head_dim
    neighbours = partial(pe_lab.RoPE, width, layout="interleaved")
    partly = partial(pe_lab.RoPE, width, rotary_dim=width // 2)
    shares = (width // 8, width // 8, width // 4)
    return [
        Scheme("RoPE, half", partial(pe_lab.RoPE, width), FAR),
        Scheme("RoPE, interleaved", neighbours, FAR),
        Scheme("RoPE, partial", partly, FAR),
        Scheme("XPos", partial(pe_lab.XPos, width, centre=FAR), FAR),
        Scheme("AxialRoPE", partial(pe_lab.AxialRoPE, width), axes=2),
        Scheme("MRoPE", partial(pe_lab.MRoPE, width, shares), axes=3),
    ]


def biased(sizes: Sizes) -> list[Scheme]:
    heads, width, length = sizes.heads, sizes.head_dim, sizes.length
    both_ways = partial(pe_lab.T5Bias, heads, bidirectional=True)
    tupe = partial(pe_lab.TUPE, length, heads * width, heads)
    return [
        Scheme("ALiBi, causal", partial(pe_lab.ALiBi, heads), FAR),
        Scheme("ALiBi, symmetric", partial(pe_lab.ALiBi, heads, symmetric=True), FAR),
        Scheme("T5Bias", partial(pe_lab.T5Bias, heads), FAR),
        Scheme("T5Bias, both ways", both_ways, FAR),
        Scheme("Shaw", partial(pe_lab.Shaw, width, 16), FAR),
        Scheme("TransformerXL", partial(pe_lab.TransformerXL, heads, width), FAR),
        Scheme("TUPE", tupe),
        Scheme("KERPLE, log", partial(pe_lab.Kerple, heads), FAR),
        Scheme("KERPLE, power", partial(pe_lab.Kerple, heads, kind="power"), FAR),
        Scheme("FIRE", partial(pe_lab.Fire, heads), FAR),
    ]


def ids(scheme: Scheme, length: int) -> Tensor:
    """(L,), or (L, axes) with places that differ from axis to axis."""
    row = torch.arange(length) + scheme.start
    if not scheme.axes:
        return row
    return torch.stack([row // (axis + 1) for axis in range(scheme.axes)], dim=-1)


# ── what is computed on both sides ───────────────────────────────────────────────


@dataclass(frozen=True)
class Inputs:
    """x (B, L, H·D), q, k, v (B, H, L, D) and ids, on one device."""

    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    positions: Tensor

    def moved(self, device: str, dtype: torch.dtype | None = None) -> Inputs:
        """The same on another device, tensors of numbers in another dtype."""
        numbers = (self.x, self.q, self.k, self.v)
        x, q, k, v = (tensor.to(device=device, dtype=dtype) for tensor in numbers)
        return Inputs(x, q, k, v, self.positions.to(device))


def draw(scheme: Scheme, sizes: Sizes, dtype: torch.dtype) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    shape = (sizes.batch, sizes.heads, sizes.length, sizes.head_dim)
    drawn = torch.randn((4, *shape), generator=generator, dtype=torch.float64)
    x, q, k, v = drawn.to(dtype)
    return Inputs(x.transpose(1, 2).flatten(2), q, k, v, ids(scheme, sizes.length))


def embed(encoding: PositionalEncoding, given: Inputs) -> list[Tensor]:
    return [encoding.embed(given.x, given.positions)]


def rotate(encoding: PositionalEncoding, given: Inputs) -> list[Tensor]:
    at = given.positions
    return list(encoding.rotate(given.q, given.k, at, at))


def bias(encoding: PositionalEncoding, given: Inputs) -> list[Tensor]:
    at = given.positions
    term = encoding.bias(given.q, given.k, at, at)
    return [] if term is None else [term]


def attend(encoding: PositionalEncoding, given: Inputs) -> list[Tensor]:
    at = given.positions
    out = pe_lab.attention(
        given.q, given.k, given.v, causal=True, encoding=encoding, q_pos=at, k_pos=at
    )
    return [out]


def derived(encoding: PositionalEncoding, given: Inputs) -> tuple[list[Tensor], ...]:
    """Gradients of the output's sum of squares: for q, k, v, and for parameters."""
    q, k, v = (t.detach().requires_grad_() for t in (given.q, given.k, given.v))
    out = attend(encoding, Inputs(given.x, q, k, v, given.positions))[0]
    wide = torch.promote_types(out.dtype, torch.float32)
    learned = [p for p in encoding.parameters() if p.requires_grad]
    total = out.to(wide).square().sum()
    found = torch.autograd.grad(total, [q, k, v, *learned], allow_unused=True)
    return list(found[:3]), [grad for grad in found[3:] if grad is not None]


def gradients(encoding: PositionalEncoding, given: Inputs) -> list[Tensor]:
    return derived(encoding, given)[0]


def parameters(encoding: PositionalEncoding, given: Inputs) -> list[Tensor]:
    return derived(encoding, given)[1]


def opened(encoding: PositionalEncoding) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The doors that a scheme opens; attention and its gradients unless it embeds."""
    functions = {"embed": embed, "rotate": rotate, "bias": bias}
    for door in DOORS:
        if getattr(type(encoding), door) is not getattr(PositionalEncoding, door):
            yield door, functions[door]
    if type(encoding).embed is PositionalEncoding.embed:
        yield "attention", attend
        yield "gradients", gradients
        if any(True for _ in encoding.parameters()):
            yield "parameters' gradients", parameters


# ── comparison ───────────────────────────────────────────────────────────────────


def limit(door: str, dtype: torch.dtype) -> float:
    """What rounding may do, in steps of the dtype at 1.

    A door rounds once, by half a step; in float32 its sums of products round some
    times. Attention and gradients round weights and products too. A parameter's
    gradient is a sum over all pairs of tokens that mostly cancels.
    """
    steps = {"attention": 3, "gradients": 3, "parameters' gradients": 16}.get(door, 1)
    return (25 if dtype == torch.float32 else 1) * steps * torch.finfo(dtype).eps


def relative_error(got: list[Tensor], want: list[Tensor]) -> float:
    """The largest over all tensors, each measured by its own largest number.

    One that vanishes exactly, such as the gradient of a term that a softmax does not
    see, is measured by the largest of all.
    """
    scales = [exact.detach().abs().max().item() for exact in want]
    most = max(scales, default=0.0)
    worst = 0.0
    for ours, exact, own in zip(got, want, scales, strict=True):
        if ours.shape != exact.shape:
            raise ValueError(f"shapes differ: {ours.shape} and {exact.shape}")
        gap = (ours.detach().cpu().double() - exact.detach()).abs().max().item()
        scale = own if own > 1e-9 * most else most
        worst = max(worst, gap / scale if scale else gap)
    return worst


def checks_of(
    scheme: Scheme, dtype: torch.dtype, device: str, sizes: Sizes
) -> Iterator[Check]:
    """Every door of one scheme in one dtype."""
    torch.manual_seed(0)
    encoding = scheme.make()
    exact = copy.deepcopy(encoding).double()
    there = copy.deepcopy(encoding).to(device)
    given = draw(scheme, sizes, dtype)
    for door, compute in opened(encoding):
        want = compute(exact, given.moved("cpu", torch.float64))
        got = compute(there, given.moved(device))
        error, most = relative_error(got, want), limit(door, dtype)
        name = str(dtype).removeprefix("torch.")
        yield Check(scheme.name, door, name, error, most, error <= most)


def run(device: str, sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All comparisons, and a line for each scheme."""
    found: list[Check] = []
    for scheme in schemes(sizes):
        mine = [c for dtype in DTYPES for c in checks_of(scheme, dtype, device, sizes)]
        wrong = [f"{c.door} in {c.dtype}: {c.error:.1e}" for c in mine if not c.ok]
        say(f"  {scheme.name}: {'; '.join(wrong) or f'{len(mine)} checks hold'}")
        found += mine
    return [asdict(check) for check in found]
