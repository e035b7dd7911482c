"""How fast and how exact is RoPE applied to queries, forward and back?

x is (1, 16, 4096, 128); tables are made before. The bound copies x into a new tensor:
once for the forward pass, twice where a gradient comes back. Errors are against the
same rotation in float64, of the output, or of the gradient where there is one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

import pe_lab
from benchmarks import harness
from benchmarks.harness import Contestant, Settings, compiled, step

ROUNDS = 15
BASELINE, BOUND = "pe_lab.apply_rope, half", "copy"
BASE = 10000.0
DTYPES = (torch.float32, torch.bfloat16)
PASSES = ("forward", "forward+backward")

Apply = Callable[[Tensor], Tensor]


# ── contestants: each turns x (B, H, L, D) ───────────────────────────────────────


def ours(x: Tensor) -> list[Contestant]:
    inv_freq = pe_lab.inv_freq(x.shape[-1], base=BASE)
    cos, sin = pe_lab.rope_table(x.shape[2], inv_freq)
    entries = []
    for how, function in (
        ("", pe_lab.apply_rope),
        (" compiled", compiled(pe_lab.apply_rope)),
    ):
        for layout in ("half", "interleaved"):
            apply = partial(function, cos=cos, sin=sin, layout=layout)
            name = f"pe_lab.apply_rope{how}, {layout}"
            entries.append(Contestant(name, "pe-lab", apply, layout))
    return entries


def llama_apply(x: Tensor) -> Apply:
    """Llama's function with its own table, given keys of no heads: work for one."""
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    heads, width = x.shape[1], x.shape[3]
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=heads * width, num_attention_heads=heads, head_dim=width
    )
    cos, sin = module.LlamaRotaryEmbedding(config)(x, torch.arange(x.shape[2])[None])
    none = x.new_empty(1, 0, *x.shape[2:])
    return lambda q: module.apply_rotary_pos_emb(q, none, cos, sin)[0]


def transformers_llama(x: Tensor) -> Contestant:
    return Contestant("transformers, Llama", "transformers", llama_apply(x), "half")


def transformers_llama_compiled(x: Tensor) -> Contestant:
    name = "transformers compiled, Llama"
    return Contestant(name, "transformers", compiled(llama_apply(x)), "half")


def transformers_gptj(x: Tensor) -> Contestant:
    """GPT-J keeps (B, L, H, D), as its projections leave them; so is it given them."""
    module = importlib.import_module("transformers.models.gptj.modeling_gptj")
    table = module.create_sinusoidal_positions(x.shape[2], x.shape[3]).to(x.dtype)
    sin, cos = table[None].chunk(2, dim=-1)

    def apply(given: Tensor) -> Tensor:
        return module.apply_rotary_pos_emb(given, sin, cos)

    return Contestant(
        "transformers, GPT-J", "transformers", apply, "interleaved, heads last"
    )


def rotary_embedding_torch(x: Tensor) -> Contestant:
    package = importlib.import_module("rotary_embedding_torch")
    rotary = package.RotaryEmbedding(x.shape[-1])  # keeps its angles from call to call
    name = "rotary-embedding-torch"
    return Contestant(name, name, rotary.rotate_queries_or_keys, "interleaved")


def x_transformers(x: Tensor) -> Contestant:
    module = importlib.import_module("x_transformers.x_transformers")
    freqs, scale = module.RotaryEmbedding(x.shape[-1])(torch.arange(x.shape[2]))

    def apply(given: Tensor) -> Tensor:
        return module.apply_rotary_pos_emb(given, freqs, scale)

    return Contestant("x-transformers", "x-transformers", apply, "interleaved")


PEERS = (
    transformers_llama,
    transformers_llama_compiled,
    transformers_gptj,
    rotary_embedding_torch,
    x_transformers,
)


def copy(x: Tensor) -> Tensor:
    return torch.empty_like(x).copy_(x)


