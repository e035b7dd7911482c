"""Trained on short strings, tested on longer ones: which position carries over?

Four tasks after Kazemnejad et al. 2023, each with six schemes, in a decoder that only
meets strings of a few digits. Its answers are then counted on longer ones. Addition is
not learned in 600 steps, and stays to show it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from pe_lab.encodings import ALiBi, Learned, RoPE, Sinusoidal, T5Bias
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.lab.results import Profile
from pe_lab.lab.scoring import right_shares
from pe_lab.lab.strings import TASKS
from pe_lab.lab.training import (
    HELD_OUT_SEED,
    Recipe,
    Session,
    parameters_of,
    recipe_from,
    train,
)

from .base import Experiment, Measured, transformer

SCHEMES = ("nope", "alibi", "rope", "sinusoidal", "learned", "t5")
VARIANTS = tuple(f"{task}/{scheme}" for task in TASKS for scheme in SCHEMES)
SMALL = {"d_model": 64, "num_heads": 4, "num_layers": 3, "norm": "pre"}
LARGE = {"d_model": 256, "num_heads": 8, "num_layers": 6, "norm": "pre"}
SETTINGS: dict[str, dict[str, Any]] = {
    # trained: digits in the shortest and the longest string; rows: of the learned
    # table, of which training reaches the first ones only; t5: buckets, and the
    # distance at which the last of them begins
    "full": {
        "sizes": SMALL,
        "trained": [1, 8],
        "tested": [4, 8, 10, 12, 16],
        "scored": 512,
        "rows": 64,
        "t5": [16, 32],
    },
    "gpu": {
        "sizes": LARGE,
        "trained": [1, 20],
        "tested": [10, 20, 22, 24, 28, 32, 40],
        "scored": 512,
        "rows": 128,
        "t5": [32, 128],
    },
}
SETTINGS["quick"] = SETTINGS["full"] | {"scored": 64}
RECIPES = {
    "quick": Recipe(150, batch_size=32, learning_rate=3e-3, measure_at=(0,)),
    "full": Recipe(
        600,
        batch_size=32,
        learning_rate=3e-3,
        measure_at=(0, 100, 200, 300, 400, 500),
    ),
    "gpu": Recipe(
        20_000,
        batch_size=128,
        learning_rate=5e-4,
        warmup=500,
        measure_at=tuple(range(0, 20_000, 1_000)),
        average=100,
    ),
}


def encoding_of(config: dict[str, Any]) -> PositionalEncoding | None:
    """The scheme of a config; None for no position at all."""
    sizes = config["sizes"]
    d_model, num_heads = sizes["d_model"], sizes["num_heads"]
    buckets, farthest = config["t5"]
    makers: dict[str, Callable[[], PositionalEncoding | None]] = {
        "nope": lambda: None,
        "alibi": lambda: ALiBi(num_heads),
        "rope": lambda: RoPE(d_model // num_heads),
        "sinusoidal": lambda: Sinusoidal(d_model),
        # as large as the words: N(0, 1) in every channel
        "learned": lambda: Learned(config["rows"], d_model, std=1.0),
        "t5": lambda: T5Bias(num_heads, num_buckets=buckets, max_distance=farthest),
    }
    return makers[config["encoding"]]()


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    """All that decides the outcome of a variant but the seed; text has no part."""
    task, scheme = variant.split("/")
    names = {"task": task, "encoding": scheme}
    return names | SETTINGS[size] | {"recipe": asdict(RECIPES[size])}


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    """Train one model, and count its right answers at each length."""
    task = TASKS[config["task"]](*config["trained"])
    model = transformer(task, config["sizes"], encoding_of(config)).to(session.device)
    curves = train(model, task, recipe_from(config["recipe"]), seed, session)
    exact, accuracy = zip(
        *(shares_at(model, config, length) for length in config["tested"]), strict=True
    )
    longest = config["tested"].index(config["trained"][1])
    final = {
        "exact_match": exact[longest],  # at the longest trained length
        "token_accuracy": accuracy[longest],
        "held_out_loss": curves["held_out_loss"].values[-1],
        "guess": round(task.guess, 6),
        "parameters": parameters_of(model),
    }
    profiles = {
        "exact_match": Profile(config["tested"], list(exact)),
        "token_accuracy": Profile(config["tested"], list(accuracy)),
    }
    return Measured(curves, final, profiles)


def shares_at(
    model: nn.Module, config: dict[str, Any], length: int
) -> tuple[float, float]:
    """Exact match and token accuracy on strings of one length, the same for all."""
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    task = TASKS[config["task"]](length, length)
    batch = task.draw_held_out(config["scored"], generator)
    device = next(model.parameters()).device
    exact, accuracy = right_shares(model, batch.to(device))
    return round(exact, 6), round(accuracy, 6)


EXPERIMENT = Experiment(
    name="lengths",
    question="Trained on short strings: which scheme carries over to longer ones?",
    variants=VARIANTS,
    quick_variants=("copy/nope", "copy/rope"),
    seeds=3,
    config=config,
    measure=measure,
    sizes=("quick", "full", "gpu"),
)
