"""A tiny experiment that trains twice; run as a program, and meant to be killed.

    python -m tests.lab.tiny OUT LOG K/N

Each update, and each step that was found in a checkpoint, is a line of the log.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pe_lab.encodings import Sinusoidal
from pe_lab.lab import run, tasks
from pe_lab.lab.experiments import EXPERIMENTS, Experiment
from pe_lab.lab.experiments.base import Measured
from pe_lab.lab.training import Recipe, Session, recipe_from, train
from pe_lab.model import Transformer

RECIPE = Recipe(60, 8, 3e-3, warmup=4, measure_at=(0, 25), average=7, held_out_size=8)
EVERY = 7  # updates between checkpoints
LOG: list[Path] = []  # the file, if there is one


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    return {"variant": variant, "recipe": asdict(RECIPE), "tuning": asdict(RECIPE)}


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    task = tasks.left_neighbour()
    encoding = Sinusoidal(16)
    model = Transformer(50, 16, 2, 1, kind="encoder", encoding=encoding, dropout=0.1)
    curves = {}
    for part in ("train", "tune"):
        found = train(
            model, task, recipe_from(config["recipe"]), seed, logged(session, part)
        )
        curves |= {f"{part}/{name}": curve for name, curve in found.items()}
    weights = sum(float(p.detach().double().sum()) for p in model.parameters())
    return Measured(curves, {"weights": weights})


def logged(session: Session, part: str) -> Session:
    """The session of a part, whose progress is a line in the log too."""

    def progress(updates: int, tokens: int) -> None:
        for log in LOG:
            with log.open("a") as file:
                file.write(f"{part} {'made' if tokens else 'found'} {updates}\n")
            time.sleep(0.01)  # time to be killed in
        session.tell(updates, tokens)

    return replace(session.part(part), progress=progress)


EXPERIMENT = Experiment(
    name="tiny",
    question="?",
    variants=("a", "b"),
    quick_variants=("a",),
    seeds=2,
    config=config,
    measure=measure,
)


if __name__ == "__main__":
    EXPERIMENTS["tiny"] = EXPERIMENT
    out, log, shard = sys.argv[1:]
    LOG.append(Path(log))
    k, n = map(int, shard.split("/"))
    run("tiny", seeds=1, out=out, every=EVERY, shard=(k, n))
