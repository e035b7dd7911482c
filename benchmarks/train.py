"""What does one step of training a small decoder cost, beside x-transformers?

Forward, backward and AdamW on one batch, at two sizes and with four encodings. The
models have the same widths, layers and heads; their counts of parameters are in the
file. The bound is the matrix products of forward and backward alone.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pe_lab
from benchmarks import harness
from benchmarks.harness import Settings, compiled, step
from pe_lab.lab.training import parameters_of

ROUNDS = 15
BASELINE, BOUND = "pe_lab, RoPE", "products"
TOKENS = 65

# d_model, heads, layers, sequences, length
SIZES = {"small": (64, 4, 3, 32, 32), "medium": (128, 4, 4, 32, 128)}
TINY = {"small": (16, 2, 1, 2, 8), "medium": (16, 2, 2, 2, 16)}
Size = tuple[int, int, int, int, int]

OURS: dict[str, Callable[[int, int, int], pe_lab.PositionalEncoding]] = {
    "none": lambda width, heads, length: pe_lab.NoPE(),
    "learned": lambda width, heads, length: pe_lab.Learned(length, width),
    "RoPE": lambda width, heads, length: pe_lab.RoPE(width // heads),
    "ALiBi": lambda width, heads, length: pe_lab.ALiBi(heads),
}
THEIRS: dict[str, dict[str, bool]] = {
    "none": {},
    "learned": {},
    "RoPE": {"rotary_pos_emb": True},
    "ALiBi": {"alibi_pos_bias": True},
}


def our_model(scheme: str, size: Size) -> nn.Module:
    width, heads, layers, _, length = size
    encoding = OURS[scheme](width, heads, length)
    return pe_lab.Transformer(TOKENS, width, heads, layers, encoding=encoding)


def their_model(scheme: str, size: Size) -> nn.Module:
    width, heads, layers, _, length = size
    package = importlib.import_module("x_transformers")
    layers_of = package.Decoder(
        dim=width,
        depth=layers,
        heads=heads,
        attn_dim_head=width // heads,
        attn_flash=scheme != "ALiBi",  # its flash attention refuses a bias on a CPU
        **THEIRS[scheme],
    )
    return package.TransformerWrapper(
        num_tokens=TOKENS,
        max_seq_len=length,
        use_abs_pos_emb=scheme == "learned",
        attn_layers=layers_of,
    )


def batch_of(size: Size) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(TOKENS, (size[3], size[4] + 1), generator=generator)


def loss_of(model: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def training_step(model: nn.Module, batch: Tensor, *, fast: bool = False) -> Any:
    """A call that makes one update, and gives the loss before it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ask = compiled(model) if fast else model

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(ask, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return run


def products(size: Size) -> Callable[[], None]:
    """The matrix products of a step: each forward one, and the two that lead back."""
    width, heads, layers, rows, length = size
    tokens, each = rows * length, width // heads
    linear = [(width, width)] * 4 + [(width, 4 * width), (4 * width, width)]
    shapes = [(tokens, a, b) for a, b in linear * layers + [(width, TOKENS)]]
    dense = [(torch.randn(m, k), torch.randn(k, n)) for m, k, n in shapes]
    q, scores = (
        torch.randn(rows * heads, length, each),
        torch.randn(rows * heads, length, length),
    )

    def run() -> None:
        for x, weight in dense:
            y = x @ weight
            torch.mm(y, weight.T)
            torch.mm(x.T, y)
        for _ in range(layers):
            torch.bmm(q, q.mT)  # scores
            for _ in range(5):  # values; queries, keys, values and weights back
                torch.bmm(scores, q)

    return run


def error_of(model: nn.Module, batch: Tensor) -> float:
    """How far the loss in float32 is from that of the same model in float64."""
    with torch.no_grad():
        exact = loss_of(copy.deepcopy(model).double().eval(), batch)
        return abs(float(loss_of(model.eval(), batch)) - float(exact))


def measure_case(name: str, size: Size, rounds: int, quick: bool) -> dict[str, Any]:
    torch.compiler.reset()
    batch = batch_of(size)
    models: dict[str, nn.Module] = {}
    missing: dict[str, str] = {}
    for who, scheme in product(("pe_lab", "x-transformers"), OURS):
        make = our_model if who == "pe_lab" else their_model
        torch.manual_seed(0)
        try:
            models[f"{who}, {scheme}"] = make(scheme, size)
        except Exception as error:  # a peer may be absent, or broken by a release
            missing[f"{who}, {scheme}"] = harness.reason(error)
    gaps = {key: error_of(model, batch) for key, model in models.items()}
    ways = {key: training_step(model.train(), batch) for key, model in models.items()}
    if not quick:  # compiling takes longer than all the rest
        ways["pe_lab compiled, RoPE"] = training_step(
            our_model("RoPE", size), batch, fast=True
        )
    runs, unable = harness.try_all(ways | {BOUND: products(size)}, BASELINE)
    memory = harness.usual_memory()
    figures = harness.rows(runs, rounds, memory, baseline=BASELINE, bound=BOUND)
    counts = {key: parameters_of(model) for key, model in models.items()}
    found = {"rows": figures, "max_error": gaps, "missing": missing | unable}
    return {"size": name, "memory": memory, "parameters": counts} | found


def measure(settings: Settings) -> harness.Content:
    rounds = settings.rounds or ROUNDS
    sizes = TINY if settings.quick else SIZES
    cases = []
    for name, size in sizes.items():
        with step(f"one step of training, {name}, {rounds} rounds"):
            cases.append(measure_case(name, size, rounds, settings.quick))
    setting = {"sizes": {name: list(size) for name, size in sizes.items()}}
    content = harness.heading("train", setting, ("pe-lab", "torch", "x-transformers"))
    content |= {"rounds": rounds, "baseline": BASELINE, "bound": BOUND, "cases": cases}
    return content | {"missing": harness.all_missing(cases)}


if __name__ == "__main__":
    harness.command(measure, __doc__)
