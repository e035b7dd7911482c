"""How much memory does each way need besides its input and its output?

Two numbers. *Beyond*: the most that is allocated at any moment of one forward call,
less what the result holds at the end; counted from the allocator's own record, so that
scratch memory inside kernels is seen too. *Kept*: what autograd stores for the backward
pass, each piece of memory once, whether it is a table, a mask or the input itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks import alibi, harness, rotate, tables
from benchmarks.harness import Settings, step

Runs = dict[str, Callable[[], Any]]


# ── the two measures ─────────────────────────────────────────────────────────────


@contextmanager
def quiet() -> Iterator[None]:
    """Without the lines that the profiler's C++ side writes at each start and stop."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def allocations(run: Callable[[], Any]) -> tuple[list[int], Any]:
    """Bytes taken (+) and given back (−) on the CPU during one call, and its result."""
    activities = [ProfilerActivity.CPU]
    with quiet(), profile(activities=activities, profile_memory=True) as record:
        result = run()
    events = record.profiler.kineto_results.events()
    found = [event for event in events if event.name() == "[memory]"]
    found.sort(key=lambda event: event.start_ns())
    return [event.nbytes() for event in found], result


def beyond_bytes(run: Callable[[], Any]) -> int:
    """The largest sum at any moment, less what is still held when the call is over."""
    run()  # so that what is made once, such as a cache or a kernel, is there
    changes, result = allocations(run)
    held = peak = 0
    for change in changes:
        held += change
        peak = max(peak, held)
    del result
    return peak - max(held, 0)


def kept_bytes(run: Callable[[], Any]) -> int:
    """What a forward call with gradients stores for the backward pass."""
    stores: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        store = tensor.untyped_storage()
        stores[store.data_ptr()] = store.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    del result
    return sum(stores.values())


# ── the jobs ─────────────────────────────────────────────────────────────────────


def table_runs(quick: bool) -> tuple[Runs, dict[str, str]]:
    length = 512 if quick else 32768
    entries, missing = tables.contestants(length)
    return {entry.name: partial(entry.apply, length) for entry in entries}, missing


def rotate_runs(
    quick: bool, dtype: torch.dtype, grad: bool
) -> tuple[Runs, dict[str, str]]:
    x = rotate.queries(quick, dtype)
    entries, missing = rotate.contestants(x)
    runs: Runs = {}
    for entry in entries:
        given = rotate.arrange(x, entry.layout).requires_grad_(grad)
        apply = rotate.Copy.apply if entry.name == rotate.BOUND else entry.apply
        runs[entry.name] = partial(apply, given)
    return runs, missing


def alibi_runs(
    quick: bool, dtype: torch.dtype, grad: bool
) -> tuple[Runs, dict[str, str]]:
    given = alibi.inputs(128 if quick else 2048, dtype)
    entries, missing = alibi.contestants(given[0])
    leaves = [tensor.clone().requires_grad_(grad) for tensor in given]
    return {entry.name: partial(entry.apply, *leaves) for entry in entries}, missing


def megabytes(runs: Runs, measure: Callable[..., int]) -> dict[str, float]:
    """Of each contestant; left out where the job cannot be done."""
    able, _ = harness.try_all(runs, ours="")
    return {name: measure(run) / 1e6 for name, run in able.items()}


def jobs(quick: bool) -> Iterator[tuple[dict[str, str], Callable[[bool], Any]]]:
    """Labels of each case, and what makes its calls without or with gradients."""
    yield {"job": "table", "dtype": "float32"}, lambda _: table_runs(quick)
    for job, make in (("rotate", rotate_runs), ("alibi", alibi_runs)):
        for dtype in (torch.float32, torch.bfloat16):
            labels = {"job": job, "dtype": str(dtype).removeprefix("torch.")}
            yield labels, partial(make, quick, dtype)


def measure(settings: Settings) -> harness.Content:
    """`settings.rounds` has no say: the record of one call is exact."""
    cases: list[dict[str, Any]] = []
    for labels, make in jobs(settings.quick):
        with step(f"memory, {labels['job']}, {labels['dtype']}"):
            with torch.no_grad():
                runs, missing = make(False)
                case: dict[str, Any] = {**labels, "missing": missing}
                case["beyond_megabytes"] = megabytes(runs, beyond_bytes)
            case["kept_megabytes"] = {}
            if labels["job"] != "table":
                case["kept_megabytes"] = megabytes(make(True)[0], kept_bytes)
            cases.append(case)
    length = 128 if settings.quick else 2048
    shape = list(rotate.queries(settings.quick, torch.float32).shape)
    setting = {"rotate_shape": shape, "alibi_length": length}
    content = harness.heading("memory", setting, ("pe-lab", "torch"))
    return content | {"cases": cases, "missing": harness.all_missing(cases)}


if __name__ == "__main__":
    harness.command(measure, __doc__)
