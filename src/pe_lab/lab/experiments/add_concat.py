"""Add, concatenate or multiply: which way of joining word and place learns best?

A causal language model over characters (few symbols) and over words (many). Variants
of one vocabulary have the same number of parameters: what a narrower word vector saves
goes into the feed-forward layers.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from pe_lab.encodings import PositionalEncoding, Sinusoidal
from pe_lab.encodings.sinusoidal import sinusoidal
from pe_lab.lab import tasks
from pe_lab.lab.tasks import Task
from pe_lab.lab.text import load_text
from pe_lab.lab.training import (
    Recipe,
    Session,
    held_out_loss,
    parameters_of,
    recipe_from,
    train,
)

from .base import Experiment, Measured, transformer

D_MODEL, D_FF, LAYERS = 64, 256, 2
SIZES = {"d_model": D_MODEL, "num_heads": 4, "num_layers": LAYERS, "norm": "pre"}
VOCABULARIES = {"characters": 0, "words": 2048}  # 0: as many as the text has
PLACE_DIM = {"none": 0, "add": 0, "multiply": 0, "concat-8": 8, "concat-32": 32}
VARIANTS = tuple(f"{symbols}/{way}" for symbols in VOCABULARIES for way in PLACE_DIM)


class Multiplied(PositionalEncoding):
    """Door 1: x · PE(positions), channel by channel."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """(B, L, d_model) to the same."""
        return x * sinusoidal(positions, x.shape[-1]).to(x)


class Concatenated(PositionalEncoding):
    """Door 1: [x, PE(positions)], words and place in channels of their own.

    Args:
        place_dim: channels of the sinusoid; the words have the rest of d_model.
    """

    def __init__(self, place_dim: int) -> None:
        super().__init__()
        self.place_dim = place_dim

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """(B, L, token_dim) to (B, L, token_dim + place_dim)."""
        place = sinusoidal(positions, self.place_dim).to(x)
        return torch.cat([x, place.expand(*x.shape[:-1], self.place_dim)], dim=-1)


def encoding_of(way: str) -> PositionalEncoding | None:
    """The encoding that joins word and place in this way."""
    if way == "add":
        return Sinusoidal(D_MODEL)
    if way == "multiply":
        return Multiplied()
    return Concatenated(PLACE_DIM[way]) if PLACE_DIM[way] else None


def balanced_d_ff(vocabulary_size: int, place_dim: int) -> int:
    """The feed-forward width that spends what `place_dim` fewer word channels save."""
    return D_FF + round(vocabulary_size * place_dim / (LAYERS * (2 * D_MODEL + 1)))


def task_of(symbols: str, text: str) -> Task:
    """Predict the next character, or the next word."""
    source = load_text(text)
    if symbols == "characters":
        return tasks.next_character(source)
    return tasks.next_word(source, VOCABULARIES[symbols])


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    """All that decides the outcome of a variant but the seed."""
    quick = size == "quick"
    symbols, way = variant.split("/")
    source = load_text(text)
    steps = 200 if quick else 600 if symbols == "characters" else 1000
    vocabulary_size = task_of(symbols, text).num_inputs
    recipe = Recipe(
        steps,
        batch_size=16 if quick else 32,
        learning_rate=3e-3,
        measure_at=tuple(range(0, steps, 100)),
    )
    return {
        "task": symbols,
        "way": way,
        "vocabulary_size": vocabulary_size,
        "token_dim": D_MODEL - PLACE_DIM[way],
        "sizes": SIZES | {"d_ff": balanced_d_ff(vocabulary_size, PLACE_DIM[way])},
        "recipe": asdict(recipe),
        "scored": 256 if quick else 1024,
        "text": source.name,
        "data": source.fingerprint,
    }


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    """Train one language model; the final loss is taken on more held-out windows."""
    task = task_of(config["task"], config["text"])
    encoding = encoding_of(config["way"])
    options = {"token_dim": config["token_dim"]}
    model = transformer(task, config["sizes"], encoding, **options)
    curves = train(model, task, recipe_from(config["recipe"]), seed, session)
    final = {
        "held_out_loss": round(held_out_loss(model, task, config["scored"]), 6),
        "guess": round(task.guess, 6),
        "parameters": parameters_of(model),
    }
    return Measured(curves, final)


EXPERIMENT = Experiment(
    name="add-concat",
    question="Add, concatenate or multiply: which learns best at equal parameters?",
    variants=VARIANTS,
    quick_variants=("characters/none", "characters/add", "characters/concat-32"),
    seeds=3,
    config=config,
    measure=measure,
)
