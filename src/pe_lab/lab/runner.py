"""Running an experiment: every variant with every seed, each stored when it is done.

A run that is stored is never made again, and one that was stopped goes on from its last
checkpoint. Several processes may share a folder, each with runs of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path

import torch

from pe_lab import refuse

from . import parallel
from .data import need
from .experiments import EXPERIMENTS, Experiment
from .jobs import Advance, Job
from .results import Result, Run
from .store import write_collected


def experiment(name: str) -> Experiment:
    """An experiment by name.

    Raises:
        ValueError: for another name; the message lists the experiments.
    """
    if name not in EXPERIMENTS:
        raise ValueError(
            f"no experiment is called {name!r}; there are: {', '.join(EXPERIMENTS)}."
        )
    return EXPERIMENTS[name]


def run(
    name: str,
    *,
    size: str = "full",
    variants: list[str] | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    shard: tuple[int, int] = (0, 1),
    out: Path | str | None = None,
    every: int = 200,
    resume: bool = True,
    text: str = "auto",
    device: str = "cpu",
    progress: bool = False,
) -> Result:
    """Run an experiment, one CPU thread for each process.

    Started by `torchrun`, each of its processes takes a share of every batch, and the
    first of them shows the bar and stores what came out.

    Args:
        name: `panorama`, for example; `pe-lab run --help` lists them all.
        size: `quick` is few steps, one seed, the variants that show the point, and the
            text that needs no download: some 10 CPU seconds, for a first look. `full`
            is what the shipped results are; `gpu` is larger, where one is planned.
        variants: which ones; by default all, or the quick ones.
        seeds: seeds 0 … seeds−1; by default those of the experiment, or 1 if quick.
        jobs: processes at the same time.
        shard: (k, n), k from 0 to n−1: make only run k and every n-th after it. With n
            processes and one `out`, on as many machines as can write there, that is
            all of them; whichever ends last, the result in `out` has all runs. A Slurm
            array 0-7 passes `--shard $SLURM_ARRAY_TASK_ID/8`.
        out: a folder in which each run is stored as soon as it is done, and the result
            at the end; runs found there are not made again.
        every: updates between two checkpoints, kept in `out` until the run is stored.
        resume: go on from what `out` has of these runs; else refuse if it has any.
        text: `kjv`, `topics`, or `auto`, which takes `kjv` if it was fetched.
        device: of torch, `cpu` or `cuda`; only on a CPU is a run the same to the bit,
            whether it was interrupted or not. On CUDA, training multiplies in bfloat16.
        progress: show a bar on stderr.

    Returns:
        The result, in which each run carries its provenance.

    Raises:
        ValueError: for an unknown experiment or variant, a device that is not there, if
            what is stored was made with another configuration, or if it is damaged;
            nothing stored is ever overwritten.
        OSError: if `out` cannot be written to, or is full; what it has stays.
        NotANumberError: if a loss is not finite.

    Example:
        >>> pe_lab.lab.run("stall", variants=["nope"], size="quick", out="results")
        Traceback (most recent call last):
        ValueError: stall has no variant 'nope'; it has: ...
    """
    chosen = experiment(name)
    quick = refuse.one_of("size", size, chosen.sizes) == "quick"
    count = (1 if quick else chosen.seeds) if seeds is None else seeds
    _refuse_numbers(count, jobs, every, shard)
    folder = None if out is None else Path(out) / f"{name}-{size}"
    place = parallel.join(_device(device))
    todo = [
        Job(name, variant, seed, config, _file(folder, variant, seed), place, every)
        for variant in _selection(chosen, quick, variants)
        for config in [chosen.config(variant, size, "topics" if quick else text)]
        for seed in range(count)
    ][shard[0] :: shard[1]]
    done = parallel.first_says(lambda: _look(folder, todo, resume))
    runs = _perform(todo, done, jobs, progress and parallel.rank() == 0)
    if folder is not None and runs and parallel.rank() == 0:
        write_collected(folder)
    return Result(name, size, tuple(runs))


def _refuse_numbers(seeds: int, jobs: int, every: int, shard: tuple[int, int]) -> None:
    """Refuse counts below one, a shard that is none, and processes of processes."""
    if seeds < 1 or jobs < 1:
        raise ValueError(f"seeds and jobs need at least 1, got {seeds} and {jobs}.")
    if every < 1:
        raise ValueError(f"every needs at least 1 update, got {every}.")
    if not 0 <= shard[0] < shard[1]:
        raise ValueError(
            f"shard needs K/N with K from 0 to N-1, got {shard[0]}/{shard[1]}; of a "
            "Slurm array with N tasks, --array=0-(N-1), it is the task's number."
        )
    if jobs > 1 and parallel.launched():
        raise ValueError(
            f"jobs is {jobs}, but torchrun starts the processes already; leave it out."
        )


def _device(name: str) -> torch.device:
    """The device of that name, if it is there."""
    kind, _, number = str(name).partition(":")
    if kind not in ("cpu", "cuda") or not (number.isdecimal() or str(name) == kind):
        raise ValueError(f"device needs 'cpu' or 'cuda', got {name!r}.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device is {name!r}, but torch {torch.__version__} sees no CUDA device "
            "here; take cpu, or install a torch that is built for CUDA."
        )
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device is {name!r}, but there are {torch.cuda.device_count()} CUDA "
            "devices, counted from 0."
        )
    return torch.device(name)


def _selection(
    chosen: Experiment, quick: bool, variants: list[str] | None
) -> tuple[str, ...]:
    """The variants to run, all of them known."""
    if variants is None:
        return chosen.quick_variants if quick else chosen.variants
    for variant in variants:
        if variant not in chosen.variants:
            raise ValueError(
                f"{chosen.name} has no variant {variant!r}; "
                f"it has: {', '.join(chosen.variants)}."
            )
    return tuple(variants)


def _file(folder: Path | None, variant: str, seed: int) -> Path | None:
    """Where a run is stored; `words/add`, seed 0 → words.add-0.json."""
    return folder and folder / f"{variant.replace('/', '.')}-{seed}.json"


def _look(folder: Path | None, todo: list[Job], resume: bool) -> list[Run | None]:
    """What is stored of these runs, and that more can be stored.

    Raises:
        ValueError: if anything is there and nothing should be.
        OSError: if the folder cannot be written to.
    """
    if folder is None:
        return [None for _ in todo]
    started = [job for job in todo if job.started()]
    if started and not resume:
        raise ValueError(
            f"{started[0].started()} is there already; leave out --no-resume to go on "
            "from what is stored, or choose another folder with --out."
        )
    done = [job.stored() for job in todo]
    need("safetensors")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"{folder} cannot be made ({error.strerror}); choose another with --out."
        ) from error
    if not os.access(folder, os.W_OK):
        raise OSError(f"{folder} may not be written to; choose another with --out.")
    return done


def _perform(
    todo: list[Job], done: list[Run | None], jobs: int, progress: bool
) -> list[Run]:
    """The runs of all jobs in their order: stored ones are there, others are made."""
    found = dict(enumerate(done))
    missing = {i: todo[i] for i, run in found.items() if run is None}
    steps = sum(job.steps for job in missing.values())
    with _bar(steps, progress and bool(missing)) as advance:
        if jobs == 1:
            for i, job in missing.items():
                found[i] = job.make(advance)
        else:
            found |= _in_processes(missing, jobs, advance)
    return [run for run in found.values() if run is not None]


def _in_processes(todo: dict[int, Job], jobs: int, advance: Advance) -> dict[int, Run]:
    """Make runs in several processes; the bar moves when one is done."""
    done, others = {}, set(active_children())
    with ProcessPoolExecutor(jobs, get_context("spawn"), _ignore_ctrl_c) as pool:
        futures = {pool.submit(job.make): i for i, job in todo.items()}
        try:
            for future in as_completed(futures):
                i = futures[future]
                done[i] = future.result()
                advance(todo[i].steps, 0, todo[i].variant)
        except BaseException:  # Ctrl-C too: end at once, what is done is stored
            for process in set(active_children()) - others:
                process.terminate()
            raise
    return done


def _ignore_ctrl_c() -> None:
    """Leave Ctrl-C, which every process of a terminal gets, to the first of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _bar(steps: int, shown: bool) -> Iterator[Advance]:
    """A progress bar on stderr if tqdm is there; else nothing."""
    try:
        from tqdm import tqdm
    except ImportError:
        shown = False
    if not shown:
        yield lambda updates, tokens, variant: None
        return
    start, read = time.perf_counter(), 0
    with tqdm(total=steps, unit="step", file=sys.stderr, dynamic_ncols=True) as line:

        def advance(updates: int, tokens: int, variant: str) -> None:
            nonlocal read
            read += tokens
            line.set_description(variant, refresh=False)
            if read:
                rate = read / (time.perf_counter() - start)
                line.set_postfix_str(f"{rate:,.0f} tokens/s", refresh=False)
            line.total = max(line.total, line.n + updates)
            line.update(updates)

        yield advance
