"""Rotations with one bug each, and the correct ones in the shapes that people write."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab import scaling
from pe_lab.doctor.mutants import Healthy, Mutant
from pe_lab.encodings.axial import AxialRoPE, MRoPE
from pe_lab.encodings.rope import RoPE
from pe_lab.encodings.xpos import XPos

Turn = Callable[..., Any]
Table = tuple[Tensor, Tensor]
PAPER = {"base": 1e4}


# ------------------------------------------------------------------- the pieces


def _ladder(dim: int, base: float = 1e4) -> Tensor:
    return 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)


def _table(positions: Tensor, inv_freq: Tensor) -> Table:
    """cos and sin, (L, D/2) or (B, 1, L, D/2)."""
    angles = positions[..., None].float() * inv_freq
    angles = angles[:, None] if angles.dim() == 3 else angles
    return angles.cos(), angles.sin()


def _half(x: Tensor, table: Table) -> Tensor:
    cos, sin = table
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def _interleaved(x: Tensor, table: Table) -> Tensor:
    cos, sin = table
    a, b = x.float()[..., 0::2], x.float()[..., 1::2]
    both = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1)
    return both.flatten(-2).to(x.dtype)


def _rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def _rotate_two(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)


def _with(make: Callable[[int], Tensor]) -> Callable[[], Turn]:
    """The half layout with a ladder of one's own."""
    return lambda: lambda x, p: _half(x, _table(p, make(x.shape[-1])))


def _by(join: Callable[[Tensor, Table], Tensor]) -> Callable[[], Turn]:
    """The right table, joined with x in a way of one's own."""
    return lambda: lambda x, p: join(x, _table(p, _ladder(x.shape[-1])))


def _at(ids: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], Turn]:
    """The right rotation at the positions ids(x, positions)."""
    return lambda: lambda x, p: _half(x, _table(ids(x, p), _ladder(x.shape[-1])))


def _both(q: Turn, k: Turn) -> Callable[[], Turn]:
    """f(q, k, positions), each side by its own rule."""
    return lambda: lambda a, b, p: (q(a, p), k(b, p))


def _plain(x: Tensor, positions: Tensor) -> Tensor:
    return _half(x, _table(positions, _ladder(x.shape[-1])))


# ----------------------------------------------------------- layout and lengths


def _backwards(x: Tensor, table: Table) -> Tensor:
    return _half(x, (table[0], -table[1]))


def _no_minus(x: Tensor, table: Table) -> Tensor:
    cos, sin = table
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos + b * sin, b * cos + a * sin), dim=-1)


def _swapped(x: Tensor, table: Table) -> Tensor:
    return _half(x, (table[1], table[0]))


def _tiled_for_two(x: Tensor, table: Table) -> Tensor:
    cos, sin = (t.repeat_interleave(2, -1) for t in table)
    return x * cos + _rotate_half(x) * sin


def _tiled_for_half(x: Tensor, table: Table) -> Tensor:
    cos, sin = (torch.cat((t, t), -1) for t in table)
    return x * cos + _rotate_two(x) * sin


def _joined_otherwise(x: Tensor, table: Table) -> Tensor:
    cos, sin = table
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def _overwritten(x: Tensor, table: Table) -> Tensor:
    cos, sin = table
    a, b = x.chunk(2, dim=-1)
    a = a * cos - b * sin
    return torch.cat((a, a * sin + b * cos), dim=-1)


def _next_sine(x: Tensor, table: Table) -> Tensor:
    return _half(x, (table[0], table[1].roll(1, -1)))


def _one_side(x: Tensor, table: Table) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * table[0] - b * table[1], b), dim=-1)


def _some_backwards(x: Tensor, table: Table) -> Tensor:
    sin = table[1].clone()
    sin[..., 1::2] *= -1
    return _half(x, (table[0], sin))


def _gain_on_cosine(x: Tensor, table: Table) -> Tensor:
    return _half(x, (table[0] * 1.1386, table[1]))


def _zeta(x: Tensor, positions: Tensor) -> Tensor:
    pairs = torch.arange(0, x.shape[-1], 2)
    zeta = (pairs / x.shape[-1] + 0.4) / 1.4
    scale = zeta ** (positions[:, None] / 512)
    return torch.cat((scale, scale), dim=-1).to(x.dtype)


def _grows(x: Tensor, positions: Tensor) -> Tensor:
    return _plain(x, positions) * _zeta(x, positions)


def _shrinks(x: Tensor, positions: Tensor) -> Tensor:
    return _plain(x, positions) / _zeta(x, positions)


