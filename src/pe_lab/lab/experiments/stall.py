"""Which tasks stall without position, and which do not?

Seven tasks, each trained without any encoding and with sinusoids. The popular test
("the loss does not move") fits some of them only: a causal mask lets position in, word
counts alone lower many losses, and a fixed `A B C` gives its places away.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import nn

from pe_lab.encodings import Sinusoidal
from pe_lab.lab import tasks
from pe_lab.lab.data import number_pairs
from pe_lab.lab.tasks import Task
from pe_lab.lab.text import load_text
from pe_lab.lab.training import Recipe, Session, parameters_of, recipe_from, train

from .base import Experiment, Measured, transformer

SIZES = {"d_model": 64, "num_heads": 4, "num_layers": 2, "norm": "pre"}
TASKS = (
    "position",
    "left-neighbour",
    "masked-character",
    "next-character",
    "numbers",
    "permuted-abc",
    "fixed-abc",
)
TEXTUAL = ("masked-character", "next-character")
ENCODINGS = ("none", "sinusoidal")
VARIANTS = tuple(f"{task}/{encoding}" for task in TASKS for encoding in ENCODINGS)
QUICK = tuple(
    f"{task}/{encoding}"
    for task in ("position", "next-character", "permuted-abc", "fixed-abc")
    for encoding in ENCODINGS
)
STEPS = (0, 50, 100, 200, 400, 600, 800)
FULL_STEPS = {  # others: 600
    "masked-character": 1200,
    "numbers": 400,
    "permuted-abc": 200,
    "fixed-abc": 200,
}


def task_of(name: str, config: dict[str, Any]) -> Task:
    """The task of that name, with the data that the config records."""
    if name in TEXTUAL:
        text = load_text(config["text"])
        return (
            tasks.masked_character(text)
            if name == "masked-character"
            else tasks.next_character(text)
        )
    if name == "numbers":
        return tasks.numbers(number_pairs(config["pairs"]))
    makers = {
        "position": tasks.position,
        "left-neighbour": tasks.left_neighbour,
        "permuted-abc": tasks.permuted_abc,
        "fixed-abc": tasks.fixed_abc,
    }
    return makers[name]()


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    """All that decides the outcome of a variant but the seed."""
    quick = size == "quick"
    name, encoding = variant.split("/")
    steps = 100 if quick else FULL_STEPS.get(name, 600)
    made: dict[str, Any] = {"task": name, "encoding": encoding, "sizes": SIZES}
    made["recipe"] = asdict(
        Recipe(
            steps,
            batch_size=32,
            learning_rate=3e-3,
            measure_at=tuple(step for step in STEPS if step < steps),
        )
    )
    if name in TEXTUAL:
        source = load_text(text)
        made |= {"text": source.name, "data": source.fingerprint}
    if name == "numbers":
        made["pairs"] = 5_000 if quick else 20_466
        made["data"] = number_pairs(made["pairs"]).fingerprint
    return made


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    """Train one model; the final loss is the last of the held-out curve."""
    task = task_of(config["task"], config)
    sinusoids = config["encoding"] == "sinusoidal"
    encoding = Sinusoidal(config["sizes"]["d_model"]) if sinusoids else None
    model = transformer(task, config["sizes"], encoding)
    nn.init.zeros_(model.head.weight)  # an even first guess: ln(outputs) at step 0
    curves = train(model, task, recipe_from(config["recipe"]), seed, session)
    final = {
        "held_out_loss": curves["held_out_loss"].values[-1],
        "guess": round(task.guess, 6),
        "parameters": parameters_of(model),
    }
    return Measured(curves, final)


EXPERIMENT = Experiment(
    name="stall",
    question="Which tasks stall without position, and which do not?",
    variants=VARIANTS,
    quick_variants=QUICK,
    seeds=3,
    config=config,
    measure=measure,
)
