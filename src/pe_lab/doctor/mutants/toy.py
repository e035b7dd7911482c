"""A small correct attention layer and model, whose steps are methods to get wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

Kept = tuple[Tensor, Tensor, Tensor]  # keys, values, positions

WIDTH, HEADS, VOCABULARY = 32, 4, 29


class Attend(nn.Module):
    """Multi-head attention with rotation, bias, mask and cache.

    Args:
        scheme: "rope", "alibi" or "none".
        causal: whether later tokens are hidden.
    """

    def __init__(self, scheme: str = "rope", causal: bool = True) -> None:
        super().__init__()
        self.scheme, self.causal = scheme, causal
        self.w_q, self.w_k, self.w_v, self.w_o = (
            nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Any = None,
    ) -> tuple[Tensor, Kept]:
        """(B, L, d) and what a later call continues from."""
        if positions is None:
            positions = self.count(x, 0 if cache is None else cache[0].shape[2])
        q, k, v = (self.split(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        q, k = self.turn_q(q, positions), self.turn_k(k, positions)
        places = positions
        if cache is not None:
            k, v, places = self.append(cache, (k, v, positions))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = scores + self.bias(positions, places).to(scores.dtype)
        visible = self.visible(mask, x.shape[1], k.shape[2])
        out = self.weigh(scores, visible) @ v
        return self.w_o(self.join(out)), (k, v, places)

    def count(self, x: Tensor, past: int) -> Tensor:
        """(B, L) positions of new tokens after `past` ones."""
        return torch.arange(past, past + x.shape[1]).expand(x.shape[0], -1)

    def split(self, x: Tensor) -> Tensor:
        """(B, H, L, D)."""
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """(B, L, d)."""
        return x.transpose(1, 2).flatten(2)

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries at their positions."""
        return turn(x, positions) if self.scheme == "rope" else x

    def turn_k(self, x: Tensor, positions: Tensor) -> Tensor:
        """Keys at their positions."""
        return turn(x, positions) if self.scheme == "rope" else x

    def append(self, cache: Kept, new: Kept) -> Kept:
        """The cache and the new tokens."""
        return (
            torch.cat((cache[0], new[0]), 2),
            torch.cat((cache[1], new[1]), 2),
            torch.cat((cache[2], new[2]), 1),
        )

    def bias(self, positions: Tensor, places: Tensor) -> Tensor:
        """(B, H, Lq, Lk) added to the scores."""
        if self.scheme != "alibi":
            return torch.zeros(1, 1, 1, 1)
        distance = positions[:, None, :, None] - places[:, None, None, :]
        return -slopes() * distance.abs()

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """(B or 1, 1, Lq, Lk), true where a query may look."""
        seen = torch.ones(new, every, dtype=torch.bool)
        if self.causal:
            seen = seen.tril(every - new)
        if mask is None:
            return seen[None, None]
        mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
        return seen & mask

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Attention weights."""
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~visible, lowest).softmax(-1)


class Block(nn.Module):
    """Attention and a feed-forward net, each after a norm and added."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.feed = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(
        self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Any
    ) -> tuple[Tensor, Kept]:
        """(B, L, d) and what it keeps."""
        y, kept = self.attend(self.norms[0](x), mask, positions, cache)
        x = x + y
        return x + self.feed(self.norms[1](x)), kept


class Toy(nn.Module):
    """Two layers over token ids.

    Args:
        scheme: "rope", "alibi", "none", or "sinusoidal" or "learned" at the input.
        causal: whether later tokens are hidden.
        attend: the class of the layers' attention, one for each if it is a list.
        max_len: rows of a learned table.
    """

    def __init__(
        self,
        scheme: str = "rope",
        causal: bool = True,
        attend: Any = Attend,
        max_len: int = 48,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scheme = scheme
        kinds = attend if isinstance(attend, list) else [attend] * 2
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.table = nn.Embedding(max_len, WIDTH) if scheme == "learned" else None
        self.layers = nn.ModuleList(Block(kind(scheme, causal)) for kind in kinds)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Any = None,
    ) -> tuple[Tensor, list[Kept]]:
        """Logits (B, L, vocabulary), and a cache for each layer."""
        if positions is None:
            positions = self.count(ids, mask, cache)
        x, kept = self.place(self.look_up(ids), positions), []
        for i, layer in enumerate(self.layers):
            x, part = layer(x, mask, positions, cache[i] if cache else None)
            kept.append(part)
        return self.head(x), kept

    def count(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """(B, L) positions where none are given."""
        steps = torch.arange(ids.shape[1]).expand(len(ids), -1)
        return steps + cache[0][2][:, -1:] + 1 if cache else steps

    def look_up(self, ids: Tensor) -> Tensor:
        """(B, L, d) token embeddings."""
        return self.embed(ids)

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings with position put in."""
        if self.scheme == "sinusoidal":
            return x + sinusoid(positions).to(x.dtype)
        return x if self.table is None else x + self.table(positions)


def turn(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """(B, H, L, D) with channels i and i + D/2 turned by their position."""
    half = x.shape[-1] // 2
    inv_freq = base ** -(torch.arange(half, dtype=torch.float64) / half)
    angle = (positions.double()[..., None] * inv_freq)[:, None]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def sinusoid(positions: Tensor) -> Tensor:
    """(…, d) sines and cosines of the positions."""
    half = WIDTH // 2
    inv_freq = 10000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    angle = positions.double()[..., None] * inv_freq
    return torch.cat((angle.sin(), angle.cos()), -1).float()


def slopes() -> Tensor:
    """(H, 1, 1) of ALiBi."""
    return 2.0 ** -(8 * torch.arange(1, HEADS + 1) / HEADS)[:, None, None]
