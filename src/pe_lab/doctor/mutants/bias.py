"""Biases with one bug each, and correct ones of every convention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.mutants import Healthy, Mutant
from pe_lab.encodings.alibi import ALiBi, alibi_bias, alibi_slopes
from pe_lab.encodings.fire import Fire
from pe_lab.encodings.kerple import Kerple
from pe_lab.encodings.t5 import T5Bias, t5_bucket
from pe_lab.encodings.tupe import TUPE

Bias = Callable[[Any, Any], Any]


def _gaps(q_len: int, k_len: int) -> Tensor:
    """m − n, the queries being the last of the keys."""
    return torch.arange(k_len - q_len, k_len)[:, None] - torch.arange(k_len)


def _slopes(heads: int = 8) -> Tensor:
    return alibi_slopes(heads).float()[:, None, None]


def _linear(q_len: int, k_len: int) -> Tensor:
    return -_slopes() * _gaps(q_len, k_len)


def _both_ways(q_len: int, k_len: int) -> Tensor:
    return -_slopes() * _gaps(q_len, k_len).abs()


def _weights(rows: int, heads: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, heads, generator=generator)


def _t5(q_len: int, k_len: int, bidirectional: bool = False) -> Tensor:
    rows = t5_bucket(-_gaps(q_len, k_len), bidirectional=bidirectional)
    return _weights(32)[rows].permute(2, 0, 1)


# --- one direction, sign, axes


def _transposed(q_len: int, k_len: int) -> Tensor:
    return _linear(q_len, k_len).transpose(1, 2)


def _heads_last(q_len: int, k_len: int) -> Tensor:
    return _linear(q_len, k_len).permute(1, 2, 0)


def _reshaped(q_len: int, k_len: int) -> Tensor:
    last = _linear(q_len, k_len).permute(1, 2, 0).contiguous()
    return last.view(8, q_len, k_len)


def _heads_in_the_middle(q_len: int, k_len: int) -> Tensor:
    return _linear(q_len, k_len).transpose(0, 1)


def _no_query_axis(q_len: int, k_len: int) -> Tensor:
    return alibi_slopes(8).float()[:, None] * torch.arange(k_len)


def _from_the_start(q_len: int, k_len: int) -> Tensor:
    return -_slopes() * torch.arange(k_len).expand(q_len, k_len)


def _queries_from_the_start(q_len: int, k_len: int) -> Tensor:
    gaps = torch.arange(q_len)[:, None] - torch.arange(k_len)
    return -_slopes() * gaps.abs()


def _over_queries(q_len: int, k_len: int) -> Tensor:
    return _slopes() * torch.arange(q_len)


def _square_of_keys(q_len: int, k_len: int) -> Tensor:
    return _both_ways(k_len, k_len)


def _square_only(q_len: int, k_len: int) -> Tensor:
    gaps = torch.arange(k_len)[:, None] - torch.arange(k_len)
    return (-_slopes() * gaps.abs()) + torch.zeros(q_len, k_len)


def _centre_off_by_one(q_len: int, k_len: int) -> Tensor:
    return -_slopes() * (_gaps(q_len, k_len) - 1).abs()


def _same_for_a_row(q_len: int, k_len: int) -> Tensor:
    own = torch.arange(k_len - q_len, k_len)[:, None]
    return (-_slopes() * own).expand(8, q_len, k_len)


def _whole_slopes(q_len: int, k_len: int) -> Tensor:
    return -_slopes().long() * _gaps(q_len, k_len).abs()


def _mask(q_len: int, k_len: int, *, above: bool = True) -> Tensor:
    gaps = _gaps(q_len, k_len)
    hidden = gaps < 0 if above else gaps > 0
    return torch.zeros(q_len, k_len).masked_fill(hidden, -math.inf)


def _of_length(q_len: int, k_len: int) -> Tensor:
    return _both_ways(q_len, k_len) / k_len


def _mixed_signs(q_len: int, k_len: int) -> Tensor:
    signs = torch.tensor([1.0, -1.0] * 4)[:, None, None]
    return signs * _both_ways(q_len, k_len)


def _product(q_len: int, k_len: int) -> Tensor:
    own = torch.arange(k_len - q_len, k_len)[:, None]
    return -_slopes() * own * torch.arange(k_len)


def _sum(q_len: int, k_len: int) -> Tensor:
    own = torch.arange(k_len - q_len, k_len)[:, None]
    return -_slopes() * torch.log1p(own + torch.arange(k_len))


# --- slopes


def _with(slopes: Callable[[int], Tensor], heads: int) -> Bias:
    return lambda q, k: -slopes(heads).float()[:, None, None] * _gaps(q, k).abs()


def _one_sequence(heads: int) -> Tensor:
    return 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)


def _one_slope(heads: int) -> Tensor:
    return torch.full((heads,), 0.5)


# --- 16 bits


def _absolute(q_len: int, k_len: int) -> Tensor:
    return (_slopes() * torch.arange(k_len)).expand(8, q_len, k_len)


def _absolute_bf16(q_len: int, k_len: int) -> Tensor:
    return _absolute(q_len, k_len).bfloat16()


def _positions_bf16(q_len: int, k_len: int) -> Tensor:
    own = torch.arange(k_len - q_len, k_len).bfloat16()[:, None]
    return -_slopes() * (own - torch.arange(k_len).bfloat16()).float()


def _positions_half(q_len: int, k_len: int) -> Tensor:
    slopes = _slopes(16).half()
    own = torch.arange(k_len - q_len, k_len).half()[:, None] * slopes
    return (torch.arange(k_len).half() * slopes - own).float()


def _default_dtype(q_len: int, k_len: int) -> Tensor:
    dtype = torch.get_default_dtype()
    keys = torch.arange(k_len, dtype=dtype)
    return -_slopes() * (
        torch.arange(k_len - q_len, k_len, dtype=dtype)[:, None] - keys
    )


def _outer_by_matmul(q_len: int, k_len: int) -> Tensor:
    row = _slopes()[:, 0] @ torch.arange(float(k_len))[None]
    return row[:, None] - row[:, k_len - q_len :, None]


class _Cast(nn.Module):
    """slope·j from buffers that a cast rounds."""

    slopes: Tensor
    places: Tensor

    def __init__(self, heads: int = 8, length: int = 8192) -> None:
        super().__init__()
        self.register_buffer("slopes", _slopes(heads))
        self.register_buffer("places", torch.arange(float(length)))

    def forward(self, q_len: int, k_len: int) -> Tensor:
        row = self.slopes * self.places[:k_len]
        return row.expand(len(row), q_len, k_len)


class _CastIds(_Cast):
    """m − n from a buffer of positions in floating point."""

    def forward(self, q_len: int, k_len: int) -> Tensor:
        own = self.places[k_len - q_len : k_len, None]
        return -self.slopes * (own - self.places[:k_len])


# --- buckets and tables


def _log_bucket(
    gaps: Tensor,
    *,
    bidirectional: bool = False,
    buckets: int = 32,
    far: int = 128,
    halve: bool = True,
    exact: float = 0.5,
    clip: bool = True,
    up: bool = False,
    swapped: bool = False,
    offset: bool = True,
) -> Tensor:
    """T5's buckets of m − n with a place for each slip."""
    base = torch.zeros_like(gaps)
    if bidirectional:
        buckets = buckets // 2 if halve else buckets
        ahead = gaps > 0 if swapped else gaps < 0
        base = ahead.long() * (buckets if offset else 0)
        gaps = gaps.abs()
    else:
        gaps = gaps.clamp(min=0)
    small = int(buckets * exact)
    wide = (gaps.clamp(min=1) / small).log() / math.log(far / small) * (buckets - small)
    wide = small + (wide.ceil() if up else wide).long()
    wide = wide.clamp(max=buckets - 1) if clip else wide
    return base + torch.where(gaps < small, gaps, wide)


