"""How fast are RoPE, tables, ALiBi and T5's bias on a device, beside the bound?

Milliseconds are medians; on a GPU between two events on its own clock, after a warm-up.
The bound copies q and k (twice for a pass with gradients), fills a table, or attends
without a bias.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import pe_lab
from benchmarks import harness, rotate
from pe_lab.encodings.base import PositionalEncoding

Run = Callable[[], Any]


@dataclass(frozen=True)
class Sizes:
    """Of the tensors that are timed, and how often."""

    rope: tuple[int, int, int, int] = (4, 32, 4096, 128)
    table: int = 131_072
    attention: tuple[int, int, int, int] = (2, 16, 4096, 128)
    repeats: int = 30


QUICK = Sizes((1, 2, 16, 16), 512, (1, 2, 16, 16), 2)


def milliseconds(run: Run, device: str, repeats: int) -> float:
    """The median of some calls, after three that do not count."""
    for _ in range(3):
        run()
    found = []
    for _ in range(repeats):
        found.append(on_gpu(run) if device == "cuda" else on_cpu(run))
    return statistics.median(found)


def on_gpu(run: Run) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def on_cpu(run: Run) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


# ── RoPE of q and k, forward and back ────────────────────────────────────────────

Turn = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def there_and_back(turn: Turn, q: Tensor, k: Tensor) -> Run:
    """Both turned, and gradients of both from gradients of both."""
    leaves = tuple(x.detach().requires_grad_() for x in (q, k))

    def run() -> Any:
        return torch.autograd.grad(turn(*leaves), leaves, (q, k))

    return run


def our_turn(q: Tensor, layout: str, *, compiled: bool) -> Turn:
    ids = torch.arange(q.shape[2], device=q.device)
    cos, sin = pe_lab.rope_table(ids, pe_lab.inv_freq(q.shape[3], device=q.device))
    apply = partial(pe_lab.apply_rope, cos=cos, sin=sin, layout=layout)

    def turn(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return apply(q), apply(k)

    return harness.compiled(turn) if compiled else turn


def llama_table(q: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin as transformers' Llama makes them, (1, L, D)."""
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=q.shape[1] * q.shape[3],
        num_attention_heads=q.shape[1],
        head_dim=q.shape[3],
    )
    rotary = module.LlamaRotaryEmbedding(config).to(q.device)
    cos, sin = rotary(q, torch.arange(q.shape[2], device=q.device)[None])
    return cos, sin


def transformers_turn(q: Tensor, *, compiled: bool) -> Turn:
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    cos, sin = llama_table(q)
    turn = partial(module.apply_rotary_pos_emb, cos=cos, sin=sin)
    return harness.compiled(turn) if compiled else turn


def liger_turn(q: Tensor) -> Turn:
    """Its kernel is in Triton: a GPU only."""
    if q.device.type != "cuda":
        raise RuntimeError("Liger-Kernel needs a GPU")
    module = importlib.import_module("liger_kernel.transformers.rope")
    cos, sin = llama_table(q)
    return lambda q, k: module.liger_rotary_pos_emb(q, k, cos, sin)


