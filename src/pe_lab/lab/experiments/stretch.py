"""Stretch a trained context four times: as it is, and after a brief fine-tuning.

A decoder on characters is trained on windows of T tokens. Each way of stretching takes
a copy of it, changes its encoding, and trains it for 0, 20 or 100 more steps on windows
of 4·T tokens.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pe_lab import scaling
from pe_lab.encodings import Learned, PositionalEncoding, RoPE, Sinusoidal
from pe_lab.frequencies import inv_freq
from pe_lab.lab import tasks
from pe_lab.lab.extrapolation import position_losses, windows
from pe_lab.lab.results import Profile
from pe_lab.lab.text import character_vocabulary, load_text
from pe_lab.lab.training import Recipe, Session, recipe_from, train
from pe_lab.model import Transformer

from . import panorama
from .base import Experiment, Measured

FACTOR = 4
SHORT = 32
LENGTHS = (SHORT, 2 * SHORT, FACTOR * SHORT, 8 * SHORT)
STEPS = {"quick": (0, 20), "full": (0, 20, 100)}
# the fastest pair turns 5.1 times within 32 tokens, so YaRN's 32 turns have no meaning
FASTEST = SHORT / math.tau

Wave = Callable[[Tensor], Tensor]  # inverse frequencies → inverse frequencies
Way = Callable[[Transformer, dict[str, Any]], PositionalEncoding]


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    """All that decides the outcome of a variant but the seed."""
    base = panorama.config(variant, size, text)
    ways = ("plain", "linear", "yarn") if size == "quick" else tuple(WAYS[variant])
    return base | {
        "lengths": LENGTHS,
        "factor": FACTOR,
        "ways": [way for way in ways if way in WAYS[variant]],
        "more": STEPS[size],
        "tuning": asdict(Recipe(0, 8, learning_rate=5e-4, warmup=10, held_out_size=32)),
    }


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    """Train on short windows; then stretch a copy in each way, and tune it briefly."""
    model, trained = panorama.language_model(config, seed, session.part("short"))
    profiles: dict[str, Profile] = {}
    for way in config["ways"]:
        for steps in config["more"]:
            tuned = copy.deepcopy(model)
            stretch = WAYS[config["scheme"]][way]
            tuned.encoding = stretch(tuned, config)
            if steps:
                tune(tuned, config, steps, seed, session.part(f"{way}-{steps}"))
            profiles[f"perplexity/{way}/{steps}"] = perplexities(tuned, config)
        if type(tuned.encoding) is RoPE:
            slowed = inv_freq(tuned.encoding.rotary_dim) / tuned.encoding.inv_freq
            at = list(range(len(slowed)))
            each = [round(value, 5) for value in slowed.tolist()]
            profiles[f"slowed/{way}"] = Profile(at, each)
    return trained._replace(profiles=profiles)


def tune(
    model: Transformer, config: dict[str, Any], steps: int, seed: int, session: Session
) -> None:
    """Train on windows of the stretched length, for some steps more."""
    length = config["factor"] * config["lengths"][0]
    task = tasks.next_character(load_text(config["text"]), length)
    recipe = recipe_from(config["tuning"] | {"steps": steps})
    train(model, task, recipe, seed, session)


def perplexities(model: Transformer, config: dict[str, Any]) -> Profile:
    """Held-out perplexity at each length."""
    ids = panorama.held_out_ids(load_text(config["text"]))
    values: list[float] = []
    for length in config["lengths"]:
        losses = position_losses(model, windows(ids, length, config["tokens"]))
        values.append(round(float(losses.mean().exp()), 5))
    return Profile(list(config["lengths"]), values)


class DynamicRoPE(RoPE):
    """RoPE whose frequencies follow the longest position of each call.

    Args:
        head_dim: as for `RoPE`.
        original_length: up to it nothing is changed.

    Source: Peng et al. 2023, appendix B, with s = L/L₀.
    """

    def __init__(self, head_dim: int, original_length: int) -> None:
        super().__init__(head_dim)
        self.original_length = original_length

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Turn queries and keys as the NTK-aware rule for this length has it."""
        length = 1 + int(max(q_pos.max(), k_pos.max()))
        rule = partial(
            scaling.dynamic_ntk,
            factor=1.0,
            length=length,
            original_length=self.original_length,
        )
        return RoPE(self.head_dim, scaling=rule).rotate(q, k, q_pos, k_pos)


def rotated(rule: Wave | None = None, gain: float = 1.0, base: float = 10000.0) -> Way:
    """A way that replaces the rotation of a model by one with a rule of scaling."""

    def stretch(model: Transformer, config: dict[str, Any]) -> PositionalEncoding:
        assert isinstance(model.encoding, RoPE)
        return RoPE(model.encoding.head_dim, base=base, scaling=rule, gain=gain)

    return stretch


