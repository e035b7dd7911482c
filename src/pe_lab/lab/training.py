"""One small training loop: AdamW, warm-up, a falling rate, clipped gradients.

It runs on one thread, where the same seed gives the same losses, and stops with a
sentence if the loss is no longer a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .results import Curve
from .tasks import IGNORE, Batch, Task
from .vocabulary import PAD

HELD_OUT_SEED = 20170612  # of the batch that every model of a task is measured on

Progress = Callable[[int], None]  # called with the number of updates made


@dataclass(frozen=True)
class Session:
    """Where a run is made, who is told, and where it is kept: never what comes out.

    Attributes:
        device: of the model and the batches.
        progress: called after each update with the number of updates made in this run.

    Example:
        >>> pe_lab.lab.training.Session().device
        device(type='cpu')
    """

    device: torch.device = torch.device("cpu")
    progress: Progress | None = None


LOCAL = Session()


class NotANumberError(ArithmeticError):
    """The loss became infinite or undefined, so training on would be of no use.

    Example:
        >>> issubclass(pe_lab.lab.training.NotANumberError, ArithmeticError)
        True
    """


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        steps: updates.
        batch_size: sequences for each update.
        learning_rate: the largest one.
        warmup: steps in which the rate rises to it, linearly.
        schedule: `linear` or `cosine`, how it falls afterwards.
        end: the share of the rate that is left at the last step.
        weight_decay: of AdamW; at 0 it is Adam.
        clip: largest norm of the gradient.
        measure_at: steps before which the held-out loss is measured, besides the last.
        average: updates over which each point of the training curve is averaged.
        held_out_size: sequences on which the held-out loss is measured.

    Example:
        >>> recipe = pe_lab.lab.training.Recipe(100, 32, learning_rate=1.0, warmup=10)
        >>> recipe.rate(4), recipe.rate(9), recipe.rate(10), round(recipe.rate(100), 4)
        (0.5, 1.0, 1.0, 0.05)
    """

    steps: int
    batch_size: int
    learning_rate: float
    warmup: int = 50
    schedule: str = "cosine"
    end: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    measure_at: tuple[int, ...] = ()
    average: int = 10
    held_out_size: int = 256

    def rate(self, step: int) -> float:
        """The learning rate of one update.

        Args:
            step: its number, counted from 0.

        Returns:
            a number of at most `learning_rate`.
        """
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        way = (step - self.warmup) / max(1, self.steps - self.warmup)
        fall = way if self.schedule == "linear" else (1 - math.cos(math.pi * way)) / 2
        return self.learning_rate * (1 - (1 - self.end) * fall)


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """One thread and a seeded generator inside; both as they were before outside.

    Args:
        seed: of torch's generator.

    Yields:
        nothing.

    Example:
        >>> with pe_lab.lab.training.reproducible(0):
        ...     first = torch.rand(2)
        >>> with pe_lab.lab.training.reproducible(0):
        ...     torch.equal(first, torch.rand(2))
        True
    """
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def logits_of(model: nn.Module, batch: Batch) -> Tensor:
    """What the model says about a batch.

    Args:
        model: called with ids, and with the source and its mask if the batch has one.
        batch: what is read.

    Returns:
        (B, L, num_outputs).

    Example:
        >>> model = pe_lab.Transformer(3, 8, 2, 1, kind="encoder")
        >>> batch = pe_lab.lab.tasks.fixed_abc().draw(5, torch.Generator())
        >>> pe_lab.lab.training.logits_of(model, batch).shape
        torch.Size([5, 3, 3])
    """
    if batch.source is None:
        return model(batch.inputs)
    return model(batch.inputs, source=batch.source, source_mask=batch.source != PAD)


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross-entropy over the slots that are asked.

    Args:
        model: called as `logits_of` does.
        batch: what is read, and what is right.

    Returns:
        a scalar, in nats.

    Example:
        >>> even = torch.nn.Embedding.from_pretrained(torch.zeros(3, 3))  # no opinion
        >>> batch = pe_lab.lab.tasks.fixed_abc().draw(5, torch.Generator())
        >>> pe_lab.lab.training.loss_of(even, batch)  # ln 3
        tensor(1.0986)
    """
    logits = logits_of(model, batch).flatten(0, 1)
    return F.cross_entropy(logits, batch.targets.flatten(), ignore_index=IGNORE)


@torch.no_grad()
def held_out_loss(model: nn.Module, task: Task, size: int) -> float:
    """The loss on sequences that are the same for every model, in evaluation mode.

    Args:
        model: stays as it is.
        task: draws the sequences, in batches of 128 at most.
        size: how many.

    Returns:
        nats per slot that is asked.

    Example:
        >>> even = torch.nn.Embedding.from_pretrained(torch.zeros(3, 3))  # no opinion
        >>> task = pe_lab.lab.tasks.permuted_abc()
        >>> round(pe_lab.lab.training.held_out_loss(even, task, 256), 4)  # ln 3
        1.0986
    """
    was_training = model.training
    model.eval()
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    total, asked = 0.0, 0
    for start in range(0, size, 128):
        batch = task.draw_held_out(min(128, size - start), generator)
        count = int((batch.targets != IGNORE).sum())
        total += count * float(loss_of(model, batch.to(_device_of(model))))
        asked += count
    model.train(was_training)
    return total / asked


def _device_of(model: nn.Module) -> torch.device:
    """Where the model's parameters are."""
    return next(model.parameters()).device


