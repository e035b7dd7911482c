"""What the files in results/ say: as tables, as targets met or missed, as numbers.

The terminal and the book's page on speed both show what this module reads, so neither
can say anything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS

NAMES = ("tables", "rotate", "decode", "alibi", "train", "many", "memory")

Content = dict[str, Any]
Contents = dict[str, Content]


@dataclass(frozen=True)
class Table:
    """A head and rows of text; the first column names, the others are numbers."""

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Target:
    """What was aimed at, in times some reference, and what was measured."""

    what: str
    limit: float
    measured: float

    @property
    def met(self) -> bool:
        """Whether it is, at the two decimals that are shown."""
        return round(self.measured, 2) <= self.limit


def load(folder: Path = RESULTS) -> Contents:
    """The content of each file that is there."""
    paths = {name: folder / f"{name}.json" for name in NAMES}
    return {
        name: json.loads(path.read_text("utf-8"))
        for name, path in paths.items()
        if path.exists()
    }


def case(content: Content, **labels: Any) -> dict[str, Any]:
    """The one case with these labels."""
    found = [
        one
        for one in content["cases"]
        if all(one[key] == value for key, value in labels.items())
    ]
    if len(found) != 1:
        raise ValueError(
            f"{content['benchmark']}.json has {len(found)} cases with {labels}; "
            "run the benchmark again."
        )
    return found[0]


def usual(kinds: Any) -> str:
    """The kind of memory to show first: reused, where it could be chosen."""
    return "reused" if "reused" in kinds else "default"


# ── numbers as text ──────────────────────────────────────────────────────────────


def times(value: float | None) -> str:
    """A ratio with three digits, never more than two decimals."""
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def thousands(value: int | None) -> str:
    """A count with narrow gaps; nothing for what has none."""
    return "" if value is None else f"{value:,}".replace(",", "\u202f")


def error(value: float | None) -> str:
    """An error with two digits, such as 5.6e-7; nothing for a bound, which has none."""
    if value is None:
        return ""
    if value >= 0.1:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def size(value: float | None) -> str:
    """Megabytes with one decimal."""
    return "–" if value is None else f"{value:.1f}"


# ── tables ───────────────────────────────────────────────────────────────────────


def tables(content: Content) -> Table:
    """Times over the fill bound, and errors, of tables of cosines and sines."""
    kinds = content["timings"]
    first = usual(kinds)
    order = [first, *(kind for kind in kinds if kind != first)]
    ends = next(iter(content["max_error"].values()))
    head = ["", "MB", *(f"× fill, {kind} memory" for kind in order)]
    head += [f"error at {int(end):,}".replace(",", "\u202f") for end in ends]
    rows = []
    for name, megabytes in content["megabytes"].items():
        ratios = [times(kinds[kind][name]["over_bound"]) for kind in order]
        errors = content["max_error"].get(name, {})
        cells = [error(errors.get(end)) for end in ends]
        rows.append([name, f"{megabytes:.0f}", *ratios, *cells])
    return Table(head, rows)


def by_case(content: Content, columns: dict[str, dict[str, Any]]) -> Table:
    """A row for each contestant, a column for each case, and the errors in some.

    `columns` maps a heading to labels; "show" among them names what is shown.
    """
    rows: dict[str, list[str]] = {}
    names = dict.fromkeys(name for one in content["cases"] for name in one["rows"])
    for labels in columns.values():
        one = case(content, **{k: v for k, v in labels.items() if k != "show"})
        for name in names:
            rows.setdefault(name, [name]).append(cell(one, name, labels["show"]))
    return Table(["", *columns], list(rows.values()))


def cell(one: dict[str, Any], name: str, show: str) -> str:
    """An error, a time in microseconds, or a ratio."""
    if show == "max_error":
        return error(one["max_error"].get(name))
    row = one["rows"].get(name)
    if show in ("microseconds", "milliseconds"):
        scale = 1e3 if show == "microseconds" else 1
        return "–" if row is None else f"{scale * row['milliseconds']:.1f}"
    return times(None if row is None else row[show])


DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def rotate(content: Content) -> Table:
    """Times over the copy bound, and errors, of RoPE applied."""
    memory = usual({one["memory"] for one in content["cases"]})
    columns: dict[str, dict[str, Any]] = {}
    for short, dtype in DTYPES.items():
        labels = {"dtype": dtype, "memory": memory}
        for passes, heading in (("forward", ""), ("forward+backward", " and back")):
            show = {"pass": passes, "show": "over_bound"}
            columns[f"× copy, {short}{heading}"] = labels | show
    for short, dtype in DTYPES.items():
        labels = {"dtype": dtype, "memory": memory, "pass": "forward"}
        columns[f"error, {short}"] = labels | {"show": "max_error"}
    return by_case(content, columns)


def decode(content: Content) -> Table:
    """Microseconds and times ours, of one step of decoding."""
    columns: dict[str, dict[str, Any]] = {}
    for short, dtype in DTYPES.items():
        columns[f"µs, {short}"] = {"dtype": dtype, "show": "microseconds"}
        columns[f"× ours, {short}"] = {"dtype": dtype, "show": "ratio"}
    for short, dtype in DTYPES.items():
        columns[f"error, {short}"] = {"dtype": dtype, "show": "max_error"}
    return by_case(content, columns)


def alibi(content: Content) -> Table:
    """Times attention without a bias, and errors at the longest length."""
    lengths = content["setting"]["lengths"]
    columns: dict[str, dict[str, Any]] = {}
    for short, dtype in DTYPES.items():
        for length in lengths:
            labels = {"dtype": dtype, "length": length, "show": "over_bound"}
            columns[f"× no bias, {short}, L = {length}"] = labels
    for short, dtype in DTYPES.items():
        labels = {"dtype": dtype, "length": lengths[-1], "show": "max_error"}
        columns[f"error, {short}"] = labels
    return by_case(content, columns)


def many(content: Content) -> Table:
    """Milliseconds, times in turn and times the products, of eight models."""
    columns = {
        f"{what}, {name}": {"size": name, "show": show}
        for name in content["setting"]["sizes"]
        for what, show in (("ms", "milliseconds"), ("× in turn", "ratio"))
    }
    return by_case(content, columns)


def train(content: Content) -> Table:
    """Milliseconds, times ours with RoPE, and parameters, of one step of training."""
    table = by_case(
        content,
        {
            f"{what}, {name}": {"size": name, "show": show}
            for name in content["setting"]["sizes"]
            for what, show in (
                ("ms", "milliseconds"),
                ("× ours", "ratio"),
                ("× products", "over_bound"),
            )
        },
    )
    counts = [(one["size"], one["parameters"]) for one in content["cases"]]
    head = [*table.head, *(f"parameters, {name}" for name, _ in counts)]
    rows = [
        [*row, *(thousands(each.get(row[0])) for _, each in counts)]
        for row in table.rows
    ]
    return Table(head, rows)


def memory(content: Content, job: str = "") -> Table:
    """Megabytes beyond input and output, and kept for backward, of one job or all."""
    head = ["", *(f"MB {what}, {short}" for short in DTYPES for what in MEASURES)]
    rows = []
    for title in [job] if job else JOBS:
        cases = [
            next((one for one in content["cases"] if fits(one, title, dtype)), None)
            for dtype in DTYPES.values()
        ]
        for name in cases[0]["beyond_megabytes"] if cases[0] else ():
            cells = [
                memory_cell(one, f, name) for one in cases for f in MEASURES.values()
            ]
            rows.append([name if job else f"{title}: {name}", *cells])
    return without_empty(Table(head, rows))


def fits(one: dict[str, Any], job: str, dtype: str) -> bool:
    """Whether this is the case of that job and dtype."""
    return bool(one["job"] == job and one["dtype"] == dtype)


def memory_cell(one: dict[str, Any] | None, field: str, name: str) -> str:
    """Megabytes, or a dash for what does not exist."""
    return size(None if one is None else one[field].get(name))


def without_empty(table: Table) -> Table:
    """The table without columns that hold dashes only."""
    columns = list(zip(table.head, *table.rows, strict=True))
    kept = [c for c in columns if any(cell != "–" for cell in c[1:])]
    head, *rows = map(list, zip(*kept, strict=True))
    return Table(head, rows)


MEASURES = {"beyond": "beyond_megabytes", "kept": "kept_megabytes"}
JOBS = ("table", "rotate", "alibi")
TABLES = {
    "tables": tables,
    "rotate": rotate,
    "decode": decode,
    "alibi": alibi,
    "train": train,
    "many": many,
    "memory": memory,
}


# ── targets ──────────────────────────────────────────────────────────────────────


def targets(contents: Contents) -> list[Target]:
    """Those that the files at hand can answer."""
    found: list[Target] = []
    for name, ask in ASK.items():
        if name in contents:
            found += ask(contents[name])
    return found


def table_targets(content: Content) -> Iterator[Target]:
    for kind in sorted(content["timings"], reverse=True):
        value = content["timings"][kind][content["baseline"]]["over_bound"]
        yield Target(f"Table, {kind} memory, × fill", 3.0, value)


def rotate_targets(content: Content) -> Iterator[Target]:
    for short, layout, limit in (
        ("fp32", "interleaved", 1.3),
        ("fp32", "half", 1.6),
        ("bf16", "interleaved", 3.0),
        ("bf16", "half", 3.0),
    ):
        value = best(rotate_rows(content, short), f"pe_lab*{layout}")
        yield Target(f"RoPE, {layout}, {short}, × copy", limit, value)


def rotate_rows(content: Content, short: str) -> dict[str, Any]:
    """The rows of the forward pass with the usual memory."""
    kind = usual({one["memory"] for one in content["cases"]})
    labels = {"dtype": DTYPES[short], "pass": "forward", "memory": kind}
    return case(content, **labels)["rows"]


def best(rows: dict[str, Any], pattern: str, *, bound: str = "copy") -> float:
    """The smallest ratio to the bound among ours ("pe_lab*layout") or the peers (*)."""
    start, end = pattern.split("*")
    names = [n for n in rows if n.startswith(start) and n.endswith(end) and n != bound]
    if not start:
        names = [n for n in names if not n.startswith("pe_lab")]
    return min(rows[name]["over_bound"] for name in names)


def decode_targets(content: Content) -> Iterator[Target]:
    rows = case(content, dtype="float32")["rows"]
    if "transformers, Llama" in rows:
        value = 1 / rows["transformers, Llama"]["ratio"]
        yield Target("Step of decoding, fp32, × transformers", 0.5, value)


def alibi_targets(content: Content) -> Iterator[Target]:
    for length in content["setting"]["lengths"]:
        for short, dtype in DTYPES.items():
            rows = case(content, dtype=dtype, length=length)["rows"]
            value = rows[content["baseline"]]["over_bound"]
            yield Target(f"ALiBi, {short}, L = {length}, × no bias", 1.25, value)


def train_targets(content: Content) -> Iterator[Target]:
    for one in content["cases"]:
        for scheme in ("none", "learned", "RoPE", "ALiBi"):
            peer = one["rows"].get(f"x-transformers, {scheme}")
            if peer:
                value = one["rows"][f"pe_lab, {scheme}"]["ratio"] / peer["ratio"]
                what = f"Training, {one['size']}, {scheme}, × x-transformers"
                yield Target(what, 1.0, value)


def memory_targets(content: Content) -> Iterator[Target]:
    length, heads = content["setting"]["rotate_shape"][2:0:-1]
    pairs = content["setting"]["rotate_shape"][3] // 2
    table = 2 * 4 * length * pairs / 1e6  # cos and sin in float32
    for layout in ("half", "interleaved"):
        kept = case(content, job="rotate", dtype="float32")["kept_megabytes"]
        value = kept[f"pe_lab.apply_rope, {layout}"] / table
        yield Target(f"RoPE, {layout}, kept for backward, × table", 1.0, value)


ASK = {
    "tables": table_targets,
    "rotate": rotate_targets,
    "decode": decode_targets,
    "alibi": alibi_targets,
    "train": train_targets,
    "memory": memory_targets,
}


def target_table(contents: Contents) -> Table:
    """Every target with its limit, what was measured, and the verdict."""
    rows = [
        [t.what, f"≤ {t.limit:g}", times(t.measured), "met" if t.met else "missed"]
        for t in targets(contents)
    ]
    return Table(["", "aim", "measured", ""], rows)


# ── numbers for sentences ────────────────────────────────────────────────────────


def numbers(contents: Contents) -> dict[str, str]:
    """Each number that the page's sentences name, as it is written there."""
    found = dict(table_numbers(contents["tables"]))
    found |= dict(rotate_numbers(contents["rotate"]))
    found |= dict(decode_numbers(contents["decode"]))
    found |= dict(alibi_numbers(contents["alibi"]))
    found |= dict(train_numbers(contents["train"]))
    found |= dict(many_numbers(contents["many"]))
    return found | dict(memory_numbers(contents["memory"]))


