"""Figures of results: a line for each variant, a band over its seeds.

`curves` shows how training went, `profiles` what the trained models do along an axis. A
line is the mean over seeds, its band reaches from the lowest seed to the highest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .results import Result

if TYPE_CHECKING:  # matplotlib is loaded with the first figure
    from pe_lab.plots import BookFigure

FEW = 12  # places that are measured one by one: marked, and each with its tick
LABELS = {
    "held_out_loss": "held-out loss, nats",
    "train_loss": "training loss, nats",
}


def curves(
    result: Result,
    metric: str = "held_out_loss",
    *,
    variants: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    xlabel: str = "updates",
    ylabel: str = "",
    **options: Any,
) -> BookFigure:
    """How training went: a quantity against the number of updates.

    Args:
        result: of `load`, `run` or `read_result`.
        metric: of the curves, `held_out_loss` or `train_loss` for example.
        variants: which ones, in this order; by default all that have the metric.
        names: variant to the label at its line; by default the variant's name.
        xlabel, ylabel: of the axes; by default what the metric means.
        options: more of `pe_lab.plots.lines`: `ylog=True`, `title`, `ylim`, `size`, and
            `colors` and `dashed`, which go by label.

    Returns:
        the figure; it says below the axis how many seeds a line is the mean of.

    Raises:
        ValueError: for a variant or metric that is not there, or two equal labels; the
            message lists what there is.
        ImportError: without matplotlib.

    Example:
        >>> result = pe_lab.lab.load("sqrt-d")
        >>> pe_lab.lab.figures.curves(result, variants=["right", "both"], ylog=True)
        <BookFigure with 1 panel>
    """
    options |= {"xlabel": xlabel, "ylabel": ylabel or LABELS.get(metric, metric)}
    return _draw(result, "curve", metric, variants, names, options)


def profiles(
    result: Result,
    metric: str,
    *,
    variants: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    xlabel: str = "length or position",
    ylabel: str = "",
    **options: Any,
) -> BookFigure:
    """What trained models do along an axis, such as length or position.

    Args:
        result, variants, names, options: as for `curves`.
        metric: of the profiles, `perplexity/plain` for example.
        xlabel, ylabel: of the axes; by default what is known of the metric.

    Returns:
        the figure; it says below the axis how many seeds a line is the mean of.

    Raises:
        ValueError, ImportError: as for `curves`.

    Example:
        >>> loss = pe_lab.lab.Profile(at=[32, 64], values=[1.75, 2.25])
        >>> run = pe_lab.lab.Run("rope", 0, {}, {}, {}, profiles={"loss": loss})
        >>> result = pe_lab.lab.Result("lengths", "quick", (run,))
        >>> pe_lab.lab.figures.profiles(result, "loss", xlabel="length", markers=True)
        <BookFigure with 1 panel>
    """
    options |= {"xlabel": xlabel, "ylabel": ylabel or LABELS.get(metric, metric)}
    places = _places(result, metric)
    few = len(places) <= FEW
    figure = _draw(
        result, "profile", metric, variants, names, {"markers": few} | options
    )
    if few:
        figure.axes[0].set_xticks(places, [str(place) for place in places], minor=False)
        figure.axes[0].xaxis.minorticks_off()
    return figure


def draw(
    result: Result,
    metric: str | None = None,
    *,
    variants: Sequence[str] | None = None,
    **options: Any,
) -> BookFigure:
    """A curve or a profile, whichever the metric is.

    Args:
        result, variants, options: as for `curves`.
        metric: by default `held_out_loss`, or else the first there is.

    Returns:
        the figure.

    Raises:
        ValueError, ImportError: as for `curves`.

    Example:
        >>> pe_lab.lab.figures.draw(pe_lab.lab.load("sqrt-d"))
        <BookFigure with 1 panel>
    """
    metric = metric or default_metric(result)
    if metric in result.metrics("profile"):
        return profiles(result, metric, variants=variants, **options)
    if metric in result.metrics("curve"):
        return curves(result, metric, variants=variants, **options)
    raise ValueError(
        f"{result.experiment} has no curve or profile {metric!r}; "
        f"curves: {', '.join(result.metrics('curve')) or 'none'}; "
        f"profiles: {', '.join(result.metrics('profile')) or 'none'}."
    )


def default_metric(result: Result) -> str:
    """The metric to look at first: the held-out loss, or else the first there is.

    Args:
        result: as for `curves`.

    Returns:
        the name of a curve or a profile.

    Raises:
        ValueError: if the result has neither.

    Example:
        >>> pe_lab.lab.figures.default_metric(pe_lab.lab.load("stall"))
        'held_out_loss'
    """
    found = [*result.metrics("curve"), *result.metrics("profile")]
    if not found:
        raise ValueError(
            f"{result.experiment} has no curve and no profile to draw; "
            f"pe_lab.lab.table shows its final values."
        )
    return "held_out_loss" if "held_out_loss" in found else found[0]


def save(figure: BookFigure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the ending of the file's name.

    Args:
        figure: of `curves` or `profiles`, or another of `pe_lab.plots`.
        path: ends in `.png` or `.svg`.

    Raises:
        ValueError: for another ending.

    Example:
        >>> figure = pe_lab.plots.lines([0, 1], {"loss": [2, 1]})
        >>> pe_lab.lab.figures.save(figure, "loss.pdf")
        Traceback (most recent call last):
        ValueError: loss.pdf ends in '.pdf'; .png or .svg is needed.
    """
    path = Path(path)
    formats = {".png": figure.png, ".svg": figure.svg}
    if path.suffix not in formats:
        raise ValueError(f"{path} ends in {path.suffix!r}; .png or .svg is needed.")
    path.write_bytes(formats[path.suffix]())


