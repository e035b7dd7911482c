"""Can the place of a token be read from its hidden state, layer by layer?

A ridge probe is fitted on some windows of held-out text and tested on others: before
and after training, on text and on its characters in a random order. Shuffled, a token
tells nothing of its place, so what is read then is what the model itself counts. One
probe reads the channels, another their squares too: a variance is no weighted sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.encodings import NoPE, PositionalEncoding, RoPE, Sinusoidal
from pe_lab.lab import tasks
from pe_lab.lab.extrapolation import windows
from pe_lab.lab.probes import hidden_states, outputs_of, read_places
from pe_lab.lab.results import Profile
from pe_lab.lab.tasks import Task
from pe_lab.lab.text import Text, character_vocabulary, load_text
from pe_lab.lab.training import Recipe, Session, parameters_of, recipe_from, train
from pe_lab.model import Transformer

from .base import Experiment, Measured, transformer

SIZES = {"d_model": 64, "num_heads": 4, "num_layers": 3, "norm": "pre"}
LENGTH = 64
SCHEMES: dict[str, Callable[[], PositionalEncoding]] = {
    "none": NoPE,
    "sinusoidal": lambda: Sinusoidal(64),
    "rope": lambda: RoPE(16),
}
# a causal model predicts the next character, the other kind those that are covered
TASKS: dict[str, Callable[[Text, int], Task]] = {
    "causal": tasks.next_character,
    "both-ways": tasks.masked_character,
}
VARIANTS = ("causal/none", "causal/sinusoidal", "causal/rope", "both-ways/none")
RECIPES = {
    "quick": Recipe(100, 16, learning_rate=3e-3, measure_at=(0,)),
    "full": Recipe(400, 16, learning_rate=3e-3, measure_at=(0, 100, 200, 300)),
}
WINDOWS = {"quick": 128, "full": 512}  # to fit on, and as many others to test on
READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda states: states,
    "squares": lambda states: torch.cat((states, states.square()), dim=-1),
}


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    """All that decides the outcome of a variant but the seed."""
    kind, scheme = variant.split("/")
    source = load_text(text)
    return {
        "kind": kind,
        "scheme": scheme,
        "sizes": SIZES,
        "length": LENGTH,
        "windows": WINDOWS[size],
        "penalty": 1e-3,
        "recipe": asdict(RECIPES[size]),
        "text": source.name,
        "data": source.fingerprint,
    }


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    """Probe one model, train it, and probe it again."""
    text = load_text(config["text"])
    task = TASKS[config["kind"]](text, config["length"])
    model = transformer(task, config["sizes"], SCHEMES[config["scheme"]]())
    model.to(session.device)
    rows = held_out_windows(text, config["length"], 2 * config["windows"])
    profiles = look(model, rows, config["penalty"], "untrained")
    curves = train(model, task, recipe_from(config["recipe"]), seed, session)
    profiles |= look(model, rows, config["penalty"], "trained")
    final = {
        "held_out_loss": curves["held_out_loss"].values[-1],
        "guess": round(task.guess, 6),
        "parameters": parameters_of(model),
    }
    return Measured(curves, final, profiles)


def held_out_windows(text: Text, length: int, count: int) -> Tensor:
    """Windows of the held-out text that do not overlap, (count, length)."""
    ids = torch.tensor(character_vocabulary(text).encode(text.held_out))
    return windows(ids, length, count * length)[:, :-1]


def shuffled(rows: Tensor) -> Tensor:
    """Each window in a random order of its own, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    order = torch.rand(rows.shape, generator=generator).argsort(dim=1)
    return rows.gather(1, order)


def look(
    model: Transformer, rows: Tensor, penalty: float, when: str
) -> dict[str, Profile]:
    """R² by layer on text and on shuffled text, and what the last one reads where."""
    device = next(model.parameters()).device
    found = {f"variance/{when}": _by_place(first_variance(model, rows.to(device)))}
    for text, ids in (("text", rows), ("shuffled", shuffled(rows))):
        states = [layer.cpu() for layer in hidden_states(model, ids.to(device))]
        for reader, prepare in READERS.items():
            shares, read = probed([prepare(x) for x in states], penalty)
            name = f"{reader}/{text}/{when}"
            found[f"r2/{name}"] = Profile(list(range(len(shares))), shares)
            found[f"read/{name}"] = _by_place(read)
    return found


def probed(states: list[Tensor], penalty: float) -> tuple[list[float], Tensor]:
    """R² for each layer, and what the last one reads at each place.

    The first half of the windows is fitted on, the second is tested.
    """
    shares = []
    for layer in states:
        fit, test = layer.chunk(2)
        share, read = read_places(fit, test, penalty)
        shares.append(round(share, 5))
    return shares, read


def first_variance(model: Transformer, ids: Tensor) -> Tensor:
    """How much the first attention's output varies over windows, by place, (L,)."""
    first = model.stack.layers[0].attend
    assert isinstance(first, nn.Module)
    (mixed,) = outputs_of(model, [first], ids)
    return mixed.double().var(dim=0).mean(dim=-1).cpu()


def _by_place(values: Tensor) -> Profile:
    """Values at the places 0 … L−1."""
    return Profile(list(range(len(values))), [round(v, 5) for v in values.tolist()])


EXPERIMENT = Experiment(
    name="probes",
    question="Can the place of a token be read from its state, and in which layer?",
    variants=VARIANTS,
    quick_variants=("causal/none", "both-ways/none"),
    seeds=3,
    config=config,
    measure=measure,
)