def table_numbers(content: Content) -> Iterator[tuple[str, str]]:
    kinds = content["timings"]
    first = kinds[usual(kinds)]
    peers = [n for n in content["max_error"] if n.partition(",")[0] in PEERS]
    yield "table-mb", f"{content['megabytes'][content['baseline']]:.1f}"
    yield "table-cache", megabytes_of_cache(content)
    yield "table-length", f"{content['setting']['length']:,}".replace(",", "\u202f")
    yield "table-ours", times(first[content["baseline"]]["over_bound"])
    last = kinds.get("new", first)
    yield "table-ours-new", times(last[content["baseline"]]["over_bound"])
    yield "table-peer", times(min(first[n]["over_bound"] for n in peers))
    errors = content["max_error"]
    yield "table-error", error(max(errors[content["baseline"]].values()))
    yield "table-peer-error", error(min(max(errors[n].values()) for n in peers))


PEERS = (
    "transformers",
    "positional-encodings",
    "rotary-embedding-torch",
    "x-transformers",
)


def megabytes_of_cache(content: Content) -> str:
    """The last-level cache in megabytes, or a question mark."""
    given = content["provenance"].get("last_level_cache") or ""
    digits = given.removesuffix("K")
    return f"{int(digits) * 1024 / 1e6:.0f}" if digits.isdigit() else "?"