def _buckets(rows: int = 32, **slips: Any) -> Bias:
    def bias(q_len: int, k_len: int) -> Tensor:
        found = _log_bucket(_gaps(q_len, k_len), **slips)
        return _weights(rows)[found].permute(2, 0, 1)

    return bias


class _Table(nn.Module):
    """A trained table of buckets, as modules have it; m − n or n − m goes in."""

    def __init__(self, *, sign: int = 1, rows: int = 32, **slips: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(_weights(rows))
        self.sign, self.slips = sign, slips

    def forward(self, q_len: int, k_len: int) -> Tensor:
        found = _log_bucket(self.sign * _gaps(q_len, k_len), **self.slips)
        return self.weight[found].permute(2, 0, 1)


def _ahead_only(q_len: int, k_len: int) -> Tensor:
    found = _log_bucket(-_gaps(q_len, k_len))
    return _weights(32)[found].permute(2, 0, 1)


def _half_log(q_len: int, k_len: int) -> Tensor:
    gaps = _gaps(q_len, k_len).clamp(min=0)
    grown = gaps.clamp(min=1).bfloat16().log() - math.log(16)
    wide = (grown / math.log(8) * 16).long().clamp(max=15)
    return _weights(32)[torch.where(gaps < 16, gaps, 16 + wide)].permute(2, 0, 1)


def _late_boundary(q_len: int, k_len: int) -> Tensor:
    gaps = _gaps(q_len, k_len).clamp(min=0)
    rows = t5_bucket(-(gaps - 1).clamp(min=0), bidirectional=False)
    rows = torch.where(gaps <= 16, gaps.clamp(max=16), rows)
    return _weights(32)[rows].permute(2, 0, 1)


def _shaw(reach: int = 2, *, clip: bool = True) -> Bias:
    def bias(q_len: int, k_len: int) -> Tensor:
        rows = -_gaps(q_len, k_len)
        rows = rows.clamp(-reach, reach) if clip else rows
        return _weights(2 * reach + 1)[rows + reach].permute(2, 0, 1)

    return bias


class _RowsFromMinusOne(nn.Module):
    """A clipped table whose first distance reads row −1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(_weights(17))

    def forward(self, q_len: int, k_len: int) -> Tensor:
        rows = (-_gaps(q_len, k_len)).clamp(-8, 8) + 7
        return self.weight[rows].permute(2, 0, 1)


def _behind_unclipped(q_len: int, k_len: int) -> Tensor:
    rows = (-_gaps(q_len, k_len)).clamp(max=16) + 16
    wrapped = torch.where(rows < -33, rows % 33, rows)
    return _weights(33)[wrapped].permute(2, 0, 1)


def _modulo(q_len: int, k_len: int) -> Tensor:
    return _weights(64)[_gaps(q_len, k_len) % 64].permute(2, 0, 1)


def _relative_shift(q_len: int, k_len: int) -> Tensor:
    """Distances k_len − 1 … 0 in a row, shifted as if every row ended at its query."""
    row = _weights(4096)[torch.arange(k_len - 1, -1, -1)].T
    square = row[:, None].expand(4, q_len, k_len)
    padded = torch.cat((square.new_zeros(4, q_len, 1), square), -1)
    return padded.reshape(4, k_len + 1, q_len)[:, 1:].reshape(4, q_len, k_len)


def _one_too_far(q_len: int, k_len: int) -> Tensor:
    gaps = _gaps(q_len, k_len) + (1 if q_len == 1 else 0)
    return _weights(32)[t5_bucket(-gaps, bidirectional=True)].permute(2, 0, 1)


def _old_numbers_above(q_len: int, k_len: int) -> Tensor:
    """A lower triangle is filled in, into memory that was not empty."""
    generator = torch.Generator().manual_seed(2)
    old = torch.rand(64, 2048, generator=generator)[None]
    if k_len > 64:
        raise ValueError("at most 64 tokens")
    gaps = _gaps(q_len, k_len)
    return torch.where(
        gaps >= 0, -_slopes() * gaps, old[:, k_len - q_len : k_len, :k_len]
    )


def _kerple_without_abs(q_len: int, k_len: int) -> Tensor:
    return -_slopes() * torch.log1p(0.9 * _gaps(q_len, k_len))


def _kerple_up(q_len: int, k_len: int) -> Tensor:
    return _slopes() * torch.log1p(0.9 * _gaps(q_len, k_len).abs())


# --- memory


class _Kept(nn.Module):
    """The largest bias so far is kept and cut; `wrong` says how."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.wrong = wrong
        self.kept: dict[Any, Tensor] = {}

    def forward(self, q_len: int, k_len: int) -> Tensor:
        if self.wrong == "key of k":
            if k_len not in self.kept:
                self.kept[k_len] = _linear(q_len, k_len)
            return self.kept[k_len]
        if 0 not in self.kept or self.kept[0].shape[-1] < k_len:
            with torch.inference_mode(False):  # for training after it
                self.kept[0] = _both_ways(k_len, k_len)
        if self.wrong == "first rows":
            return self.kept[0][:, :q_len, :k_len]
        size = self.kept[0].shape[-1]
        return self.kept[0][:, size - q_len :, size - k_len :]


class _NeverGrows(_Kept):
    """What was made first is cut for every later call."""

    def forward(self, q_len: int, k_len: int) -> Tensor:
        if 0 not in self.kept:
            self.kept[0] = _both_ways(q_len, k_len)
        return self.kept[0][:, -q_len:, -k_len:]


class _Inference(nn.Module):
    """A buffer made at the first call, whatever the mode then."""

    slopes: Tensor
    kept: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slopes", _slopes())
        self.register_buffer("kept", None, persistent=False)

    def forward(self, q_len: int, k_len: int) -> Tensor:
        if self.kept is None or self.kept.shape[-1] < k_len:
            self.kept = -self.slopes * _gaps(k_len, k_len).to(self.slopes).abs()
        size = self.kept.shape[-1]
        return self.kept[:, size - q_len :, size - k_len :]


class _Plain(nn.Module):
    """Slopes as a plain attribute, beside a trained gain."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(8, 1, 1))
        self.slopes = _slopes()

    def forward(self, q_len: int, k_len: int) -> Tensor:
        gaps = _gaps(q_len, k_len).to(self.gain.device).abs()
        return -self.gain * self.slopes * gaps


class _Noise(nn.Module):
    def forward(self, q_len: int, k_len: int) -> Tensor:
        return _both_ways(q_len, k_len) * (1 + 0.1 * torch.rand(8, 1, 1))


# --- ids


def _by_ids(
    q_pos: Tensor, k_pos: Tensor, distance: Callable[[Tensor], Tensor] = torch.abs
) -> Tensor:
    gaps = q_pos[..., :, None] - k_pos[..., None, :]
    return -_slopes() * distance(gaps)[..., None, :, :]


def _counts_rows(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    q_len, k_len = q_pos.shape[-1], k_pos.shape[-1]
    return _both_ways(q_len, k_len)


def _counts_on(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    q_len, k_len = q_pos.shape[-1], k_pos.shape[-1]
    return _by_ids(q_pos[:1] + torch.arange(q_len), k_pos[:1] + torch.arange(k_len))


def _ids_of_row_0(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    rows = torch.atleast_2d(q_pos), torch.atleast_2d(k_pos)
    gaps = rows[0][:1, :, None] - rows[1][:1, None, :]
    return (-_slopes() * gaps.abs()[:, None]).expand(len(rows[0]), -1, -1, -1)


def _ids_in_half(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    return _by_ids(q_pos.bfloat16().float(), k_pos.bfloat16().float())


def _wraps_ids(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    return _by_ids(q_pos % 512, k_pos % 512)


def _swapped_ids(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    return _by_ids(q_pos, k_pos, lambda gaps: -gaps)


class _FromTheFirst(nn.Module):
    """T5's table by queries that count from the first key, with rows of its own."""

    def __init__(self, rows: Callable[[Tensor], Tensor], count: int = 32) -> None:
        super().__init__()
        self.table, self.rows = nn.Embedding(count, 4), rows

    def forward(self, q_len: int, k_len: int) -> Tensor:
        device = self.table.weight.device
        keys = torch.arange(k_len, device=device)
        relative = keys - torch.arange(q_len, device=device)[:, None]
        return self.table(self.rows(relative)).permute(2, 0, 1)


def _two_logarithms(relative: Tensor) -> Tensor:
    size = relative.abs()
    wide = (size.clamp(min=1) / 8).log() / math.log2(128 / 8) * 8
    rows = torch.where(size < 8, size, (8 + wide.long()).clamp(max=15))
    return rows + 16 * (relative > 0)


def _mutant(
    name: str,
    make: Callable[[], Any],
    checks: str,
    smallest: str,
    source: str = "",
    options: Mapping[str, Any] | None = None,
) -> Mutant:
    found = tuple(checks.split())
    return Mutant(name, "bias", make, found, source, smallest, options or {})


_SIX = "1/4, 1/16, 1/64, 1/256, 1/2, 1/8"
_T5_BUG = "lucidrains/x-transformers#10"

MUTANTS = (
    _mutant("transposed", lambda: _transposed, "D-BIAS", "2×2: (1, 0) is +½, right −½"),
    _mutant(
        "rewards distance",
        lambda: lambda q, k: -_linear(q, k),
        "D-BIAS",
        "2×2: (1, 0) is +½, right −½",
    ),
    _mutant(
        "symmetric, rewards distance",
        lambda: lambda q, k: -_both_ways(q, k),
        "D-BIAS",
        "2×2: (1, 0) is +½, right −½",
    ),
    _mutant(
        "distance from the wrong end",
        lambda: _from_the_start,
        "D-BIAS",
        "2 keys: key 1 is −½ against key 0, right +½",
    ),
    _mutant("every other head", lambda: _mixed_signs, "D-BIAS", "head 1 rewards"),
    _mutant("heads last", lambda: _heads_last, "D-SHAPE", "2×3: (2, 3, 8)"),
    _mutant(
        "reshaped for permuted",
        lambda: _reshaped,
        "D-SHAPE",
        "2×2: head 0 holds slopes of heads 0 to 3",
    ),
    _mutant("heads second", lambda: _heads_in_the_middle, "D-SHAPE", "2×3: (2, 8, 3)"),
    _mutant("no axis of queries", lambda: _no_query_axis, "D-SHAPE", "3 keys: (8, 3)"),
    _mutant(
        "one square for 8 heads",
        lambda: lambda q, k: -0.5 * _gaps(q, k).abs(),
        "D-SHAPE",
        "2×3: (2, 3)",
        "",
        {"num_heads": 8},
    ),
    _mutant(
        "half the heads that are wanted",
        lambda: _both_ways,
        "D-SHAPE",
        "8 heads, wanted 16",
        "",
        {"num_heads": 16},
    ),
    _mutant(
        "square of the keys", lambda: _square_of_keys, "D-SHAPE", "1 query: 3 rows"
    ),
    _mutant("squares only", lambda: _square_only, "D-SHAPE D-CACHE", "2×3: an error"),
    _mutant(
        "over the queries",
        lambda: _over_queries,
        "D-CACHE",
        "1 query, 3 keys: 0; right steps of one slope",
        "keras-team/keras-hub#2861",
    ),
    _mutant(
        "queries from the first key",
        lambda: _queries_from_the_start,
        "D-ALIGN D-CACHE",
        "1 query, 3 keys: 0, −½, −1; right −1, −½, 0",
        "Dao-AILab/flash-attention#907",
    ),
    _mutant(
        "T5, queries from the first key",
        lambda: lambda q, k: _t5(k, k, True)[:, :q],
        "D-ALIGN D-CACHE",
        "1 query, 3 keys: distances 0, 1, 2; right −2, −1, 0",
        "vllm-project/vllm#945",
    ),
    _mutant(
        "off by one",
        lambda: _centre_off_by_one,
        "D-BIAS",
        "2×2: (1, 0) is 0, (1, 1) −½",
    ),
    _mutant(
        "the same for a row", lambda: _same_for_a_row, "D-BIAS", "2×2: rows of one"
    ),
    _mutant(
        "each head off by its number",
        lambda: (
            lambda q, k: torch.stack(
                [-_slopes()[h] * (_gaps(q, k) - h).abs() for h in range(8)]
            )
        ),
        "D-BIAS",
        "2×2, head 1: (1, 0) is 0, (1, 1) −¼",
    ),
    _mutant(
        "one token too far while decoding",
        lambda: _one_too_far,
        "D-CACHE",
        "1 query, 2 keys: distances 2, 1; right 1, 0",
        "microsoft/onnxruntime-genai#2354",
    ),
    _mutant(
        "above the diagonal what was there",
        lambda: _old_numbers_above,
        "D-BIAS",
        "3×3: (0, 2) holds a number of no distance",
    ),
    _mutant(
        "ids counted on from the first",
        lambda: _counts_on,
        "D-ALIGN",
        "ids 0, 5: distance 1, right 5",
    ),
    _mutant(
        "an outer product by matmul",
        lambda: _outer_by_matmul,
        "D-DTYPE",
        "258 tokens under autocast",
    ),
    _mutant("slopes in whole numbers", lambda: _whole_slopes, "D-BIAS", "0 everywhere"),
    _mutant(
        "its mask hides the past",
        lambda: lambda q, k: _linear(q, k) + _mask(q, k, above=False),
        "D-BIAS",
        "2×2: (1, 0) is −∞",
    ),
    _mutant(
        "its mask hides the query's own key",
        lambda: lambda q, k: _linear(q, k).masked_fill(_gaps(q, k) <= 0, -math.inf),
        "D-BIAS",
        "1×1: −∞",
    ),
    _mutant(
        "its mask shows one later key",
        lambda: lambda q, k: _linear(q, k).masked_fill(_gaps(q, k) < -1, -math.inf),
        "D-BIAS",
        "2×2: (0, 1) is +½, right −∞",
    ),
    _mutant(
        "another slope beyond 512 keys",
        lambda: lambda q, k: _both_ways(q, k) * min(1, 512 / k),
        "D-LEN D-CACHE",
        "1024 keys: half the slope",
    ),
    _mutant(
        "divided by the length",
        lambda: _of_length,
        "D-CACHE",
        "(1, 0) of 2 and of 4 tokens: −¼ and −⅛",
    ),
    _mutant(
        "slope times m times n", lambda: _product, "D-SHIFT", "3×3: row 2 has 2 steps"
    ),
    _mutant("m + n", lambda: _sum, "D-SHIFT", "2×2: (1, 0) and (0, 1) are equal"),
    # slopes
    _mutant(
        "one sequence for 6 heads",
        lambda: _with(_one_sequence, 6),
        "D-BIAS",
        f"6 heads: 0.397, 0.157, …; right {_SIX}",
        "ml-explore/mlx#343",
    ),
    _mutant(
        "sorted slopes of 6 heads",
        lambda: _with(lambda h: alibi_slopes(h).sort(descending=True).values, 6),
        "D-BIAS",
        f"6 heads: ½ first; right {_SIX}",
    ),
    _mutant(
        "slopes from 1",
        lambda: _with(lambda h: 2 * alibi_slopes(h), 8),
        "D-BIAS",
        "8 heads: 1 first, right ½",
    ),
    _mutant(
        "ratio ½ for 12 heads",
        lambda: _with(lambda h: 2.0 ** -torch.arange(1, h + 1), 12),
        "D-BIAS",
        "12 heads: the last slope is 2^−12",
    ),
    _mutant("one slope", lambda: _with(_one_slope, 8), "D-BIAS", "2 heads: ½, ½"),
    _mutant(
        "the power above, cut",
        lambda: _with(lambda h: alibi_slopes(16)[:h], 12),
        "D-BIAS",
        "12 heads: the first is 2^−½, right ½",
    ),
    _mutant(
        "8/h for 8h/H",
        lambda: _with(lambda h: 2.0 ** (-8 / torch.arange(1, h + 1)), 8),
        "D-BIAS",
        "2 heads: 1/256, 1/16",
    ),
    _mutant(
        "another model's slopes",
        lambda: _both_ways,
        "D-BIAS",
        "expected 2^(−16h/H)",
        "",
        {"expected": {"slopes": [2.0 ** (-2 * h) for h in range(1, 9)]}},
    ),
    # 16 bits
    _mutant(
        "slope·j in bfloat16",
        lambda: _absolute_bf16,
        "D-DTYPE",
        "keys 257 and 258 at slope 1/256: both 1.0",
        "vllm-project/vllm#945",
    ),
    _mutant(
        "positions in bfloat16",
        lambda: _positions_bf16,
        "D-DTYPE",
        "258 tokens: position 257 counts as 256",
    ),
    _mutant(
        "products in float16",
        lambda: _positions_half,
        "D-DTYPE",
        "4096 tokens at slope 2^−½: steps of one",
    ),
    _mutant("slope·j after a cast", _Cast, "D-DTYPE", "257 tokens after .to(bfloat16)"),
    _mutant("positions in a buffer", _CastIds, "D-DTYPE", "258 tokens after a cast"),
    _mutant(
        "positions in the default dtype",
        lambda: _default_dtype,
        "D-DTYPE",
        "258 tokens with bfloat16 as default",
    ),
    # buckets
    _mutant(
        "T5 looking ahead",
        lambda: _ahead_only,
        "D-BIAS",
        "−1→0 and +1→1; right 1 and 0",
        _T5_BUG,
    ),
    _mutant(
        "T5 table, directions swapped",
        lambda: _Table(bidirectional=True, swapped=True),
        "D-BIAS",
        "−1→17, +1→1; right 1 and 17",
        _T5_BUG,
    ),
    _mutant(
        "T5 table, sign of the distance",
        lambda: _Table(sign=-1),
        "D-BIAS",
        "−1→0, +1→1; right 1 and 0",
        _T5_BUG,
    ),
    _mutant(
        "T5 without halving",
        lambda: _buckets(64, bidirectional=True, halve=False),
        "D-BIAS",
        "−16→16, right 10",
        "",
        {"expected": {"buckets": 32}},
    ),
    _mutant(
        "T5 without the second half",
        lambda: _Table(bidirectional=True, offset=False),
        "D-BIAS",
        "+1→1, right 17",
    ),
    _mutant(
        "T5 with a quarter exact",
        lambda: _buckets(exact=0.25),
        "D-BIAS",
        "−9→10, right 9",
    ),
    _mutant(
        "T5 rounded up", lambda: _buckets(33, up=True), "D-BIAS", "−17→17, right 16"
    ),
    _mutant(
        "T5 with a logarithm in bfloat16",
        lambda: _half_log,
        "D-BIAS",
        "a boundary moves",
    ),
    _mutant("T5 a token late", lambda: _late_boundary, "D-BIAS", "−20→16, right 17"),
    _mutant(
        "T5 without a last bucket",
        lambda: _buckets(clip=False),
        "D-LEN",
        "−128→32, past the table",
    ),
    _mutant(
        "T5 for 256 instead of 128",
        lambda: _buckets(far=256),
        "D-BIAS",
        "−128→28, right 31",
        "",
        {"expected": {"max_distance": 128}},
    ),
    _mutant(
        "Shaw without clipping",
        lambda: _shaw(clip=False),
        "D-LEN",
        "4 tokens: row 5 of 5; right the last",
        "huggingface/transformers#9164",
    ),
    _mutant(
        "clipped on one side only",
        lambda: _behind_unclipped,
        "D-LEN",
        "−17 reads the row of +16",
    ),
    _mutant(
        "a clipped table from row −1",
        _RowsFromMinusOne,
        "D-BIAS",
        "−8 reads the last row, which is +9's",
    ),
    _mutant(
        "distances in int8",
        lambda: lambda q, k: -_slopes() * _gaps(q, k).to(torch.int8).abs(),
        "D-LEN",
        "distance 129 counts as 127",
    ),
    _mutant("distance modulo 64", lambda: _modulo, "D-LEN", "−64 reads the row of 0"),
    _mutant(
        "relative shift without its mask",
        lambda: _relative_shift,
        "D-BIAS",
        "3×3: (0, 2) holds a distance of row 1; right +2",
        "espnet/espnet#2684",
    ),
    _mutant(
        "KERPLE without absolute distance",
        lambda: _kerple_without_abs,
        "D-BIAS",
        "1×3: ln of a negative number",
    ),
    _mutant("KERPLE upwards", lambda: _kerple_up, "D-BIAS", "2×2: (1, 0) above (1, 1)"),
    # memory
    _mutant(
        "kept by the number of keys",
        lambda: _Kept("key of k"),
        "D-HISTORY",
        "1 query after 3: 3 rows",
    ),
    _mutant(
        "the first rows of what is kept",
        lambda: _Kept("first rows"),
        "D-ALIGN D-CACHE",
        "1 query, 3 keys: 0, −½, −1",
    ),
    _mutant("never grows", _NeverGrows, "D-HISTORY", "4 keys after 3: 3 columns"),
    _mutant(
        "kept from inference",
        _Inference,
        "D-STATE",
        "a call under inference_mode, then training",
        "lucidrains/x-transformers",
    ),
    _mutant("slopes no buffer", _Plain, "D-STATE", ".to(device) leaves slopes behind"),
    _mutant("drawn at random", _Noise, "D-HISTORY", "two calls differ"),
    # ids
    _mutant(
        "counts rows instead of ids",
        lambda: _counts_rows,
        "D-ALIGN",
        "ids 0, 5: distance 1, right 5",
    ),
    _mutant(
        "the first row's ids",
        lambda: _ids_of_row_0,
        "D-BATCH",
        "rows of ids [0, 1] and [0, 5]",
    ),
    _mutant("ids in bfloat16", lambda: _ids_in_half, "D-DTYPE", "id 257 counts as 256"),
    _mutant(
        "ids modulo 512",
        lambda: _wraps_ids,
        "D-SHIFT D-LEN",
        "ids 511, 512: distance 511, right 1",
    ),
    _mutant(
        "T5 from the first key, directions swapped",
        lambda: _FromTheFirst(lambda r: t5_bucket(-r, bidirectional=True)),
        "D-BIAS",
        "32 rows: key − query = 1 reads row 1, right 17",
    ),
    _mutant(
        "T5 from the first key, distances without a direction",
        lambda: _FromTheFirst(lambda r: t5_bucket(-r.abs(), bidirectional=True)),
        "D-BIAS",
        "32 rows: key − query = 1 reads row 1, right 17",
    ),
    _mutant(
        "T5 with two logarithms",
        lambda: _FromTheFirst(_two_logarithms),
        "D-BIAS",
        "32 rows: distance 120 reads row 13, right 15",
    ),
    _mutant(
        "index clipped from 0 to k",
        lambda: _FromTheFirst(lambda r: (r + 16).clamp(0, 16), count=33),
        "D-BIAS",
        "33 rows: key − query = 1 and 2 read row 16",
    ),
    _mutant(
        "ALiBi of squares",
        lambda: lambda q, k: -_slopes() * _gaps(q, k) ** 2,
        "D-BIAS",
        "3 keys: key 0 is −2 against key 2, right −1",
    ),
    _mutant("ids swapped", lambda: _swapped_ids, "D-BIAS", "2×2: (1, 0) is +½"),
)


# --- correct ones


class _Learned(nn.Module):
    """A table with one row per distance that refuses more."""

    def __init__(self, length: int = 128) -> None:
        super().__init__()
        self.length = length
        self.table = nn.Embedding(2 * length - 1, 4)

    def forward(self, q_len: int, k_len: int) -> Tensor:
        if k_len > self.length:
            raise ValueError(f"at most {self.length} tokens, got {k_len}")
        return self.table(self.length - 1 - _gaps(q_len, k_len)).permute(2, 0, 1)


class _Buffered(nn.Module):
    """ALiBi made once for the longest text, and cut."""

    bias: Tensor

    def __init__(self, length: int = 2048) -> None:
        super().__init__()
        self.register_buffer("bias", -_slopes() * _gaps(1, length), persistent=False)

    def forward(self, q_len: int, k_len: int) -> Tensor:
        return self.bias[None, :, :, self.bias.shape[-1] - k_len :]


class _LearnedSlopes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([-1.0, -2.5, -3.0, -4.2]))

    def forward(self, q_len: int, k_len: int) -> Tensor:
        gaps = _gaps(q_len, k_len).to(self.log.device).abs()
        return -self.log.exp()[:, None, None] * gaps


