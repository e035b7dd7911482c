"""Eight small models: trained in turn, or all at once by vmap over their weights?

The gradients of eight models that differ in their first weights, as for eight seeds.
`torch.func.vmap` makes one batched matrix product of eight; it saves calls, not
arithmetic. The bound is the matrix products of all eight alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import harness, train
from benchmarks.harness import Settings, step

ROUNDS, MODELS = 15, 8
BASELINE, BOUND = "pe_lab, in turn", "products"
AT_ONCE = "pe_lab, by vmap"

# d_model, heads, layers, sequences, length: of the experiments with these names
SIZES = {"anchors": (32, 2, 1, 64, 16), "panorama": (64, 4, 3, 32, 32)}
TINY = {"anchors": (16, 2, 1, 2, 8), "panorama": (16, 2, 2, 2, 8)}

Gradients = Callable[[], dict[str, Tensor]]


def in_turn(models: list[nn.Module], batch: Tensor) -> Gradients:
    """Gradients of one model after the other, stacked at the end."""

    def run() -> dict[str, Tensor]:
        found = []
        for model in models:
            model.zero_grad(set_to_none=True)
            train.loss_of(model, batch).backward()
            found.append({name: p.grad for name, p in model.named_parameters()})
        return {name: torch.stack([one[name] for one in found]) for name in found[0]}

    return run


def by_vmap(models: list[nn.Module], batch: Tensor) -> Gradients:
    """Gradients of all models in one pass over their stacked weights."""
    weights, _ = stack_module_state(models)
    weights = {name: value.detach() for name, value in weights.items()}
    skeleton = copy.deepcopy(models[0]).to("meta")

    def loss(own: dict[str, Tensor]) -> Tensor:
        return train.loss_of(lambda ids: functional_call(skeleton, own, (ids,)), batch)

    gradient = vmap(grad(loss))

    def run() -> dict[str, Tensor]:
        # the fused kernels have no rule for batches of models
        with sdpa_kernel(SDPBackend.MATH):
            return gradient(weights)

    return run


def measure_case(name: str, size: train.Size, rounds: int) -> dict[str, Any]:
    batch, models = train.batch_of(size), []
    for seed in range(MODELS):
        torch.manual_seed(seed)
        models.append(train.our_model("RoPE", size))
    turn, once, dense = in_turn(models, batch), by_vmap(models, batch), train.products
    alone = dense(size)

    def bound() -> None:
        for _ in models:
            alone()

    runs = {BASELINE: turn, AT_ONCE: once, BOUND: bound}
    memory = harness.usual_memory()
    figures = harness.rows(runs, rounds, memory, baseline=BASELINE, bound=BOUND)
    first, second = turn(), once()
    gap = max(harness.max_error(second[key], first[key].double()) for key in first)
    labels = {"size": name, "memory": memory, "missing": {}}
    return labels | {"rows": figures, "max_error": {BASELINE: 0.0, AT_ONCE: gap}}


def measure(settings: Settings) -> harness.Content:
    rounds = settings.rounds or ROUNDS
    sizes = TINY if settings.quick else SIZES
    cases = []
    for name, size in sizes.items():
        with step(f"{MODELS} models, {name}, {rounds} rounds"):
            cases.append(measure_case(name, size, rounds))
    setting = {"models": MODELS, "sizes": {k: list(size) for k, size in sizes.items()}}
    content = harness.heading("many", setting, ("pe-lab", "torch"))
    content |= {"rounds": rounds, "baseline": BASELINE, "bound": BOUND, "cases": cases}
    return content | {"missing": {}}


if __name__ == "__main__":
    harness.command(measure, __doc__)