def rotate_numbers(content: Content) -> Iterator[tuple[str, str]]:
    for short in DTYPES:
        rows = rotate_rows(content, short)
        yield f"rotate-peer-{short}", times(best(rows, "*"))
        for layout in ("half", "interleaved"):
            for how in ("", " compiled"):
                row = rows.get(f"pe_lab.apply_rope{how}, {layout}")
                value = times(row["over_bound"] if row else None)
                yield f"rotate-{short}-{layout}{how.replace(' ', '-')}", value
    yield "rotate-shape", f"({', '.join(map(str, content['setting']['shape']))})"
    yield "rotate-mb", f"{4 * product(content['setting']['shape']) / 1e6:.1f}"


def product(shape: list[int]) -> int:
    """The number of numbers in a tensor of this shape."""
    count = 1
    for extent in shape:
        count *= extent
    return count


def decode_numbers(content: Content) -> Iterator[tuple[str, str]]:
    rows = case(content, dtype="float32")["rows"]
    setting = content["setting"]
    yield "decode-position", str(setting["position"])
    yield "decode-heads", str(setting["heads"])
    yield "decode-count", str(2 * setting["heads"] * setting["head_dim"])
    yield "decode-ours", f"{1e3 * rows[content['baseline']]['milliseconds']:.0f}"
    yield "decode-copy", f"{1e3 * rows[content['bound']]['milliseconds']:.0f}"
    for how, name in (("eager", ""), ("compiled", " compiled")):
        row = rows.get(f"transformers{name}, Llama")
        yield f"decode-transformers-{how}", times(row["ratio"] if row else None)


