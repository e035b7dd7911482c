"""What every benchmark shares: contestants in turns, ratios round by round, one file.

All run in one process on one thread, round after round, so that a slow moment of the
machine hits everybody. A figure is the median over rounds of a contestant's CPU time
divided by another's *in the same round*.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import pe_lab
from pe_lab.lab.store import write_json

RESULTS = Path(__file__).parent / "results"
CACHE = Path("/sys/devices/system/cpu/cpu0/cache")

Row = dict[str, float]
Content = dict[str, Any]


@dataclass(frozen=True)
class Contestant:
    """Somebody's way to do the job.

    `apply` takes what the benchmark hands to all. `layout` says which of several right
    answers it gives, where there are several.
    """

    name: str
    package: str
    apply: Callable[..., Any]
    layout: str = ""


@dataclass(frozen=True)
class Settings:
    """How to run a benchmark: rounds (None for its own number), tiny sizes or not."""

    rounds: int | None = None
    quick: bool = False


# ── who takes part ───────────────────────────────────────────────────────────────


def gather(
    makers: Iterable[Callable[..., Any]], *given: Any
) -> tuple[list[Any], dict[str, str]]:
    """What the makers make of what is given, and why those who cannot are missing."""
    found, missing = [], {}
    for maker in makers:
        try:
            found.append(maker(*given))
        except Exception as error:  # a peer may be absent, or broken by a release
            missing[maker.__name__] = reason(error)
    return found, missing


def try_all(
    runs: Mapping[str, Callable[[], Any]], ours: str
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """The runs that work, and why the others do not. An error of `ours` is an error."""
    able, missing = {}, {}
    for name, run in runs.items():
        try:
            run()
        except Exception as error:
            if name == ours:
                raise
            missing[name] = reason(error)
        else:
            able[name] = run
    return able, missing


def reason(error: Exception) -> str:
    """The first line of an error, with its kind."""
    lines = str(error).strip().split("\n")
    return f"{type(error).__name__}: {lines[0]:.160}"


# ── time ─────────────────────────────────────────────────────────────────────────


def cpu_seconds(
    runs: Mapping[str, Callable[[], Any]], rounds: int, calls: int = 1
) -> dict[str, list[float]]:
    """CPU seconds of one call of each, in every round, in turns; one warm-up round.

    `calls` in a row make a turn, for jobs of microseconds. Giving the last result back
    to the allocator is not timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    gc.disable()
    try:
        for number in range(rounds + 1):
            for name, run in runs.items():
                start = time.thread_time()
                for _ in range(calls):
                    result = run()
                spent = (time.thread_time() - start) / calls
                del result
                if number:
                    seconds[name].append(spent)
    finally:
        gc.enable()
    return seconds


def ratios(
    seconds: dict[str, list[float]], baseline: str, bound: str
) -> dict[str, Row]:
    """Medians over rounds: of the time, over the baseline's, and over the bound's.

    With quartiles for the second. The bound is what the hardware charges for the job
    without its arithmetic.
    """
    found = {}
    for name, times in seconds.items():
        each = per(times, seconds[baseline])
        low, middle, high = statistics.quantiles(each, n=4, method="inclusive")
        found[name] = {
            "milliseconds": 1e3 * statistics.median(times),
            "ratio": middle,
            "ratio_low": low,
            "ratio_high": high,
            "over_bound": statistics.median(per(times, seconds[bound])),
        }
    return found


def per(times: list[float], others: list[float]) -> list[float]:
    """Quotients round by round; a clock too coarse to see a run counts a nanosecond."""
    return [max(t, 1e-9) / max(o, 1e-9) for t, o in zip(times, others, strict=True)]


