"""One run of an experiment: made, stored when it is done, and found again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import checkpoint, parallel
from .experiments import EXPERIMENTS
from .experiments.base import Measured
from .files import plain, refuse_other
from .results import Run, surroundings
from .store import read_run, write_run
from .training import HALVED, Session, reproducible

Advance = Callable[[int, int, str], None]  # updates, tokens, and by which variant


@dataclass(frozen=True)
class Job:
    """One variant with one seed, to be made.

    Attributes:
        experiment, variant, seed, config: what it is.
        file: where it is stored when it is done; None for nowhere.
        device: on which it is made.
        every: updates between two checkpoints, which are kept only beside a file.
    """

    experiment: str
    variant: str
    seed: int
    config: dict[str, Any]
    file: Path | None
    device: torch.device
    every: int

    @property
    def steps(self) -> int:
        """The updates of all its recipes."""
        recipes = (value for value in self.config.values() if isinstance(value, dict))
        return sum(int(recipe.get("steps", 0)) for recipe in recipes)

    @property
    def checkpoints(self) -> Path | None:
        """The folder of its checkpoints, beside the file and named like it."""
        return self.file and self.file.with_suffix(".checkpoints")

    def started(self) -> Path | None:
        """What is there of it on disk, if anything: its file, or its checkpoints."""
        places = (self.file, self.checkpoints)
        return next((p for p in places if p is not None and p.exists()), None)

    def stored(self) -> Run | None:
        """The run that is stored, if there is one and it was made alike.

        Raises:
            ValueError: if it was made otherwise, or its file is damaged.
        """
        if self.file is None or not self.file.exists():
            return None
        found = read_run(self.file)
        refuse_other(self.file, found.config, self.config)
        self._forget()
        return found

    def make(self, advance: Advance | None = None) -> Run:
        """Make the run from where its checkpoints are, and store it."""

        def progress(updates: int, tokens: int) -> None:
            if advance is not None:
                advance(updates, tokens, self.variant)

        session = Session(
            self.device, progress, self.checkpoints, self.every, of=self._identity()
        )
        with reproducible(self.seed):
            made = surroundings(self.seed, self.device.type) | self._manner()
            measure = EXPERIMENTS[self.experiment].measure
            measured = Measured(*measure(self.config, self.seed, session))
        seconds = zip(
            ("wall_seconds", "cpu_seconds"), session.watch.read(), strict=True
        )
        made |= {name: round(value, 2) for name, value in seconds}
        curves, final, profiles = measured
        config = plain(self.config)
        run = Run(self.variant, self.seed, config, curves, final, made, profiles)
        if self.file is not None and parallel.rank() == 0:
            write_run(self.file, self.experiment, run)
            self._forget()
        return run

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint of this run has to be of."""
        return {
            "experiment": self.experiment,
            "variant": self.variant,
            "seed": self.seed,
            "config": self.config,
        }

    def _manner(self) -> dict[str, Any]:
        """What is unusual about how it is made: precision, and number of processes."""
        manner: dict[str, Any] = {}
        if self.device.type in HALVED:
            manner["precision"] = "bfloat16 autocast"
        if parallel.size() > 1:
            manner["processes"] = parallel.size()
        return manner

    def _forget(self) -> None:
        """Delete the checkpoints of a run that is stored."""
        if self.checkpoints is not None:
            checkpoint.remove(self.checkpoints)
