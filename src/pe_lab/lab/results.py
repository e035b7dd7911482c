"""Results: what was run, what came out, and where it comes from.

A run is one variant with one seed; a result is all runs of one experiment. `store`
keeps them in files, `report` says and `figures` shows what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from pe_lab import refuse
from pe_lab.provenance import provenance

KINDS = {"final": "final", "curve": "curves", "profile": "profiles"}  # field of a run
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