def _deberta(q_len: int, k_len: int) -> Tensor:
    gaps = _gaps(q_len, k_len)
    middle, far = 32, 512
    size = gaps.abs().clamp(min=1)
    wide = (size.double() / middle).log() / math.log((far - 1) / middle)
    wide = ((wide * (middle - 1)).ceil() + middle).long().clamp(max=2 * middle - 1)
    rows = torch.where(size <= middle, gaps, wide * gaps.sign())
    return _weights(4 * middle)[rows + 2 * middle].permute(2, 0, 1)


def _sandwich(q_len: int, k_len: int) -> Tensor:
    """Cosines of distances, summed: another curve of distance."""
    waves = 10_000 ** (-torch.arange(16) / 16)
    total = (_gaps(q_len, k_len)[..., None] * waves).cos().sum(-1)
    return torch.linspace(0.1, 1, 4)[:, None, None] * total


def _encoder_alibi(q_len: int, k_len: int) -> Tensor:
    gaps = _gaps(q_len, k_len)
    return -_slopes() * torch.where(gaps > 0, gaps, -2 * gaps)


def _retention(q_len: int, k_len: int) -> Tensor:
    decay = -torch.log1p(-(2.0 ** (-5 - torch.arange(8))))
    return -decay[:, None, None] * _gaps(q_len, k_len)


