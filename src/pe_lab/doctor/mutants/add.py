"""Modules that add positions, with one bug each, and the correct ones people write."""

# ruff: noqa: E501 (a catalogue: one line is one patient)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lab.doctor.mutants import Healthy, Mutant
from pe_lab.encodings.base import NoPE
from pe_lab.encodings.learned import Learned
from pe_lab.encodings.sinusoidal import Sinusoidal, sinusoidal
from pe_lab.encodings.sinusoidal_grid import AxialSinusoidal, axial_sinusoidal
from pe_lab.positions import grid

D, ROWS = 32, 600


class _Module(nn.Module):
    """A table in a buffer, dropout, and a forward that is given.

    Args:
        forward: (self, x) → result.
        width, rows: of the table.
        rate: of dropout.
        table: another table.
        home: "buffer", "parameter", "attribute" or "unsaved".
    """

    pe: Tensor

    def __init__(
        self,
        forward: Callable[[Any, Tensor], Any],
        *,
        width: int = D,
        rows: int = ROWS,
        rate: float = 0.0,
        table: Tensor | None = None,
        home: str = "buffer",
    ) -> None:
        super().__init__()
        self.act, self.d_model = forward, width
        self.kept: dict[str, Any] = {}
        self.dropout = nn.Dropout(rate)
        table = sinusoidal(rows, width) if table is None else table
        if home == "parameter":
            self.pe = nn.Parameter(table)
        elif home == "attribute":
            self.pe = table
        else:
            self.register_buffer("pe", table, persistent=home == "buffer")

    def forward(self, x: Tensor) -> Any:
        return self.act(self, x)


