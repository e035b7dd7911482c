"""Running an experiment: every variant with every seed, each stored when it is done.

A run that is stored is never made again: what was stopped goes on where it was.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch

from pe_lab import refuse

from .experiments import EXPERIMENTS, Experiment
from .experiments.base import Measured
from .results import Result, Run, read_run, surroundings, write_result, write_run
from .training import Session, reproducible

# name, variant, seed, config, file, device
Job = tuple[str, str, int, dict[str, Any], Path | None, str]
Advance = Callable[[int, str], None]  # updates made, and by which variant


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
    out: Path | str | None = None,
    text: str = "auto",
    device: str = "cpu",
    progress: bool = False,
) -> Result:
    """Run an experiment, one CPU thread for each process.

    Args:
        name: `panorama`, for example; `pe-lab run --help` lists them all.
        size: `quick` is few steps, one seed, the variants that show the point, and the
            text that needs no download: some 10 CPU seconds, for a first look. `full`
            is what the shipped results are; `gpu` is larger, where one is planned.
        variants: which ones; by default all, or the quick ones.
        seeds: seeds 0 … seeds−1; by default those of the experiment, or 1 if quick.
        jobs: processes at the same time.
        out: a folder in which each run is stored as soon as it is done, and the result
            at the end; runs found there are not made again.
        text: `kjv`, `topics`, or `auto`, which takes `kjv` if it was fetched.
        device: of torch, `cpu` or `cuda`; only on a CPU is a run the same to the bit.
        progress: show a bar on stderr.

    Returns:
        The result, in which each run carries its provenance.

    Raises:
        ValueError: for an unknown experiment or variant, if a stored run was made with
            another configuration, or if a stored file is damaged; nothing stored is
            ever overwritten.
        NotANumberError: if a loss is not finite.

    Example:
        >>> pe_lab.lab.run("stall", variants=["nope"], size="quick", out="results")
        Traceback (most recent call last):
        ValueError: stall has no variant 'nope'; it has: ...
    """
    chosen = experiment(name)
    quick = refuse.one_of("size", size, chosen.sizes) == "quick"
    wanted = _selection(chosen, quick, variants)
    count = (1 if quick else chosen.seeds) if seeds is None else seeds
    if count < 1 or jobs < 1:
        raise ValueError(f"seeds and jobs need at least 1, got {count} and {jobs}.")
    folder = None if out is None else Path(out) / f"{name}-{size}"
    todo = [
        (name, variant, seed, config, _run_file(folder, variant, seed), device)
        for variant in wanted
        for config in [chosen.config(variant, size, "topics" if quick else text)]
        for seed in range(count)
    ]
    runs = _perform(todo, jobs, progress)
    result = Result(name, size, tuple(runs))
    if folder is not None:
        write_result(folder.with_suffix(".json"), _collected(folder, chosen, size))
    return result


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


def _run_file(folder: Path | None, variant: str, seed: int) -> Path | None:
    """Where a run is stored; `words/add`, seed 0 → words.add-0.json."""
    return folder and folder / f"{variant.replace('/', '.')}-{seed}.json"


def _collected(folder: Path, chosen: Experiment, size: str) -> Result:
    """All runs that are stored in a folder, in the experiment's order."""
    runs = [read_run(file) for file in folder.glob("*.json")]
    runs.sort(key=lambda run: (chosen.variants.index(run.variant), run.seed))
    return Result(chosen.name, size, tuple(runs))


def _perform(todo: list[Job], jobs: int, progress: bool) -> list[Run]:
    """The runs of all jobs in their order: stored ones are read, others are made."""
    done = {i: _stored(job) for i, job in enumerate(todo)}
    missing = [i for i, run in done.items() if run is None]
    steps = sum(_steps(todo[i]) for i in missing)
    with _bar(steps, progress and bool(missing)) as advance:
        if jobs == 1:
            for i in missing:
                done[i] = _make(todo[i], advance)
        else:
            done |= _in_processes({i: todo[i] for i in missing}, jobs, advance)
    return [run for run in done.values() if run is not None]


def _steps(job: Job) -> int:
    """How many updates a job makes."""
    return int(job[3]["recipe"]["steps"])


def _in_processes(todo: dict[int, Job], jobs: int, advance: Advance) -> dict[int, Run]:
    """Make runs in several processes; the bar moves when one is done."""
    done, others = {}, set(active_children())
    with ProcessPoolExecutor(jobs, get_context("spawn"), _ignore_ctrl_c) as pool:
        futures = {pool.submit(_make, job): i for i, job in todo.items()}
        try:
            for future in as_completed(futures):
                i = futures[future]
                done[i] = future.result()
                advance(_steps(todo[i]), todo[i][1])
        except BaseException:  # Ctrl-C too: end at once, what is done is stored
            for process in set(active_children()) - others:
                process.terminate()
            raise
    return done


def _ignore_ctrl_c() -> None:
    """Leave Ctrl-C, which every process of a terminal gets, to the first of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _stored(job: Job) -> Run | None:
    """The run that is stored for a job, if there is one and it was made alike."""
    _, variant, _, config, file, _ = job
    if file is None or not file.exists():
        return None
    found = read_run(file)
    keys = config.keys() | found.config.keys()
    for key in sorted(keys):
        there, here = found.config.get(key), _plain(config.get(key))
        if there != here:
            raise ValueError(
                f"{file} was made with {key} = {there}, {variant} now has {here}; "
                "choose another folder with --out, or delete that one."
            )
    return found


def _plain(value: Any) -> Any:
    """A value as it comes back from JSON: tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return (
        [_plain(inner) for inner in value]
        if isinstance(value, (list, tuple))
        else value
    )


def _make(job: Job, advance: Advance | None = None) -> Run:
    """Make one run, and store it if it has a file."""
    name, variant, seed, config, file, device = job

    def progress(updates: int, tokens: int) -> None:
        if advance is not None:
            advance(updates, variant)

    wall, cpu = time.perf_counter(), time.process_time()
    with reproducible(seed):
        made = surroundings(seed, device)
        session = Session(torch.device(device), progress)
        measured = Measured(*experiment(name).measure(config, seed, session))
    provenance = made | {
        "wall_seconds": round(time.perf_counter() - wall, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
    }
    curves, final, profiles = measured
    run = Run(variant, seed, _plain(config), curves, final, provenance, profiles)
    if file is not None:
        write_run(file, name, run)
    return run


@contextmanager
def _bar(steps: int, shown: bool) -> Iterator[Advance]:
    """A progress bar on stderr if tqdm is there; else nothing."""
    try:
        from tqdm import tqdm
    except ImportError:
        shown = False
    if not shown:
        yield lambda steps, variant: None
        return
    with tqdm(total=steps, unit="step", file=sys.stderr, dynamic_ncols=True) as line:

        def advance(steps: int, variant: str) -> None:
            line.set_description(variant, refresh=False)
            line.update(steps)

        yield advance