def _draw(
    result: Result,
    kind: str,
    metric: str,
    variants: Sequence[str] | None,
    names: Mapping[str, str] | None,
    options: dict[str, Any],
) -> BookFigure:
    """Lines and bands of one metric of some variants."""
    from pe_lab import plots

    chosen = result.having(kind, metric) if variants is None else list(variants)
    label_of = _labels(result, chosen, names or {})
    ask = result.curve if kind == "curve" else result.profile
    found = {label_of[variant]: ask(variant, metric) for variant in chosen}
    values = {label: value for label, (_, value) in found.items()}
    spread = {
        label: (value.min(axis=0), value.max(axis=0))
        for label, value in values.items()
        if len(value) > 1
    }
    note = _note([len(value) for value in values.values()])
    options["xlabel"] = f"{options['xlabel']}\n{note}"
    figure = plots.lines(
        {label: at for label, (at, _) in found.items()},
        {label: value.mean(axis=0) for label, value in values.items()},
        bands=spread,
        **_paint(list(found), plots.CYCLE) | options,
    )
    plots.plain_ticks(figure.axes[0])
    return figure


def _places(result: Result, metric: str) -> list[int]:
    """All places at which a profile was measured, in order."""
    result.having("profile", metric)  # refuses what is not there
    found = (run.profiles[metric] for run in result.runs if metric in run.profiles)
    return sorted({place for profile in found for place in profile.at})


def _labels(
    result: Result, chosen: Sequence[str], names: Mapping[str, str]
) -> dict[str, str]:
    """A label for each variant: different ones, and none for a variant unknown."""
    for variant in [*chosen, *names]:
        result.of(variant)  # refuses what is not there
    labels = {variant: names.get(variant, variant) for variant in chosen}
    twice = [n for n in labels.values() if list(labels.values()).count(n) > 1]
    if twice:
        raise ValueError(
            f"names calls two variants {twice[0]!r}; give every line a name of its own."
        )
    return labels


def _note(seeds: Sequence[int]) -> str:
    """What lines and bands are."""
    least, most = min(seeds), max(seeds)
    if most == 1:
        return "one seed each"
    count = str(most) if least == most else f"{least} to {most}"
    return f"mean of {count} seeds; band: lowest to highest"


def _paint(labels: Sequence[str], cycle: Sequence[str]) -> dict[str, Any]:
    """Colours for more lines than there are: round again, and dashed."""
    count = len(cycle)
    if len(labels) <= count:
        return {}
    colors = {label: cycle[n % count] for n, label in enumerate(labels)}
    return {
        "colors": colors,
        "dashed": [label for n, label in enumerate(labels) if n // count % 2],
    }
