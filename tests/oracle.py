"""Independent references: 60-digit arithmetic, and formulas written out plainly."""

import mpmath
import torch
from torch import Tensor

mpmath.mp.dps = 60


def exact_angles(positions: list[int], inv_freq_of: list[mpmath.mpf]) -> list[list]:
    return [[mpmath.mpf(p) * w for w in inv_freq_of] for p in positions]


def exact_inv_freq(dim: int, base: float) -> list[mpmath.mpf]:
    """base^(−2i/dim), to 60 digits."""
    return [mpmath.power(base, -mpmath.mpf(2 * i) / dim) for i in range((dim + 1) // 2)]


def exact_sinusoidal(positions: list[int], dim: int, base: float = 10000.0) -> Tensor:
    """The interleaved table in float64, each entry correctly rounded from 60 digits."""
    rows = []
    for angles in exact_angles(positions, exact_inv_freq(dim, base)):
        row = [f(a) for a in angles for f in (mpmath.sin, mpmath.cos)]
        rows.append([float(value) for value in row[:dim]])
    return torch.tensor(rows, dtype=torch.float64)


def loop_attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """softmax(qkᵀ/√D) v by loops over batch, heads and queries, in float64."""
    q, k, v = q.double(), k.double(), v.double()
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=torch.float64)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = visible[b, h, i].nonzero().flatten()
                if len(seen):
                    scores = k[b, h, seen] @ q[b, h, i] / q.shape[-1] ** 0.5
                    out[b, h, i] = scores.softmax(0) @ v[b, h, seen]
    return out
