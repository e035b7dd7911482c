"""The desiderata of a positional encoding, as measurements.

Each returns a number to be held against a tolerance, not only a verdict. They treat the
scheme as a black box: three doors in, numbers out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pe_lab import refuse
from pe_lab.attention import attention
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.positions import from_mask


@dataclass(frozen=True)
class Measurement:
    """One desideratum, measured: it holds if the value is on the right side.

    Attributes:
        name: D1 … D10.
        question: what was measured, in a few words.
        value: what came out.
        most: the largest value with which it holds; or else
        least: the smallest.

    Example:
        >>> pe_lab.properties.Measurement("D5", "norms are kept", 0.5, most=1e-9)
        ✗ D5 norms are kept: 0.5 (≤ 1e-09)
    """

    name: str
    question: str
    value: float
    most: float | None = None
    least: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the value is within its bound; a NaN never is."""
        if self.most is not None:
            return self.value <= self.most
        return self.least is not None and self.value >= self.least

    def __repr__(self) -> str:
        bound = f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}"
        mark = "✓" if self.holds else "✗"
        return f"{mark} {self.name} {self.question}: {self.value:.2g} ({bound})"


def permutation_error(
    f: Callable[[Tensor], Tensor], x: Tensor, permutation: Tensor
) -> float:
    """Max |f(PX) − P f(X)|: zero if f is permutation equivariant.

    Args:
        f: maps (B, L, d) to (B, L, …).
        x: (B, L, d).
        permutation: (L,) indices; row t of PX is row permutation[t] of X.

    Returns:
        the largest difference, in the unit of f.

    Raises:
        TypeError: if x is no such tensor, or f is not callable.
        ValueError: if `permutation` does not rearrange 0 … L−1.

    Example:
        >>> x, order = torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([2, 0, 1])
        >>> pe_lab.properties.permutation_error(torch.square, x, order)
        0.0
        >>> pe_lab.properties.permutation_error(lambda x: x.cumsum(1), x, order)
        3.0
    """
    refuse.float_tensor("x", x, 3, "(batch, length, width)")
    if not callable(f):
        raise TypeError(f"f needs a function of x, got {f!r:.80}.")
    length = x.shape[1]
    indices = isinstance(permutation, Tensor) and permutation.dtype == torch.int64
    if not indices or sorted(permutation.flatten().tolist()) != list(range(length)):
        raise ValueError(
            f"permutation needs each of 0 … {length - 1} once, as int64, got "
            f"{permutation!r:.80}; torch.randperm({length}) makes one."
        )
    return _gap(f(x[:, permutation]), f(x)[:, permutation])


def order_effect(probe: Probe) -> float:
    """D1: how much the last output changes when the tokens before it are reversed.

    Args:
        probe: the scheme, in its `Probe`.

    Returns:
        the largest difference of outputs.

    Example:
        >>> probe = pe_lab.properties.Probe(pe_lab.NoPE(), d_model=8, num_heads=2)
        >>> pe_lab.properties.order_effect(probe) < 1e-12  # order is not seen
        True
    """
    x = probe.tokens()
    length = x.shape[1]
    order = torch.arange(length)
    order[:-1] = order[:-1].flip(0)
    return _gap(probe.attend(x)[:, -1], probe.attend(x[:, order])[:, -1])


def distinctness(probe: Probe) -> float:
    """D2: smallest gap between one token's scores at two different places.

    Args:
        probe: the scheme, in its `Probe`.

    Returns:
        a difference of scores; 0 if two places cannot be told apart.

    Example:
        >>> probe = pe_lab.properties.Probe(pe_lab.Shaw(4, 2), d_model=8, num_heads=2)
        >>> pe_lab.properties.distinctness(probe) > 1e-6
        True
    """
    q, k = probe.same_token(probe.length)
    scores = probe.scores(q, k, torch.arange(probe.length))
    rows = scores.transpose(0, 1).flatten(1)
    gaps = torch.cdist(rows, rows, p=torch.inf)
    return gaps[~torch.eye(len(rows), dtype=torch.bool)].min().item()