def copied(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return rotate.Copy.apply(q), rotate.Copy.apply(k)


def rope_turns(q: Tensor, quick: bool) -> dict[str, Callable[[], Turn]]:
    """Who takes part; made one by one, as some cannot be."""
    found: dict[str, Callable[[], Turn]] = {"copy": lambda: copied}
    for compiled in (False,) if quick else (False, True):
        how = " compiled" if compiled else ""
        for layout in ("half", "interleaved"):
            name = f"pe_lab.apply_rope{how}, {layout}"
            found[name] = partial(our_turn, q, layout, compiled=compiled)
        name = f"transformers{how}, Llama"
        found[name] = partial(transformers_turn, q, compiled=compiled)
    return found | {"Liger-Kernel": partial(liger_turn, q)}


def rope_job(
    sizes: Sizes, device: str, dtype: torch.dtype, quick: bool
) -> dict[str, Callable[[], Run]]:
    q, k = torch.randn((2, *sizes.rope), device=device, dtype=dtype)
    makers = rope_turns(q, quick)
    return {name: partial(rope_run, make, q, k) for name, make in makers.items()}


def rope_run(make: Callable[[], Turn], q: Tensor, k: Tensor) -> Run:
    return there_and_back(make(), q, k)


# ── tables ───────────────────────────────────────────────────────────────────────


def table_job(sizes: Sizes, device: str) -> dict[str, Callable[[], Run]]:
    """cos and sin, 64 pairs; transformers writes each column twice."""
    ids = torch.arange(sizes.table, device=device)
    inv_freq = pe_lab.inv_freq(128, device=device)

    def fill() -> Run:
        return lambda: torch.empty(sizes.table, 128, device=device).fill_(1.0)

    def theirs() -> Run:
        module = importlib.import_module("transformers.models.llama.modeling_llama")
        config = importlib.import_module("transformers").LlamaConfig(head_dim=128)
        rotary = module.LlamaRotaryEmbedding(config).to(device)
        x = torch.zeros(1, device=device)
        return lambda: rotary(x, ids[None])

    return {
        "fill": fill,
        "pe_lab.rope_table, from a tensor of ids": lambda: (
            lambda: pe_lab.rope_table(ids, inv_freq)
        ),
        "pe_lab.rope_table, from a count": lambda: (
            lambda: pe_lab.rope_table(sizes.table, inv_freq, device=device)
        ),
        "transformers, Llama rotary": theirs,
    }


# ── attention with a bias ────────────────────────────────────────────────────────


def attention_job(
    encoding: PositionalEncoding, sizes: Sizes, device: str, quick: bool, back: bool
) -> dict[str, Callable[[], Run]]:
    """Causal attention in bf16: pe_lab, SDPA with the bias, FlexAttention, no bias."""
    given = tuple(torch.randn((3, *sizes.attention), device=device).bfloat16())
    encoding = encoding.to(device).requires_grad_(False)
    makers: dict[str, Callable[[], Callable[..., Tensor]]] = {
        "no bias (is_causal)": lambda: partial(
            F.scaled_dot_product_attention, is_causal=True
        ),
        "pe_lab.attention": lambda: partial(
            pe_lab.attention, encoding=encoding, causal=True
        ),
        "SDPA, bias built before": lambda: with_bias(encoding, given[0]),
        "FlexAttention": lambda: flex(encoding, given[0], compiled=not quick),
    }
    return {
        name: partial(attention_run, make, given, back) for name, make in makers.items()
    }


def attention_run(
    make: Callable[[], Callable[..., Tensor]], given: tuple[Tensor, ...], back: bool
) -> Run:
    apply = make()
    if back:
        return harness.with_backward(apply, given, given[0])
    return partial(without_gradients, apply, given)


def without_gradients(
    apply: Callable[..., Tensor], given: tuple[Tensor, ...]
) -> Tensor:
    with torch.no_grad():
        return apply(*given)


def with_bias(encoding: PositionalEncoding, q: Tensor) -> Callable[..., Tensor]:
    ids = torch.arange(q.shape[2], device=q.device)
    bias = encoding.bias(q, q, ids, ids)
    if bias is None:
        raise ValueError("this encoding has no bias")
    later = ids > ids[:, None]
    bias = bias.masked_fill(later, -torch.inf).to(q.dtype)
    return partial(F.scaled_dot_product_attention, attn_mask=bias)


def flex(
    encoding: PositionalEncoding, q: Tensor, *, compiled: bool
) -> Callable[..., Tensor]:
    """The bias looked up by distance, since every scheme here depends on that alone."""
    module = importlib.import_module("torch.nn.attention.flex_attention")
    length = q.shape[2]
    ids = torch.arange(length, device=q.device)
    row = encoding.bias(q[:1, :, -1:], q[:1], ids[-1:], ids)
    if row is None:
        raise ValueError("this encoding has no bias")
    table = row[0, :, 0].flip(-1).contiguous()  # (H, distance)

    def score_mod(score: Tensor, b: Any, h: Any, i: Any, j: Any) -> Tensor:
        return score + table[h, (i - j).clamp(min=0)]

    mask = module.create_block_mask(
        lambda b, h, i, j: i >= j, None, None, length, length, device=q.device.type
    )
    attend = module.flex_attention
    attend = torch.compile(attend, dynamic=False) if compiled else attend
    return partial(attend, score_mod=score_mod, block_mask=mask)


# ── all of it ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Job:
    """What is timed, against which bound, and who takes part."""

    name: str
    bound: str
    makers: Callable[[], dict[str, Callable[[], Run]]]


def jobs(sizes: Sizes, device: str, quick: bool) -> Iterator[Job]:
    for short, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        name = f"RoPE of q and k, forward and back, {short}"
        yield Job(name, "copy", partial(rope_job, sizes, device, dtype, quick))
    yield Job("table", "fill", partial(table_job, sizes, device))
    heads = sizes.attention[1]
    bound = "no bias (is_causal)"
    for title, make in (("ALiBi", pe_lab.ALiBi), ("T5 bias", pe_lab.T5Bias)):
        for back in (False, True):
            name = f"{title}, bf16, {'forward and back' if back else 'forward'}"
            job = partial(attention_job, make(heads), sizes, device, quick, back)
            yield Job(name, bound, job)


def measure(
    job: Job, device: str, repeats: int, hurry: Callable[[], bool]
) -> dict[str, Any]:
    """Times of all who can, over the bound's, and why the others cannot."""
    torch.compiler.reset()
    times: dict[str, float] = {}
    missing: dict[str, str] = {}
    for name, make in job.makers().items():
        if hurry():
            missing[name] = "left out: the five minutes were over"
            continue
        try:
            times[name] = milliseconds(make(), device, repeats)
        except Exception as error:  # not installed, no such kernel, out of memory
            missing[name] = harness.reason(error)
    bound = times.get(job.bound)
    rows = {
        name: {"milliseconds": value, "over_bound": value / bound if bound else None}
        for name, value in times.items()
    }
    return {"job": job.name, "bound": job.bound, "rows": rows, "missing": missing}
