"""One small training loop: AdamW, warm-up, a falling rate, clipped gradients.

It runs on one thread, where the same seed gives the same losses, and stops with a
sentence if the loss is no longer a number. Stopped, it goes on from its last checkpoint
and ends where it would have ended; `torchrun` shares each batch among processes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import parallel
from .checkpoint import SUFFIX, Checkpoint, State, device_of, digest
from .results import Curve
from .tasks import IGNORE, Batch, Task
from .vocabulary import PAD

HELD_OUT_SEED = 20170612  # of the batch that every model of a task is measured on
HALVED = ("cuda",)  # devices on which training multiplies in bfloat16

Progress = Callable[[int, int], None]  # updates and tokens since it was called before


class Stopwatch:
    """Wall and CPU seconds since it was made, and before, as far as checkpoints know.

    Example:
        >>> watch = pe_lab.lab.training.Stopwatch()
        >>> watch.go_on_from([60.0, 30.0])
        >>> wall, cpu = watch.read()
        >>> wall >= 60, cpu >= 30
        (True, True)
    """

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()
        self._before = 0.0, 0.0

    def read(self) -> tuple[float, float]:
        """The seconds.

        Returns:
            (wall, CPU).
        """
        now = time.perf_counter(), time.process_time()
        start, before = self._start, self._before
        return now[0] - start[0] + before[0], now[1] - start[1] + before[1]

    def go_on_from(self, read: list[float]) -> None:
        """Count what was read in an earlier process.

        Args:
            read: (wall, CPU) of the latest checkpoint.
        """
        self._before = max(self._before, (read[0], read[1]))


@dataclass(frozen=True)
class Session:
    """Where a run is made, who is told, and where it is kept: never what comes out.

    Attributes:
        device: on which models are trained.
        progress: called after each update with the updates made and the tokens read
            since the call before; after going on from a checkpoint, with no tokens.
        folder: of the checkpoints, one file for each training; None to keep none.
        every: updates between two checkpoints.
        name: of the training, and of its file.
        of: what the run is (experiment, seed, config), ready for JSON; a checkpoint
            of anything else is refused.
        watch: how long the run took.
        taken: names of trainings that have a checkpoint in this process.

    Example:
        >>> session = pe_lab.lab.training.Session(every=50)
        >>> session.device, session.part("fine-tune").every
        (device(type='cpu'), 50)
    """

    device: torch.device = torch.device("cpu")
    progress: Progress | None = None
    folder: Path | None = None
    every: int = 200
    name: str = "train"
    of: dict[str, Any] = field(default_factory=dict)
    watch: Stopwatch = field(default_factory=Stopwatch, compare=False)
    taken: set[str] = field(default_factory=set, compare=False)

    def part(self, name: str) -> Session:
        """The session of one training among several in a run.

        Each has a file of its own, which stays until the run is stored. When the run is
        made again after an interruption, a training that was finished is not repeated:
        `train` loads its last state, and only what follows is made.

        Args:
            name: of the training, such as `fine-tune`; another one for each.

        Returns:
            the same session but for the name.
        """
        return replace(self, name=name)

    def tell(self, updates: int, tokens: int) -> None:
        """Report progress.

        Args:
            updates: made since the call before.
            tokens: read in them.
        """
        if self.progress:
            self.progress(updates, tokens)

    def checkpoint(self, model: nn.Module, recipe: Recipe, seed: int) -> Checkpoint:
        """Where the state of a training is kept; tell it by its start from others.

        Args:
            model: before its first update.
            recipe, seed: as for `train`.

        Returns:
            a `Checkpoint` that keeps nothing if the session has no folder.

        Raises:
            ValueError: if another training of the run has the same name.
        """
        if self.folder is None:
            return Checkpoint(None, {})
        if self.name in self.taken:
            raise ValueError(
                f"two trainings of this run are called {self.name!r}; give the second "
                "a name of its own, train(…, session.part('fine-tune'))."
            )
        self.taken.add(self.name)
        made_with = {"device": self.device.type, "torch": str(torch.__version__)}
        training = {"name": self.name, "seed": seed, "recipe": asdict(recipe)}
        training["initial_weights"] = digest(dict(model.state_dict()))[:16]
        path = self.folder / f"{self.name.replace('/', '.')}{SUFFIX}"
        return Checkpoint(path, self.of | made_with | {"training": training})


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
    if batch.mask is not None:
        return model(batch.inputs, mask=batch.mask)
    if batch.source is None:
        return model(batch.inputs)
    return model(batch.inputs, source=batch.source, source_mask=batch.source != PAD)


def loss_of(model: nn.Module, batch: Batch, asked: int | None = None) -> Tensor:
    """Mean cross-entropy over the slots that are asked.

    Args:
        model: called as `logits_of` does.
        batch: what is read, and what is right.
        asked: the number to divide the sum by, if the batch is a share of a larger one.

    Returns:
        a scalar, in nats.

    Example:
        >>> even = torch.nn.Embedding.from_pretrained(torch.zeros(3, 3))  # no opinion
        >>> batch = pe_lab.lab.tasks.fixed_abc().draw(5, torch.Generator())
        >>> pe_lab.lab.training.loss_of(even, batch)  # ln 3
        tensor(1.0986)
    """
    logits = logits_of(model, batch).flatten(0, 1)
    if logits.dtype == torch.bfloat16:
        logits = logits.float()  # a logarithm of eight bits would not do
    targets = batch.targets.flatten()
    if asked is None:
        return F.cross_entropy(logits, targets, ignore_index=IGNORE)
    return (
        F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum") / asked
    )


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
        total += count * float(loss_of(model, batch.to(device_of(model))))
        asked += count
    model.train(was_training)
    return total / asked


def train(
    model: nn.Module,
    task: Task,
    recipe: Recipe,
    seed: int,
    session: Session = LOCAL,
) -> dict[str, Curve]:
    """Train a model in place, from where its last checkpoint is if there is one.

    Args:
        model: called as `logits_of` does; moved to the session's device.
        task: draws the batches.
        recipe: how to train.
        seed: of the batches; the model's weights are the caller's.
        session: where, who is told, and where checkpoints are kept.

    Returns:
        `train_loss`, each value the mean over the updates since the one before, and
        `held_out_loss` at the steps of `recipe.measure_at` and at the end.

    Raises:
        NotANumberError: if a loss is not finite; the message says at which step.
        ValueError: if the checkpoint is damaged or of another training; it stays.
        OSError: if a checkpoint cannot be written; the one before it stays.

    Example:
        >>> model, task = torch.nn.Embedding(3, 3), pe_lab.lab.tasks.fixed_abc()
        >>> recipe = pe_lab.lab.training.Recipe(60, 8, 0.1, measure_at=(0,))
        >>> loss = pe_lab.lab.training.train(model, task, recipe, 0)["held_out_loss"]
        >>> loss.steps, loss.values[1] < loss.values[0]
        ([0, 60], True)
    """
    checkpoint = session.checkpoint(model, recipe, seed)
    state = _begin(model.to(session.device), recipe, seed)
    _resume(state, checkpoint, session)
    while state.step < recipe.steps:
        if state.step in recipe.measure_at:
            _measure(state, task, recipe)
        batch = task.draw(recipe.batch_size, state.generator)
        state.seen.append(_update(state, batch, recipe))
        state.step += 1
        if len(state.seen) == recipe.average or state.step == recipe.steps:
            mean = sum(state.seen) / len(state.seen)
            _note(state.curves["train_loss"], state.step, mean)
            state.seen.clear()
        session.tell(1, batch.targets.numel())
        if state.step % session.every == 0:
            _keep(state, checkpoint, session)
    _measure(state, task, recipe)
    _keep(state, checkpoint, session)
    return state.curves


def _begin(model: nn.Module, recipe: Recipe, seed: int) -> State:
    """The state before the first update."""
    parallel.same_weights(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.98), weight_decay=recipe.weight_decay
    )
    return State(model, optimizer, torch.Generator().manual_seed(seed))


def _resume(state: State, checkpoint: Checkpoint, session: Session) -> None:
    """Go on from the checkpoint, if there is one."""
    notes = checkpoint.load(state)
    if notes is not None:
        session.watch.go_on_from(notes["seconds"])
        session.tell(state.step, 0)


def _keep(state: State, checkpoint: Checkpoint, session: Session) -> None:
    """Replace the checkpoint by one of this state, unless it is past use."""
    if not all(p.isfinite().all() for p in state.model.parameters()):
        raise NotANumberError(
            f"a weight is not finite after step {state.step - 1}; a smaller learning "
            "rate or a longer warm-up usually mends it."
        )
    checkpoint.save(state, seconds=session.watch.read())


def _measure(state: State, task: Task, recipe: Recipe) -> None:
    """Note the held-out loss, once for each step."""
    curve = state.curves["held_out_loss"]
    if state.step not in curve.steps:
        loss = held_out_loss(state.model, task, recipe.held_out_size)
        _note(curve, state.step, loss)


def _update(state: State, batch: Batch, recipe: Recipe) -> float:
    """One update; returns the loss before it."""
    rate, device = recipe.rate(state.step), device_of(state.model)
    for group in state.optimizer.param_groups:
        group["lr"] = rate
    asked = int((batch.targets != IGNORE).sum()) if parallel.size() > 1 else None
    with _half(device):
        loss = loss_of(state.model, parallel.share(batch).to(device), asked)
    value = parallel.total(loss.detach())
    if not math.isfinite(value):
        raise NotANumberError(
            f"the loss is {value} at step {state.step} (learning rate {rate:.2g}); a "
            "smaller learning rate or a longer warm-up usually mends it."
        )
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    parallel.add_gradients(state.model)
    nn.utils.clip_grad_norm_(state.model.parameters(), recipe.clip)
    state.optimizer.step()
    return value


def _half(device: torch.device) -> AbstractContextManager[Any]:
    """Multiply in bfloat16 where that is faster; weights and sums stay float32."""
    halved = device.type in HALVED
    return torch.autocast(device.type, torch.bfloat16, enabled=halved)


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
