"""Started by torchrun in test_parallel.py: several trainings, each shared by all.

Writes what the first process has, as JSON, into the folder that is its argument; then
gives two orders on the command line, of which the second cannot be carried out.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from pe_lab import cli
from pe_lab.encodings import Learned, Sinusoidal
from pe_lab.lab import parallel, tasks
from pe_lab.lab.tasks import IGNORE, Batch, Task
from pe_lab.lab.training import LOCAL, Recipe, Session, reproducible, train
from pe_lab.model import Transformer

RECIPE = Recipe(30, 8, 3e-3, warmup=4, measure_at=(0, 15), average=1, held_out_size=16)


def lopsided(rows: int = 8) -> Task:
    """Rows that ask 16, 8, 5, … slots, and in every other batch only the first row."""

    def draw(batch_size: int, generator: torch.Generator) -> Batch:
        batch = tasks.left_neighbour().draw(rows, generator)
        targets = batch.targets.clone()
        for i in range(1, rows):
            targets[i, 16 // (i + 1) :] = IGNORE
        if int(torch.randint(2, (), generator=generator)):
            targets[1:] = IGNORE
        return Batch(batch.inputs, targets)

    task = tasks.left_neighbour()
    return replace(task, draw=draw, draw_held_out=draw)


class Idle(nn.Module):
    """A model with a parameter that no output depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.ones(3))
        self.inner = Transformer(50, 16, 2, 1, kind="encoder", encoding=Sinusoidal(16))

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner(ids)


def encoder(rows: int) -> Transformer:
    return Transformer(50, 16, 2, 1, kind="encoder", encoding=Learned(rows, 16))


CASES = {
    "left neighbour": (lambda: encoder(16), tasks.left_neighbour()),
    "slots asked unevenly": (lambda: encoder(16), lopsided()),
    "rows that cannot be halved": (lambda: encoder(16), lopsided(rows=7)),
    "rows of a table that are never met": (lambda: encoder(99), tasks.position(16)),
    "a parameter that is never used": (Idle, tasks.left_neighbour()),
}


def outcome(case: str, session: Session = LOCAL) -> dict[str, object]:
    """Curves, and what the weights are after all."""
    make, task = CASES[case]
    with reproducible(1):
        model = make()
        curves = train(model, task, RECIPE, 1, session)
    norm = sum(float(p.detach().double().square().sum()) for p in model.parameters())
    return {**{name: asdict(c) for name, c in curves.items()}, "norm": norm}


class Stopped(Exception):
    """As if the process were interrupted."""


def stopped_and_resumed(folder: Path) -> dict[str, object]:
    """Interrupted after 17 of 30 updates, at the same time in all processes."""
    left = 17

    def progress(updates: int, tokens: int) -> None:
        nonlocal left
        left -= updates
        if left == 0:
            raise Stopped

    with suppress(Stopped):
        outcome("left neighbour", Session(progress=progress, folder=folder, every=5))
    told: list[tuple[int, int]] = []
    session = Session(
        progress=lambda *counts: told.append(counts), folder=folder, every=5
    )
    return outcome("left neighbour", session) | {"found": told[0]}


ORDER = ["run", "stall", "--quick", "--variant", "left-neighbour/none"]


def main(folder: Path) -> int:
    parallel.join(torch.device("cpu"))
    found = {case: outcome(case) for case in CASES}
    found["resumed"] = stopped_and_resumed(folder / "checkpoints")
    try:
        parallel.first_says(lambda: 1 // 0)
    except ZeroDivisionError as error:  # in every process
        found["error"] = {"said": str(error)}
    found["size"] = {"size": parallel.size()}
    if parallel.rank() == 0:
        (folder / "found.json").write_text(json.dumps(found))
    assert cli.main([*ORDER, "--out", str(folder / "two")]) == 0
    return cli.main([*ORDER, "--out", str(folder / "found.json")])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