def train(
    model: nn.Module,
    task: Task,
    recipe: Recipe,
    seed: int,
    session: Session = LOCAL,
) -> dict[str, Curve]:
    """Train a model in place.

    Args:
        model: called as `logits_of` does.
        task: draws the batches.
        recipe: how to train.
        seed: of the batches; the model's weights are the caller's.
        session: where, and who is told.

    Returns:
        `train_loss`, each value the mean over the updates since the one before, and
        `held_out_loss` at the steps of `recipe.measure_at` and at the end.

    Raises:
        NotANumberError: if a loss is not finite; the message says at which step.

    Example:
        >>> model, task = torch.nn.Embedding(3, 3), pe_lab.lab.tasks.fixed_abc()
        >>> recipe = pe_lab.lab.training.Recipe(60, 8, 0.1, measure_at=(0,))
        >>> loss = pe_lab.lab.training.train(model, task, recipe, 0)["held_out_loss"]
        >>> loss.steps, loss.values[1] < loss.values[0]
        ([0, 60], True)
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.98), weight_decay=recipe.weight_decay
    )
    seen: list[float] = []
    curves = {"train_loss": Curve([], []), "held_out_loss": Curve([], [])}
    for step in range(recipe.steps + 1):
        if step in recipe.measure_at or step == recipe.steps:
            loss = held_out_loss(model, task, recipe.held_out_size)
            _note(curves["held_out_loss"], step, loss)
        if step == recipe.steps:
            break
        batch = task.draw(recipe.batch_size, generator).to(_device_of(model))
        seen.append(_update(model, optimizer, batch, recipe, step))
        if len(seen) == recipe.average or step + 1 == recipe.steps:
            _note(curves["train_loss"], step + 1, sum(seen) / len(seen))
            seen.clear()
        if session.progress:
            session.progress(step + 1)
    return curves


def _update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    recipe: Recipe,
    step: int,
) -> float:
    """One update; returns the loss before it."""
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate(step)
    loss = loss_of(model, batch)
    value = float(loss.detach())
    if not math.isfinite(value):
        raise NotANumberError(
            f"the loss is {value} at step {step} (learning rate {recipe.rate(step):.2g}"
            "); a smaller learning rate or a longer warm-up usually mends it."
        )
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimizer.step()
    return value


def _note(curve: Curve, step: int, value: float) -> None:
    """Add a point to a curve, rounded to what a plot or a table can show."""
    curve.steps.append(step)
    curve.values.append(round(value, 6))


def parameters_of(model: nn.Module) -> int:
    """How many numbers are trained.

    Args:
        model: any module.

    Returns:
        a count; what needs no gradient does not count.

    Example:
        >>> pe_lab.lab.training.parameters_of(torch.nn.Linear(3, 2))
        8
    """
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def recipe_from(config: dict[str, Any]) -> Recipe:
    """The recipe in a result's config, so that a stored run can be made again.

    Args:
        config: a run's `config["recipe"]`.

    Returns:
        the `Recipe`.

    Example:
        >>> run = pe_lab.lab.load("stall").runs[0]
        >>> recipe = pe_lab.lab.training.recipe_from(run.config["recipe"])
        >>> recipe.steps == run.config["recipe"]["steps"]
        True
    """
    return Recipe(**{**config, "measure_at": tuple(config["measure_at"])})
