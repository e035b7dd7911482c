"""What results say in words and numbers: tables, and a list of what is shipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .experiments import EXPERIMENTS
from .results import Result, mean_spread
from .store import load, planned, shipped

Cells = dict[str, dict[str, np.ndarray]]  # variant → column → (seeds,)
COLUMNS = 8  # of a table, where a profile has more places


def table(
    result: Result, *, profile: str | None = None, at: Sequence[int] | None = None
) -> str:
    """Values as text: a row for each variant, mean ± spread over seeds.

    Args:
        result: of `load`, `run` or `read_result`.
        profile: the name of a profile, whose places are then the columns; by default
            the columns are the final values.
        at: which places of the profile; by default all, or eight from end to end.

    Returns:
        lines of text, the first with the names of the columns; – where a variant was
        not measured.

    Raises:
        ValueError: if there is no such profile, or no value at such a place; the
            message lists what there is.

    Example:
        >>> print(pe_lab.lab.table(pe_lab.lab.load("stall")))
        variant                      seeds  held_out_loss        guess  parameters
        position/none                3      2.773 ± 5e-05        2.773  1.043e+05
        position/sinusoidal          3      0.0001283 ± 2.5e-06  2.773  1.043e+05
        ...
    """
    cells = finals(result) if profile is None else values_at(result, profile, at)
    names = list(dict.fromkeys(name for row in cells.values() for name in row))
    if profile is not None:
        names.sort(key=int)
    rows = [["variant", "seeds", *names]]
    for variant, row in cells.items():
        written = [_mean_spread(row[name]) if name in row else "–" for name in names]
        rows.append([variant, str(len(result.of(variant))), *written])
    return in_columns(rows)


def in_columns(rows: list[list[str]]) -> str:
    """Lines of text, whose columns stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def finals(result: Result) -> Cells:
    """The final values of each variant."""
    return {
        variant: {
            name: result.final(variant, name) for name in result.of(variant)[0].final
        }
        for variant in result.variants
    }


def values_at(result: Result, profile: str, at: Sequence[int] | None = None) -> Cells:
    """The values of each variant at some places of a profile."""
    found = {v: result.profile(v, profile) for v in result.having("profile", profile)}
    known = sorted({int(place) for places, _ in found.values() for place in places})
    unknown = [place for place in at or () if place not in known]
    if unknown:
        raise ValueError(
            f"{profile} was not measured at {unknown[0]}, only at "
            f"{', '.join(map(str, known))}."
        )
    wanted = at or _some(known)
    return {
        variant: {
            str(place): values[:, places.tolist().index(place)]
            for place in wanted
            if place in places
        }
        for variant, (places, values) in found.items()
    }


def _some(places: list[int]) -> list[int]:
    """All places if they are few, or else some, from the first to the last."""
    if len(places) <= COLUMNS:
        return places
    return [places[round(i)] for i in np.linspace(0, len(places) - 1, COLUMNS)]


def _mean_spread(values: np.ndarray) -> str:
    """A cell of a table."""
    mean, spread = mean_spread(values)
    return f"{mean:.4g}" if spread == 0 else f"{mean:.4g} ± {spread:.2g}"


def listing() -> str:
    """The shipped results: question, sizes, seeds and CPU seconds of each."""
    rows = [["name", "sizes", "variants", "seeds", "CPU seconds", "question"]]
    for name in shipped():
        result, experiment = load(name), EXPERIMENTS.get(name)
        rows.append(
            [
                name,
                ", ".join(experiment.sizes) if experiment else result.mode,
                str(len(result.variants)),
                str(max(len(result.of(variant)) for variant in result.variants)),
                f"{result.cpu_seconds:.0f}",
                experiment.question if experiment else "",
            ]
        )
    return in_columns(rows)


def summary(result: Result, profile: str | None = None) -> str:
    """A table, how complete it is, where it comes from, and what else was measured."""
    facts = as_dict(result)
    count, plan = facts["runs"], facts["planned"]
    lines = [
        table(result, profile=profile),
        f"{count} of {plan} planned runs" if plan else f"{count} runs",
        f"{result.cpu_seconds:.0f} CPU seconds; commit {', '.join(facts['commits'])}",
        *(f"text: {text}" for text in facts["texts"]),
    ]
    for kind in ("curve", "profile"):
        names = result.metrics(kind)
        lines += [f"{kind}s: {', '.join(names)}"] if names else []
    return "\n".join(lines)


def as_dict(result: Result, profile: str | None = None) -> dict[str, Any]:
    """The same for programs: a list of values, one for each seed, and no rounding."""
    plan = planned(result)
    cells = finals(result) if profile is None else values_at(result, profile)
    return {
        "experiment": result.experiment,
        "size": result.mode,
        "runs": len(result.runs),
        "planned": None if plan is None else max(plan, len(result.runs)),
        "cpu_seconds": round(result.cpu_seconds, 2),
        "commits": sorted({str(run.provenance.get("commit")) for run in result.runs}),
        "texts": sorted({r.config["text"] for r in result.runs if "text" in r.config}),
        "seeds": {v: [run.seed for run in result.of(v)] for v in result.variants},
        profile or "final": {
            variant: {name: values.tolist() for name, values in row.items()}
            for variant, row in cells.items()
        },
    }
