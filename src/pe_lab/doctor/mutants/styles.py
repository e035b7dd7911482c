"""Small models in the styles in which people write them, right or with one bug."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lab.doctor.mutants.toy import HEADS, WIDTH, Attend, Kept, Toy, sinusoid, turn

_D = WIDTH // HEADS


class Nano(nn.Module):
    """A decoder with a learned table and a mask of the full block size.

    Args:
        bug: "" for none, "batch" (table along the batch), "view" (heads cut by a view),
            "corner" (the wrong corner of the mask), "inverted", "one" (−1, not −∞).
    """

    mask: Tensor

    def __init__(self, bug: str = "", block: int = 32) -> None:
        super().__init__()
        self.bug, self.block = bug, block
        self.tokens, self.places = nn.Embedding(50, WIDTH), nn.Embedding(block, WIDTH)
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, 50, bias=False)
        self.register_buffer("mask", torch.ones(block, block).tril())

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> Any:
        """(logits, None)."""
        rows, length = idx.shape
        if length > self.block:
            raise ValueError(f"{length} tokens, block of {self.block}")
        steps = torch.arange(rows)[:, None] if self.bug == "batch" else None
        x = self.tokens(idx) + self.places(
            torch.arange(length) if steps is None else steps
        )
        for qkv, out in zip(self.qkv, self.out, strict=True):
            x = x + out(self.attend(*qkv(F.layer_norm(x, (WIDTH,))).chunk(3, -1)))
        return self.head(x), None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(B, L, d)."""
        rows, length, _ = q.shape
        shape = (rows, length, HEADS, _D)
        q, k, v = (t.reshape(shape).transpose(1, 2) for t in (q, k, v))
        if self.bug == "view":
            q, k, v = (t.transpose(1, 2).reshape(t.shape) for t in (q, k, v))
        weights = self.hide(q @ k.transpose(-2, -1) / math.sqrt(_D)).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(rows, length, WIDTH)

    def hide(self, scores: Tensor) -> Tensor:
        """Scores of later keys at −∞."""
        length = scores.shape[-1]
        seen = self.mask[:length, :length]
        if self.bug == "corner":
            seen = self.mask.T[-length:, -length:]
        if self.bug == "one":
            return scores + (seen - 1)
        return scores.masked_fill(seen == (self.bug == "inverted"), -1e9)


class Stateful(nn.Module):
    """A decoder with its cache inside, called as model(tokens, start_pos).

    Args:
        bug: "" for none, "restart" (positions 0 …), "slot" (one cached place too many),
            "chunk" (mask of several tokens not aligned), "layer" (one cache for all).
        check: refuse what does not fit in the cache.
    """

    def __init__(self, bug: str = "", check: bool = True) -> None:
        super().__init__()
        self.bug, self.check, self.room = bug, check, 64
        self.tokens, self.head = nn.Embedding(40, WIDTH), nn.Linear(WIDTH, 40)
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.keys, self.values = torch.zeros(2, 2, 8, HEADS, self.room, _D)

    def forward(self, tokens: Tensor, start_pos: int) -> Tensor:
        """Logits (B, L, vocabulary)."""
        end = start_pos + tokens.shape[1]
        if self.check and end > self.room:
            raise ValueError(f"{end} tokens do not fit in {self.room}")
        x = self.tokens(tokens)
        for layer in range(2):
            x = x + self.attend(x, layer, start_pos)
        return self.head(x)

    def attend(self, x: Tensor, layer: int, start: int) -> Tensor:
        """(B, L, d), from the cache of the layer and into it."""
        rows, new, _ = x.shape
        shape = (rows, new, HEADS, _D)
        parts = self.qkv[layer](x).chunk(3, -1)
        q, k, v = (t.reshape(shape).transpose(1, 2) for t in parts)
        places = torch.arange(new)[None] + (0 if self.bug == "restart" else start)
        q, k = turn(q, places), turn(k, places)
        at = 0 if self.bug == "layer" else layer
        self.keys[at, :rows, :, start : start + new] = k
        self.values[at, :rows, :, start : start + new] = v
        end = start + new + (self.bug == "slot")
        k, v = self.keys[at, :rows, :, :end], self.values[at, :rows, :, :end]
        scores = q @ k.transpose(-2, -1) / math.sqrt(_D)
        if new > 1:
            first = 1 if self.bug == "chunk" else start + 1
            hidden = torch.full(scores.shape[-2:], -torch.inf).triu(first)
            scores = scores + hidden
        out = (scores.softmax(-1) @ v).transpose(1, 2)
        return self.out[layer](out.reshape(x.shape))


class Buffered(nn.Module):
    """Sinusoids from buffers, with no way to give positions.

    Args:
        bug: "" for none, "16" (angles in the dtype of the buffer), "ends" (16 rows, and
            zeros after them).
    """

    table: Tensor
    inv_freq: Tensor

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.toy, self.bug = Toy("none"), bug
        self.register_buffer("table", sinusoid(torch.arange(1024)))
        self.register_buffer("inv_freq", 10000.0 ** -(torch.arange(16) / 16))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, L, vocabulary)."""
        x, length = self.toy.embed(ids), ids.shape[1]
        table = self.table[:length]
        if self.bug == "16":
            steps = torch.arange(length, dtype=self.inv_freq.dtype)
            angle = steps[:, None] * self.inv_freq
            table = torch.cat((angle.sin(), angle.cos()), -1)
        if self.bug == "ends":
            table = F.pad(self.table[: min(16, length)], (0, 0, 0, max(0, length - 16)))
        x = x + table.to(x.dtype)
        for layer in self.toy.layers:
            x, _ = layer(x, None, None, None)
        return self.toy.head(x)


class Convolution(nn.Module):
    """No attention at all: a convolution of three tokens.

    Args:
        left, right: padding.
    """

    def __init__(self, left: int, right: int) -> None:
        super().__init__()
        self.pad = (left, right)
        self.tokens, self.head = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, 30)
        self.mix = nn.Conv1d(WIDTH, WIDTH, 3)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, L, vocabulary)."""
        x = F.pad(self.tokens(ids).transpose(1, 2), self.pad)
        return self.head(self.mix(x).transpose(1, 2))


