"""What happens when √d_model is forgotten, or multiplied in where it is not wanted?

Number words are translated into Chinese numerals by an encoder-decoder that differs
from variant to variant only in the size of its word vectors and of its sinusoids.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch

from pe_lab.encodings import Sinusoidal
from pe_lab.lab import tasks
from pe_lab.lab.data import NumberPairs, number_pairs
from pe_lab.lab.scoring import bleu, exact_match, greedy
from pe_lab.lab.training import (
    Recipe,
    Session,
    loss_of,
    parameters_of,
    recipe_from,
    train,
)
from pe_lab.model import Transformer

from .base import Experiment, Measured, transformer

D_MODEL = 128
ROOT = math.sqrt(D_MODEL)
SIZES = {"d_model": D_MODEL, "num_heads": 4, "num_layers": 1, "norm": "post"}

# standard deviation of the word vectors, factor on them, factor on the sinusoids
SCALES: dict[str, tuple[float, float, float]] = {
    "right": (1 / ROOT, ROOT, 1.0),  # N(0, 1/d), times √d, as Vaswani et al. mean it
    "forgotten": (1 / ROOT, 1.0, 1.0),  # N(0, 1/d), √d left out
    "default": (1.0, 1.0, 1.0),  # PyTorch's N(0, 1), √d left out
    "both": (1.0, ROOT, 1.0),  # PyTorch's N(0, 1), and √d on top
    "small": (1 / ROOT, 1.0, 1 / ROOT),  # the right ratio, everything √d smaller
    "large": (1.0, ROOT, ROOT),  # the right ratio, everything √d larger
    "none": (1 / ROOT, ROOT, 0.0),  # no sinusoids at all
}
LONG = {"right-long": "right", "forgotten-long": "forgotten"}


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    """All that decides the outcome of a variant but the seed; no text is used."""
    quick = size == "quick"
    steps = 80 if quick else 900 if variant in LONG else 300
    std, word_factor, position_factor = SCALES[LONG.get(variant, variant)]
    recipe = Recipe(
        steps,
        batch_size=32 if quick else 48,
        learning_rate=1e-3,
        warmup=40 if quick else 100,
        schedule="linear",
        end=0.1,
        weight_decay=0.0,
        measure_at=tuple(range(0, steps, 20 if quick else 50)),
    )
    pairs = 5_000 if quick else 20_466
    return {
        "task": "numbers",
        "sizes": SIZES,
        "embedding_std": std,
        "embedding_scale": word_factor,
        "position_scale": position_factor,
        "recipe": asdict(recipe),
        "pairs": pairs,
        "scored": 100 if quick else 500,
        "data": number_pairs(pairs).fingerprint,
    }


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    """Train one model and let it translate the held-out numbers."""
    data = number_pairs(config["pairs"])
    task = tasks.numbers(data)
    factor = config["position_scale"]
    encoding = Sinusoidal(D_MODEL, scale=factor) if factor else None
    model = transformer(
        task,
        config["sizes"],
        encoding,
        embedding_std=config["embedding_std"],
        embedding_scale=config["embedding_scale"],
    )
    final = _norms(model, factor)
    curves = train(model, task, recipe_from(config["recipe"]), seed, session)
    return Measured(curves, final | _scores(model, data, config["scored"]))


@torch.no_grad()
def _norms(model: Transformer, factor: float) -> dict[str, float]:
    """Mean norm of words and norm of sinusoids as they enter the first layer."""
    words = model.source_embed(torch.arange(model.source_embed.num_embeddings))
    word, position = float(words.norm(dim=1).mean()), factor * math.sqrt(D_MODEL / 2)
    return {
        "word_norm": round(word, 4),
        "position_norm": round(position, 4),
        "word_share": round(word / (word + position), 4),
        "parameters": parameters_of(model),
    }


@torch.no_grad()
def _scores(model: Transformer, data: NumberPairs, count: int) -> dict[str, float]:
    """Loss, exact match and BLEU on the first `count` held-out pairs."""
    pairs = list(data.held_out[:count])
    batch = tasks.number_batch(pairs, data)
    assert batch.source is not None
    written = greedy(model, batch.source, max_length=batch.inputs.shape[1] + 2)
    texts = ["".join(data.characters.decode(row)) for row in written.tolist()]
    right = ["".join(numeral) for _, numeral in pairs]
    return {
        "held_out_loss": round(float(loss_of(model.eval(), batch)), 6),
        "exact_match": exact_match(texts, right),
        "bleu": round(bleu(texts, right), 4),
    }


EXPERIMENT = Experiment(
    name="sqrt-d",
    question="What does it cost to forget √d_model, or to add it where it is not due?",
    variants=(*SCALES, *LONG),
    quick_variants=("right", "forgotten", "both"),
    seeds=3,
    config=config,
    measure=measure,
)