def shift_error(probe: Probe, shift: int = 1000) -> float:
    """D3: max |s(m+t, n+t) − s(m, n)| / (|q||k|), t = shift, or as far as rows go.

    Args:
        probe: the scheme, in its `Probe`.
        shift: t, in positions.

    Returns:
        the largest difference, relative to |q||k|; 0 if only offsets count.

    Example:
        >>> probe = pe_lab.properties.Probe(pe_lab.RoPE(4), d_model=8, num_heads=2)
        >>> pe_lab.properties.shift_error(probe) < 1e-9
        True
    """
    q, k = probe.random_heads()
    positions = torch.arange(probe.length)
    while shift > 1 and not reach(probe, shift):
        shift //= 2
    before = probe.scores(q, k, positions)
    after = probe.scores(q, k, positions + shift)
    return _gap(before, after) / _norms(q, k)


def rebound(probe: Probe) -> float:
    """D4: how far the score of a token with its copies rises again with distance.

    max over Δ of s(Δ) − min over smaller Δ of s, from a query on the last place:
    zero for a monotone decay.

    Args:
        probe: the scheme, in its `Probe`.

    Returns:
        a difference of scores; 0 for a decay without a rebound.

    Example:
        >>> probe = pe_lab.properties.Probe(pe_lab.ALiBi(2), d_model=8, num_heads=2)
        >>> pe_lab.properties.rebound(probe)
        0.0
    """
    q, k = probe.same_token(probe.length)
    scores = probe.scores(q[:, :, -1:], k, torch.arange(probe.length), last=True)
    by_offset = scores.flip(-1)
    lowest = by_offset.cummin(dim=-1).values
    return (by_offset - lowest).max().item()


def norm_change(probe: Probe) -> float:
    """D5: largest relative change of a query's or key's norm in door 2.

    Args:
        probe: the scheme, in its `Probe`.

    Returns:
        a fraction; 0 if norms are kept.

    Example:
        >>> tupe = pe_lab.TUPE(32, 8, 2)
        >>> probe = pe_lab.properties.Probe(tupe, d_model=8, num_heads=2)
        >>> round(pe_lab.properties.norm_change(probe), 4)  # q/√2
        0.2929
    """
    q, k = probe.random_heads()
    positions = torch.arange(probe.length)
    turned = probe.encoding.rotate(q, k, positions, positions)
    gaps = [
        ((a.norm(dim=-1) - b.norm(dim=-1)).abs() / b.norm(dim=-1)).max()
        for a, b in zip(turned, (q, k), strict=True)
    ]
    return torch.stack(gaps).max().item()


def reach(probe: Probe, far: int = 100_000) -> float:
    """D6: 1 if the scheme gives finite scores at position `far`, 0 if it refuses.

    Args:
        probe: the scheme, in its `Probe`.
        far: the first of the positions that are tried.

    Returns:
        1.0 or 0.0.

    Example:
        >>> learned = pe_lab.Learned(512, 8)
        >>> probe = pe_lab.properties.Probe(learned, d_model=8, num_heads=2)
        >>> [pe_lab.properties.reach(probe, far=n) for n in (400, 512)]
        [1.0, 0.0]
    """
    q, k = probe.random_heads()
    try:
        scores = probe.scores(q, k, torch.arange(probe.length) + far)
    except (IndexError, ValueError):
        return 0.0
    return float(scores.isfinite().all())


def parameter_count(probe: Probe) -> float:
    """D7: number of trained numbers.

    Args:
        probe: the scheme, in its `Probe`.

    Returns:
        how many, as a float like every measurement.

    Example:
        >>> probe = pe_lab.properties.Probe(pe_lab.T5Bias(2), d_model=8, num_heads=2)
        >>> pe_lab.properties.parameter_count(probe)  # 32 buckets, 2 heads
        64.0
    """
    return float(sum(p.numel() for p in probe.encoding.parameters()))


