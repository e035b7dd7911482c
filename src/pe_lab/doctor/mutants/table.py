"""Tables of positions with one bug each, and the correct ones that people write."""

# ruff: noqa: E501 (a catalogue: one line is one patient)

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pe_lab import scaling
from pe_lab.doctor.mutants import Healthy, Mutant
from pe_lab.encodings.sinusoidal import sinusoidal
from pe_lab.encodings.sinusoidal_grid import axial_sinusoidal
from pe_lab.frequencies import inv_freq
from pe_lab.positions import grid

Table = Callable[..., Any]


def _places(length: int) -> Tensor:
    return torch.arange(length, dtype=torch.float32)[:, None]


def _woven(angles: Tensor, width: int) -> Tensor:
    """Sines and cosines of the angles (L, pairs), in turns."""
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[:, :width]


def _pairs(width: int) -> Tensor:
    return torch.arange((width + 1) // 2, dtype=torch.float32)


def _of(rule: Callable[[Tensor, int], Tensor]) -> Table:
    """The table with frequencies rule(i, d)."""
    return lambda length, width: _woven(
        _places(length) * rule(_pairs(width), width), width
    )


def _at(places: Callable[[int], Tensor]) -> Table:
    """The right table at other positions."""
    return lambda length, width: _woven(
        places(length).float()[:, None] * _right(_pairs(width), width), width
    )


def _after(change: Callable[[Tensor], Tensor]) -> Table:
    """A change of the right table."""
    return lambda length, width: change(sinusoidal(length, width))


def _right(i: Tensor, width: int) -> Tensor:
    return 10000.0 ** (-2 * i / width)


def _textbook(length: int, width: int) -> Tensor:
    table = torch.zeros(length, width)
    position = torch.arange(0, length, dtype=torch.float).unsqueeze(1)
    div = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
    table[:, 0::2] = torch.sin(position * div)
    table[:, 1::2] = torch.cos(position * div)
    return table


def _halves(length: int, width: int) -> Tensor:
    angles = _places(length) * _right(_pairs(width), width)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


def _numpy(length: int, width: int) -> Any:
    table = np.zeros((length, width))
    for p in range(length):
        for i in range(0, width, 2):
            table[p, i] = math.sin(p / 10000 ** (i / width))
            if i + 1 < width:
                table[p, i + 1] = math.cos(p / 10000 ** (i / width))
    return table


def _own_step(length: int, width: int, factor: float) -> Tensor:
    """Each channel with the exponent factor·c/d."""
    c = torch.arange(width)
    angles = _places(length) / 10000.0 ** (factor * c / width)
    return torch.where(c % 2 == 0, angles.sin(), angles.cos())


def _loop_twice(length: int, width: int) -> Tensor:
    table = torch.zeros(min(length, 600), width)
    for p in range(len(table)):
        for i in range(0, width, 2):
            table[p, i] = math.sin(p / 10000 ** (2 * i / width))
            table[p, i + 1] = math.cos(p / 10000 ** (2 * (i + 1) / width))
    return table


def _next_cosine(length: int, width: int) -> Tensor:
    i = torch.arange(0, width, 2)
    sines = torch.sin(_places(length) / 10000.0 ** (i / width))
    cosines = torch.cos(_places(length) / 10000.0 ** ((i + 2) / width))
    return torch.stack((sines, cosines), dim=-1).flatten(-2)


def _overwritten(length: int, width: int) -> Tensor:
    """Cosines of columns that already hold sines."""
    table = _woven(_places(length) * _right(_pairs(width), width), width)
    table[:, 1::2] = table[:, : width // 2 * 2 : 2].cos()
    return table


def _swapped_indices(length: int, width: int) -> Tensor:
    position = torch.arange(0, width, 2).float()[None, :]
    exponent = 2 * torch.arange(length).float()[:, None] / width
    return _woven(position / 10000.0**exponent, width)


def _same_wave(wave: Callable[[Tensor], Tensor]) -> Table:
    def make(length: int, width: int) -> Tensor:
        angles = _places(length) * _right(_pairs(width), width)
        return torch.stack((wave(angles), wave(angles)), dim=-1).flatten(-2)

    return make


def _stacked_first(length: int, width: int) -> Tensor:
    angles = _places(length) * _right(_pairs(width), width)
    return torch.stack((angles.sin(), angles.cos())).reshape(length, width)


def _tiled(length: int, width: int) -> Tensor:
    """Sines in turns, but every cosine of the halves layout."""
    angles = _places(length) * _right(_pairs(width), width)
    table = torch.zeros(length, width)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = torch.cat((angles, angles), dim=-1)[:, 1::2].cos()
    return table


def _in(dtype: torch.dtype, what: str) -> Table:
    """Made in 16 bits: the positions, the frequencies, or the angles."""

    def make(length: int, width: int) -> Tensor:
        p, w = _places(length), _right(_pairs(width), width)
        if what == "positions":
            p = p.to(dtype).float()
        if what == "frequencies":
            w = w.to(dtype).float()
        angles = p * w
        if what == "angles":
            angles = (p.to(dtype) * w.to(dtype)).float()
        return _woven(angles, width)

    return make


def _keyed_by_width() -> Table:
    kept: dict[int, Tensor] = {}

    def make(length: int, width: int) -> Tensor:
        if width not in kept or len(kept[width]) < length:
            kept[width] = sinusoidal(length, width)
        return kept[width]

    return make


def _grows_wrongly() -> Table:
    """After it has grown, it hands out the last rows."""
    kept: dict[int, Tensor] = {}

    def make(length: int, width: int) -> Tensor:
        if width not in kept or len(kept[width]) < length:
            kept[width] = sinusoidal(length, width)
        return kept[width][-length:]

    return make


class _Rows(nn.Module):
    """A stored table of 512 rows, read as `pick` says."""

    def __init__(self, pick: Callable[[Tensor, int], Tensor], *, train: bool) -> None:
        super().__init__()
        self.pick = pick
        self.table = nn.Parameter(torch.randn(512, 32) * 0.02, requires_grad=train)

    def forward(self, length: int, width: int) -> Tensor:
        if width != 32:
            raise ValueError("width needs to be 32")
        return self.pick(self.table, length)


def _grid_code(change: Callable[[Tensor], Tensor]) -> Table:
    return lambda h, w, d: axial_sinusoidal(change(grid(h, w)), d)


def _wrong_grid(height: int, width: int, d: int) -> Tensor:
    return axial_sinusoidal(grid(width, height), d)


def _transposed_grid(height: int, width: int, d: int) -> Tensor:
    cells = axial_sinusoidal(grid(height, width), d).reshape(height, width, d)
    return cells.transpose(0, 1).reshape(height * width, d)


def _meshed_grid(height: int, width: int, d: int) -> Tensor:
    rows, columns = torch.meshgrid(
        torch.arange(height), torch.arange(width), indexing="ij"
    )
    first = sinusoidal(rows.T.flatten(), d // 2)
    return torch.cat((first, sinusoidal(columns.T.flatten(), d // 2)), dim=-1)


def _sick(
    name: str,
    table: Table,
    *checks: str,
    source: str = "",
    smallest: str = "",
    options: Mapping[str, Any] | None = None,
) -> Mutant:
    return Mutant(name, "table", lambda: table, checks, source, smallest, options or {})


_LOG = math.log(10000.0)
_GRID = {"axes": (5, 9)}
_ONE = "L=2, d=4: row 1 is [0.8415, 0.5403, 0.0100, 0.99995]"

MUTANTS = (
    _sick("exponent i/d, seen by what is expected", _of(lambda i, d: 10000.0 ** (-i / d)), "D-BASE", smallest=_ONE, options={"expected": {"base": 1e4}}),
    _sick("exponent i/d", _of(lambda i, d: 10000.0 ** (-i / d)), "D-BASE", smallest=_ONE),
    _sick("exponent 4i/d", _of(lambda i, d: 10000.0 ** (-4 * i / d)), "D-BASE", smallest=_ONE),
    _sick("exponent 2i/(d − 1)", _of(lambda i, d: 10000.0 ** (-2 * i / (d - 1))), "D-BASE", smallest=_ONE),
    _sick("exponent 2i/(d + 1)", _of(lambda i, d: 10000.0 ** (-2 * i / (d + 1))), "D-BASE", smallest=_ONE),
    _sick("exponent of a width of 512", _of(lambda i, d: 10000.0 ** (-2 * i / 512)), "D-BASE", smallest=_ONE),
    _sick("exponent of a width of 64", _of(lambda i, d: 10000.0 ** (-2 * i / 64)), "D-BASE", smallest=_ONE),
    _sick("pairs counted from 1", _of(lambda i, d: 10000.0 ** (-2 * (i + 1) / d)), "D-BASE", smallest="L=2, d=2: row 1 is [0.8415, 0.5403]"),
    _sick("odd numbers for even ones", _of(lambda i, d: 10000.0 ** (-(2 * i + 1) / d)), "D-BASE", smallest="L=2, d=2: row 1 is [0.8415, 0.5403]"),
    _sick("sign of the exponent lost", _of(lambda i, d: 10000.0 ** (2 * i / d)), "D-BASE", source="goodfire-ai/spd#88", smallest=_ONE),
    _sick("exponent divided in whole numbers", _of(lambda i, d: 10000.0 ** (-((2 * i) // d))), "D-BASE", source="Kyubyong/transformer#81", smallest=_ONE),
    _sick("angle divided in whole numbers", lambda n, d: _woven(_places(n) // 10000.0 ** (2 * _pairs(d) / d), d), "D-BASE", source="Kyubyong/transformer#81", smallest="L=2, d=4: row 1, channel 2 is 0.0100"),
    _sick("a / b // 2", _of(lambda i, d: torch.exp(i * (-_LOG / d // 2))), "D-BASE", source="zju3dv/LoFTR#41", smallest="d=8: logarithms of frequencies fall by 2.3026"),
    _sick("a / b // 2, step of two", _of(lambda i, d: torch.exp(2 * i * (-_LOG / d // 2))), "D-BASE", source="zju3dv/LoFTR#41", smallest="d=8: logarithms of frequencies fall by 2.3026"),
    _sick("loop step counted twice", _loop_twice, "D-BASE", source="SamLynnEvans/Transformer#25", smallest=_ONE),
    _sick("each channel its own frequency", lambda n, d: _own_step(n, d, 1.0), "D-BASE", smallest=_ONE),
    _sick("cosine of the next frequency", _next_cosine, "D-BASE", smallest=_ONE),
    _sick("log10 for log", _of(lambda i, d: torch.exp(-2 * i * math.log10(10000) / d)), "D-BASE", smallest=_ONE),
    _sick("log2 for log", _of(lambda i, d: torch.exp(-2 * i * math.log2(10000) / d)), "D-BASE", smallest=_ONE),
    _sick("a product for a power", _of(lambda i, d: 1 / (10000.0 * 2 * i / d)), "D-BASE", smallest="row 0 is [0, 1, …], not NaN"),
    _sick("** before *", _of(lambda i, d: 1 / (10000.0**2 * i / d)), "D-BASE", smallest="row 0 is [0, 1, …], not NaN"),
    _sick("1 + in the divisor", _of(lambda i, d: 1 / (1 + 10000.0 * 2 * i / d)), "D-BASE", smallest=_ONE),
    _sick("degrees", _of(lambda i, d: math.pi / 180 * _right(i, d)), "D-BASE", smallest="L=2, d=2: row 1 is [0.8415, 0.5403]"),
    _sick("2π too many", _of(lambda i, d: 2 * math.pi * _right(i, d)), "D-BASE", smallest="L=2, d=2: row 1 is [0.8415, 0.5403]"),
    _sick("position and pair swapped", _swapped_indices, "D-BASE", smallest="L=2, d=4: row 0 is [0, 1, 0, 1]"),
    _sick("steady frequencies: a linear ladder", _of(lambda i, d: 1 - 2 * i / d), "D-BASE", smallest="d=4: frequencies 1 and 0.01"),
    _sick("another base than expected", _of(lambda i, d: 5e5 ** (-2 * i / d)), "D-BASE", options={"expected": {"base": 1e4}}, smallest=_ONE),
    _sick("positions added up", _at(lambda n: torch.arange(n).cumsum(0)), "D-BASE", smallest="L=3, d=2: row 2 is [0.9093, −0.4161]"),
    _sick("cosines of sines", _overwritten, "D-BASE", "D-LAYOUT", smallest="L=2, d=2: row 1 is [0.8415, 0.5403]"),
    _sick("squared positions", _at(lambda n: torch.arange(n) ** 2), "D-BASE", smallest="L=3, d=2: row 2 is [0.9093, −0.4161]"),
    _sick("halves where turns are expected", _halves, "D-LAYOUT", source="allenai/allennlp#2993", options={"expected": {"order": "interleaved"}}, smallest=_ONE),
    _sick("cosine first where sine is expected", lambda n, d: sinusoidal(n, d).unflatten(1, (-1, 2)).flip(-1).flatten(1), "D-LAYOUT", options={"expected": {"order": "interleaved"}, "d_model": 32}, smallest="row 0 is [0, 1, …]"),
    _sick("negative sine", _after(lambda t: t * torch.tensor([-1.0, 1.0] * (t.shape[1] // 2))), "D-LAYOUT", smallest="row 1 starts with +0.8415", options={"d_model": 32}),
    _sick("negative cosine", _after(lambda t: t * torch.tensor([1.0, -1.0] * (t.shape[1] // 2))), "D-LAYOUT", smallest="row 0 is [0, 1, …]", options={"d_model": 32}),
    _sick("sines only", _same_wave(torch.sin), "D-LAYOUT", "D-NORM", smallest="row 0 is [0, 1, …]"),
    _sick("cosines only", _same_wave(torch.cos), "D-LAYOUT", "D-NORM", smallest="row 0 is [0, 1, …]"),
    _sick("stacked along the wrong axis", _stacked_first, "D-LAYOUT", smallest="row 0 is [0, 1, …]"),
    _sick("sines of one layout, cosines of the other", _tiled, "D-BASE", "D-LAYOUT", "D-NORM", source="Tongjilibo/bert4torch#1", smallest="d=4: channel 1 has frequency 1"),
    _sick("(d, L)", _after(lambda t: t.T), "D-SHAPE", smallest="L=7, d=32: shape (7, 32)"),
    _sick("one channel short", _after(lambda t: t[:, :-1]), "D-SHAPE", smallest="d=4: 4 channels", options={"d_model": 32}),
    _sick("odd width crashes", _textbook, "D-SHAPE", source="codertimo/BERT-pytorch#78", options={"d_model": 5}, smallest="d=5: 3 sines, 2 cosines"),
    _sick("odd width gives one more", _halves, "D-SHAPE", source="datawhalechina/base-llm#67", options={"d_model": 7}, smallest="d=7: 4 sines, 3 cosines"),
    _sick("half of the channels empty", _after(lambda t: torch.cat((t[:, : t.shape[1] // 2], 0 * t[:, t.shape[1] // 2 :]), dim=1)), "D-NORM", smallest="d=4: sin² + cos² = 1 in both pairs"),
    _sick("cosines of half size", _after(lambda t: t * torch.tensor([1.0, 0.5] * (t.shape[1] // 2))), "D-NORM", options={"d_model": 32}, smallest="sin² + cos² = 1"),
    _sick("added twice", _after(lambda t: t + t), "D-NORM", smallest="row 0 is [0, 1, …]"),
    _sick("sum of sine and cosine", lambda n, d: (_halves(n, 2 * d)[:, :d] + _halves(n, 2 * d)[:, d:]), "D-BASE", "D-NORM", "D-LAYOUT", smallest="row 0 is [0, 1, …]"),
    _sick("the position as a number", lambda n, d: _places(n).expand(n, d).clone(), "D-NORM", "D-LAYOUT", smallest="rows stay as large as row 0"),
    _sick("starts at 1", _at(lambda n: torch.arange(1, n + 1)), "D-OFFSET", smallest="row 0 is [0, 1, …]"),
    _sick("starts at −1", _at(lambda n: torch.arange(n) - 1), "D-OFFSET", smallest="row 0 is [0, 1, …]"),
    _sick("starts in the middle of a step", _at(lambda n: torch.arange(n) + 0.5), "D-OFFSET", smallest="row 0 is [0, 1, …]"),
    _sick("offset 2 where 0 is expected", _at(lambda n: torch.arange(n) + 2), "D-OFFSET", source="huggingface/transformers#20761", options={"expected": {"offset": 0}}, smallest="row 0 is [0, 1, …]"),
    _sick("counts down", _at(lambda n: n - 1 - torch.arange(n)), "D-OFFSET", smallest="L=2, d=2: row 0 is [0, 1]"),
    _sick("each pair starts elsewhere", lambda n, d: _woven(_places(n) * _right(_pairs(d), d) + _pairs(d), d), "D-OFFSET", smallest="row 0 is [0, 1, …]"),
    _sick("positions divided by the length", _at(lambda n: torch.arange(n) / n), "D-LEN", smallest="row 1 of 2 and of 3 rows is the same"),
    _sick("stops at 511", _at(lambda n: torch.arange(n).clamp(max=511)), "D-LEN", smallest="row 512 is not row 511"),
    _sick("wraps at 512", _at(lambda n: torch.arange(n) % 512), "D-LEN", smallest="row 512 is not row 0"),
    _sick("bytes wrap at 256", _at(lambda n: torch.arange(n).to(torch.uint8)), "D-LEN", smallest="row 256 is not row 0"),
    _sick("ends at 512 without a word", _after(lambda t: t[:512]), "D-LEN", source="karpathy/nanochat#514", smallest="L=513: 513 rows, or an error"),
    _sick("empty past 512", _after(lambda t: t * (torch.arange(len(t)) < 512)[:, None]), "D-LEN", smallest="row 512 is not 0"),
    _sick("one row loses its axis", _after(lambda t: t.squeeze(0)), "D-LEN", "D-SHAPE", smallest="L=1: shape (1, d)"),
    _sick("learned rows clamped", _Rows(lambda t, n: t[torch.arange(n).clamp(max=511)], train=True), "D-LEN", smallest="L=513: an error"),
    _sick("learned rows wrap", _Rows(lambda t, n: t[torch.arange(n) % 512], train=True), "D-LEN", smallest="L=513: an error"),
    _sick("every row the same", _after(lambda t: t[:1].expand(len(t), -1).clone()), "D-ORDER", smallest="row 1 is not row 0"),
    _sick("all zeros", _after(lambda t: 0 * t), "D-ORDER", smallest="row 1 is not row 0"),
    _sick("frequencies without a position", lambda n, d: _woven(_right(_pairs(d), d).expand(n, -1), d), "D-ORDER", smallest="row 1 is not row 0"),
    _sick("positions in bfloat16", _in(torch.bfloat16, "positions"), "D-DTYPE", source="huggingface/transformers#29285", smallest="rows 256 and 257 differ"),
    _sick("positions in float16", _in(torch.float16, "positions"), "D-DTYPE", source="NVIDIA/Megatron-LM#535", smallest="rows 2048 and 2049 differ"),
    _sick("frequencies in bfloat16", _in(torch.bfloat16, "frequencies"), "D-DTYPE", source="EleutherAI/gpt-neox#1003", smallest="L=258, d=32: row 257"),
    _sick("frequencies in float16", _in(torch.float16, "frequencies"), "D-DTYPE", smallest="L=1025, d=32: row 1024"),
    _sick("angles in bfloat16", _in(torch.bfloat16, "angles"), "D-DTYPE", smallest="rows 256 and 257 differ"),
    _sick("angles in float16", _in(torch.float16, "angles"), "D-DTYPE", smallest="rows 2048 and 2049 differ"),
    _sick("every second row empty", _after(lambda t: t * (torch.arange(len(t)) % 2 == 0)[:, None]), "D-NORM", "D-LEN", smallest="row 1 is not 0"),
    _sick("two rows alike", lambda n, d: sinusoidal(n, d)[torch.arange(n) // 2], "D-BASE", "D-ORDER", "D-NORM", smallest="row 1 is not row 0"),
    _sick("squared", _after(lambda t: t**2), "D-NORM", "D-BASE", "D-LAYOUT", smallest="sin² + cos² = 1"),
    _sick("times √d", lambda n, d: sinusoidal(n, d) * math.sqrt(d), "D-SCALE", smallest="row 0 is [0, 1, …]"),
    _sick("cut off at 0", _after(lambda t: t.relu()), "D-NORM", "D-BASE", smallest="sin² + cos² = 1"),
    _sick("squeezed by tanh", _after(lambda t: t.tanh()), "D-NORM", "D-BASE", smallest="sin² + cos² = 1"),
    _sick("row 0 kept for padding", lambda n, d: torch.cat((torch.zeros(1, d), sinusoidal(n, d)))[:n], "D-OFFSET", source="huggingface/sentence-transformers#3879", options={"d_model": 32}, smallest="row 0 is [0, 1, …]"),
    _sick("rolled by one", _after(lambda t: t.roll(1, 0)), "D-OFFSET", "D-LEN", smallest="row 0 is [0, 1, …]"),
    _sick("channels shuffled", _after(lambda t: t[:, torch.randperm(t.shape[1], generator=torch.Generator().manual_seed(0))]), "D-LAYOUT", smallest="row 0 is [0, 1, …]"),
    _sick("cosines from the slow end", lambda n, d: torch.cat((_halves(n, d)[:, : d // 2], _halves(n, d)[:, d // 2 :].flip(1)), dim=1), "D-LAYOUT", "D-BASE", smallest=_ONE, options={"d_model": 32}),
    _sick("slowest pair first", _of(lambda i, d: _right(i, d).flip(0)), "D-BASE", smallest=_ONE),
    _sick("the negative sine for a cosine", lambda n, d: torch.stack((sinusoidal(n, d)[:, ::2], -sinusoidal(n, d)[:, ::2]), dim=-1).flatten(-2), "D-LAYOUT", options={"d_model": 32}, smallest="row 0 is [0, 1, …]"),
    _sick("finished angles rounded to bfloat16", lambda n, d: _woven((_places(n) * _right(_pairs(d), d)).bfloat16().float(), d), "D-DTYPE", smallest="rows 256 and 257 differ"),
    Mutant("kept by width, whatever the length", "table", _keyed_by_width, ("D-HISTORY", "D-LEN", "D-SHAPE"), smallest="f(64, 8), then f(5, 8): 5 rows"),
    Mutant("hands out the last rows", "table", _grows_wrongly, ("D-HISTORY", "D-LEN", "D-OFFSET"), smallest="f(64, 8), then f(5, 8)[0] is [0, 1, …]"),
    Mutant("gives its own store away", "table", lambda: functools.cache(lambda n, d: sinusoidal(n, d)), ("D-HISTORY",), source="tatp22/multidim-positional-encoding", smallest="f(2, 2).add_(1), then f(2, 2)[0] is [0, 1]"),
    _sick("a grid of the other shape", _wrong_grid, "D-GRID", options=_GRID, source="huggingface/transformers#41380", smallest="2×3: rows 0, 0, 0, 1, 1, 1"),
    _sick("a grid flattened by columns", _transposed_grid, "D-GRID", options=_GRID, source="pytorch/torchtitan#4244", smallest="2×3: rows 0, 0, 0, 1, 1, 1"),
    _sick("a mesh transposed before it is flattened", _meshed_grid, "D-GRID", options=_GRID, smallest="2×3: rows 0, 0, 0, 1, 1, 1"),
    _sick("the row for both axes", _grid_code(lambda p: p[:, :1].expand(-1, 2)), "D-GRID", options=_GRID, smallest="2×3: columns 0, 1, 2, 0, 1, 2"),
    _sick("row plus column", lambda h, w, d: sinusoidal(grid(h, w).sum(-1), d), "D-GRID", options=_GRID, smallest="2×2: cells 1 and 2 differ"),
    _sick("column first where the row is expected", _grid_code(lambda p: p.flip(-1)), "D-GRID", options={**_GRID, "expected": {"axes": "row first"}}, source="facebookresearch/mae#18", smallest="2×2: channel 0 is 0 in cell 1"),
    _sick("a grid that starts at 1", _grid_code(lambda p: p + 1), "D-OFFSET", options=_GRID, smallest="cell 0 is [0, 1, …]"),
)  # fmt: skip


def _well(
    name: str,
    table: Table,
    identity: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Healthy:
    return Healthy(name, "table", lambda: table, identity or {}, options or {})


def _with(**options: Any) -> Table:
    return lambda length, width: sinusoidal(length, width, **options)


def _tensor2tensor(length: int, width: int) -> Tensor:
    half = width // 2
    rate = torch.exp(torch.arange(half).float() * (-math.log(10000.0) / (half - 1)))
    angles = _places(length) * rate
    table = torch.cat((angles.sin(), angles.cos()), dim=1)
    return torch.cat((table, torch.zeros(length, 1)), dim=1) if width % 2 else table


def _scaled(rule: Callable[[Tensor], Tensor]) -> Table:
    return lambda length, width: sinusoidal(
        length, width, inv_freq=rule(inv_freq(width))
    )


def _radians(length: int, width: int) -> Any:
    channel = np.arange(width)[None]
    return np.arange(length)[:, None] / 10000 ** (
        2 * (channel // 2) / np.float32(width)
    )


_SINES = {"scheme": "sinusoidal", "base": 10000.0, "offset": 0}

HEALTHY = (
    _well("sinusoids of the paper", _with(), {**_SINES, "order": "interleaved", "spacing": "paper", "scaling": "none"}),
    _well("sines, then cosines", _with(order="halves"), {**_SINES, "order": "halves"}),
    _well("as textbooks fill it", _textbook, {**_SINES, "order": "interleaved"}),
    _well("as textbooks fill it, one width", _textbook, {**_SINES, "order": "interleaved"}, {"d_model": 512}),
    _well("halves by concatenation", _halves, {**_SINES, "order": "halves"}),
    _well("two loops over an array", lambda n, d: _numpy(min(n, 300), d) if n <= 300 else 1 / 0, _SINES),
    _well("a leading axis", lambda n, d: sinusoidal(n, d)[None], _SINES),
    _well("in float64", _with(dtype=torch.float64), _SINES),
    _well("stored in bfloat16", _with(dtype=torch.bfloat16), _SINES),
    _well("stored in float16", _with(dtype=torch.float16), _SINES),
    _well("an odd width", _with(), _SINES, {"d_model": 33}),
    _well("an odd width, halves", _with(order="halves"), _SINES, {"d_model": 33}),
    _well("an odd width, filled up with a zero", _tensor2tensor, {"scheme": "sinusoidal", "order": "halves"}, {"d_model": 33}),
    _well("spacing of tensor2tensor", _tensor2tensor, {**_SINES, "spacing": "tensor2tensor", "order": "halves"}, {"d_model": 64}),
    _well("powers for exponentials", lambda n, d: _woven(torch.arange(n)[:, None] / 10000 ** (2 * torch.arange((d + 1) // 2) / d), d), _SINES),
    _well("cosine first", lambda n, d: _halves(n, d).roll(d // 2, 1), {**_SINES, "order": "halves, cosine first"}, {"d_model": 32}),
    _well("cosine first, in turns", lambda n, d: sinusoidal(n, d).unflatten(1, (-1, 2)).flip(-1).flatten(1), {**_SINES, "order": "interleaved, cosine first"}, {"d_model": 32}),
    _well("cosine first, as expected", lambda n, d: sinusoidal(n, d).unflatten(1, (-1, 2)).flip(-1).flatten(1), {}, {"d_model": 32, "expected": {"order": "interleaved, cosine first"}}),
    _well("base 500000", _with(base=5e5), {"base": 5e5}),
    _well("base 1000", _with(base=1e3), {"base": 1e3}),
    _well("base 100, as expected", _with(base=100.0), {"base": 100.0}, {"expected": {"base": 100}}),
    _well("offset 2, as expected", lambda n, d: sinusoidal(torch.arange(n) + 2, d), {"offset": 2}, {"expected": {"offset": 2}}),
    _well("small", lambda n, d: 0.02 * sinusoidal(n, d), {"gain": 0.02}),
    _well("unit rows", lambda n, d: sinusoidal(n, d) * (2 / d) ** 0.5, _SINES),
    _well("positions interpolated by 4", _scaled(lambda w: scaling.linear(w, 4.0)), {"scaling": "linear 4"}),
    _well("Llama 3's frequencies", _scaled(lambda w: scaling.llama3(w, 8.0, original_length=8192)), {"base": 10000.0}),
    _well("YaRN's frequencies", _scaled(lambda w: scaling.yarn(w, 4.0, original_length=2048)), {"base": 10000.0}),
    _well("4 channels", _with(), _SINES, {"d_model": 4}),
    _well("768 channels", _with(), _SINES, {"d_model": 768}),
    _well("refuses beyond 512", lambda n, d: sinusoidal(n, d) if n <= 512 else [][0], _SINES),
    _well("refuses odd widths", lambda n, d: sinusoidal(n, d) if d % 2 == 0 else _refuse(d), _SINES),
    _well("50 rows", lambda n, d: sinusoidal(50, d)[torch.arange(n)], _SINES),
    _well("learned", _Rows(lambda t, n: t[torch.arange(n)], train=True), {"scheme": "learned"}),
    _well("learned, a slice", _Rows(lambda t, n: t[:n] if n <= 512 else [][0], train=True), {"scheme": "learned"}),
    _well("random and frozen", _Rows(lambda t, n: t[torch.arange(n)], train=False)),
    _well("rows drawn at each call", lambda n, d: torch.randn(n, d)),
    _well("zeros that learn", lambda n, d: nn.Parameter(torch.zeros(n, d)), {"scheme": "learned"}),
    _well("as another tutorial writes it", lambda n, d: np.where(np.arange(d) % 2 == 0, np.sin(_radians(n, d)), np.cos(_radians(n, d))), _SINES),
    _well("one-hot", lambda n, d: torch.eye(d)[torch.arange(n)]),
    _well("binary digits", lambda n, d: ((torch.arange(n)[:, None] >> torch.arange(d).clamp(max=60)) & 1).float()),
    _well("orthogonal rows", lambda n, d: torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(0)))[0][torch.arange(n)]),
    _well("base 20", _with(base=20.0), {"base": 20.0}),
    _well("a grid, row first", _grid_code(lambda p: p), {"scheme": "axial", "axes": "row first"}, _GRID),
    _well("a grid, column first", _grid_code(lambda p: p.flip(-1)), {"axes": "column first"}, _GRID),
    _well("a grid with an axis of its own", lambda h, w, d: axial_sinusoidal(grid(h, w), d).reshape(h, w, d), {"axes": "row first"}, _GRID),
    _well("a tall grid", _grid_code(lambda p: p), {"axes": "row first"}, {"axes": (14, 3)}),
    _well("a square grid", _grid_code(lambda p: p), {"axes": "row first"}, {"axes": (7, 7)}),
    _well("learned cells", lambda h, w, d: nn.Parameter(torch.randn(h * w, d)), {"scheme": "learned"}, _GRID),
    _well("a grid along the raster", lambda n, d: sinusoidal(n, d), {"scheme": "sinusoidal along the raster"}, _GRID),
)  # fmt: skip


def _refuse(width: int) -> Tensor:
    raise ValueError(f"width needs to be even, got {width}")
