"""Results: what was run, what came out, and where it comes from, in one JSON file.

A run is one variant with one seed; a result is all runs of one experiment. Files are
written whole or not at all: first under another name in the same folder, then renamed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from pe_lab import refuse
from pe_lab.provenance import provenance

FORMAT = 1
KINDS = {"final": "final", "curve": "curves", "profile": "profiles"}  # field of a run
COLUMNS = 8  # of a table, where a profile has more places
SHIPPED = Path(__file__).parent / "shipped"
DATA_LIBRARIES = ("num2words", "cn2an")  # they make the data of the numbers task


@dataclass(frozen=True)
class Curve:
    """One quantity as training goes on.

    Attributes:
        steps: how many updates were made before each value.
        values: the quantity; losses are in nats per token.

    Example:
        >>> loss = pe_lab.lab.Curve(steps=[0, 100], values=[2.5, 0.5])
        >>> loss.values[-1]
        0.5
    """

    steps: list[int]
    values: list[float]


@dataclass(frozen=True)
class Profile:
    """One quantity of a trained model along an axis, such as length or position.

    Attributes:
        at: the places on the axis, for example lengths of text.
        values: the quantity there; losses are in nats per token.

    Example:
        >>> loss = pe_lab.lab.Profile(at=[32, 64], values=[1.75, 2.25])
        >>> dict(zip(loss.at, loss.values))[64]
        2.25
    """

    at: list[int]
    values: list[float]


@dataclass(frozen=True)
class Run:
    """One variant with one seed.

    Attributes:
        variant: its name.
        seed: of the initial weights and of the batches.
        config: everything else that decides the outcome.
        curves: quantity → how it went.
        final: quantity → its value after the last step.
        provenance: commit, versions, device, date, wall and CPU seconds.
        profiles: quantity → how it varies with length or position after the last step.

    Example:
        >>> run = pe_lab.lab.load("stall").runs[0]
        >>> run.variant, run.seed, run.provenance["device"]
        ('position/none', 0, 'cpu')
    """

    variant: str
    seed: int
    config: dict[str, Any]
    curves: dict[str, Curve]
    final: dict[str, float]
    provenance: dict[str, Any] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """All runs of one experiment, and the few questions one asks of them.

    Attributes:
        experiment: its name.
        mode: its size, "full", "quick" or "gpu".
        runs: a `Run` for each variant and seed.

    Example:
        >>> result = pe_lab.lab.load("stall")
        >>> result.mode, result.variants[:2]
        ('full', ['position/none', 'position/sinusoidal'])
    """

    experiment: str
    mode: str
    runs: tuple[Run, ...]

    @property
    def variants(self) -> list[str]:
        """The variants, in the order in which the experiment lists them."""
        return list(dict.fromkeys(run.variant for run in self.runs))

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds that all runs took together."""
        return float(sum(run.provenance.get("cpu_seconds", 0) for run in self.runs))

    def of(self, variant: str) -> list[Run]:
        """The runs of one variant, in the order of their seeds.

        Args:
            variant: its name.

        Returns:
            a list of `Run`.

        Raises:
            ValueError: if there is none; the message lists the variants.
        """
        found = [run for run in self.runs if run.variant == variant]
        if not found:
            raise ValueError(
                f"{self.experiment} has no variant {variant!r}; "
                f"it has: {', '.join(self.variants)}."
            )
        return sorted(found, key=lambda run: run.seed)

    def metrics(self, kind: str) -> list[str]:
        """The names of what was measured, in the order in which runs list them.

        Args:
            kind: `final`, `curve` or `profile`.

        Returns:
            those that at least one run has.

        Raises:
            ValueError: for another kind.
        """
        refuse.one_of("kind", kind, tuple(KINDS))
        found = (name for run in self.runs for name in getattr(run, KINDS[kind]))
        return list(dict.fromkeys(found))

    def having(self, kind: str, metric: str) -> list[str]:
        """The variants of which something was measured.

        Args:
            kind: `final`, `curve` or `profile`.
            metric: its name.

        Returns:
            their names, in the order of `variants`.

        Raises:
            ValueError: if there is none; the message lists the metrics.
        """
        known = self.metrics(kind)
        if metric not in known:
            raise ValueError(
                f"{self.experiment} has no {kind} {metric!r}; "
                f"it has: {', '.join(known) or 'none'}."
            )
        runs = (run for run in self.runs if metric in getattr(run, KINDS[kind]))
        return list(dict.fromkeys(run.variant for run in runs))

    def final(self, variant: str, metric: str) -> np.ndarray:
        """A final value for each seed.

        Args:
            variant, metric: their names.

        Returns:
            (seeds,).

        Raises:
            ValueError: if the variant has no such metric; the message lists them.
        """
        runs = self.of(variant)
        return np.array([_pick(run.final, metric, variant) for run in runs])

    def curve(self, variant: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """How a quantity went, for each seed.

        Args:
            variant, metric: their names.

        Returns:
            the steps, (points,), and the values, (seeds, points).

        Raises:
            ValueError: as for `final`, and if seeds were measured at other steps.
        """
        found = [_pick(run.curves, metric, variant) for run in self.of(variant)]
        series = [(curve.steps, curve.values) for curve in found]
        return _together(series, f"{metric} of {variant}")

    def profile(self, variant: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """How a quantity of the trained model varies, for each seed.

        Args:
            variant, metric: their names.

        Returns:
            the places, (points,), and the values, (seeds, points).

        Raises:
            ValueError: as for `final`, and if seeds were measured at other places.
        """
        found = [_pick(run.profiles, metric, variant) for run in self.of(variant)]
        series = [(profile.at, profile.values) for profile in found]
        return _together(series, f"{metric} of {variant}")

    def at(self, variant: str, metric: str, step: int) -> np.ndarray:
        """The value of a curve at one of its steps, for each seed.

        Args:
            variant, metric: their names.
            step: how many updates were made before.

        Returns:
            (seeds,).

        Raises:
            ValueError: if nothing was measured then; the message lists the steps.
        """
        steps, values = self.curve(variant, metric)
        if step not in steps:
            raise ValueError(
                f"{metric} was not measured at step {step}, only at "
                f"{', '.join(map(str, steps))}."
            )
        return values[:, steps.tolist().index(step)]

    def first_below(self, variant: str, metric: str, level: float) -> np.ndarray:
        """The first step at which a curve is below a level, for each seed.

        Args:
            variant, metric: their names.
            level: in the metric's unit.

        Returns:
            (seeds,) steps; nan where it never was.

        Raises:
            ValueError: as for `final`.
        """
        steps, values = self.curve(variant, metric)
        below = values < level
        first = steps[below.argmax(axis=1)].astype(float)
        return np.where(below.any(axis=1), first, np.nan)


def _pick(values: dict[str, Any], metric: str, variant: str) -> Any:
    """A metric by name, or an error that lists what there is."""
    if metric not in values:
        raise ValueError(
            f"{variant} has no {metric!r} here; it has: {', '.join(sorted(values))}."
        )
    return values[metric]


def _together(
    series: list[tuple[list[int], list[float]]], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of all seeds, if all were measured at the same places."""
    places = series[0][0]
    if any(at != places for at, _ in series):
        raise ValueError(
            f"{name} was not measured at the same places for every seed; "
            "run its seeds again with one configuration."
        )
    return np.array(places), np.array([values for _, values in series])


def mean_spread(values: np.ndarray) -> tuple[float, float]:
    """Mean and sample standard deviation over seeds (n - 1; zero for one seed).

    Args:
        values: (seeds,) one value for each seed.

    Returns:
        (mean, standard deviation), in the values' unit.

    Example:
        >>> pe_lab.lab.mean_spread([1.0, 3.0, 5.0])
        (3.0, 2.0)
    """
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), spread


def table(
    result: Result, *, profile: str | None = None, at: Sequence[int] | None = None
) -> str:
    """Values as text: a row for each variant, mean ± spread over seeds.

    Args:
        result: of `load`, `run`, `read_result` or `collect`.
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
    cells = _final_cells(result) if profile is None else _cells(result, profile, at)
    names = list(dict.fromkeys(name for row in cells.values() for name in row))
    rows = [["variant", "seeds", *names]]
    for variant, row in cells.items():
        written = [
            _mean_spread_text(row[name]) if name in row else "–" for name in names
        ]
        rows.append([variant, str(len(result.of(variant))), *written])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


Cells = dict[str, dict[str, np.ndarray]]  # variant → column → (seeds,)


def _final_cells(result: Result) -> Cells:
    """The final values of each variant."""
    return {
        variant: {
            name: result.final(variant, name) for name in result.of(variant)[0].final
        }
        for variant in result.variants
    }


def _cells(result: Result, profile: str, at: Sequence[int] | None) -> Cells:
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


def _mean_spread_text(values: np.ndarray) -> str:
    """A cell of a table."""
    mean, spread = mean_spread(values)
    return f"{mean:.4g}" if spread == 0 else f"{mean:.4g} ± {spread:.2g}"


def shipped() -> list[str]:
    """The names of the results that come with the package."""
    return sorted(file.stem for file in SHIPPED.glob("*.json"))


def surroundings(seed: int, device: str = "cpu") -> dict[str, Any]:
    """What a run depends on besides its config: code, libraries, processor.

    Args:
        seed: of the run.
        device: of the model.
    """
    libraries: dict[str, str | None] = {}
    for name in DATA_LIBRARIES:
        try:
            libraries[name] = version(name)
        except PackageNotFoundError:
            libraries[name] = None
    return provenance(seed=seed).to_dict() | {"device": device, "libraries": libraries}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file whole or not at all, whatever stops this process meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    # a list of numbers on one line: a curve is a line of the file
    text = re.sub(r"\[[^][{}\"]*\]", lambda found: " ".join(found[0].split()), text)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that this module wrote.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is cut short, is not a result, or has another format.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path} is not a whole JSON file (it breaks off or is damaged at line "
            f"{error.lineno}); delete it and run the experiment again."
        ) from error
    if not isinstance(content, dict) or "format" not in content:
        raise ValueError(f"{path} is JSON, but not a result of pe_lab.lab.")
    if content["format"] != FORMAT:
        raise ValueError(
            f"{path} has format {content['format']!r}, this version reads {FORMAT}; "
            "use the version of pe_lab that wrote it, or run the experiment again."
        )
    return content


def write_run(path: Path, experiment: str, run: Run) -> None:
    """Store one run."""
    write_json(path, {"format": FORMAT, "experiment": experiment, "run": asdict(run)})


def run_from(content: dict[str, Any]) -> Run:
    """A run from its JSON form."""
    curves = {name: Curve(**curve) for name, curve in content["curves"].items()}
    found = content.get("profiles", {}).items()
    profiles = {name: Profile(**profile) for name, profile in found}
    return Run(**{**content, "curves": curves, "profiles": profiles})


def read_run(path: Path) -> Run:
    """Read one run; the errors are those of `read_json`."""
    return run_from(_entry(read_json(path), "run", path))


def write_result(path: Path, result: Result) -> None:
    """Store a result."""
    runs = [asdict(run) for run in result.runs]
    head = {"format": FORMAT, "experiment": result.experiment, "mode": result.mode}
    write_json(path, {**head, "runs": runs})


def read_result(path: Path) -> Result:
    """Read a result that `run` stored.

    Args:
        path: of the file.

    Returns:
        all runs in it.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is cut short, is not a result, or has another format.

    Example:
        >>> stored = pe_lab.lab.results.SHIPPED / "sqrt-d.json"
        >>> pe_lab.lab.read_result(stored).experiment
        'sqrt-d'
    """
    content = read_json(path)
    runs = tuple(run_from(run) for run in _entry(content, "runs", path))
    return Result(content["experiment"], content["mode"], runs)


def _entry(content: dict[str, Any], key: str, path: Path) -> Any:
    """One entry of a file, or an error that says what the file lacks."""
    if key not in content:
        raise ValueError(f"{path} lacks the entry {key!r}; run the experiment again.")
    return content[key]


def load(name: str) -> Result:
    """A result that comes with the package.

    Args:
        name: of the experiment, such as `sqrt-d`.

    Returns:
        All runs of the full experiment, with their provenance.

    Raises:
        ValueError: for another name; the message lists the shipped results.

    Example:
        >>> result = pe_lab.lab.load("stall")
        >>> loss = result.final("fixed-abc/none", "held_out_loss")  # of three seeds
        >>> bool((loss < 0.01).all())  # the trap: solved without any position
        True
    """
    path = SHIPPED / f"{name}.json"
    if not path.exists():
        names = ", ".join(shipped())
        raise ValueError(f"no shipped result is called {name!r}; there are: {names}.")
    return read_result(path)