def low_precision_error(probe: Probe, start: int = 10_000) -> float:
    """D8: bfloat16 against float64 at far positions, beyond rounding the inputs.

    The inputs are exact in bfloat16; what is left is the scheme's own rounding,
    relative to |q||k|. If there is no far position, the near ones are used.

    Args:
        probe: the scheme, in its `Probe`.
        start: the first of the far positions.

    Returns:
        the largest difference of scores, relative to |q||k|.

    Example:
        >>> probe = pe_lab.properties.Probe(pe_lab.RoPE(4), d_model=8, num_heads=2)
        >>> pe_lab.properties.low_precision_error(probe) < 1e-2
        True
    """
    q, k = (t.bfloat16().double() for t in probe.random_heads())
    positions = torch.arange(probe.length) + (start if reach(probe, start) else 0)
    exact = probe.scores(q, k, positions)
    coarse = probe.scores(q.bfloat16(), k.bfloat16(), positions)
    return _gap(coarse.double(), exact) / _norms(q, k)


def incremental_error(probe: Probe) -> float:
    """D9: one query at a time, as with a KV cache, against the full causal pass.

    Args:
        probe: the scheme, in its `Probe`.

    Returns:
        the largest difference of outputs.

    Example:
        >>> probe = pe_lab.properties.Probe(pe_lab.XPos(4), d_model=8, num_heads=2)
        >>> pe_lab.properties.incremental_error(probe) < 1e-9
        True
    """
    x = probe.tokens()
    full = probe.attend(x)
    steps = [probe.attend(x[:, : t + 1], queries=1)[:, -1] for t in range(x.shape[1])]
    return _gap(torch.stack(steps, dim=1), full)


def neighbour_error(probe: Probe) -> float:
    """D10: a row alone against the same row left-padded beside another one.

    Args:
        probe: the scheme, in its `Probe`.

    Returns:
        the largest difference of outputs.

    Example:
        >>> probe = pe_lab.properties.Probe(pe_lab.RoPE(4), d_model=8, num_heads=2)
        >>> pe_lab.properties.neighbour_error(probe) < 1e-9
        True
    """
    x = probe.tokens()
    alone = probe.attend(x)
    pad = 3
    padded = torch.cat((torch.ones_like(x[:, :pad]), x), dim=1)
    mask = torch.ones(1, padded.shape[1], dtype=torch.bool)
    mask[:, :pad] = False
    ids = from_mask(mask)
    both = torch.cat((padded, padded.flip(1)))
    rows = probe.attend(both, ids.expand(2, -1), mask.expand(2, -1))
    return _gap(rows[:1, pad:], alone)


