"""What does causal attention with ALiBi cost beside the same attention without it?

q, k and v are (1, 16, L, 64). The bound is scaled_dot_product_attention with
is_causal=True and no bias: it skips half of the scores and reads no L×L tensor. Errors
are those of the last 64 queries' outputs, against float64.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import pe_lab
from benchmarks import harness
from benchmarks.harness import Contestant, Settings, step

ROUNDS = 7
BASELINE, BOUND = "pe_lab.attention, ALiBi", "no bias (is_causal)"
HEADS, WIDTH, CHECKED = 16, 64, 64
DTYPES = (torch.float32, torch.bfloat16)

Inputs = tuple[Tensor, Tensor, Tensor]

# Each contestant's `apply` takes q, k, v (1, H, L, D), and is made for their length.


def slopes(heads: int) -> Tensor:
    return pe_lab.alibi_slopes(heads).float()


def causal_bias(heads: int, length: int, dtype: torch.dtype) -> Tensor:
    """(1, H, L, L): −m_h (m − n), and −∞ for later keys, as one writes it oneself."""
    ids = torch.arange(length)
    offset = ids - ids[:, None]
    bias = slopes(heads)[:, None, None] * offset
    return bias.masked_fill(offset > 0, -torch.inf).to(dtype)[None]


def ours(q: Tensor) -> Contestant:
    encoding = pe_lab.ALiBi(q.shape[1])
    apply = partial(pe_lab.attention, encoding=encoding, causal=True)
    return Contestant(BASELINE, "pe-lab", apply)


def sdpa_bound(q: Tensor) -> Contestant:
    apply = partial(F.scaled_dot_product_attention, is_causal=True)
    return Contestant(BOUND, "torch", apply)


def sdpa_built_before(q: Tensor) -> Contestant:
    bias = causal_bias(q.shape[1], q.shape[2], q.dtype)
    apply = partial(F.scaled_dot_product_attention, attn_mask=bias)
    return Contestant("SDPA, bias built before", "torch", apply)


def sdpa_built_each_call(q: Tensor) -> Contestant:
    def apply(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bias = causal_bias(q.shape[1], q.shape[2], q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    return Contestant("SDPA, bias built each call", "torch", apply)


def flex_attention(q: Tensor) -> Contestant:
    """FlexAttention compiled, with the bias as a score_mod and a causal block mask."""
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    length, table = q.shape[2], slopes(q.shape[1])

    def score_mod(score: Tensor, b: Any, h: Any, i: Any, j: Any) -> Tensor:
        return score + table[h] * (j - i)

    mask = flex.create_block_mask(
        lambda b, h, i, j: i >= j, None, None, length, length, device="cpu"
    )
    attend = torch.compile(flex.flex_attention, dynamic=False)
    apply = partial(attend, score_mod=score_mod, block_mask=mask)
    return Contestant("FlexAttention compiled", "torch", apply)


def x_transformers(q: Tensor) -> Contestant:
    """Its attention with SDPA inside, and its bias, which it keeps between calls."""
    package = importlib.import_module("x_transformers.x_transformers")
    attend = importlib.import_module("x_transformers.attend").Attend(
        causal=True, flash=True, heads=q.shape[1]
    )
    bias = package.AlibiPositionalBias(q.shape[1])

    def apply(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kept = bias(q.shape[2], k.shape[2]).to(q.dtype)
        return attend(q, k, v, attn_bias=kept)[0]

    return Contestant("x-transformers", "x-transformers", apply)


PEERS: tuple[Callable[[Tensor], Contestant], ...] = (
    sdpa_built_before,
    sdpa_built_each_call,
    flex_attention,
    x_transformers,
)


def contestants(q: Tensor) -> tuple[list[Contestant], dict[str, str]]:
    """Ours, the peers that can be made, and the bound."""
    torch.compiler.reset()
    peers, missing = harness.gather(PEERS, q)
    return [ours(q), *peers, sdpa_bound(q)], missing


def inputs(length: int, dtype: torch.dtype, heads: int = HEADS) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    shape = (3, 1, heads, length, WIDTH)
    q, k, v = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return q, k, v


def truth(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The outputs of the last queries, by the formula in float64."""
    q, k, v = q.double(), k.double(), v.double()
    length = k.shape[2]
    rows = torch.arange(max(0, length - CHECKED), length)[:, None]
    offset = torch.arange(length) - rows
    table = pe_lab.alibi_slopes(q.shape[1])[:, None, None]
    scores = q[:, :, rows[0, 0] :] @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    scores = (scores + table * offset).masked_fill(offset > 0, -torch.inf)
    return scores.softmax(-1) @ v


def measure_case(length: int, dtype: torch.dtype, rounds: int) -> dict[str, Any]:
    given = inputs(length, dtype)
    entries, absent = contestants(given[0])
    ways = {entry.name: partial(entry.apply, *given) for entry in entries}
    runs, unable = harness.try_all(ways, BASELINE)
    want, memory = truth(*given), harness.usual_memory()
    gaps = {
        name: harness.max_error(run()[:, :, -CHECKED:], want)
        for name, run in runs.items()
        if name != BOUND
    }
    figures = harness.rows(runs, rounds, memory, baseline=BASELINE, bound=BOUND)
    labels = {"length": length, "dtype": str(dtype).removeprefix("torch.")}
    result = {"rows": figures, "max_error": gaps, "missing": absent | unable}
    return labels | {"memory": memory} | result


def measure(settings: Settings) -> harness.Content:
    rounds = settings.rounds or ROUNDS
    lengths = (96, 128) if settings.quick else (512, 1024, 2048)
    cases = []
    with torch.no_grad():
        for length in lengths:
            for dtype in DTYPES:
                with step(f"causal ALiBi, L = {length}, {dtype}, {rounds} rounds"):
                    cases.append(measure_case(length, dtype, rounds))
    setting = {"heads": HEADS, "head_dim": WIDTH, "lengths": list(lengths)}
    content = harness.heading("alibi", setting, ("pe-lab", "torch", "x-transformers"))
    content |= {"rounds": rounds, "baseline": BASELINE, "bound": BOUND, "cases": cases}
    return content | {"missing": harness.all_missing(cases)}


if __name__ == "__main__":
    harness.command(measure, __doc__)