class _Learned(nn.Module):
    """An embedding of positions, read as `pick` says."""

    def __init__(
        self,
        pick: Callable[[nn.Embedding, Tensor], Tensor],
        rows: int = 128,
        zero: bool = False,
    ) -> None:
        super().__init__()
        self.pick, self.table = pick, nn.Embedding(rows, D)
        if zero:
            nn.init.zeros_(self.table.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pick(self.table, x)


class _OnTheFly(nn.Module):
    """Frequencies in a buffer, positions and angles at each call.

    Args:
        positions: "float", "module" (dtype of the frequencies), "input" or "cpu".
        cast: whether the result takes the dtype of x.
        product: "times" or "matmul".
        tuples: whether the frequencies are numbers, which no cast reaches.
    """

    def __init__(
        self,
        positions: str = "float",
        *,
        cast: bool = True,
        product: str = "times",
        tuples: bool = False,
    ) -> None:
        super().__init__()
        self.positions, self.cast, self.product = positions, cast, product
        w = 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
        self.numbers = tuple(w.tolist()) if tuples else None
        if not tuples:
            self.register_buffer("inv_freq", w.float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        w = (
            self.get_buffer("inv_freq")
            if self.numbers is None
            else torch.tensor(self.numbers, dtype=torch.float32, device=x.device)
        )
        dtype = {"module": w.dtype, "input": x.dtype}.get(self.positions, torch.float32)
        home = "cpu" if self.positions == "cpu" else x.device
        p = torch.arange(x.shape[1], device=home).to(dtype)[:, None]
        angles = p @ w[None].to(dtype) if self.product == "matmul" else p * w
        code = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        return x + (code.to(x.dtype) if self.cast else code)


class _Offset(_Module):
    def __init__(self, use: Callable[[Tensor, int, int], Tensor]) -> None:
        super().__init__(lambda s, x: x)
        self.use = use

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        return x + self.use(self.pe, x.shape[1], offset)


class _Positions(_Module):
    def __init__(self, use: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(lambda s, x: x)
        self.use = use

    def forward(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is None:
            position_ids = torch.arange(x.shape[1], device=x.device)
        return x + self.use(self.pe, position_ids)


def _rows(s: Any, x: Tensor) -> Tensor:
    return s.pe[: x.shape[1]]


def _right(s: Any, x: Tensor) -> Tensor:
    return s.dropout(x + _rows(s, x))


def _first_shape(s: Any, x: Tensor) -> Tensor:
    if "code" not in s.kept:
        s.kept["code"] = _rows(s, x).repeat(x.shape[0], 1, 1)
    return x + s.kept["code"]


def _first_length(s: Any, x: Tensor) -> Tensor:
    """Keeps the first rows, and stretches them over a longer text."""
    code = s.kept.setdefault("code", _rows(s, x))
    return x + code[torch.arange(x.shape[1]) % len(code)]


def _by_shape(s: Any, x: Tensor) -> Tensor:
    """A cache that knows shapes, and no dtypes."""
    if s.kept.get("shape") != x.shape:
        s.kept.update(shape=x.shape, code=_rows(s, x).to(x.dtype).expand_as(x))
    return x + s.kept["code"]


def _detached_sum(s: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        return x + _rows(s, x)


def _in_place(s: Any, x: Tensor) -> Tensor:
    x += _rows(s, x)
    return x


def _by_steps(s: Any, x: Tensor) -> Tensor:
    """A counter that goes on from call to call."""
    start = s.kept.get("seen", 0)
    s.kept["seen"] = (start + x.shape[1]) % 64
    return x + sinusoidal(torch.arange(x.shape[1]) + start, D)


def _partly(s: Any, x: Tensor) -> Tensor:
    """Texts past the table keep what they had."""
    result = x.clone()
    result[:, : len(s.pe)] += s.pe[: x.shape[1]]
    return result


def _once(module: Callable[..., nn.Module], **more: Any) -> Callable[[], nn.Module]:
    return lambda: module(**more)


def _mod(act: Callable[[Any, Tensor], Any], **more: Any) -> Callable[[], nn.Module]:
    return lambda: _Module(act, **more)


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _built_in_bfloat16() -> nn.Module:
    """As a loader builds it that sets the default dtype."""
    with _default(torch.bfloat16):
        i = torch.arange(0, D, 2)
        angles = torch.arange(ROWS).float()[:, None] * 10000.0 ** (-(i / D))
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    return _Module(_right, table=table.float())


def _after_meta() -> nn.Module:
    """Built without memory, then given memory, and never filled."""
    module = _Module(_right, home="unsaved").to("meta").to_empty(device="cpu")
    module.pe.fill_(math.nan)
    return module


def _zeros_after_meta() -> nn.Module:
    module = _Module(_right, home="unsaved").to("meta").to_empty(device="cpu")
    module.pe.zero_()
    return module


class _Factor(_Module):
    """A learned number times the code."""

    def __init__(self) -> None:
        super().__init__(lambda s, x: x + s.alpha * _rows(s, x))
        self.alpha = nn.Parameter(torch.ones(1))


class _Keeping(_Factor):
    """Keeps the rows of the last length, in whatever mode they were made."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kept.get("length") != x.shape[1]:
            self.kept.update(length=x.shape[1], rows=_rows(self, x) * 1.0)
        return x + self.alpha * self.kept["rows"]


class _Factored(nn.Module):
    """Learned rows of 8 numbers, widened by a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.widen = nn.Embedding(128, 8), nn.Linear(8, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.widen(self.rows(torch.arange(x.shape[1], device=x.device)))


def _growing(s: Any, x: Tensor) -> Tensor:
    if len(s.pe) < x.shape[1]:
        s.pe = sinusoidal(2 * x.shape[1], D).to(s.pe)
    return x + _rows(s, x)


def _refusing(s: Any, x: Tensor) -> Tensor:
    if x.shape[1] > len(s.pe):
        raise ValueError(f"a text needs at most {len(s.pe)} tokens, got {x.shape[1]}")
    return x + _rows(s, x)


class _Frozen(nn.Module):
    """Sinusoids looked up as an embedding that does not train."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(sinusoidal(ROWS, D))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table(torch.arange(x.shape[1], device=x.device))


class _Grid(nn.Module):
    """x (B, h, w, d) plus the code of its cells."""

    def __init__(self, change: Callable[[int, int], Tensor]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        _, height, width, channels = x.shape
        code = axial_sinusoidal(self.change(height, width), channels)
        return x + code.reshape(height, width, channels).to(x)


class _Numbered(nn.Module):
    """Rows by ids from a buffer (1, rows), as encoders of text keep them."""

    ids: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, D)
        ids = torch.arange(ROWS)[None]
        self.register_buffer("ids", ids, persistent=False)

    def forward(self, x: Tensor, ids: Tensor | None = None) -> Tensor:
        ids = self.ids[:, : x.shape[1]] if ids is None else ids
        return x + self.table(ids)


def _sick(
    name: str,
    make: Callable[[], Any],
    *checks: str,
    source: str = "",
    smallest: str = "",
    options: Mapping[str, Any] | None = None,
) -> Mutant:
    return Mutant(name, "add", make, checks, source, smallest, options or {})


_ROOT = math.sqrt(D)
_BATCH = "B=2, L=3, x=0: each row of the batch is [pe0, pe1, pe2]"
_TINY = {"embedding_std": D**-0.5}
_GRID = {"axes": (5, 9)}

MUTANTS = (
    _sick("a loop over rows, exported", _mod(lambda s, x: x + torch.stack([s.pe[i] for i in range(x.shape[1])])), "D-EXPORT", source="neuralmagic/sparseml#1826", options={"compile": True}),
    _sick("along the batch", _mod(lambda s, x: s.dropout(x + s.pe[: x.shape[0], None])), "D-ORDER", source="datawhalechina/hello-agents#61", smallest=_BATCH),
    _sick("length of the batch", _mod(lambda s, x: x + s.pe[None, : x.shape[0]]), "D-ORDER", "D-SHAPE", source="KasperGroesLudvigsen/influenza_transformer#9", smallest=_BATCH),
    _sick("rows of the batch for tokens", _mod(lambda s, x: x + s.pe[: x.shape[0]].unsqueeze(1).expand(-1, x.shape[1], -1)), "D-ORDER", source="songyangco/GETNext#2", smallest=_BATCH),
    _sick("batch and tokens counted through", _mod(lambda s, x: x + s.pe[: x.shape[0] * x.shape[1]].reshape(x.shape)), "D-BATCH", "D-ORDER", smallest=_BATCH),
    _sick("one row for all", _mod(lambda s, x: x + s.pe[x.shape[1]]), "D-ORDER", "D-LEN", smallest="L=2: rows differ"),
    _sick("a table that is never added", _mod(lambda s, x: s.dropout(x)), "D-ORDER", smallest="L=2, x=0: row 1 is pe1"),
    _sick("a sum that is thrown away", _mod(lambda s, x: (x + _rows(s, x), x)[1]), "D-ORDER", smallest="L=2, x=0: row 1 is pe1"),
    _sick("shape of the first call", _mod(_first_shape), "D-SHAPE", "D-HISTORY", "D-STATE", source="tatp22/multidim-positional-encoding#2", smallest="B=2, then B=3"),
    _sick("rows of the first call", _mod(_first_length), "D-HISTORY", "D-LEN", smallest="L=5, then L=9"),
    _sick("a counter that goes on", _mod(_by_steps), "D-HISTORY", "D-LEN", smallest="the same call twice"),
    _sick("kept by shape, not by dtype", _mod(_by_shape), "D-HISTORY", source="tatp22/multidim-positional-encoding", smallest="bfloat16, then float32"),
    _sick("multiplied", _mod(lambda s, x: x * _rows(s, x)), "D-SCALE", source="goodfire-ai/spd#88", smallest="x=0: the result is pe"),
    _sick("multiplied and added", _mod(lambda s, x: x + x * _rows(s, x)), "D-SCALE", smallest="x=0: the result is pe"),
    _sick("the sum times √d", _mod(lambda s, x: (x + _rows(s, x)) * _ROOT), "D-SCALE", source="SamLynnEvans/Transformer#10", smallest="x=0: rms 0.707"),
    _sick("the code times √d", _mod(lambda s, x: x + _rows(s, x) * _ROOT), "D-SCALE", source="Kyubyong/transformer#132", smallest="x=0: rms 0.707"),
    _sick("√d twice", _mod(lambda s, x: x * _ROOT * _ROOT + _rows(s, x)), "D-SCALE", source="jadore801120/attention-is-all-you-need-pytorch#138", smallest="x=1, minus x=0: √d"),
    _sick("divided by √d", _mod(lambda s, x: x / _ROOT + _rows(s, x)), "D-SCALE", smallest="x=1, minus x=0: √d"),
    _sick("√d missing, for embeddings of 1/√d", _mod(_right), "D-SCALE", source="pytorch/tutorials#2849", options=_TINY, smallest="d=512: rms 0.044 beside 0.707"),
    _sick("√d here, and before", _mod(lambda s, x: x * _ROOT + _rows(s, x)), "D-SCALE", options={"embedding_std": 1.0}, smallest="d=512: rms 22.6 beside 0.707"),
    _sick("√d where 1 is expected", _mod(lambda s, x: x * _ROOT + _rows(s, x)), "D-SCALE", options={"expected": {"scale": 1.0}}, smallest="x=1, minus x=0: 1"),
    _sick("x twice", _mod(lambda s, x: x + (x + _rows(s, x))), "D-SCALE", smallest="x=1, minus x=0: 1"),
    _sick("the code twice", _mod(lambda s, x: x + 2 * _rows(s, x)), "D-NORM", "D-SCALE", smallest="x=0: row 0 is [0, 1, …]"),
    _sick("subtracted", _mod(lambda s, x: x - _rows(s, x)), "D-LAYOUT", "D-NORM", smallest="x=0: row 0 is [0, 1, …]"),
    _sick("dropout in eval mode", _mod(lambda s, x: F.dropout(x + _rows(s, x), 0.1)), "D-SCALE", smallest="eval, twice: the same"),
    _sick("dropout twice", _mod(lambda s, x: s.dropout(s.dropout(x + _rows(s, x))), rate=0.1), "D-SCALE", source="jadore801120/attention-is-all-you-need-pytorch#69", smallest="p=0.5, ones: half are zero"),
    _sick("dropout on x and on the sum", _mod(lambda s, x: s.dropout(s.dropout(x) + _rows(s, x)), rate=0.1), "D-SCALE", source="OpenNMT/OpenNMT-py#2285", smallest="p=0.5, ones: half are zero"),
    _sick("dropout that is never called", _mod(lambda s, x: x + _rows(s, x), rate=0.1), "D-SCALE", source="datawhalechina/happy-llm#63", smallest="p=0.5, ones: half are zero"),
    _sick("dropout on the code alone", _mod(lambda s, x: x + s.dropout(_rows(s, x)), rate=0.1), "D-SCALE", smallest="p=0.5, ones: half are zero"),
    _sick("dropout on x alone", _mod(lambda s, x: s.dropout(x) + _rows(s, x), rate=0.1), "D-SCALE", smallest="p=0.5, ones: half are zero"),
    _sick("dropout that does not make up", _mod(lambda s, x: (x + _rows(s, x)) * (torch.rand_like(x) > 0.1 if s.training else 1)), "D-SCALE", smallest="p=0.5, ones: the rest is 2"),
    _sick("starts at 1", _mod(lambda s, x: x + s.pe[1 : x.shape[1] + 1]), "D-OFFSET", "D-LEN", smallest="x=0: row 0 is pe0"),
    _sick("counts down", _mod(lambda s, x: x + s.pe[: x.shape[1]].flip(0)), "D-OFFSET", smallest="x=0: row 0 is pe0"),
    _sick("divided by the length", _mod(lambda s, x: x + sinusoidal(torch.arange(x.shape[1]) / x.shape[1], D).to(x)), "D-LEN", smallest="row 1 of 2 and of 3 tokens is the same"),
    _sick("an offset that is ignored", lambda: _Offset(lambda t, n, o: t[:n]), "D-OFFSET", source="linkedin/Liger-Kernel", smallest="offset 3: row 0 is pe3"),
    _sick("an offset one too far", lambda: _Offset(lambda t, n, o: t[o + (o > 0) : o + (o > 0) + n]), "D-OFFSET", source="microsoft/onnxruntime-genai#2354", smallest="offset 3: row 0 is pe3"),
    _sick("an offset without its length", lambda: _Offset(lambda t, n, o: t[min(o, 1) : min(o, 1) + n]), "D-OFFSET", source="pytorch/executorch#2010", smallest="offset 3: row 0 is pe3"),
    _sick("positions that are ignored", lambda: _Positions(lambda t, p: t[: p.shape[-1]]), "D-OFFSET", source="linkedin/Liger-Kernel", smallest="positions 3, 4: rows pe3, pe4"),
    _sick("positions in bfloat16", lambda: _Positions(lambda t, p: sinusoidal(p.bfloat16().float(), D)), "D-DTYPE", source="keras-team/keras-hub#1544", smallest="rows 256 and 257 differ"),
    _sick("exponent i/d", _mod(_right, table=sinusoidal(ROWS, D, base=100.0)), "D-BASE", smallest="L=2, d=4: row 1, channel 2 is 0.0100"),
    _sick("exponent 2i/(d − 1)", _mod(_right, table=sinusoidal(ROWS, D, base=1e4 ** (D / (D - 1)))), "D-BASE", smallest="L=2, d=4: row 1, channel 2 is 0.0100"),
    _sick("halves where turns are expected", _mod(_right, table=sinusoidal(ROWS, D, order="halves")), "D-LAYOUT", source="allenai/allennlp#2993", options={"expected": {"order": "interleaved"}}, smallest="L=2, d=4: row 1 is [0.841, 0.540, 0.010, 1.000]"),
    _sick("reshaped", _mod(_right, table=torch.cat((sinusoidal(ROWS, D)[:, ::2], sinusoidal(ROWS, D)[:, 1::2])).reshape(ROWS, D)), "D-LAYOUT", smallest="x=0: row 0 is [0, 1, …]"),
    _sick("built while bfloat16 is the default", _built_in_bfloat16, "D-DTYPE", source="huggingface/transformers", smallest="row 257"),
    _sick("stays on the CPU", _mod(_right, home="attribute"), "D-STATE", source="karpathy/llama2.c#23", smallest="after .to(device): the same"),
    _sick("makes its positions on the CPU", _once(_OnTheFly, positions="cpu"), "D-STATE", source="lyuwenyu/RT-DETR#677", smallest="after .to(device): the same"),
    _sick("sinusoids that train", _mod(_right, home="parameter"), "D-STATE", smallest="one step of the optimiser: the same"),
    _sick("never filled after a meta build", _after_meta, "D-STATE", source="huggingface/transformers#34234", smallest="x=0: row 0 is [0, 1, …]"),
    _sick("zeros after a meta build", _zeros_after_meta, "D-ORDER", "D-STATE", source="huggingface/transformers#34234", smallest="x=0: row 0 is [0, 1, …]"),
    _sick("positions in the module's dtype", _once(_OnTheFly, positions="module"), "D-DTYPE", source="tatp22/multidim-positional-encoding", smallest=".to(bfloat16): rows 256 and 257 differ"),
    _sick("positions in the input's dtype", _once(_OnTheFly, positions="input", tuples=True), "D-DTYPE", source="lucidrains/rotary-embedding-torch", smallest="x in bfloat16: rows 256 and 257 differ"),
    _sick("frequencies in the module's dtype", _once(_OnTheFly), "D-DTYPE", source="lucidrains/x-transformers", smallest=".to(bfloat16): row 257"),
    _sick("angles by a product that autocast rounds", _once(_OnTheFly, product="matmul", tuples=True), "D-DTYPE", source="lucidrains/rotary-embedding-torch#46", smallest="autocast: rows 256 and 257 differ"),
    _sick("float32 whatever comes", _once(_OnTheFly, cast=False, tuples=True), "D-DTYPE", source="huggingface/transformers#13665", smallest="x in bfloat16: the result too"),
    _sick("embeddings without a gradient", _mod(lambda s, x: x.detach() + _rows(s, x)), "D-GRAD", smallest="gradient of x is 1"),
    _sick("a sum without gradients", _mod(_detached_sum), "D-GRAD", smallest="gradient of x is 1"),
    _sick("a table that never learns", lambda: _Learned(lambda t, x: t.weight.data[: x.shape[1]]), "D-GRAD", smallest="gradient of the table is not None"),
    _sick("a table under no_grad", lambda: _Learned(lambda t, x: t(torch.arange(x.shape[1], device=x.device)).detach()), "D-GRAD", smallest="gradient of the table is not None"),
    _sick("positions clamped", lambda: _Learned(lambda t, x: t(torch.arange(x.shape[1], device=x.device).clamp(max=127))), "D-LEN", smallest="L=129: an error"),
    _sick("positions that wrap", lambda: _Learned(lambda t, x: t(torch.arange(x.shape[1], device=x.device) % 128)), "D-LEN", smallest="L=129: an error"),
    _sick("far tokens get nothing", _mod(_partly), "D-LEN", source="vllm-project/vllm#55910", smallest="L=601: an error"),
    _sick("one row read by all", lambda: _Learned(lambda t, x: t(torch.zeros(x.shape[1], dtype=torch.long, device=x.device))), "D-ORDER", smallest="L=2: rows differ"),
    _sick("text cut to the table", _mod(lambda s, x: x[:, :ROWS] + s.pe[: x.shape[1]]), "D-LEN", smallest="L=601: an error"),
    _sick("one token loses its axis", _mod(lambda s, x: x.squeeze(1) + _rows(s, x).squeeze(0)), "D-LEN", "D-SHAPE", smallest="L=1: shape (B, 1, d)"),
    _sick("depends on the batch", _mod(lambda s, x: x + _rows(s, x) + (x.shape[0] - 1) * 0.1), "D-BATCH", smallest="B=1 and B=2: the same row"),
    _sick("only the first row of the batch", _mod(lambda s, x: torch.cat((x[:1] + _rows(s, x), x[1:]))), "D-BATCH", "D-ORDER", smallest=_BATCH),
    _sick("every second row of the batch", _mod(lambda s, x: x + _rows(s, x) * (torch.arange(len(x), device=x.device) % 2)[:, None, None]), "D-BATCH", "D-ORDER", smallest=_BATCH),
    _sick("the rate for what is kept", _mod(lambda s, x: F.dropout(x + _rows(s, x), 0.9, s.training), rate=0.1), "D-SCALE", smallest="p=0.1, ones: a tenth is zero"),
    _sick("added in training only", _mod(lambda s, x: x + _rows(s, x) if s.training else x), "D-ORDER", "D-SCALE", smallest="eval, x=0: row 1 is pe1"),
    _sick("added in eval mode only", _mod(lambda s, x: x if s.training else x + _rows(s, x)), "D-SCALE", "D-ORDER", smallest="train, x=0: row 1 is pe1"),
    _sick("x times the fourth root of d", _mod(lambda s, x: x * D**0.25 + _rows(s, x)), "D-SCALE", smallest="x=1, minus x=0: √d"),
    _sick("rolled by one", _mod(lambda s, x: x + _rows(s, x).roll(1, 0)), "D-OFFSET", "D-LEN", smallest="x=0: row 0 is pe0"),
    _sick("row −1 for position 0", lambda: _Learned(lambda t, x: t.weight[torch.arange(x.shape[1], device=x.device) - 1]), "D-LEN", smallest="L=129: an error"),
    _sick("anew every 128 tokens", _mod(lambda s, x: x + s.pe[torch.arange(x.shape[1], device=x.device) % 128]), "D-LEN", smallest="L=129: row 128 is not row 0"),
    _sick("keeps what inference mode has made", _Keeping, "D-STATE", source="tatp22/multidim-positional-encoding", smallest="a call in inference mode, then a step of training"),
    _sick("positions read off embeddings", _mod(lambda s, x: x + s.pe[torch.arange(x.shape[1]).to(x.dtype).long()]), "D-DTYPE", smallest="x in bfloat16: rows 256 and 257 differ"),
    _sick("added by two modules", lambda: nn.Sequential(_Module(_right), _Module(_right)), "D-NORM", smallest="x=0: row 0 is [0, 1, …]"),
    _sick("one mask for the batch", _mod(lambda s, x: (x + _rows(s, x)) * s.dropout(torch.ones_like(x[:1])), rate=0.1), "D-SCALE", smallest="p=0.5: rows of the batch lose different entries"),
    _sick("writes into x", _mod(_in_place), "D-INPUT", smallest="x is what it was"),
    _sick("a grid flattened by columns", lambda: _Grid(lambda h, w: grid(w, h)), "D-GRID", options=_GRID, source="huggingface/diffusers#11309", smallest="2×3: rows 0, 0, 0, 1, 1, 1"),
    _sick("a grid counted by both its sides", lambda: _Grid(lambda h, w: torch.stack((torch.arange(h * w) // w, torch.arange(h * w) % h), -1)), "D-GRID", options=_GRID, smallest="2×3: columns 0, 1, 2, 0, 1, 2"),
    _sick("a grid with the row for both axes", lambda: _Grid(lambda h, w: grid(h, w)[:, :1].expand(-1, 2)), "D-GRID", options=_GRID, smallest="2×3: columns 0, 1, 2, 0, 1, 2"),
)  # fmt: skip


def _well(
    name: str,
    make: Callable[[], Any],
    identity: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Healthy:
    return Healthy(name, "add", make, identity or {}, options or {})


def _peers() -> tuple[Healthy, ...]:
    """What other libraries do without a defect, where they are installed."""
    found = []
    if find_spec("x_transformers") is not None:
        found.append(
            _well("learned, x-transformers", _x_learned, {"scheme": "learned"})
        )
    return tuple(found)


def _x_learned() -> nn.Module:
    from x_transformers.x_transformers import AbsolutePositionalEmbedding

    return AbsolutePositionalEmbedding(D, 128)


_SINES = {"scheme": "sinusoidal", "base": 10000.0, "offset": 0, "gain": 1.0}

HEALTHY = (
    _well("sliced, exported", _mod(_right), _SINES, {"compile": True}),
    _well("Sinusoidal, exported", _once(Sinusoidal, d_model=D), _SINES, {"compile": True}),
    _well("as tutorials write it", _mod(_right, rate=0.1), {**_SINES, "order": "interleaved", "scale": 1.0}),
    _well("as tutorials write it, 512 channels", _mod(_right, rate=0.1, width=512), _SINES),
    _well("halves", _mod(_right, table=sinusoidal(ROWS, D, order="halves")), {**_SINES, "order": "halves"}),
    _well("a leading axis", _mod(lambda s, x: s.dropout(x + s.pe[:, : x.shape[1]]), table=sinusoidal(ROWS, D)[None]), _SINES),
    _well("with √d", _mod(lambda s, x: s.dropout(x * math.sqrt(s.d_model) + _rows(s, x)), rate=0.1), {**_SINES, "scale": 5.6569}),
    _well("with √d, for embeddings of 1/√d", _mod(lambda s, x: x * _ROOT + _rows(s, x)), _SINES, _TINY),
    _well("without √d, for unit embeddings", _mod(_right), _SINES, {"embedding_std": 1.0}),
    _well("(L, B, d), as it says", _mod(lambda s, x: x + s.pe[: x.shape[0], None]), _SINES, {"batch_first": False}),
    _well("cast to x's dtype", _mod(lambda s, x: x + _rows(s, x).to(x.dtype)), _SINES),
    _well("an unsaved buffer", _mod(_right, home="unsaved"), _SINES),
    _well("a frozen parameter", lambda: _Module(_right, home="parameter").requires_grad_(False), _SINES),
    _well("trained from sinusoids, as expected", _mod(_right, home="parameter"), {"parameters": "trained"}, {"expected": {"parameters": "trained"}}),
    _well("on the fly", _once(_OnTheFly, tuples=True), _SINES),
    _well("an offset", lambda: _Offset(lambda t, n, o: t[o : o + n]), _SINES),
    _well("positions", lambda: _Positions(lambda t, p: t[p]), _SINES),
    _well("a function", lambda: lambda x: x + sinusoidal(x.shape[1], x.shape[2]).to(x), _SINES),
    _well("the encoding alone", _mod(_rows), {**_SINES, "scale": 0.0}, ),
    _well("an odd width", _mod(_right, width=33), _SINES),
    _well("50 rows", _mod(_right, rows=50), _SINES),
    _well("rows by a buffer of ids", _Numbered, {"scheme": "learned"}),
    _well("8 rows", _mod(_right, rows=9), {"scheme": "sinusoidal"}),
    _well("learned", lambda: _Learned(lambda t, x: t(torch.arange(x.shape[1], device=x.device))), {"scheme": "learned"}),
    _well("learned, a slice", lambda: _Learned(lambda t, x: t.weight[: x.shape[1]]), {"scheme": "learned"}),
    _well("learned, zero at first", lambda: _Learned(lambda t, x: t(torch.arange(x.shape[1], device=x.device)), zero=True), {"scheme": "learned"}),
    _well("learned, rows 2, 3, …", lambda: _Learned(lambda t, x: t(torch.arange(x.shape[1], device=x.device) + 2)), {"scheme": "learned"}),
    _well("learned, one length only", lambda: _Learned(lambda t, x: t.weight), {"scheme": "learned"}),
    _well("a learned factor", _Factor, {**_SINES, "parameters": "1 trained"}),
    _well("grows with the text", _mod(_growing), _SINES),
    _well("√d in bfloat16", _mod(lambda s, x: x * torch.tensor(_ROOT).bfloat16().to(x) + _rows(s, x)), _SINES),
    _well("rows of low rank", _Factored, {"scheme": "learned"}),
    _well("refuses far positions", _mod(_refusing), _SINES),
    _well("the code beside the sum", _mod(lambda s, x: (x + _rows(s, x), _rows(s, x))), _SINES),
    _well("followed by dropout", lambda: nn.Sequential(_Module(_right), nn.Dropout(0.2)), _SINES),
    _well("2 channels", _mod(_right, width=2), {"scheme": "sinusoidal", "offset": 0}),
    _well("frozen sinusoids in an embedding", _Frozen, _SINES),
    _well("nothing", nn.Identity, {"scheme": "none"}),
    _well("nothing but √d", lambda: lambda x: x * math.sqrt(x.shape[-1]), {"scheme": "none"}),
    _well("Sinusoidal", _once(Sinusoidal, d_model=D), {**_SINES, "order": "interleaved"}),
    _well("Sinusoidal, halves, base 500000", _once(Sinusoidal, d_model=D, order="halves", base=5e5), {"order": "halves", "base": 5e5}),
    _well("Sinusoidal, small", _once(Sinusoidal, d_model=D, scale=0.1), {"gain": 0.1}),
    _well("Sinusoidal, odd", _once(Sinusoidal, d_model=D + 1), _SINES),
    _well("Learned", lambda: Learned(64, D), {"scheme": "learned"}),
    _well("Learned, offset 2", lambda: Learned(64, D, offset=2), {"scheme": "learned"}),
    _well("NoPE", NoPE, {"scheme": "none"}),
    _well("a grid", lambda: _Grid(grid), {"scheme": "axial", "axes": "row first"}, _GRID),
    _well("AxialSinusoidal", _once(AxialSinusoidal, d_model=D), {"scheme": "axial", "axes": "row first"}, _GRID),
    _well("Learned, on a grid", lambda: Learned(45, D), {"scheme": "learned"}, _GRID),
    _well("a grid, column first", lambda: _Grid(lambda h, w: grid(h, w).flip(-1)), {"axes": "column first"}, _GRID),
    *_peers(),
)  # fmt: skip
