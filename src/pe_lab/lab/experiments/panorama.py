"""Train on short texts, test on long ones: what becomes of each encoding?

One decoder on characters for each encoding, trained on windows of T tokens. It is then
measured on longer windows as it is, with a mask that shows the last T tokens only, and,
for tables, with the ways out that are in use where the table ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

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
from pe_lab.lab.extrapolation import (
    as_they_are,
    gaze,
    last_token_loss,
    position_losses,
    windows,
)
from pe_lab.lab.results import Profile
from pe_lab.lab.text import Text, character_vocabulary, load_text
from pe_lab.lab.training import Recipe, Session, parameters_of, recipe_from, train
from pe_lab.model import Transformer

from .base import Experiment, Measured, transformer

SIZES: dict[str, dict[str, Any]] = {
    "full": {"d_model": 64, "num_heads": 4, "num_layers": 3, "norm": "pre"},
    "gpu": {"d_model": 256, "num_heads": 8, "num_layers": 6, "norm": "pre"},
}
LENGTHS = {
    "quick": (32, 64, 128),
    "full": (32, 64, 128, 256),
    "gpu": (128, 256, 512, 1024, 2048),
}
TOKENS = {"quick": 8_192, "full": 65_536, "gpu": 196_608}
RECIPES = {
    "quick": Recipe(300, 32, learning_rate=3e-3, measure_at=(0,)),
    "full": Recipe(1000, 32, learning_rate=3e-3, measure_at=tuple(range(0, 1000, 100))),
    "gpu": Recipe(
        3000, 128, learning_rate=1e-3, warmup=200,
        measure_at=tuple(range(0, 3000, 250)),
    ),
}  # fmt: skip

# (d_model, heads, trained length, longest length) → the encoding
Maker = Callable[[int, int, int, int], PositionalEncoding]
SCHEMES: dict[str, Maker] = {
    "none": lambda d, h, short, long: NoPE(),
    "sinusoidal": lambda d, h, short, long: Sinusoidal(d),
    # N(0, 1) is the scale of the words; rows from `short` on are never trained
    "learned": lambda d, h, short, long: Learned(long, d, std=1.0),
    # BERT's start: all rows near zero, so that training may keep neighbours alike
    "learned-small": lambda d, h, short, long: Learned(long, d, std=0.02),
    "rope": lambda d, h, short, long: RoPE(d // h),
    # every wavelength turns fully within the trained length, if that is 32
    "rope-base5": lambda d, h, short, long: RoPE(d // h, base=5.0),
    "alibi": lambda d, h, short, long: ALiBi(h),
    "t5": lambda d, h, short, long: T5Bias(h, num_buckets=16, max_distance=short),
    "shaw": lambda d, h, short, long: Shaw(d // h, short // 2),
}


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    """All that decides the outcome of a variant but the seed."""
    source = load_text(text)
    return {
        "scheme": variant,
        "sizes": SIZES["gpu" if size == "gpu" else "full"],
        "lengths": LENGTHS[size],
        "tokens": min(TOKENS[size], len(source.held_out) - 1),
        "recipe": asdict(RECIPES[size]),
        "text": source.name,
        "data": source.fingerprint,
    }


def encoding_of(config: dict[str, Any]) -> PositionalEncoding:
    """The encoding of a variant, made for its model and its lengths."""
    sizes, lengths = config["sizes"], config["lengths"]
    maker = SCHEMES[config["scheme"]]
    return maker(sizes["d_model"], sizes["num_heads"], lengths[0], lengths[-1])


def language_model(
    config: dict[str, Any], seed: int, session: Session
) -> tuple[Transformer, Measured]:
    """A trained model of `config`, and its curves."""
    task = tasks.next_character(load_text(config["text"]), config["lengths"][0])
    model = transformer(task, config["sizes"], encoding_of(config))
    model.to(session.device)
    curves = train(model, task, recipe_from(config["recipe"]), seed, session)
    final = {"guess": round(task.guess, 6), "parameters": parameters_of(model)}
    return model, Measured(curves, final)


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    """Train one language model on short windows, and measure it on longer ones."""
    model, trained = language_model(config, seed, session)
    text, short = load_text(config["text"]), config["lengths"][0]
    ids = held_out_ids(text)
    profiles = look(model, ids, config["lengths"])
    for name in ("plain", "window", *WAYS_OUT.get(config["scheme"], {})):
        profiles |= by_length(model, ids, config, name)
    alone = last_token_loss(model, ids, short, config["tokens"] // 8)
    return trained._replace(
        final=trained.final | {"last_token_loss": round(alone, 6)}, profiles=profiles
    )


@lru_cache(maxsize=2)
def held_out_ids(text: Text) -> Tensor:
    """The characters of the held-out part as ids."""
    return torch.tensor(character_vocabulary(text).encode(text.held_out))


def by_length(
    model: Transformer, ids: Tensor, config: dict[str, Any], name: str
) -> dict[str, Profile]:
    """Perplexity at every length, and the loss at each place of the longest."""
    lengths = config["lengths"]
    perplexities: list[float] = []
    for length in lengths:
        rows = windows(ids, length, config["tokens"])
        losses = losses_of(model, rows, name, config)
        perplexities.append(round(float(losses.mean().exp()), 5))
    each = [round(loss, 4) for loss in losses.tolist()]
    return {
        f"perplexity/{name}": Profile(list(lengths), perplexities),
        f"loss/{name}": Profile(list(range(lengths[-1])), each),
    }


def losses_of(
    model: Transformer, rows: Tensor, name: str, config: dict[str, Any]
) -> Tensor:
    """Loss at each place of the windows, run in the way of that name."""
    short, length = config["lengths"][0], rows.shape[1] - 1
    if name in ("plain", "window"):
        window = short if name == "window" else None
        return position_losses(model, rows, window=window)
    way = WAYS_OUT[config["scheme"]][name]
    own = model.encoding
    model.encoding, places = way(own, short, length)
    try:
        return position_losses(model, rows, places=places)
    finally:
        model.encoding = own


def _clamped(own: PositionalEncoding, short: int, length: int) -> Any:
    """Every later position is the last trained one."""
    return own, lambda ids: ids.clamp_max(short - 1)


def _wrapped(own: PositionalEncoding, short: int, length: int) -> Any:
    """Positions count on from 0 where the trained ones end."""
    return own, lambda ids: ids % short


def _resampled(own: PositionalEncoding, short: int, length: int) -> Any:
    """The trained rows, stretched over all positions."""
    assert isinstance(own, Learned)
    return own.resize(short).resample(length), as_they_are


def _interpolated(own: PositionalEncoding, short: int, length: int) -> Any:
    """Positions divided, so that the last is within the trained length."""
    return own, lambda ids: ids.double() * min(1.0, short / length)


# encoding → way out → (encoding, trained length, length) → (encoding, positions)
Ways = dict[str, Callable[..., Any]]
OF_A_TABLE: Ways = {"clamp": _clamped, "wrap": _wrapped, "resample": _resampled}
WAYS_OUT: dict[str, Ways] = {
    "learned": OF_A_TABLE,
    "learned-small": OF_A_TABLE,
    "sinusoidal": {"interpolate": _interpolated},
}


def look(
    model: Transformer, ids: Tensor, lengths: tuple[int, ...]
) -> dict[str, Profile]:
    """Where the last queries look, at each length."""
    device = next(model.parameters()).device
    seen = [
        gaze(model, windows(ids, length, 16 * length)[:, :-1].to(device))
        for length in lengths
    ]
    return {
        name: Profile(list(lengths), [round(getattr(one, name), 5) for one in seen])
        for name in ("recent", "distance", "entropy")
    }


EXPERIMENT = Experiment(
    name="panorama",
    question="Trained on short texts and tested on long ones: what becomes of each?",
    variants=tuple(SCHEMES),
    quick_variants=("sinusoidal", "alibi"),
    seeds=3,
    config=config,
    measure=measure,
    sizes=("quick", "full", "gpu"),
)