def alibi_numbers(content: Content) -> Iterator[tuple[str, str]]:
    length = content["setting"]["lengths"][-1]
    heads, width = content["setting"]["heads"], content["setting"]["head_dim"]
    yield from (("alibi-length", str(length)), ("alibi-heads", str(heads)))
    yield "alibi-width", str(width)
    yield "alibi-bias-mb", f"{4 * heads * length**2 / 1e6:.0f}"
    for short, dtype in DTYPES.items():
        rows = case(content, dtype=dtype, length=length)["rows"]
        yield f"alibi-ours-{short}", times(rows[content["baseline"]]["over_bound"])
        for key, name in ALIBI_PEERS.items():
            row = rows.get(name)
            yield f"alibi-{key}-{short}", times(row["over_bound"] if row else None)


ALIBI_PEERS = {"built": "SDPA, bias built before", "flex": "FlexAttention compiled"}


def train_numbers(content: Content) -> Iterator[tuple[str, str]]:
    ratios = [target.measured for target in train_targets(content)]
    yield "train-best", times(min(ratios, default=None))
    yield "train-worst", times(max(ratios, default=None))
    for one in content["cases"]:
        rows, name = one["rows"], one["size"]
        width, heads, layers, sequences, length = content["setting"]["sizes"][name]
        ours = rows[content["baseline"]]
        yield (
            f"train-{name}-shape",
            (
                f"width {width}, {layers} layers, {heads} heads, "
                f"{sequences} sequences of {length} tokens"
            ),
        )
        yield f"train-{name}-products", times(ours["over_bound"])
        quick = rows.get("pe_lab compiled, RoPE")
        yield f"train-{name}-compiled", times(quick["ratio"] if quick else None)


def many_numbers(content: Content) -> Iterator[tuple[str, str]]:
    yield "many-models", str(content["setting"]["models"])
    for one in content["cases"]:
        yield f"many-{one['size']}", times(one["rows"]["pe_lab, by vmap"]["ratio"])