class Copy(torch.autograd.Function):
    """The bound of a pass with a gradient: one copy there, one back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return copy(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return copy(grad)


def contestants(x: Tensor) -> tuple[list[Contestant], dict[str, str]]:
    """Ours, the bound, and all peers that can be imported and do the job on x."""
    torch.compiler.reset()  # what was compiled for another dtype is no competition
    peers, absent = harness.gather(PEERS, x)
    return [*ours(x), *peers, Contestant("copy", "torch", copy)], absent


# ── the job ──────────────────────────────────────────────────────────────────────


def arrange(x: Tensor, layout: str) -> Tensor:
    """x, or the same numbers as (B, L, H, D)."""
    return x.transpose(1, 2).contiguous() if "heads last" in layout else x


def truth(x: Tensor, layout: str, *, back: bool = False) -> Tensor:
    """R x in float64, or Rᵀ x."""
    inv_freq = pe_lab.inv_freq(x.shape[-1], base=BASE)
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * inv_freq
    cos, sin = angles.cos(), angles.sin() * (-1 if back else 1)
    half = layout == "half"
    shape = (2, -1) if half else (-1, 2)
    a, b = x.double().unflatten(-1, shape).unbind(-2 if half else -1)
    pairs = (a * cos - b * sin, b * cos + a * sin)
    return arrange(torch.stack(pairs, dim=-2 if half else -1).flatten(-2), layout)


def job(entry: Contestant, x: Tensor, passes: str) -> Callable[[], Tensor]:
    """The call that is timed; it gives the output, or the gradient of x."""
    given = arrange(x, entry.layout)
    if passes == "forward":
        return lambda: entry.apply(given)
    apply = Copy.apply if entry.name == BOUND else entry.apply
    run = harness.with_backward(apply, (given,), given)
    return lambda: run()[0]


def errors(entries: list[Contestant], x: Tensor, passes: str) -> dict[str, float]:
    """Of each contestant that computes; the gradient that comes in is x itself."""
    back = passes != "forward"
    found = {}
    for entry in entries:
        if entry.name != BOUND:
            want = truth(x, entry.layout, back=back)
            found[entry.name] = harness.max_error(job(entry, x, passes)(), want)
    return found


def measure_case(x: Tensor, passes: str, memory: str, rounds: int) -> dict[str, Any]:
    """Times and errors for one dtype and kind of memory, forward or there and back."""
    entries, absent = contestants(x)
    runs = {entry.name: job(entry, x, passes) for entry in entries}
    runs, unable = harness.try_all(runs, BASELINE)
    able = [entry for entry in entries if entry.name in runs]
    return {
        "dtype": str(x.dtype).removeprefix("torch."),
        "pass": passes,
        "memory": memory,
        "rows": harness.rows(runs, rounds, memory, baseline=BASELINE, bound=BOUND),
        "max_error": errors(able, x, passes),
        "missing": absent | unable,
    }


def queries(quick: bool, dtype: torch.dtype) -> Tensor:
    shape = (1, 2, 64, 16) if quick else (1, 16, 4096, 128)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def cases() -> Iterator[tuple[torch.dtype, str, str]]:
    """dtype, passes and memory: new memory for the forward pass only."""
    for memory in harness.kinds_of_memory():
        for dtype, passes in product(DTYPES, PASSES):
            if memory != "new" or passes == "forward":
                yield dtype, passes, memory


def measure(settings: Settings) -> harness.Content:
    rounds = settings.rounds or ROUNDS
    shape = list(queries(settings.quick, torch.float32).shape)
    found = []
    for dtype, passes, memory in cases():
        label = f"RoPE, {dtype}, {passes}, {memory} memory, {rounds} rounds"
        with step(label):
            x = queries(settings.quick, dtype)
            found.append(measure_case(x, passes, memory, rounds))
    packages = ("pe-lab", "torch", "transformers", "rotary-embedding-torch")
    content = harness.heading(
        "rotate", {"shape": shape, "base": BASE}, (*packages, "x-transformers")
    )
    content |= {"rounds": rounds, "baseline": BASELINE, "bound": BOUND, "cases": found}
    return content | {"missing": harness.all_missing(found)}


if __name__ == "__main__":
    harness.command(measure, __doc__)