def dynamic(model: Transformer, config: dict[str, Any]) -> PositionalEncoding:
    """NTK-aware with the factor that each length needs."""
    assert isinstance(model.encoding, RoPE)
    return DynamicRoPE(model.encoding.head_dim, SHORT)


def searched(model: Transformer, config: dict[str, Any]) -> PositionalEncoding:
    """LongRoPE: a factor for each pair, searched on the training text.

    All start at 4. One pair after the other, the fastest first, takes the factor with
    the least loss among 1, √2, 2, 2√2, 4; no slower pair has a smaller one. Two rounds.
    """
    assert isinstance(model.encoding, RoPE)
    head_dim, length = model.encoding.head_dim, FACTOR * SHORT
    text = load_text(config["text"])
    ids = torch.tensor(character_vocabulary(text).encode(text.train[: 64 * length + 1]))
    rows = windows(ids, length, 64 * length)
    gain = scaling.longrope_gain(FACTOR, original_length=SHORT)
    own = model.encoding

    def loss(factors: list[float]) -> float:
        model.encoding = RoPE(head_dim, gain=gain, scaling=divided(factors))
        return float(position_losses(model, rows).mean())

    try:
        factors = search(loss, head_dim // 2)
    finally:
        model.encoding = own
    return RoPE(head_dim, gain=gain, scaling=divided(factors))


def divided(factors: list[float]) -> Wave:
    """Divide each frequency by its own factor."""
    return partial(
        scaling.longrope,
        short_factor=[1.0] * len(factors),
        long_factor=factors,
        length=FACTOR * SHORT,
        original_length=SHORT,
    )


def search(loss: Callable[[list[float]], float], pairs: int) -> list[float]:
    """Factors from 1 to FACTOR that do not fall from pair to pair, by coordinates."""
    steps = [FACTOR ** (i / 4) for i in range(5)]
    factors = [float(FACTOR)] * pairs
    best = loss(factors)
    for pair in [*range(pairs), *range(pairs)]:
        low = factors[pair - 1] if pair else 1.0
        high = factors[pair + 1] if pair + 1 < pairs else float(FACTOR)
        for step in [step for step in steps if low <= step <= high]:
            tried = [*factors[:pair], step, *factors[pair + 1 :]]
            if (found := loss(tried)) < best:
                best, factors = found, tried
    return factors


def sinusoids(rule: Wave | None = None) -> Way:
    """A way that gives the sinusoids of a model other frequencies."""

    def stretch(model: Transformer, config: dict[str, Any]) -> PositionalEncoding:
        assert isinstance(model.encoding, Sinusoidal)
        width = config["sizes"]["d_model"]
        waves = inv_freq(width)
        return Sinusoidal(width, inv_freq=waves if rule is None else rule(waves))

    return stretch


def kept(model: Transformer, config: dict[str, Any]) -> PositionalEncoding:
    """The table as it is; rows beyond the trained ones are as they were drawn."""
    return model.encoding


def resampled(model: Transformer, config: dict[str, Any]) -> PositionalEncoding:
    """The trained rows, stretched over four times as many positions.

    Later positions get the last of them: a table ends.
    """
    own = model.encoding
    assert isinstance(own, Learned)
    wide = own.resize(SHORT).resample(FACTOR * SHORT)
    last = wide.weight.detach()[-1:].expand(len(own.weight) - len(wide.weight), -1)
    longer = copy.deepcopy(own)
    longer.weight = torch.nn.Parameter(torch.cat([wide.weight.detach(), last]))
    return longer


YARN = partial(scaling.yarn, factor=FACTOR, original_length=SHORT, beta_fast=FASTEST)
BY_PARTS = partial(
    scaling.ntk_by_parts, factor=FACTOR, original_length=SHORT, fast_turns=FASTEST
)
LINEAR = partial(scaling.linear, factor=FACTOR)
NTK = partial(scaling.ntk, factor=FACTOR)
WAYS: dict[str, dict[str, Way]] = {
    "rope": {
        "plain": rotated(),
        "linear": rotated(LINEAR),
        "ntk": rotated(NTK),
        "dynamic": dynamic,
        "by-parts": rotated(BY_PARTS),
        "yarn": rotated(YARN, scaling.yarn_gain(FACTOR)),
        "yarn-no-gain": rotated(YARN),
        "llama3": rotated(
            partial(scaling.llama3, factor=FACTOR, original_length=SHORT)
        ),
        "longrope": searched,
        "base-5e5": rotated(base=5e5),
        "base-1e6": rotated(base=1e6),
    },
    "sinusoidal": {
        "plain": sinusoids(),
        "linear": sinusoids(LINEAR),
        "ntk": sinusoids(NTK),
        "yarn": sinusoids(YARN),
    },
    "learned": {"plain": kept, "resample": resampled},
}

EXPERIMENT = Experiment(
    name="stretch",
    question="Which way of stretching a trained context is best, at once and tuned?",
    variants=tuple(WAYS),
    quick_variants=("rope",),
    seeds=3,
    config=config,
    measure=measure,
)