def memory_numbers(content: Content) -> Iterator[tuple[str, str]]:
    ours = case(content, job="alibi", dtype="float32")
    name = "pe_lab.attention, ALiBi"
    yield "memory-alibi", size(ours["beyond_megabytes"][name])
    yield "memory-alibi-kept", size(ours["kept_megabytes"].get(name))
    peer = ours["kept_megabytes"].get("SDPA, bias built before")
    yield "memory-alibi-peer-kept", size(peer)
    turned = case(content, job="rotate", dtype="float32")
    name = "pe_lab.apply_rope, interleaved"
    coarse = case(content, job="rotate", dtype="bfloat16")["beyond_megabytes"]
    compiled = "pe_lab.apply_rope compiled, interleaved"
    yield "memory-rotate-compiled-bf16", size(coarse.get(compiled))
    yield "memory-rotate-kept", size(turned["kept_megabytes"][name])
    yield "memory-rotate", size(turned["beyond_megabytes"][name])
    peer = turned["beyond_megabytes"].get("transformers, Llama")
    yield "memory-rotate-peer", size(peer)


# ── for a terminal ───────────────────────────────────────────────────────────────


def as_text(table: Table) -> str:
    """Columns side by side, numbers to the right."""
    lines = [table.head, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = []
    for first, *others in lines:
        pairs = zip(others, widths[1:], strict=True)
        cells = [first.ljust(widths[0]), *(text.rjust(width) for text, width in pairs)]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)


def missing(content: Content) -> str:
    """Who did not take part, and why, a line each."""
    gaps = content["missing"].items()
    return "".join(f"Missing: {name} ({why})\n" for name, why in gaps)


# ── for the page ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Panel:
    """Bars of one job: names, times over the bound, and whether ours, peer or bound."""

    title: str
    names: list[str]
    values: list[float]
    kinds: list[str]


def panel(title: str, rows: dict[str, Any], bounds: tuple[str, ...]) -> Panel:
    """The rows from the fastest to the slowest."""
    names = sorted(rows, key=lambda name: rows[name]["over_bound"])
    kinds = ["ours" if name.startswith("pe_lab") else "peer" for name in names]
    kinds = [
        "bound" if n in bounds else kind for n, kind in zip(names, kinds, strict=True)
    ]
    return Panel(title, names, [rows[name]["over_bound"] for name in names], kinds)


def panels(contents: Contents) -> list[Panel]:
    """The jobs that the picture shows."""
    table = contents["tables"]
    length = contents["alibi"]["setting"]["lengths"][-1]
    attended = case(contents["alibi"], dtype="float32", length=length)["rows"]
    kinds = table["timings"]
    turned = contents["rotate"]
    return [
        panel("Making a table, times fill", kinds[usual(kinds)], ("fill", "copy")),
        panel("RoPE, fp32, times copy", rotate_rows(turned, "fp32"), ("copy",)),
        panel("RoPE, bf16, times copy", rotate_rows(turned, "bf16"), ("copy",)),
        panel(
            f"Causal ALiBi, L = {length}, fp32, times no bias",
            attended,
            (contents["alibi"]["bound"],),
        ),
    ]


def describe(found: list[Panel]) -> str:
    """What the picture shows, for those who do not see it."""
    parts = []
    for one in found:
        pairs = zip(one.names, one.values, strict=True)
        bars = ", ".join(f"{name} {times(value)}" for name, value in pairs)
        parts.append(f"{one.title}: {bars}.")
    return "Horizontal bars in four panels. " + " ".join(parts)


def origin(contents: Contents) -> str:
    """When, on what and with which versions the files were made, as a sentence."""
    places = [content["provenance"] for content in contents.values()]
    days = either([place["date"].partition("T")[0] for place in places])
    machines = either([machine(place) for place in places])
    versions = [f"{name} {either([p[key] for p in places])}" for name, key in VERSIONS]
    return f"Measured on {days} on one core of {machines}, with {', '.join(versions)}."


def machine(place: dict[str, Any]) -> str:
    """The processor and its widest instructions."""
    return f"{place.get('processor') or place['platform']} ({place['cpu']})"


def either(texts: list[str]) -> str:
    """The text, or all that differ."""
    return " and ".join(dict.fromkeys(map(str, texts)))


VERSIONS = (
    ("Python", "python"),
    ("torch", "torch"),
    ("pe_lab", "pe_lab"),
    ("commit", "commit"),
)
