"""How fast and how exact are tables of cosines and sines, side by side in one run?

Each contestant makes the table of positions 0 … L−1 for 64 frequencies, one thread, in
turns: round after round, so that a slow moment hits all of them. The figure is the
median over rounds of its CPU time divided by pe_lab's in the same round. Errors are
against 50-digit arithmetic at the 64 positions that end at 10⁴, 10⁵ and 10⁶.

    python benchmarks/tables.py              # half a minute; writes results/tables.json
    python benchmarks/tables.py --rounds 5 --output other.json
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mpmath
import torch
from torch import Tensor

import pe_lab
from pe_lab.lab.results import write_json

RESULTS = Path(__file__).parent / "results" / "tables.json"
LENGTH, WIDTH, BASE = 32768, 128, 10000.0
ENDS = (10_000, 100_000, 1_000_000)  # errors are measured up to here
CHECKED = 64  # positions up to each end
BASELINE = "pe_lab.rope_table"

Table = tuple[Tensor, Tensor]  # cos and sin, (positions, 64) each


@dataclass(frozen=True)
class Contestant:
    """Something that makes a table.

    `build` makes the table of 0 … LENGTH−1 and is timed; its tensors are what counts as
    written. `rows` gives cos and sin at the last positions of 0 … end; `None` for the
    bounds, which compute nothing.
    """

    name: str
    package: str
    build: Callable[[], Any]
    rows: Callable[[int], Table] | None = None


# ── contestants ──────────────────────────────────────────────────────────────────


def last_ids(end: int, count: int = CHECKED) -> Tensor:
    return torch.arange(end - count + 1, end + 1)


def last_rows(table: Table) -> Table:
    return table[0][-CHECKED:], table[1][-CHECKED:]


def ours() -> Iterator[Contestant]:
    inv_freq = pe_lab.inv_freq(WIDTH, base=BASE)

    def rotary_rows(end: int) -> Table:  # long enough to be made by angle addition
        return last_rows(pe_lab.rope_table(last_ids(end, 4096), inv_freq))

    def sinusoidal_rows(end: int) -> Table:
        table = pe_lab.sinusoidal(last_ids(end, 4096), WIDTH)
        return last_rows((table[:, 1::2], table[:, ::2]))

    yield Contestant(
        BASELINE, "pe-lab", lambda: pe_lab.rope_table(LENGTH, inv_freq), rotary_rows
    )
    yield Contestant(
        "pe_lab.sinusoidal",
        "pe-lab",
        lambda: pe_lab.sinusoidal(LENGTH, WIDTH),
        sinusoidal_rows,
    )


def direct(dtype: torch.dtype) -> Contestant:
    """cos(pω) and sin(pω), each evaluated in `dtype` and kept in float32."""
    step = torch.arange(0, WIDTH, 2, dtype=dtype)
    inv_freq = 1.0 / BASE ** (step / WIDTH)

    def table(ids: Tensor) -> Table:
        angles = ids.to(dtype)[:, None] * inv_freq
        return angles.cos().float(), angles.sin().float()

    bits = torch.finfo(dtype).bits
    return Contestant(
        f"direct evaluation, float{bits}",
        "torch",
        lambda: table(torch.arange(LENGTH)),
        lambda end: table(last_ids(end)),
    )


def bounds() -> Iterator[Contestant]:
    """What it costs to write so many bytes, or to copy them, into new memory."""
    points = torch.rand(LENGTH, WIDTH)
    yield Contestant("fill", "torch", lambda: torch.empty_like(points).fill_(1.0))
    yield Contestant("copy", "torch", lambda: torch.empty_like(points).copy_(points))


def transformers_llama() -> Contestant:
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=1, head_dim=WIDTH
    )
    rotary = module.LlamaRotaryEmbedding(config)
    x = torch.zeros(1)  # only its dtype and device are read

    def rows(end: int) -> Table:
        cos, sin = rotary(x, last_ids(end)[None])
        return cos[0, :, : WIDTH // 2], sin[0, :, : WIDTH // 2]

    return Contestant(
        "transformers, Llama rotary",
        "transformers",
        lambda: rotary(x, torch.arange(LENGTH)[None]),
        rows,
    )


def positional_encodings() -> Contestant:
    encodings = importlib.import_module("positional_encodings.torch_encodings")

    def build(length: int) -> Tensor:  # a new module: an old one returns its cache
        like = torch.empty(1).expand(1, length, WIDTH)
        return encodings.PositionalEncoding1D(WIDTH)(like)[0]

    def rows(end: int) -> Table:  # it takes no positions, so the whole table is made
        last = build(end + 1)[-CHECKED:]
        return last[:, 1::2], last[:, ::2]

    return Contestant(
        "positional-encodings, 1D",
        "positional-encodings",
        lambda: build(LENGTH),
        rows,
    )


def rotary_embedding_torch() -> Contestant:
    package = importlib.import_module("rotary_embedding_torch")
    rotary = package.RotaryEmbedding(WIDTH, cache_if_possible=False)

    def table(ids: Tensor) -> Table:
        angles = rotary(ids).detach()
        return angles.cos(), angles.sin()

    return Contestant(
        "rotary-embedding-torch",
        "rotary-embedding-torch",
        lambda: table(torch.arange(LENGTH)),
        lambda end: every_second(table(last_ids(end))),
    )


def x_transformers() -> Contestant:
    module = importlib.import_module("x_transformers.x_transformers")
    rotary = module.RotaryEmbedding(WIDTH)

    def table(ids: Tensor) -> Table:
        angles = rotary(ids)[0][0]
        return angles.cos(), angles.sin()

    return Contestant(
        "x-transformers, rotary",
        "x-transformers",
        lambda: table(torch.arange(LENGTH)),
        lambda end: every_second(table(last_ids(end))),
    )


def every_second(table: Table) -> Table:
    """One column for each frequency of a table that holds each column twice."""
    return table[0][:, ::2], table[1][:, ::2]


PEERS = (
    transformers_llama,
    positional_encodings,
    rotary_embedding_torch,
    x_transformers,
)


def contestants() -> tuple[list[Contestant], dict[str, str]]:
    """All that can be imported, and why the others are missing."""
    found = [*ours(), direct(torch.float64), direct(torch.float32)]
    missing = {}
    for peer in PEERS:
        try:
            found.append(peer())
        except ImportError as error:
            missing[peer.__name__] = str(error)
    return [*found, *bounds()], missing


# ── measurements ─────────────────────────────────────────────────────────────────


def exact(end: int) -> Table:
    """cos and sin of pω_i in 50 digits, p the last positions, rounded to float64."""
    with mpmath.workdps(50):
        base = mpmath.mpf(BASE)
        inv_freq = [base ** (-mpmath.mpf(2 * i) / WIDTH) for i in range(WIDTH // 2)]
        angles = [[p * omega for omega in inv_freq] for p in last_ids(end).tolist()]
        cos = [[float(mpmath.cos(angle)) for angle in row] for row in angles]
        sin = [[float(mpmath.sin(angle)) for angle in row] for row in angles]
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(
        sin, dtype=torch.float64
    )


def max_errors(entries: list[Contestant]) -> dict[str, dict[str, float]]:
    """Largest error of each contestant at each end."""
    errors: dict[str, dict[str, float]] = {e.name: {} for e in entries if e.rows}
    for end in ENDS:
        truth = exact(end)
        for entry in entries:
            if entry.rows is None:
                continue
            gaps = [
                (got.double() - want).abs().max().item()
                for got, want in zip(entry.rows(end), truth, strict=True)
            ]
            errors[entry.name][str(end)] = max(gaps)
    return errors


def cpu_seconds(entries: list[Contestant], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every contestant in every round, in turns; one warm-up round."""
    seconds: dict[str, list[float]] = {entry.name: [] for entry in entries}
    gc.disable()
    for number in range(rounds + 1):
        for entry in entries:
            start = time.process_time()
            result = entry.build()
            stop = time.process_time()
            del result
            if number:
                seconds[entry.name].append(stop - start)
    gc.enable()
    return seconds