class Probe:
    """Feeds a scheme with tokens, queries and keys of one seed, in float64.

    Args:
        encoding: any scheme with the three doors.
        d_model, num_heads: sizes that fit it.
        length: how many places are looked at.

    Raises:
        TypeError, ValueError: for what is no scheme, or sizes that do not fit.

    Example:
        >>> probe = pe_lab.properties.Probe(pe_lab.RoPE(4), d_model=8, num_heads=2)
        >>> q, k = probe.random_heads()
        >>> probe.scores(q, k, torch.arange(16)).shape
        torch.Size([2, 16, 16])
    """

    def __init__(
        self,
        encoding: PositionalEncoding,
        *,
        d_model: int,
        num_heads: int,
        length: int = 16,
    ) -> None:
        refuse.doors(encoding)
        self.encoding = copy.deepcopy(encoding).double()
        self.num_heads = refuse.whole("num_heads", num_heads)
        self.d_model = refuse.whole("d_model", d_model)
        if d_model % num_heads:
            raise ValueError(
                f"d_model needs a multiple of num_heads = {num_heads}, got {d_model}."
            )
        self.head_dim = d_model // num_heads
        self.length = length
        self._rng = torch.Generator().manual_seed(0)
        self._seed = torch.randn(2, length, d_model, generator=self._rng).double()

    def tokens(self) -> Tensor:
        """Random embeddings without position.

        Returns:
            (1, L, d_model) float64.
        """
        return self._seed[:1]

    def random_heads(self) -> tuple[Tensor, Tensor]:
        """Random queries and keys.

        Returns:
            (1, H, L, head_dim) each, float64.
        """
        return self.split(self._seed[:1]), self.split(self._seed[1:])

    def same_token(self, length: int) -> tuple[Tensor, Tensor]:
        """One token repeated at every place, as query and as key.

        Args:
            length: L.

        Returns:
            (1, H, L, head_dim) twice.
        """
        token = self._seed[:1, :1].expand(1, length, self.d_model)
        return self.split(token), self.split(token)

    def split(self, x: Tensor) -> Tensor:
        """Heads out of channels.

        Args:
            x: (B, L, d_model).

        Returns:
            (B, H, L, head_dim).
        """
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def scores(
        self, q: Tensor, k: Tensor, positions: Tensor, *, last: bool = False
    ) -> Tensor:
        """Scores through all three doors.

        Args:
            q, k: (1, H, Lq, head_dim) and (1, H, Lk, head_dim), without position.
            positions: (Lk,) ids of the keys, and of the queries.
            last: there is one query, at the last of the positions.

        Returns:
            (H, Lq, Lk) float64; the doors are used in the dtype of q.
        """
        q_pos = positions[-1:] if last else positions
        q, k = self._entered(q, q_pos), self._entered(k, positions)
        q, k = self.encoding.rotate(q, k, q_pos, positions)
        scores = (q.double() @ k.double().transpose(-2, -1)) * self.head_dim**-0.5
        bias = self.encoding.bias(q, k, q_pos, positions)
        return (scores if bias is None else scores + bias)[0]

    def attend(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        queries: int | None = None,
    ) -> Tensor:
        """Causal attention with x as queries, keys and values.

        Args:
            x: (B, L, d_model).
            positions: (L,) or (B, L); by default 0 … L−1.
            mask: (B, L) boolean, false for padding.
            queries: only the last so many query; by default all.

        Returns:
            (B, queries, d_model).
        """
        if positions is None:
            positions = torch.arange(x.shape[1])
        x = self.encoding.embed(x, positions)
        heads = self.split(x)
        start = 0 if queries is None else x.shape[1] - queries
        out = attention(
            heads[:, :, start:], heads, heads, causal=True, encoding=self.encoding,
            mask=None if mask is None else mask[:, None, None, :],
            q_pos=positions[..., start:], k_pos=positions,
        )  # fmt: skip
        return out.transpose(1, 2).flatten(2)

    def _entered(self, heads: Tensor, positions: Tensor) -> Tensor:
        x = heads.transpose(1, 2).flatten(2)
        return self.split(self.encoding.embed(x, positions))


def desiderata(
    encoding: PositionalEncoding, *, d_model: int = 32, num_heads: int = 2
) -> list[Measurement]:
    """All ten desiderata of a scheme, measured.

    Args:
        encoding: any scheme with the three doors; a copy is cast to float64.
        d_model, num_heads: sizes that fit it.

    Returns:
        D1 … D10 as `Measurement`s; print one, or ask whether it `.holds`.

    Raises:
        TypeError, ValueError: as for `Probe`.

    Example:
        >>> [m.name for m in pe_lab.desiderata(pe_lab.ALiBi(2)) if not m.holds]
        []
        >>> pe_lab.desiderata(pe_lab.Learned(99, 32))[5]
        ✗ D6 defined far away: 0 (≥ 1)
    """
    probe = Probe(encoding, d_model=d_model, num_heads=num_heads)
    return [
        Measurement("D1", "order is visible", order_effect(probe), least=1e-3),
        Measurement("D2", "places are distinct", distinctness(probe), least=1e-6),
        Measurement("D3", "only offsets count", shift_error(probe), most=1e-9),
        Measurement("D4", "nearer counts more", rebound(probe), most=1e-9),
        Measurement("D5", "norms are kept", norm_change(probe), most=1e-9),
        Measurement("D6", "defined far away", reach(probe), least=1.0),
        Measurement("D7", "no parameters", parameter_count(probe), most=0.0),
        Measurement("D8", "safe in bfloat16", low_precision_error(probe), most=1e-2),
        Measurement("D9", "a cache is exact", incremental_error(probe), most=1e-9),
        Measurement("D10", "neighbours are inert", neighbour_error(probe), most=1e-9),
    ]  # fmt: skip


def _gap(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item() if a.numel() else 0.0


def _norms(q: Tensor, k: Tensor) -> float:
    return (q.norm(dim=-1).max() * k.norm(dim=-1).max()).item()