def _window(q_len: int, k_len: int, reach: int) -> Tensor:
    gaps = _gaps(q_len, k_len)
    return _linear(q_len, k_len).masked_fill((gaps < 0) | (gaps > reach), -math.inf)


class _Dropped(nn.Module):
    """T5 with dropout, and zeros for weights that are yet to be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 4)
        nn.init.zeros_(self.table.weight)
        self.dropout = nn.Dropout(0.1)

    def forward(self, q_len: int, k_len: int) -> Tensor:
        gaps = _gaps(q_len, k_len).to(self.table.weight.device)
        rows = t5_bucket(-gaps, bidirectional=True)
        return self.dropout(self.table(rows)).permute(2, 0, 1)


def _well(name: str, make: Callable[[], Any], scheme: str, **options: Any) -> Healthy:
    return Healthy(name, "bias", make, {"scheme": scheme}, options)


_TWO = "T5 buckets, two directions"
_ONE = "T5 buckets, one direction"
HEALTHY: tuple[Healthy, ...] = (
    _well("pe_lab.ALiBi", lambda: ALiBi(8), "ALiBi"),
    _well(
        "pe_lab.ALiBi, symmetric, 6 heads", lambda: ALiBi(6, symmetric=True), "ALiBi"
    ),
    _well("pe_lab.ALiBi, 12 heads", lambda: ALiBi(12), "ALiBi"),
    _well("pe_lab.ALiBi, 1 head", lambda: ALiBi(1), "ALiBi"),
    _well("pe_lab.ALiBi, halving", lambda: ALiBi(1, slopes=[math.log(2)]), "ALiBi"),
    _well(
        "pe_lab.ALiBi, divided slopes",
        lambda: ALiBi(8, slopes=(alibi_slopes(8) / 8).tolist()),
        "ALiBi",
    ),
    _well(
        "pe_lab.alibi_bias of ids",
        lambda: lambda q, k: alibi_bias(q, k, alibi_slopes(8)),
        "ALiBi",
    ),
    _well("pe_lab.T5Bias, one direction", lambda: T5Bias(4), _ONE),
    _well("pe_lab.T5Bias, two", lambda: T5Bias(4, bidirectional=True), _TWO),
    _well(
        "pe_lab.T5Bias, 320 buckets to 800",
        lambda: T5Bias(2, bidirectional=True, num_buckets=320, max_distance=800),
        _TWO,
    ),
    _well("pe_lab.Kerple", lambda: Kerple(4), "KERPLE log"),
    _well("pe_lab.Kerple, power", lambda: Kerple(4, kind="power"), "KERPLE power"),
    _well("pe_lab.Fire", lambda: Fire(4), "other, of distance"),
    _well("pe_lab.TUPE", lambda: TUPE(8192, 32, 4), "not a function of distance"),
    _well("lengths, causal", lambda: _linear, "ALiBi"),
    _well("lengths, symmetric", lambda: _both_ways, "ALiBi"),
    _well(
        "lengths, with a mask",
        lambda: lambda q, k: _linear(q, k) + _mask(q, k),
        "ALiBi",
    ),
    _well(
        "lengths, with a finite mask",
        lambda: lambda q, k: _linear(q, k) + _mask(q, k).clamp(min=-1e9),
        "ALiBi",
    ),
    _well(
        "lengths, later keys at 0",
        lambda: lambda q, k: _linear(q, k).clamp(max=0),
        "ALiBi",
    ),
    _well(
        "slope·j, one row", lambda: lambda q, k: _slopes() * torch.arange(k), "ALiBi"
    ),
    _well("slope·j, in every row", lambda: _absolute, "ALiBi"),
    _well("made once, cut", _Buffered, "ALiBi"),
    _well(
        "bfloat16, of the difference",
        lambda: lambda q, k: _linear(q, k).bfloat16(),
        "ALiBi",
    ),
    _well("keys first", lambda: lambda k, q: _linear(q, k), "ALiBi"),
    _well("keys first, symmetric", lambda: lambda k, q: _both_ways(q, k), "ALiBi"),
    _well("a batch axis", lambda: lambda q, k: _linear(q, k)[None], "ALiBi"),
    _well("ids, rows of a batch", lambda: _by_ids, "ALiBi"),
    _well("learned slopes", _LearnedSlopes, "ALiBi"),
    _well("steeper ahead", lambda: _encoder_alibi, "ALiBi"),
    _well("2^(−4h/H)", lambda: _with(lambda h: alibi_slopes(h) ** 0.5, 8), "ALiBi"),
    _well("one head's square", lambda: lambda q, k: -0.5 * _gaps(q, k).abs(), "ALiBi"),
    _well("T5 of lengths", lambda: _t5, _ONE),
    _well("T5 of lengths, two directions", lambda: lambda q, k: _t5(q, k, True), _TWO),
    _well("T5 table", lambda: _Table(bidirectional=True), _TWO),
    _well("Shaw's clipped table", lambda: _shaw(16), "clipped table"),
    _well("Shaw's, of 2", lambda: _shaw(2), "clipped table"),
    _well("learned table", _Learned, "table of distances"),
    _well("DeBERTa's buckets", lambda: _deberta, "DeBERTa's logarithmic buckets"),
    _well("Sandwich", lambda: _sandwich, "other, of distance"),
    _well("decay of retention", lambda: _retention, "ALiBi"),
    _well("a window of 8", lambda: lambda q, k: _window(q, k, 8), "ALiBi"),
    _well("a window of 256", lambda: lambda q, k: _window(q, k, 256), "ALiBi"),
    _well(
        "a line that ends at 64",
        lambda: lambda q, k: -_slopes() * _gaps(q, k).abs().clamp(max=64),
        "ALiBi",
    ),
    _well(
        "T5 with a finite mask",
        lambda: (
            lambda q, k: (
                _t5(q, k) + _mask(q, k).clamp(min=torch.finfo(torch.float32).min)
            )
        ),
        _ONE,
    ),
    _well("T5 untrained, with dropout", _Dropped, _TWO),
    _well(
        "a bell",
        lambda: lambda q, k: -(_slopes() ** 2) * _gaps(q, k) ** 2,
        "KERPLE power",
    ),
    _well("kept and cut rightly", _Kept, "ALiBi"),
)


def _bloom() -> Bias:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    return lambda q, k: build_alibi_tensor(
        torch.ones(1, k, dtype=torch.long), 8, torch.float32
    )


def _mpt() -> Bias:
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    return lambda q, k: build_mpt_alibi_tensor(12, k)


def _hf_t5(decoder: bool) -> Bias:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=16, d_kv=4, num_heads=4, is_decoder=decoder)
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    return lambda q, k: layer.compute_bias(q, k, past_seen_tokens=k - q)


def _x_alibi() -> Bias:
    from x_transformers.x_transformers import AlibiPositionalBias

    return AlibiPositionalBias(8, total_heads=12).forward_custom_pos


def _x_t5(causal: bool) -> Any:
    from x_transformers.x_transformers import RelativePositionBias

    return RelativePositionBias(2.0, causal=causal, heads=4)


if find_spec("transformers"):
    HEALTHY += (
        _well("BLOOM of transformers", _bloom, "ALiBi"),
        _well("MPT of transformers", _mpt, "ALiBi"),
        _well("T5 encoder of transformers", lambda: _hf_t5(False), _TWO),
        _well("T5 decoder of transformers", lambda: _hf_t5(True), _ONE),
    )
if find_spec("x_transformers"):
    HEALTHY += (
        _well("ALiBi of ids of x-transformers", _x_alibi, "ALiBi"),
        _well("T5 of x-transformers, two directions", lambda: _x_t5(False), _TWO),
        _well("T5 of x-transformers, causal", lambda: _x_t5(True), _ONE),
    )