class Recurrent(nn.Module):
    """No attention at all: a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, 30)
        self.mix = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, L, vocabulary)."""
        return self.head(self.mix(self.tokens(ids))[0])


class LinearAttention(nn.Module):
    """Causal attention without a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d)."""
        q, k, v = F.elu(self.w_q(x)) + 1, F.elu(self.w_k(x)) + 1, self.w_v(x)
        sums = (k[..., None] * v[..., None, :]).cumsum(1)
        total = (q * k.cumsum(1)).sum(-1, keepdim=True)
        return torch.einsum("bld,blde->ble", q, sums) / total


class Window(Attend):
    """Two tokens to either side."""

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """A band."""
        steps = torch.arange(every)
        seen = (steps[:, None] - steps).abs() <= 2
        return seen[None, None] if mask is None else seen & mask[:, None, None]


class Local(Attend):
    """A layer with a base of its own."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """By a smaller base."""
        return turn(x, positions, 100.0)

    turn_k = turn_q


class TurnsValues(Attend):
    """Values are rotated too."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Any = None,
    ) -> tuple[Tensor, Kept]:
        """The positions of this call, for the values."""
        past = 0 if cache is None else cache[0].shape[2]
        self.places = self.count(x, past) if positions is None else positions
        self.calls = 0
        return super().forward(x, mask, self.places, cache)

    def split(self, x: Tensor) -> Tensor:
        """The third of three is the values."""
        x, self.calls = super().split(x), self.calls + 1
        return turn(x, self.places) if self.calls == 3 else x


class Rows(Toy):
    """A learned table, of which wrong rows are read.

    Args:
        bug: "first" (row 0 for all), "clamp" (from row 15 on), "wrap" (after 16 rows).
    """

    def __init__(self, bug: str) -> None:
        super().__init__("none")
        self.bug, self.position_table = bug, nn.Embedding(48, WIDTH)

    def forward(  # type: ignore[override]
        self, ids: Tensor, targets: Tensor | None = None
    ) -> Any:
        """Logits alone, without cache and positions."""
        if ids.shape[1] > 48:
            raise ValueError("at most 48 tokens")
        return super().forward(ids)[0]

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """The table's rows."""
        read = {
            "first": 0 * positions,
            "clamp": positions.clamp_max(15),
            "wrap": positions % 16,
        }
        return x + self.position_table(read[self.bug])


class InDict(Toy):
    """Outputs come in a dict; each decode step is at position 0."""

    def count(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """From 0, whatever the cache holds."""
        return torch.arange(ids.shape[1]).expand(len(ids), -1)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        past_key_values: Any = None,
    ) -> Any:
        """Logits and cache by name."""
        logits, kept = super().forward(ids, mask, positions, past_key_values)
        return {"logits": logits, "past_key_values": kept}


class Rms(nn.Module):
    """A norm of the project's own."""

    def forward(self, x: Tensor) -> Tensor:
        """Each token by its size."""
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


class FlatALiBi(nn.Module):
    """Layers without a class: parts in lists, of which the norms mix no tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(40, WIDTH), nn.Linear(WIDTH, 40)
        self.norms = nn.ModuleList(Rms() for _ in range(3))
        self.attends = nn.ModuleList(Attend("alibi") for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        """(B, L, vocabulary)."""
        x = self.embed(ids)
        for norm, attend in zip(self.norms, self.attends, strict=False):
            x = x + attend(norm(x))[0]
        return self.head(self.norms[2](x))


class Weak(Attend):
    """Hidden scores are −3."""

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Weights that are only small."""
        return scores.masked_fill(~visible, -3.0).softmax(-1)


class Infinite(Attend):
    """Hidden scores are −∞ for queries that look nowhere, too."""

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """NaN where nothing is visible."""
        return scores.masked_fill(~visible, -torch.inf).softmax(-1)


class Sharper(Attend):
    """Scores are multiplied by the logarithm of the text's length."""

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """By what is not known while decoding."""
        return super().weigh(scores * math.log(scores.shape[-1] + 1), visible)


class KeepsEight(Attend):
    """The cache keeps eight tokens, a full pass sees all."""

    def append(self, cache: Kept, new: Kept) -> Kept:
        """The last eight."""
        k, v, places = super().append(cache, new)
        return k[:, :, -8:], v[:, :, -8:], places[:, -8:]


class Coarse(Attend):
    """The cache is rounded to 16 bits with each step."""

    def append(self, cache: Kept, new: Kept) -> Kept:
        """Keys and values in bfloat16."""
        k, v = (t.bfloat16().float() for t in cache[:2])
        return super().append((k, v, cache[2]), new)


class EarlyOutputs(Toy):
    """Outputs are moved one place forward, as targets should have been."""

    def forward(self, *given: Any, **named: Any) -> tuple[Tensor, list[Kept]]:
        """Output i is that of token i + 1."""
        out, kept = super().forward(*given, **named)
        return out.roll(-1, 1), kept


class Rolled(Toy):
    """Inputs are moved one place back by roll, so that the last comes first."""

    def look_up(self, ids: Tensor) -> Tensor:
        """The token before each, and the last before the first."""
        return super().look_up(ids.roll(1, 1))