def _moving_centre(power: int) -> Turn:
    def turn(x: Tensor, p: Tensor) -> Tensor:
        return _plain(x, p) * _zeta(x, p - len(p) // 2) ** power

    return turn


def _yarn(gain: float) -> Callable[[], RoPE]:
    def rule(w: Tensor) -> Tensor:
        return scaling.yarn(w, 4, original_length=4096)

    return lambda: RoPE(64, scaling=rule, gain=gain)


# ------------------------------------------------------------- width and ladder


def _part(width: int, span: int, apart: int | None = None) -> Callable[[], Turn]:
    """The first width channels of a head, a ladder over span, partners `apart`."""

    def turn(x: Tensor, p: Tensor) -> Tensor:
        far = width // 2 if apart is None else apart
        cos, sin = _table(p, _ladder(span)[: width // 2])
        out = x.clone()
        a, b = x[..., : width // 2], x[..., far : far + width // 2]
        out[..., : width // 2] = a * cos - b * sin
        out[..., far : far + width // 2] = b * cos + a * sin
        return out

    return lambda: turn


def _power(exponents: Callable[[Tensor, int], Tensor]) -> Callable[[], Turn]:
    return _with(lambda d: 1e4 ** -exponents(torch.arange(d // 2).float(), d))


def _floored(d: int) -> Tensor:
    step = -math.log(1e4) / d // 2
    return torch.exp(2 * torch.arange(d // 2).float() * step)


def _ramp_upside_down(d: int) -> Tensor:
    w = _ladder(d).double()
    kept = ((w * 4096 / math.tau - 1) / 31).clamp(0, 1)
    return (w * (1 - kept) + w / 8 * kept).float()


def _doubly_scaled(x: Tensor, p: Tensor) -> Tensor:
    return _half(x, _table(p / 4, _ladder(x.shape[-1]) / 4))


def _by_length(x: Tensor, p: Tensor) -> Tensor:
    d, grown = x.shape[-1], max(1.0, 2 * (int(p.max()) + 1) / 16 - 1)
    return _half(x, _table(p, _ladder(d, 1e4 * grown ** (d / (d - 2)))))


def _by_longest(x: Tensor, p: Tensor) -> Tensor:
    stretch = 4.0 if int(p.max()) >= 4096 else 1.0
    return _half(x, _table(p, _ladder(x.shape[-1]) / stretch))


def _whole_angles(x: Tensor, p: Tensor) -> Tensor:
    angles = (p[:, None] * _ladder(x.shape[-1])).floor()
    return _half(x, (angles.cos(), angles.sin()))


class _NeverBack(nn.Module):
    """Dynamic NTK that grows its base and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.inv_freq = 16, _ladder(64)

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        if int(p.max()) + 1 > self.seen:
            self.seen = int(p.max()) + 1
            self.inv_freq = _ladder(64, 1e4 * (2 * self.seen / 16 - 1) ** (64 / 62))
        return _half(x, _table(p, self.inv_freq))


# --------------------------------------------------------------- axes and shapes


def _along_heads(x: Tensor, p: Tensor) -> Tensor:
    cos, sin = _table(torch.arange(x.shape[1]), _ladder(x.shape[-1]))
    return _half(x, (cos[:, None], sin[:, None]))


def _along_batch(x: Tensor, p: Tensor) -> Tensor:
    cos, sin = _table(torch.arange(x.shape[0]), _ladder(x.shape[-1]))
    return _half(x, (cos[:, None, None], sin[:, None, None]))


def _flattened(x: Tensor, p: Tensor) -> Tensor:
    flat = x.flatten(1, 2)
    return _plain(flat, torch.arange(flat.shape[1])).view_as(x)


def _heads_third(x: Tensor, p: Tensor) -> Tensor:
    cos, sin = _table(p, _ladder(x.shape[-1]))
    return _half(x, (cos[:, None], sin[:, None]))


def _guesses_axis(x: Tensor, p: Tensor) -> Tensor:
    if x.shape[1] == len(p):
        return _plain(x.transpose(1, 2), p).transpose(1, 2)
    return _plain(x, p)


def _views(x: Tensor, p: Tensor) -> Tensor:
    batch, heads, length, d = x.shape
    return _plain(x.view(batch * heads, length, d), p).view(batch, heads, length, d)


def _squeezes(x: Tensor, p: Tensor) -> Tensor:
    return _plain(x, p).squeeze(2)


def _first_row(x: Tensor, p: Tensor) -> Tensor:
    return _plain(x, p[0] if p.dim() == 2 else p)


# ------------------------------------------------------------ caches and tables


class _KeyedByLength(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, Table] = {}

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        if len(p) not in self.kept:
            self.kept[len(p)] = _table(p, _ladder(x.shape[-1]))
        return _half(x, self.kept[len(p)])


class _Counts(nn.Module):
    """An offset of its own, to which every call adds the whole prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = self.prompt = 0

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        self.prompt = self.prompt or len(p)
        out = _plain(x, torch.arange(len(p)) + self.offset)
        self.offset += self.prompt
        return out


class _TurnsStoredKeys(nn.Module):
    """Gives all keys so far, and turns the stored ones with the new."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: Tensor | None = None

    def forward(self, q: Tensor, k: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        old = self.stored
        if old is not None and old.shape[:2] == k.shape[:2] and int(p[0]) > 0:
            k = torch.cat((old, k), dim=2)
        ids = torch.arange(k.shape[2]) if int(p[0]) > 0 else p
        self.stored = _plain(k, ids)
        return _plain(q, p), self.stored


class _Rows(nn.Module):
    """A table of 512 rows; `read` says how ids find their row."""

    cos: Tensor
    sin: Tensor

    def __init__(self, read: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.read = read
        cos, sin = _table(torch.arange(512), _ladder(64))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        cos, sin = (self.read(t, p) for t in (self.cos, self.sin))
        return _half(x, (cos, sin))


def _unturned_past(table: Tensor, p: Tensor) -> Tensor:
    first = table[0].expand(*p.shape, -1)
    return torch.where((p < len(table))[..., None], table[p % len(table)], first)


class _GrowsByChunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.size = 64

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        self.size = max(self.size, len(p))
        cos, sin = _table(torch.arange(self.size), _ladder(x.shape[-1]))
        return _half(x, (cos.to(x.device)[p], sin.to(x.device)[p]))


class _SizedByFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table: Table | None = None

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        if self.table is None:
            self.table = _table(torch.arange(int(p.max()) + 1), _ladder(x.shape[-1]))
        last = p.clamp(max=len(self.table[0]) - 1)
        return _half(x, (self.table[0][last], self.table[1][last]))


class _KeepsFirstDtype(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        size = int(p.max()) + 1
        if self.kept is None or len(self.kept) < size:
            ids = torch.arange(size).to(x.dtype)
            self.kept = ids[:, None] * _ladder(x.shape[-1]).to(x.dtype)
        angles = self.kept[p].float()
        return _half(x, (angles.cos(), angles.sin()))


class _CoarseCache(nn.Module):
    """Right at first; the second call reads what was stored in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.kept = 0, torch.zeros(8192, 32, dtype=torch.bfloat16)

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        end = int(p.max()) + 1
        if end <= self.size:
            angles = self.kept[p].float()
            return _half(x, (angles.cos(), angles.sin()))
        angles = torch.arange(end)[:, None] * _ladder(64)
        if end <= 8192:
            self.kept[:end], self.size = angles, end
        return _half(x, (angles[p].cos(), angles[p].sin()))


# --------------------------------------------------------- dtypes, modes, state


class _Buffer(nn.Module):
    """Frequencies as a buffer, so that .to(bfloat16) rounds them."""

    inv_freq: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", _ladder(64))

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        return _half(x, _table(p, self.inv_freq.float()))


class _Attribute(nn.Module):
    """A table that is no buffer: .to(device) leaves it behind."""

    def __init__(self) -> None:
        super().__init__()
        self.inv_freq = _ladder(64)

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        return _half(x, _table(p, self.inv_freq))


class _Inferred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[int, ...], Table] = {}

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        key = tuple(p.flatten().tolist())
        if key not in self.kept:
            self.kept[key] = _table(p, _ladder(64))
        return _half(x, self.kept[key])


class _OneOutput(nn.Module):
    """Keeps what it gave, and gives it again."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[Any, ...], Tensor] = {}

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        key = (x.shape, float(x.sum()), *p.flatten().tolist())
        if key not in self.kept:
            self.kept[key] = _plain(x, p)
        return self.kept[key]


def _in_dtype_of_x(x: Tensor, p: Tensor) -> Tensor:
    angles = p[:, None].to(x.dtype) * _ladder(x.shape[-1]).to(x.dtype)
    return _half(x, (angles.cos(), angles.sin()))


def _ids_in_dtype_of_x(x: Tensor, p: Tensor) -> Tensor:
    return _plain(x, p.to(x.dtype).float())


def _outer(x: Tensor, p: Tensor) -> Tensor:
    angles = p[:, None].float() @ _ladder(x.shape[-1])[None]
    return _half(x, (angles.float().cos(), angles.float().sin()))


def _wide_output(x: Tensor, p: Tensor) -> Tensor:
    return _plain(x.float(), p)


def _default_dtype(x: Tensor, p: Tensor) -> Tensor:
    w = 1.0 / 1e4 ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = (p[:, None] * w).float()
    return _half(x, (angles.cos(), angles.sin()))


def _in_place(x: Tensor, p: Tensor) -> Tensor:
    x.copy_(_plain(x, p))
    return x


def _rest(make: Callable[[Tensor], Tensor]) -> Callable[[], Turn]:
    """Half of the head turned, and the rest as `make` gives it."""

    def turn(x: Tensor, p: Tensor) -> Tensor:
        turned = _half(x[..., :32], _table(p, _ladder(32)))
        return torch.cat((turned, make(x)), dim=-1)

    return lambda: turn


def _cut(d: int) -> Tensor:
    w = _ladder(d, 5e5)
    return torch.where(math.tau / w > 2048, w / 8, w)


def _rounded_angles(dtype: torch.dtype) -> Callable[[], Turn]:
    def turn(x: Tensor, p: Tensor) -> Tensor:
        angles = (p[:, None] * _ladder(x.shape[-1])).to(dtype).float()
        return _half(x, (angles.cos(), angles.sin()))

    return lambda: turn


def _grid(axis_of: Callable[[Tensor, int], Tensor]) -> Callable[[], Turn]:
    """Two axes, each share of the channels turned by axis_of(places, share)."""

    def turn(x: Tensor, p: Tensor) -> Tensor:
        parts = [
            _half(part, _table(axis_of(p, share), _ladder(32)))
            for share, part in enumerate(x.chunk(2, dim=-1))
        ]
        return torch.cat(parts, dim=-1)

    return lambda: turn


def _by_heads(x: Tensor, p: Tensor) -> Tensor:
    bases = (1e4 * (1 + h) for h in range(x.shape[1]))
    turned = [
        _half(x[:, h], _table(p, _ladder(x.shape[-1], base)))
        for h, base in enumerate(bases)
    ]
    return torch.stack(turned, dim=1)


class _Learned(nn.Module):
    """Frequencies as a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.inv_freq = nn.Parameter(_ladder(64))

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        return _half(x, _table(p, self.inv_freq))


class _Gains(nn.Module):
    """A gain that grows with the longest text so far."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        self.seen = max(self.seen, int(p.max()))
        return _plain(x, p) * (0.1 * math.log(max(1.0, self.seen / 100)) + 1)


def _m(
    name: str, make: Callable[[], Any], *checks: str, source: str = "", **options: Any
) -> Mutant:
    return Mutant(name, "rope", make, checks, source=source, options=options)


def _f(turn: Turn) -> Callable[[], Turn]:
    return lambda: turn


def _fresh_ids(x: Tensor, p: Tensor) -> Tensor:
    return torch.arange(x.shape[2])


_LAYOUT = (
    _m("turned backwards", _by(_backwards), "D-LAYOUT"),
    _m("minus missing", _by(_no_minus), "D-NORM", "D-LAYOUT"),
    _m("sine and cosine swapped", _by(_swapped), "D-LAYOUT"),
    _m("half pairs, table tiled for neighbours", _by(_tiled_for_two), "D-LAYOUT"),
    _m(
        "neighbours, table tiled for halves",
        _by(_tiled_for_half),
        "D-LAYOUT",
        source="Tongjilibo/bert4torch#1",
    ),
    _m("split as neighbours, joined as halves", _by(_joined_otherwise), "D-LAYOUT"),
    _m("first of a pair overwritten too early", _by(_overwritten), "D-NORM"),
    _m("sines of the next pair", _by(_next_sine), "D-NORM", "D-LAYOUT"),
    _m("second of a pair left", _by(_one_side), "D-NORM", "D-LAYOUT"),
    _m("every other pair backwards", _by(_some_backwards), "D-LAYOUT"),
    _m(
        "interleaved for weights in halves",
        _by(_interleaved),
        "D-LAYOUT",
        source="huggingface/transformers#25199",
        expected={"layout": "half"},
    ),
    _m("gain on cosines only", _by(_gain_on_cosine), "D-NORM", "D-LAYOUT"),
    _m("YaRN gain twice", _yarn(scaling.yarn_gain(4) ** 2), "D-NORM"),
    _m(
        "YaRN gain missing",
        _yarn(1.0),
        "D-NORM",
        source="huggingface/transformers#38224",
        expected={"gain": scaling.yarn_gain(4)},
    ),
    _m("xPos, keys grow too", _both(_grows, _grows), "D-NORM"),
    _m("gain on keys alone", _both(_plain, lambda x, p: _plain(x, p) * 1.2), "D-NORM"),
    _m("xPos, keys not divided", _both(_grows, _plain), "D-NORM"),
    _m(
        "xPos, centre moves with the length",
        _both(_moving_centre(1), _moving_centre(-1)),
        "D-CACHE",
    ),
)
_WIDTH = (
    _m(
        "rotary width dropped",
        _f(_plain),
        "D-DIM",
        source="huggingface/transformers#48241",
        expected={"rotary_dim": 16},
    ),
    _m("partner half a head away", _part(16, 16, 32), "D-DIM"),
    _m("ladder of the whole head", _part(32, 64), "D-DIM"),
    _m("ladder of the whole head, a quarter turns", _part(16, 64), "D-DIM"),
    _m(
        "partner and ladder of the whole head",
        _part(16, 64, 32),
        "D-DIM",
        source="pie-project/pie#602",
        expected={"layout": "half", "rotary_dim": 16},
    ),
    _m(
        "last pair forgotten",
        _part(62, 64),
        "D-DIM",
        expected={"rotary_dim": 64},
    ),
    _m(
        "slowest pair at 0",
        _with(lambda d: _ladder(d) * (torch.arange(d // 2) < d // 2 - 1)),
        "D-DIM",
        "D-BASE",
    ),
    _m("rest of the head zero", _rest(lambda x: 0 * x[..., 32:]), "D-DIM"),
    _m(
        "first half again as the rest",
        _rest(lambda x: x[..., :32]),
        "D-DIM",
        "D-LAYOUT",
    ),
    _m(
        "rest cut one pair early",
        _rest(lambda x: x[..., 30:62]),
        "D-DIM",
        "D-LAYOUT",
    ),
)
_LADDER = (
    _m("exponents i/d", _power(lambda i, d: i / d), "D-BASE", expected=PAPER),
    _m("logarithms of positions", _at(lambda x, p: p.float().log1p()), "D-SHIFT"),
    _m("exponents 2i/(d−1)", _power(lambda i, d: 2 * i / (d - 1)), "D-BASE"),
    _m(
        "step counted twice",
        _power(lambda i, d: 4 * i / d),
        "D-BASE",
        source="SamLynnEvans/Transformer#25",
        expected=PAPER,
    ),
    _m("width of all heads", _power(lambda i, d: 2 * i / (8 * d)), "D-BASE"),
    _m("exponents from 2/d", _power(lambda i, d: 2 * (i + 1) / d), "D-BASE"),
    _m("exponents divided as integers", _power(lambda i, d: 2 * i // d), "D-BASE"),
    _m("step floored", _with(_floored), "D-BASE", source="zju3dv/LoFTR#41"),
    _m("exponents without minus", _power(lambda i, d: -2 * i / d), "D-BASE"),
    _m(
        "base of another family",
        _f(_plain),
        "D-BASE",
        source="vllm-project/vllm#9502",
        expected={"base": 5e5},
    ),
    _m(
        "Llama 3 rule not read",
        _with(lambda d: _ladder(d, 5e5)),
        "D-BASE",
        source="ggml-org/llama.cpp#8650",
        expected={"base": 5e5, "scaling": "llama3 8"},
    ),
    _m(
        "positions and frequencies both divided",
        _f(_doubly_scaled),
        "D-BASE",
        expected={"scaling": "linear 4"},
    ),
    _m("multiplied by the factor", _with(lambda d: _ladder(d) * 4), "D-BASE"),
    _m(
        "NTK without its exponent",
        _with(lambda d: _ladder(d, 8e4)),
        "D-BASE",
        expected={"scaling": "ntk 8"},
    ),
    _m("degrees", _with(lambda d: _ladder(d) * math.pi / 180), "D-BASE"),
    _m("evenly spaced", _with(lambda d: torch.arange(d, 0, -2).float() / d), "D-BASE"),
    _m("half a ladder twice", _with(lambda d: _ladder(d // 2).repeat(2)), "D-BASE"),
    _m(
        "frequencies shuffled",
        _with(lambda d: _ladder(d)[(7 * torch.arange(d // 2) + 3) % (d // 2)]),
        "D-BASE",
    ),
    _m("whole angles", _f(_whole_angles), "D-LONG"),
    _m("positions divided as integers", _at(lambda x, p: p // 4), "D-LONG"),
    _m(
        "divided from 2048 on",
        _at(lambda x, p: torch.where(p < 2048, p.float(), p.float() / 4)),
        "D-LEN",
    ),
    _m("turned twice", _f(lambda x, p: _plain(_plain(x, p), p)), "D-BASE"),
    _m("divided without a ramp", _with(_cut), "D-BASE"),
    _m(
        "YaRN multiplied by its factor",
        _with(
            lambda d: (
                4 * scaling.yarn(_ladder(d).double(), 4, original_length=4096)
            ).float()
        ),
        "D-BASE",
    ),
    _m("ramp upside down", _with(_ramp_upside_down), "D-BASE"),
    _m(
        "base grows with the text",
        _f(_by_length),
        "D-BASE",
        "D-CACHE",
        source="huggingface/transformers#25104",
    ),
    _m(
        "base grows and stays",
        _NeverBack,
        "D-BASE",
        "D-CACHE",
        "D-HISTORY",
        source="huggingface/transformers#27226",
    ),
    _m(
        "long factors by the longest row",
        _f(_by_longest),
        "D-BASE",
        "D-BATCH",
        "D-CACHE",
        source="huggingface/transformers#33129",
    ),
)
_AXES = (
    _m(
        "along the heads", _f(_along_heads), "D-ORDER", source="mlfoundations/open_lm#4"
    ),
    _m("along the batch", _f(_along_batch), "D-ORDER"),
    _m("heads and tokens flattened", _f(_flattened), "D-ORDER"),
    _m("a base for every head", _f(_by_heads), "D-ORDER"),
    _m("both shares by one axis", _grid(lambda p, share: p[:, 0]), "D-GRID"),
    _m(
        "axes added up",
        _grid(lambda p, share: p[:, share] + p[:, 0] * share),
        "D-GRID",
        "D-BASE",
    ),
    _m("heads expected third", _f(_heads_third), "D-ORDER"),
    _m(
        "one angle for all",
        _at(lambda x, p: torch.full_like(p, x.shape[2])),
        "D-ORDER",
    ),
    _m("ids not read", _at(_fresh_ids), "D-CACHE", "D-ORDER"),
    _m("axis guessed by its size", _f(_guesses_axis), "D-SHAPE"),
    _m("view of a transposed tensor", _f(_views), "D-SHAPE"),
    _m("single token squeezed", _f(_squeezes), "D-SHAPE"),
    _m(
        "row 0's ids for all",
        _f(_first_row),
        "D-BATCH",
        source="unslothai/unsloth#3699",
    ),
)
_KEYS = (
    _m("exchanged", lambda: lambda q, k, p: (_plain(k, p), _plain(q, p)), "D-SHAPE"),
    _m(
        "keys made of queries",
        lambda: lambda q, k, p: (_plain(q, p), _plain(q, p)),
        "D-SHAPE",
    ),
    _m("keys in reverse", _both(_plain, lambda x, p: _plain(x, p.flip(0))), "D-SHIFT"),
    _m(
        "keys turned in part",
        _both(_plain, lambda x, p: _rest(lambda y: y[..., 32:])()(x, p)),
        "D-SHIFT",
    ),
    _m(
        "keys backwards",
        _both(_plain, lambda x, p: _plain(x, -p)),
        "D-SHIFT",
    ),
    _m("keys not turned", _both(_plain, lambda x, p: x.clone()), "D-SHIFT"),
    _m("keys one further", _both(_plain, lambda x, p: _plain(x, p + 1)), "D-SHIFT"),
    _m(
        "keys by another base",
        _both(_plain, lambda x, p: _half(x, _table(p, _ladder(x.shape[-1], 1e5)))),
        "D-SHIFT",
    ),
    _m(
        "keys in the other layout",
        _both(_plain, lambda x, p: _interleaved(x, _table(p, _ladder(x.shape[-1])))),
        "D-SHIFT",
    ),
)
_MEMORY = (
    _m(
        "cache keyed by length",
        _KeyedByLength,
        "D-CACHE",
        "D-HISTORY",
        source="lucidrains/rotary-embedding-torch#11",
    ),
    _m("prompt added at every step", _Counts, "D-CACHE", source="skyzh/tiny-llm#46"),
    _m(
        "stored keys turned again",
        _TurnsStoredKeys,
        "D-CACHE",
        source="NeuraLegion/shainet#110",
    ),
    _m(
        "one token is always at 0",
        _at(lambda x, p: p * (len(p) > 1)),
        "D-CACHE",
        source="RobertCsordas/moeut#6",
    ),
    _m(
        "one token is one too far",
        _at(lambda x, p: p + (len(p) == 1)),
        "D-CACHE",
        source="microsoft/onnxruntime-genai#2354",
    ),
    _m(
        "only the first id counts",
        _at(lambda x, p: p[0] + torch.arange(len(p))),
        "D-CACHE",
        source="huggingface/nanoVLM#201",
    ),
    _m(
        "bound checked against the chunk",
        _GrowsByChunk,
        "D-LEN",
        "D-CACHE",
        "D-HISTORY",
        source="karpathy/nanochat#514",
    ),
    _m("counted from the first id", _at(lambda x, p: p - p[0]), "D-CACHE"),
    _m("table sized by the first call", _SizedByFirst, "D-CACHE", "D-HISTORY"),
    _m("ids sorted", _at(lambda x, p: p.sort().values), "D-CACHE"),
    _m("gain by the longest text", _Gains, "D-BATCH", "D-HISTORY", "D-CACHE"),
    _m("ids in 16 bits", _at(lambda x, p: p.to(torch.int16)), "D-LEN"),
    _m(
        "clamped to the table", lambda: _Rows(lambda t, p: t[p.clamp(max=511)]), "D-LEN"
    ),
    _m("wrapped into the table", lambda: _Rows(lambda t, p: t[p % 512]), "D-LEN"),
    _m("not turned past the table", lambda: _Rows(_unturned_past), "D-LEN"),
    _m("ids in 8 bits", _at(lambda x, p: p.to(torch.uint8)), "D-LEN"),
    _m("dtype of the first call kept", _KeepsFirstDtype, "D-HISTORY", "D-DTYPE"),
    _m("second call reads a coarse cache", _CoarseCache, "D-HISTORY", "D-CACHE"),
)
_TYPES = (
    _m("ids in bfloat16", _at(lambda x, p: p.bfloat16()), "D-LONG", "D-DTYPE"),
    _m(
        "ids in float16",
        _at(lambda x, p: p.half()),
        "D-LONG",
        "D-DTYPE",
        source="NVIDIA/Megatron-LM#535",
    ),
    _m("angles in bfloat16", _rounded_angles(torch.bfloat16), "D-LONG", "D-DTYPE"),
    _m("angles in float16", _rounded_angles(torch.float16), "D-LONG", "D-DTYPE"),
    _m("parameters cast with the module", _Learned, "D-DTYPE"),
    _m("frequencies in bfloat16", _with(lambda d: _ladder(d).bfloat16()), "D-DTYPE"),
    _m("frequencies in float16", _with(lambda d: _ladder(d).half()), "D-DTYPE"),
    _m(
        "angles in the dtype of x",
        _f(_in_dtype_of_x),
        "D-DTYPE",
        "D-HISTORY",
        source="huggingface/transformers#29285",
    ),
    _m(
        "ids in the dtype of x",
        _f(_ids_in_dtype_of_x),
        "D-DTYPE",
        source="keras-team/keras-hub#1544",
    ),
    _m("frequencies cast with the module", _Buffer, "D-DTYPE"),
    _m(
        "matrix product in autocast",
        _f(_outer),
        "D-DTYPE",
        source="lucidrains/rotary-embedding-torch#46",
    ),
    _m(
        "float32 for 16 bits",
        _f(_wide_output),
        "D-DTYPE",
        source="facebookresearch/xformers#742",
    ),
    _m("frequencies in the default dtype", _f(_default_dtype), "D-DTYPE"),
    _m(
        "plain attribute",
        _Attribute,
        "D-STATE",
        source="lyuwenyu/RT-DETR#677",
    ),
    _m("no gradient", lambda: torch.no_grad()(_plain), "D-STATE"),
    _m("detached input", _f(lambda x, p: _plain(x.detach(), p)), "D-STATE"),
    _m("table of inference mode kept", _Inferred, "D-STATE"),
    _m("output kept and given again", _OneOutput, "D-STATE"),
    _m("input overwritten", _f(_in_place), "D-INPUT", "D-STATE"),
)


def _token_by_token(x: Tensor, p: Tensor) -> Tensor:
    omega = _ladder(x.shape[-1])
    tables = [_table(p[..., [i]], omega) for i in range(x.shape[2])]
    rows = [_half(x[:, :, [i]], table) for i, table in enumerate(tables)]
    return torch.cat(rows, dim=2)


_EXPORT = (
    _m(
        "a loop over tokens, exported",
        _f(_token_by_token),
        "D-EXPORT",
        source="neuralmagic/sparseml#1826",
        compile=True,
    ),
)

MUTANTS = (*_LAYOUT, *_WIDTH, *_LADDER, *_AXES, *_KEYS, *_MEMORY, *_TYPES, *_EXPORT)


# ---------------------------------------------------------------------- healthy


def _complex(x: Tensor, p: Tensor) -> Tensor:
    angles = p[:, None].double() * _ladder(x.shape[-1]).double()
    turned = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turned).flatten(-2).to(x.dtype)


def _as_matrix(x: Tensor, p: Tensor) -> Tensor:
    d = x.shape[-1]
    first, second = torch.arange(0, d, 2), torch.arange(1, d, 2)
    cos, sin = _table(p, _ladder(d))
    matrix = torch.zeros(len(p), d, d)
    matrix[:, first, first], matrix[:, second, second] = cos, cos
    matrix[:, first, second], matrix[:, second, first] = -sin, sin
    with torch.autocast(x.device.type, enabled=False):
        return torch.einsum("lij,bhlj->bhli", matrix, x.float()).to(x.dtype)


class _Stored(nn.Module):
    """A table that refuses what it has not."""

    cos: Tensor
    sin: Tensor

    def __init__(self) -> None:
        super().__init__()
        cos, sin = _table(torch.arange(2048), _ladder(64))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, q: Tensor, k: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        table = (self.cos[p], self.sin[p])
        if p.dim() == 2:
            table = (table[0][:, None], table[1][:, None])
        return _half(q, table), _half(k, table)


def _twice(x: Tensor, p: Tensor) -> list[Tensor]:
    return [torch.cat((t, t), -1).to(x.dtype) for t in _table(p, _ladder(x.shape[-1]))]


class _Short(nn.Module):
    """77 rows, and a clear refusal."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = RoPE(64)

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        if int(p.max()) >= 77:
            raise ValueError(f"position {int(p.max())} is past the table of 77 rows")
        return self.turn.rotate(x, x, p, p)[0]


def _rope(**settings: Any) -> Callable[[], RoPE]:
    return lambda: RoPE(64, **settings)


def _h(name: str, make: Callable[[], Any], **identity: Any) -> Healthy:
    return Healthy(name, "rope", make, identity)


def _scaled(rule: Callable[[Tensor], Tensor]) -> Callable[[], RoPE]:
    return lambda: RoPE(64, scaling=rule)


_OURS = (
    Healthy("half, exported", "rope", _rope(), {"layout": "half"}, {"compile": True}),
    _h("half", _rope(), layout="half", base=1e4, rotary_dim=64, gain=1.0),
    _h("interleaved", _rope(layout="interleaved"), layout="interleaved", base=1e4),
    _h("base 500000", _rope(base=5e5), base=5e5, scaling="none"),
    _h("a quarter of the head", _rope(rotary_dim=16), rotary_dim=16, base=1e4),
    _h(
        "neighbours in half of the head",
        _rope(rotary_dim=32, layout="interleaved"),
        rotary_dim=32,
        layout="interleaved",
        base=1e4,
    ),
    _h("float32 as transformers", _rope(compat="hf"), layout="half", base=1e4),
    _h("narrow heads", lambda: RoPE(8), rotary_dim=8, base=1e4),
    _h("wide heads", lambda: RoPE(128, base=1e6), rotary_dim=128, base=1e6),
    _h("xPos", lambda: XPos(64), scheme="xPos", base=1e4),
    _h("xPos with a centre", lambda: XPos(64, centre=1000), scheme="xPos"),
    _h("two axes", lambda: AxialRoPE(64), scheme="axial RoPE", axes=2, base=1e4),
    _h("three axes", lambda: MRoPE(64, (8, 12, 12)), scheme="M-RoPE", axes=3),
    _h("linear", _scaled(lambda w: scaling.linear(w, 4)), scaling="linear 4"),
    _h("NTK-aware", _scaled(lambda w: scaling.ntk(w, 4)), scaling="ntk 4", base=1e4),
    _h("YaRN", _yarn(scaling.yarn_gain(4)), scaling="yarn 4", base=1e4),
    _h(
        "YaRN with other turns",
        lambda: RoPE(
            128,
            scaling=lambda w: scaling.yarn(
                w, 16, original_length=10000, beta_fast=16, beta_slow=2, truncate=False
            ),
        ),
        scaling="yarn 16",
        base=1e4,
    ),
    _h("an odd base", lambda: RoPE(128, base=1000042.0), scaling="none"),
    _h("a base of images", _rope(base=100.0), base=100.0),
    _h(
        "Llama 3",
        lambda: RoPE(
            128,
            base=5e5,
            scaling=lambda w: scaling.llama3(w, 8, original_length=8192),
        ),
        scaling="llama3 8",
        base=5e5,
    ),
    _h(
        "factors per pair",
        _scaled(lambda w: w / torch.linspace(1, 8, 32).square()),
        scaling="longrope",
    ),
)
_PATTERNS = (
    _h("halves by hand", _f(_plain), layout="half", base=1e4),
    _h("neighbours by hand", _by(_interleaved), layout="interleaved", base=1e4),
    _h("complex numbers", _f(_complex), layout="interleaved", base=1e4),
    _h("matrices", _f(_as_matrix), layout="interleaved", base=1e4),
    _h("stored table", _Stored, layout="half", base=1e4),
    _h("part of a head", _part(32, 32), rotary_dim=32, base=1e4),
    _h(
        "last channels, as DeepSeek",
        lambda: (
            lambda x, p: torch.cat(
                (x[..., :32], _interleaved(x[..., 32:], _table(p, _ladder(32)))), dim=-1
            )
        ),
        layout="interleaved",
        rotary_dim=32,
        base=1e4,
    ),
    _h(
        "two axes by hand",
        _grid(lambda p, share: p[:, share]),
        scheme="axial RoPE",
        base=1e4,
    ),
    _h(
        "16-bit tables, as transformers",
        lambda: lambda x, p: x * _twice(x, p)[0] + _rotate_half(x) * _twice(x, p)[1],
        layout="half",
    ),
    _h("counted from 1", _at(lambda x, p: p + 1), layout="half", base=1e4),
    _h("short table", _Short, layout="half", base=1e4),
    _h("proportional part", _part(16, 64, 32), rotary_dim=16, base=1e4),
    _h(
        "spaced as tensor2tensor",
        _power(lambda i, d: 2 * i / (d - 2)),
        spacing="tensor2tensor",
        base=1e4,
    ),
    _h(
        "frequencies of images",
        _with(lambda d: 0.3 + 0.09 * torch.arange(d // 2).float()),
        layout="half",
    ),
    _h(
        "queries by one side of xPos",
        _f(_grows),
        scheme="xPos",
    ),
    _h("xPos by hand", _both(_grows, _shrinks), scheme="xPos"),
)


# ------------------------------------------------------------------------ peers


def _llama() -> Turn:
    llama = import_module("transformers.models.llama.modeling_llama")
    config = import_module("transformers").LlamaConfig(
        hidden_size=256, num_attention_heads=4, max_position_embeddings=4096
    )
    table = llama.LlamaRotaryEmbedding(config)

    def turn(q: Tensor, k: Tensor, p: Tensor) -> Any:
        cos, sin = table(q, p)
        return llama.apply_rotary_pos_emb(q, k, cos, sin)

    return turn


def _gptj() -> Turn:
    gptj = import_module("transformers.models.gptj.modeling_gptj")
    table = gptj.create_sinusoidal_positions(2048, 64)

    def turn(x: Tensor, p: Tensor) -> Tensor:
        sin, cos = table[p].chunk(2, dim=-1)
        x = x.transpose(1, 2)
        cos, sin = cos[None].to(x.dtype), sin[None].to(x.dtype)
        turned: Tensor = gptj.apply_rotary_pos_emb(x, sin, cos)
        return turned.transpose(1, 2)

    return turn


def _scaled_llama() -> Turn:
    llama = import_module("transformers.models.llama.modeling_llama")
    rule = {
        "rope_type": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "rope_theta": 5e5,
    }
    config = import_module("transformers").LlamaConfig(
        hidden_size=256,
        num_attention_heads=2,
        rope_parameters=rule,
        max_position_embeddings=131072,
    )
    table = llama.LlamaRotaryEmbedding(config)

    def turn(q: Tensor, k: Tensor, p: Tensor) -> Any:
        return llama.apply_rotary_pos_emb(q, k, *table(q, p))

    return turn


def _x_transformers() -> Turn:
    peer = import_module("x_transformers.x_transformers")
    rotary = peer.RotaryEmbedding(64)

    def turn(x: Tensor, p: Tensor) -> Tensor:
        freqs, _ = rotary(p)
        turned: Tensor = peer.apply_rotary_pos_emb(x, freqs)
        return turned

    return turn


def _rotary_embedding_torch() -> Turn:
    peer = import_module("rotary_embedding_torch")
    rotary = peer.RotaryEmbedding(64, cache_if_possible=False)

    def turn(x: Tensor, p: Tensor) -> Tensor:
        turned: Tensor = peer.apply_rotary_emb(rotary(p.float()), x)
        return turned

    return turn


_PEERS = {
    "transformers": (
        _h("transformers, Llama", _llama, layout="half", base=1e4),
        _h("transformers, Llama 3", _scaled_llama, base=5e5, scaling="llama3 8"),
        _h("transformers, GPT-J", _gptj, layout="interleaved", base=1e4),
    ),
    "x_transformers": (_h("x-transformers", _x_transformers, base=1e4),),
    "rotary_embedding_torch": (
        _h("rotary-embedding-torch", _rotary_embedding_torch, layout="interleaved"),
    ),
}
HEALTHY = (
    *_OURS,
    *_PATTERNS,
    *(h for name, found in _PEERS.items() if find_spec(name) for h in found),
)
