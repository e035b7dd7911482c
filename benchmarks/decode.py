"""What does RoPE cost at one step of decoding, q and k of one token at position 4095?

q and k are (1, 32, 1, 128). Rotating 8192 numbers takes no time worth speaking of:
what is measured is how many calls a library makes to do it. So the bound, copying q and
k, is two calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import pe_lab
from benchmarks import harness
from benchmarks.harness import Contestant, Settings, compiled, step
from benchmarks.rotate import BASE, copy

ROUNDS, CALLS = 101, 20
BASELINE, BOUND = "pe_lab.RoPE, half", "copy"
HEADS, WIDTH, POSITION = 32, 128, 4095
DTYPES = (torch.float32, torch.bfloat16)

Pair = tuple[Tensor, Tensor]

# Each contestant's `apply` takes q and k (1, H, 1, D) and position ids (1,).


def ours() -> list[Contestant]:
    entries = []
    for layout in ("half", "interleaved"):
        rope = pe_lab.RoPE(WIDTH, base=BASE, layout=layout)
        ways = (("", rope.rotate), (" compiled", compiled(rope.rotate)))
        for how, rotate in ways:
            name = f"pe_lab.RoPE{how}, {layout}"
            entries.append(Contestant(name, "pe-lab", twice_ids(rotate), layout))
    return entries


def twice_ids(rotate: Callable[..., Pair]) -> Callable[[Tensor, Tensor, Tensor], Pair]:
    """q and k of one step have the same ids."""
    return lambda q, k, ids: rotate(q, k, ids, ids)


def llama_step() -> Callable[[Tensor, Tensor, Tensor], Pair]:
    """As the model does: a table for the new position, then q and k."""
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, head_dim=WIDTH
    )
    rotary = module.LlamaRotaryEmbedding(config)

    def apply(q: Tensor, k: Tensor, ids: Tensor) -> Pair:
        cos, sin = rotary(q, ids[None])
        q, k = module.apply_rotary_pos_emb(q, k, cos, sin)
        return q, k

    return apply


def transformers_llama() -> Contestant:
    return Contestant("transformers, Llama", "transformers", llama_step(), "half")


def transformers_llama_compiled() -> Contestant:
    name = "transformers compiled, Llama"
    return Contestant(name, "transformers", compiled(llama_step()), "half")


def transformers_gptj() -> Contestant:
    """As the model does: a row of its table, then q and k as (B, L, H, D)."""
    module = importlib.import_module("transformers.models.gptj.modeling_gptj")
    table = module.create_sinusoidal_positions(POSITION + 1, WIDTH)

    def apply(q: Tensor, k: Tensor, ids: Tensor) -> Pair:
        sin, cos = table[ids][None].to(q.dtype).chunk(2, dim=-1)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        q = module.apply_rotary_pos_emb(q, sin, cos).transpose(1, 2)
        return q, module.apply_rotary_pos_emb(k, sin, cos).transpose(1, 2)

    return Contestant("transformers, GPT-J", "transformers", apply, "interleaved")


def rotary_embedding_torch() -> Contestant:
    package = importlib.import_module("rotary_embedding_torch")
    rotary = package.RotaryEmbedding(WIDTH)
    turn = partial(rotary.rotate_queries_or_keys, offset=POSITION)
    name = "rotary-embedding-torch"  # it takes an offset, and no ids
    return Contestant(name, name, lambda q, k, _: (turn(q), turn(k)), "interleaved")


def x_transformers() -> Contestant:
    module = importlib.import_module("x_transformers.x_transformers")
    rotary = module.RotaryEmbedding(WIDTH)

    def apply(q: Tensor, k: Tensor, ids: Tensor) -> Pair:
        freqs, scale = rotary(ids)
        turn = module.apply_rotary_pos_emb
        return turn(q, freqs, scale), turn(k, freqs, scale)

    return Contestant("x-transformers", "x-transformers", apply, "interleaved")


PEERS = (
    transformers_llama,
    transformers_llama_compiled,
    transformers_gptj,
    rotary_embedding_torch,
    x_transformers,
)


def truth(x: Tensor, layout: str) -> Tensor:
    """R x in float64 at the one position."""
    angles = POSITION * pe_lab.inv_freq(WIDTH, base=BASE)
    cos, sin = angles.cos(), angles.sin()
    half = layout == "half"
    axis = -2 if half else -1
    a, b = x.double().unflatten(-1, (2, -1) if half else (-1, 2)).unbind(axis)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=axis).flatten(-2)


def errors(entries: list[Contestant], given: tuple[Tensor, ...]) -> dict[str, float]:
    """The larger one of q's and k's."""
    found = {}
    for entry in entries:
        if entry.name != BOUND:
            both = zip(entry.apply(*given), given[:2], strict=True)
            gaps = [harness.max_error(y, truth(x, entry.layout)) for y, x in both]
            found[entry.name] = max(gaps)
    return found


def measure_case(dtype: torch.dtype, rounds: int, calls: int) -> dict[str, Any]:
    torch.compiler.reset()
    generator = torch.Generator().manual_seed(0)
    shape = (2, 1, HEADS, 1, WIDTH)
    q, k = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    given = (q, k, torch.tensor([POSITION]))
    peers, missing = harness.gather(PEERS)
    bound = Contestant(BOUND, "torch", lambda q, k, _: (copy(q), copy(k)))
    entries = [*ours(), *peers, bound]
    ways = {entry.name: partial(entry.apply, *given) for entry in entries}
    runs, unable = harness.try_all(ways, BASELINE)
    gaps = errors([entry for entry in entries if entry.name in runs], given)
    memory = harness.usual_memory()
    figures = harness.rows(
        runs, rounds, memory, baseline=BASELINE, bound=BOUND, calls=calls
    )
    labels = {"dtype": str(dtype).removeprefix("torch."), "memory": memory}
    found = {"rows": figures, "max_error": gaps, "missing": missing | unable}
    return labels | found


def measure(settings: Settings) -> harness.Content:
    rounds = settings.rounds or ROUNDS
    calls = 1 if settings.quick else CALLS
    cases = []
    with torch.no_grad():
        for dtype in DTYPES:
            with step(f"one step of decoding, {dtype}, {rounds} rounds of {calls}"):
                cases.append(measure_case(dtype, rounds, calls))
    packages = ("pe-lab", "torch", "transformers", "rotary-embedding-torch")
    setting = {"heads": HEADS, "head_dim": WIDTH, "position": POSITION, "calls": calls}
    content = harness.heading("decode", setting, (*packages, "x-transformers"))
    content |= {"rounds": rounds, "baseline": BASELINE, "bound": BOUND, "cases": cases}
    return content | {"missing": harness.all_missing(cases)}


if __name__ == "__main__":
    harness.command(measure, __doc__)