def take_memory(how: str) -> bool:
    """Tell glibc where a tensor's memory comes from; False if there is no glibc.

    "new": zeroed pages from the system each time, and their page faults are timed.
    "reused": what the last tensor left. By itself glibc does now this, now that.
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    size = {"new": 2**20, "reused": 2**30}[how]
    return bool(mallopt(mmap_threshold, size) and mallopt(trim_threshold, size))


def kinds_of_memory() -> tuple[str, ...]:
    """What to measure, in this order: what was once kept for reuse is never new again.

    "default" stands for an allocator that cannot be told.
    """
    return ("new", "reused") if take_memory("new") else ("default",)


def usual_memory() -> str:
    """The kind for jobs that are measured with one only."""
    return "reused" if take_memory("reused") else "default"


def rows(
    runs: Mapping[str, Callable[[], Any]],
    rounds: int,
    memory: str,
    *,
    baseline: str,
    bound: str,
    calls: int = 1,
) -> dict[str, Row]:
    """The figures of all runs, with that kind of memory."""
    if memory != "default":
        take_memory(memory)
    return ratios(cpu_seconds(runs, rounds, calls), baseline, bound)


def with_backward(
    apply: Callable[..., Tensor], inputs: tuple[Tensor, ...], grad: Tensor
) -> Callable[[], tuple[Tensor, ...]]:
    """A call that goes forward and back, and gives the gradients of the inputs."""
    leaves = tuple(x.detach().requires_grad_() for x in inputs)

    def run() -> tuple[Tensor, ...]:
        return torch.autograd.grad(apply(*leaves), leaves, grad)

    return run


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled for the very shapes that it is given."""
    return torch.compile(function, dynamic=False)


def max_error(got: Tensor, want: Tensor) -> float:
    """Largest difference from a float64 answer, as a plain number."""
    return (got.detach().double() - want).abs().max().item()


# ── record ───────────────────────────────────────────────────────────────────────


def heading(name: str, setting: dict[str, Any], packages: Iterable[str]) -> Content:
    """What every file starts with: format, name, setting, and where it comes from."""
    versions = {package: installed(package) for package in sorted(set(packages))}
    origin: dict[str, Any] = dict(pe_lab.provenance().to_dict())
    origin |= {"processor": processor(), "last_level_cache": last_level_cache()}
    return {
        "format": 1,
        "benchmark": name,
        "setting": setting,
        "provenance": origin | {"packages": versions},
    }


def installed(package: str) -> str | None:
    """The version of a distribution, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """The processor's model as Linux names it, elsewhere as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    return next(names, "") or platform.processor() or platform.machine()


def last_level_cache() -> str | None:
    """The size of the largest cache, such as "32768K", where Linux says it."""
    try:
        sizes = [path.read_text("utf-8").strip() for path in CACHE.glob("index*/size")]
    except OSError:
        return None
    return max(sizes, key=lambda size: int(size.rstrip("K") or 0), default=None)


def say(text: str) -> None:
    """Progress, to the side of the tables."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """A line when something starts and one with its wall time when it is done."""
    say(f"  {text} …")
    start = time.perf_counter()
    yield
    say(f"  {text}: {time.perf_counter() - start:.0f} s")


def save(content: Content, folder: Path = RESULTS) -> Path:
    """Write a benchmark's file whole or not at all."""
    path = folder / f"{content['benchmark']}.json"
    write_json(path, content)
    return path


def all_missing(cases: list[dict[str, Any]]) -> dict[str, str]:
    """Who was missing in any case, and why."""
    return {name: why for case in cases for name, why in case["missing"].items()}


def options(
    description: str, arguments: list[str] | None, *, only: tuple[str, ...] = ()
) -> argparse.Namespace:
    """The words that all commands understand."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--rounds", type=int, help="at least 2; else each its own")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for a try")
    parser.add_argument("--output", type=Path, default=RESULTS, help="a folder")
    if only:
        parser.add_argument("--only", choices=only, action="append", metavar="NAME")
    found = parser.parse_args(arguments)
    if found.rounds is not None and found.rounds < 2:
        parser.error(f"--rounds needs at least 2 for quartiles, got {found.rounds}")
    if found.quick and found.output == RESULTS:
        parser.error("--quick needs --output FOLDER: its numbers are not for the book")
    return found


def command(measure: Callable[[Settings], Content], description: str) -> None:
    """Run one benchmark by itself and write its file."""
    found = options(description, None)
    torch.set_num_threads(1)
    path = save(measure(Settings(found.rounds, found.quick)), found.output)
    say(f"Written to {path}")
