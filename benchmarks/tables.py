"""How fast and how exact are tables of cosines and sines?

Each contestant makes the table of positions 0 … L−1 for 64 frequencies. Errors are
against 50-digit arithmetic at the 64 positions that end at 10⁴, 10⁵ and 10⁶.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import mpmath
import torch
from torch import Tensor

import pe_lab
from benchmarks import harness
from benchmarks.harness import Contestant, Settings, say, step

WIDTH, BASE = 128, 10000.0
CHECKED = 64  # positions up to each end
ROUNDS = 31
BASELINE, BOUND = "pe_lab.rope_table", "fill"

Table = tuple[Tensor, Tensor]  # cos and sin, (positions, 64) each


@dataclass(frozen=True)
class Maker(Contestant):
    """Something that makes a table.

    `apply` makes the table of 0 … L−1 and is timed; its tensors are what counts as
    written. `rows` gives cos and sin at the last positions of 0 … end; `None` for the
    bounds, which compute nothing.
    """

    rows: Callable[[int], Table] | None = None


# ── contestants ──────────────────────────────────────────────────────────────────


def last_ids(end: int, count: int = CHECKED) -> Tensor:
    return torch.arange(end - count + 1, end + 1)


def last_rows(table: Table) -> Table:
    return table[0][-CHECKED:], table[1][-CHECKED:]


def ours() -> Iterator[Maker]:
    inv_freq = pe_lab.inv_freq(WIDTH, base=BASE)

    def rotary_rows(end: int) -> Table:  # long enough to be made by angle addition
        return last_rows(pe_lab.rope_table(last_ids(end, 4096), inv_freq))

    def sinusoidal_rows(end: int) -> Table:
        table = pe_lab.sinusoidal(last_ids(end, 4096), WIDTH)
        return last_rows((table[:, 1::2], table[:, ::2]))

    yield Maker(
        BASELINE, "pe-lab", lambda n: pe_lab.rope_table(n, inv_freq), rows=rotary_rows
    )
    yield Maker(
        "pe_lab.sinusoidal",
        "pe-lab",
        lambda n: pe_lab.sinusoidal(n, WIDTH),
        rows=sinusoidal_rows,
    )


def direct(dtype: torch.dtype) -> Maker:
    """cos(pω) and sin(pω), each evaluated in `dtype` and kept in float32."""
    step = torch.arange(0, WIDTH, 2, dtype=dtype)
    inv_freq = 1.0 / BASE ** (step / WIDTH)

    def table(ids: Tensor) -> Table:
        angles = ids.to(dtype)[:, None] * inv_freq
        return angles.cos().float(), angles.sin().float()

    bits = torch.finfo(dtype).bits
    return Maker(
        f"direct evaluation, float{bits}",
        "torch",
        lambda n: table(torch.arange(n)),
        rows=lambda end: table(last_ids(end)),
    )


def bounds(length: int) -> Iterator[Maker]:
    """What it costs to write so many bytes, or to copy them, into new memory."""
    points = torch.rand(length, WIDTH)
    yield Maker("fill", "torch", lambda _: torch.empty_like(points).fill_(1.0))
    yield Maker("copy", "torch", lambda _: torch.empty_like(points).copy_(points))


def transformers_llama() -> Maker:
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=1, head_dim=WIDTH
    )
    rotary = module.LlamaRotaryEmbedding(config)
    x = torch.zeros(1)  # only its dtype and device are read

    def rows(end: int) -> Table:
        cos, sin = rotary(x, last_ids(end)[None])
        return cos[0, :, : WIDTH // 2], sin[0, :, : WIDTH // 2]

    return Maker(
        "transformers, Llama rotary",
        "transformers",
        lambda n: rotary(x, torch.arange(n)[None]),
        rows=rows,
    )


def positional_encodings() -> Maker:
    encodings = importlib.import_module("positional_encodings.torch_encodings")

    def build(length: int) -> Tensor:  # a new module: an old one returns its cache
        like = torch.empty(1).expand(1, length, WIDTH)
        return encodings.PositionalEncoding1D(WIDTH)(like)[0]

    def rows(end: int) -> Table:  # it takes no positions, so the whole table is made
        last = build(end + 1)[-CHECKED:]
        return last[:, 1::2], last[:, ::2]

    return Maker("positional-encodings, 1D", "positional-encodings", build, rows=rows)


def rotary_embedding_torch() -> Maker:
    package = importlib.import_module("rotary_embedding_torch")
    rotary = package.RotaryEmbedding(WIDTH, cache_if_possible=False)

    def table(ids: Tensor) -> Table:
        angles = rotary(ids).detach()
        return angles.cos(), angles.sin()

    return Maker(
        "rotary-embedding-torch",
        "rotary-embedding-torch",
        lambda n: table(torch.arange(n)),
        rows=lambda end: every_second(table(last_ids(end))),
    )


def x_transformers() -> Maker:
    module = importlib.import_module("x_transformers.x_transformers")
    rotary = module.RotaryEmbedding(WIDTH)

    def table(ids: Tensor) -> Table:
        angles = rotary(ids)[0][0]
        return angles.cos(), angles.sin()

    return Maker(
        "x-transformers, rotary",
        "x-transformers",
        lambda n: table(torch.arange(n)),
        rows=lambda end: every_second(table(last_ids(end))),
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


def contestants(length: int) -> tuple[list[Maker], dict[str, str]]:
    """All that can be imported, and why the others are missing."""
    peers, missing = harness.gather(PEERS)
    mine = [*ours(), direct(torch.float64), direct(torch.float32)]
    return [*mine, *peers, *bounds(length)], missing


# ── errors and sizes ─────────────────────────────────────────────────────────────


def exact(end: int) -> Table:
    """cos and sin of pω_i in 50 digits, p the last positions, rounded to float64."""
    with mpmath.workdps(50):
        base = mpmath.mpf(BASE)
        inv_freq = [base ** (-mpmath.mpf(2 * i) / WIDTH) for i in range(WIDTH // 2)]
        angles = [[p * omega for omega in inv_freq] for p in last_ids(end).tolist()]
        cos = [[float(mpmath.cos(angle)) for angle in row] for row in angles]
        sin = [[float(mpmath.sin(angle)) for angle in row] for row in angles]
    both = (torch.tensor(part, dtype=torch.float64) for part in (cos, sin))
    return next(both), next(both)


def max_errors(
    entries: list[Maker], ends: tuple[int, ...]
) -> dict[str, dict[str, float]]:
    """Largest error of each contestant at each end."""
    errors: dict[str, dict[str, float]] = {e.name: {} for e in entries if e.rows}
    for end in ends:
        truth = exact(end)
        for entry in entries:
            if entry.rows is not None:
                pairs = zip(entry.rows(end), truth, strict=True)
                gaps = [harness.max_error(got, want) for got, want in pairs]
                errors[entry.name][str(end)] = max(gaps)
    return errors


def megabytes(result: Any) -> float:
    """What the tensors of a result hold, counting shared memory once."""
    tensors = result if isinstance(result, tuple) else (result,)
    stores = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    return sum(store.nbytes() for store in stores.values()) / 1e6


# ── run ──────────────────────────────────────────────────────────────────────────


def measure(settings: Settings) -> harness.Content:
    length = 512 if settings.quick else 32768
    ends = (5000,) if settings.quick else (10_000, 100_000, 1_000_000)
    rounds = settings.rounds or ROUNDS
    entries, missing = contestants(length)
    setting = {"length": length, "pairs": WIDTH // 2, "base": BASE}
    content = harness.heading("tables", setting, {e.package for e in entries})
    content |= {"rounds": rounds, "baseline": BASELINE, "bound": BOUND}
    content["megabytes"] = {e.name: megabytes(e.apply(length)) for e in entries}
    runs = {e.name: partial(e.apply, length) for e in entries}
    with step(f"tables of {length} positions, {rounds} rounds"):
        content["timings"] = {
            kind: harness.rows(runs, rounds, kind, baseline=BASELINE, bound=BOUND)
            for kind in harness.kinds_of_memory()
        }
    say("  errors against 50 digits …")
    content["max_error"] = max_errors(entries, ends)
    return content | {"missing": missing}


if __name__ == "__main__":
    harness.command(measure, __doc__)