def ratios(seconds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Median and quartiles, over rounds, of CPU time over the baseline's."""
    summary = {}
    for name, times in seconds.items():
        each = [t / b for t, b in zip(times, seconds[BASELINE], strict=True)]
        low, middle, high = statistics.quantiles(each, n=4)
        summary[name] = {
            "milliseconds": 1e3 * statistics.median(times),
            "ratio": middle,
            "ratio_low": low,
            "ratio_high": high,
        }
    return summary


def take_memory(how: str) -> bool:
    """Tell glibc where a table's memory comes from; False if there is no glibc.

    "new": zeroed pages from the system each time, and their page faults are timed.
    "reused": what the last table left. By itself glibc does now this, now that.
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    size = {"new": 2**20, "reused": 2**30}[how]
    return bool(mallopt(mmap_threshold, size) and mallopt(trim_threshold, size))


def timings(entries: list[Contestant], rounds: int) -> dict[str, Any]:
    """The ratios, with new and with reused memory where that can be chosen."""
    kinds = [kind for kind in ("new", "reused") if take_memory(kind)] or ["default"]
    found = {}
    for kind in kinds:
        take_memory(kind)
        found[kind] = ratios(cpu_seconds(entries, rounds))
    return found


def megabytes(result: Any) -> float:
    """What the tensors of a result hold, counting shared memory once."""
    tensors = result if isinstance(result, tuple) else (result,)
    stores = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    return sum(store.nbytes() for store in stores.values()) / 1e6


# ── report ───────────────────────────────────────────────────────────────────────


def measure(rounds: int) -> dict[str, Any]:
    entries, missing = contestants()
    packages = sorted({entry.package for entry in entries})
    return {
        "format": 1,
        "setting": {"length": LENGTH, "pairs": WIDTH // 2, "base": BASE},
        "rounds": rounds,
        "baseline": BASELINE,
        "megabytes": {entry.name: megabytes(entry.build()) for entry in entries},
        "timings": timings(entries, rounds),
        "max_error": max_errors(entries),
        "missing": missing,
        "provenance": pe_lab.provenance().to_dict()
        | {"packages": {name: version(name) for name in packages}},
    }


def table_text(content: dict[str, Any]) -> str:
    """The result for a terminal."""
    timings, errors = content["timings"], content["max_error"]
    ends = [f"error at {end:,}".replace(",", " ") for end in ENDS]
    heads = [f"{memory} memory" for memory in timings]
    lines = ["".join([f"{'':29}{'MB':>4}", *(f"{h:>20}" for h in [*heads, *ends])])]
    for name, size in content["megabytes"].items():
        times = [f"{timings[memory][name]['ratio']:.2f}" for memory in timings]
        gaps = [f"{gap:.1e}" for gap in errors.get(name, {}).values()]
        cells = "".join(f"{cell:>20}" for cell in [*times, *gaps])
        lines.append(f"{name:29}{size:4.0f}{cells}")
    lines.append(f"Times are CPU times over that of {BASELINE}, medians of rounds.")
    lines += [f"Missing: {name} ({why})" for name, why in content["missing"].items()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=31, help="at least 2")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error(f"--rounds needs at least 2 for quartiles, got {options.rounds}")
    torch.set_num_threads(1)
    content = measure(options.rounds)
    write_json(options.output, content)
    print(table_text(content))
    print(f"Written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
