"""Who can say at which place it stands, and what does one fixed first token change?

The tokens are random and tell nothing. An encoder without position cannot do better
than guess; a causal mask, a relative scheme and a constant first token each add a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from pe_lab.encodings import (
    ALiBi,
    Learned,
    NoPE,
    PositionalEncoding,
    RoPE,
    Shaw,
    Sinusoidal,
    T5Bias,
)
from pe_lab.lab import tasks
from pe_lab.lab.results import Profile
from pe_lab.lab.tasks import IGNORE, Batch, Draw, Task
from pe_lab.lab.training import (
    HELD_OUT_SEED,
    Recipe,
    Session,
    logits_of,
    parameters_of,
    recipe_from,
    train,
)
from pe_lab.model import Transformer

from .base import Experiment, Measured, transformer

LENGTH = 16
SIZES = {"d_model": 32, "num_heads": 2, "num_layers": 1, "norm": "pre"}
KINDS = {"both-ways": "encoder", "causal": "decoder"}
STARTS = ("bare", "anchored")  # without and with a constant first token

# (both ways?) → the encoding
SCHEMES: dict[str, Callable[[bool], PositionalEncoding]] = {
    "none": lambda both: NoPE(),
    "sinusoidal": lambda both: Sinusoidal(32),
    "learned": lambda both: Learned(LENGTH + 1, 32, std=1.0),
    "rope": lambda both: RoPE(16),
    "alibi": lambda both: ALiBi(2, symmetric=both),
    # 16 buckets for keys before the query, and as many for keys behind it
    "t5": lambda both: T5Bias(
        2,
        bidirectional=both,
        num_buckets=2 * LENGTH if both else LENGTH,
        max_distance=LENGTH,
    ),
    "shaw": lambda both: Shaw(16, LENGTH),
}
VARIANTS = tuple(
    f"{kind}/{scheme}/{start}"
    for kind in KINDS
    for scheme in SCHEMES
    for start in STARTS
)


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    """All that decides the outcome of a variant but the seed; no text is used."""
    kind, scheme, start = variant.split("/")
    steps = 200 if size == "quick" else 400
    measured = tuple(range(0, steps, 50))
    return {
        "kind": kind,
        "scheme": scheme,
        "start": start,
        "sizes": SIZES,
        "recipe": asdict(Recipe(steps, 64, learning_rate=3e-3, measure_at=measured)),
        "scored": 256 if size == "quick" else 1024,
    }


def anchored(task: Task) -> Task:
    """The same task behind one constant token, which is not asked for its place."""

    def behind(draw: Draw) -> Draw:
        def made(batch_size: int, generator: Generator) -> Batch:
            batch = draw(batch_size, generator)
            return Batch(
                F.pad(batch.inputs, (1, 0), value=task.num_inputs),
                F.pad(batch.targets, (1, 0), value=IGNORE),
            )

        return made

    draws = behind(task.draw), behind(task.draw_held_out)
    return replace(
        task, num_inputs=task.num_inputs + 1, draw=draws[0], draw_held_out=draws[1]
    )


def task_of(config: dict[str, Any]) -> Task:
    """Say at which place you stand, in the way of this variant."""
    task = replace(tasks.position(LENGTH), kind=KINDS[config["kind"]])
    return anchored(task) if config["start"] == "anchored" else task


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    """Train one model, and count right answers at each place."""
    task = task_of(config)
    encoding = SCHEMES[config["scheme"]](config["kind"] == "both-ways")
    model = transformer(task, config["sizes"], encoding).to(session.device)
    curves = train(model, task, recipe_from(config["recipe"]), seed, session)
    right = right_answers(model, task, config["scored"])
    final = {
        "held_out_loss": curves["held_out_loss"].values[-1],
        "accuracy": round(float(right.mean()), 6),
        "guess": round(1 / LENGTH, 6),
        "parameters": parameters_of(model),
    }
    each = Profile(list(range(LENGTH)), [round(r, 6) for r in right.tolist()])
    return Measured(curves, final, {"accuracy": each})


@torch.no_grad()
def right_answers(model: Transformer, task: Task, count: int) -> Tensor:
    """Share of right answers at each place that is asked, (LENGTH,) float64."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    batch = task.draw_held_out(count, generator).to(device)
    answers = logits_of(model.eval(), batch).argmax(dim=-1)
    return (answers == batch.targets)[:, -LENGTH:].double().mean(dim=0).cpu()


EXPERIMENT = Experiment(
    name="anchors",
    question="Who can say where it stands, and what does a constant first token add?",
    variants=VARIANTS,
    quick_variants=("causal/none/bare", "causal/none/anchored"),
    seeds=3,
    config=config,
    measure=measure,
)
