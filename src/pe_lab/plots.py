"""One visual style for every figure of the book (colours: Okabe and Ito 2008).

Every function returns a `BookFigure`: closed, known to no global registry, drawn in
the book's style whatever rcParams say, shown as PNG when it is a cell's last value.
Tensors, arrays and lists are all accepted. Text in figures is English or symbols.

A colour means one thing (`PALETTE`): blue is a query, vermilion a key, grey content,
green position. In heat maps purple is positive, brown negative, white zero.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch

try:
    import matplotlib as mpl
    import matplotlib.style
    from cycler import cycler
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex, to_rgb
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter, MaxNLocator
except ImportError as error:
    raise ImportError(
        f"pe_lab.plots needs matplotlib, which cannot be imported ({error}). "
        'Install it with: pip install "pe-lab[book]"'
    ) from error

PALETTE = {
    "query": "#0072B2",
    "key": "#D55E00",
    "content": "#595959",
    "position": "#009E73",
    "value": "#CC79A7",
    "highlight": "#E69F00",
    "other": "#56B4E9",
}
INK, SOFT, GRID = "#1F1F1F", "#595959", "#E3E3E3"
# Series that are neither query, key, content nor position use the rest first.
CYCLE = ("position", "highlight", "value", "other", "content", "query", "key")

_PURPLE = ("#FFFFFF", "#D8D2E9", "#A497C9", "#70509F", "#3B0F6B")
_BROWN = ("#6B3A00", "#B0660F", "#DFA255", "#F6DCB4", "#FFFFFF")
# The luminance on which black and white are equally legible, at a contrast of 4.6:
# (L + 0.05) / 0.05 = 1.05 / (L + 0.05).
EVEN = math.sqrt(1.05 * 0.05) - 0.05
MASKED = "#C9C9C9"  # nan, and masked scores (-inf)


def _colormap(name: str, colors: Sequence[str]) -> Colormap:
    """A map through evenly spaced colours; the number of levels is odd: zero is one."""
    colormap = LinearSegmentedColormap.from_list(name, colors, N=257)
    return colormap.with_extremes(bad=MASKED)


SEQUENTIAL = _colormap("pe_sequential", _PURPLE)
DIVERGING = _colormap("pe_diverging", (*_BROWN, *_PURPLE[1:]))

WIDTH = 6.8  # inches; 1020 pixels, over the 52rem column, scaled down to fit
DPI = 150
STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#8A8A8A",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.prop_cycle": cycler(color=[PALETTE[name] for name in CYCLE]),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.dpi": DPI,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": 11,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "savefig.dpi": "figure",
    "svg.hashsalt": "pe-lab",  # ids that are the same in every run
    "text.color": INK,
    "xtick.color": "#8A8A8A",
    "xtick.labelcolor": "#3A3A3A",
    "xtick.labelsize": 10.5,
    "ytick.color": "#8A8A8A",
    "ytick.labelcolor": "#3A3A3A",
    "ytick.labelsize": 10.5,
}


def style() -> AbstractContextManager[None]:
    """The book's style as a context: matplotlib's defaults, then `STYLE`.

    Returns:
        a context manager; what is drawn within it looks like the book.

    Example:
        >>> with pe_lab.plots.style():
        ...     figure = pe_lab.plots.lines([0, 1], {"query": [2, 3]})
        >>> figure
        <BookFigure with 1 panel>
    """
    context: AbstractContextManager[None] = mpl.style.context(["default", STYLE])
    return context


class BookFigure(Figure):
    """A figure outside pyplot that draws itself in the book's style, as PNG.

    Example:
        >>> figure = pe_lab.plots.heatmaps([torch.eye(2), torch.eye(2)])
        >>> figure
        <BookFigure with 2 panels>
        >>> figure.png()[1:4]
        b'PNG'
    """

    def draw(self, renderer: Any) -> None:
        """Draw under the book's style: some of it is read only now."""
        with style():
            super().draw(renderer)

    def png(self) -> bytes:
        """The figure as a PNG file, cut to its content.

        Returns:
            the file's bytes.
        """
        stream = io.BytesIO()
        with style():
            self.savefig(stream, format="png", dpi=DPI, bbox_inches="tight")
        return stream.getvalue()

    def svg(self) -> bytes:
        """The figure as an SVG file, cut to its content; made alike, the same bytes.

        Returns:
            the file's bytes.
        """
        stream = io.BytesIO()
        undated: dict[str, Any] = {"Date": None}
        with style():
            self.savefig(stream, format="svg", bbox_inches="tight", metadata=undated)
        return stream.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def __repr__(self) -> str:
        # The text beside the picture is stored with a chapter: nothing in it may vary.
        panels = sum(ax.get_label() != "<colorbar>" for ax in self.axes)
        return f"<BookFigure with {panels} panel{'s' * (panels != 1)}>"


@contextmanager
def figure(
    ncols: int = 1,
    nrows: int = 1,
    *,
    size: tuple[float, float] | None = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    **subplots: Any,
) -> Iterator[tuple[BookFigure, Any]]:
    """A figure to draw on with matplotlib's own methods, in the book's style.

    Args:
        ncols, nrows: the number of panels.
        size: width and height in inches. The default is the width of the text.
        title, xlabel, ylabel: for a single panel.
        subplots: passed on to `Figure.subplots`, for example sharey=True.

    Yields:
        (figure, axes): one Axes, or a flat list of them, row by row.

    Example:
        >>> with pe_lab.plots.figure(xlabel="position") as (fig, ax):
        ...     curves = ax.plot(pe_lab.sinusoidal(16, 4))
        >>> fig, len(curves)
        (<BookFigure with 1 panel>, 4)
    """
    with style():
        fig = BookFigure(figsize=size or (WIDTH, 3.6 * nrows + 0.2))
        FigureCanvasAgg(fig)
        axes = np.atleast_1d(fig.subplots(nrows, ncols, **subplots)).ravel().tolist()
        for ax in axes:
            ax.grid(axis="x", visible=False)
        if len(axes) == 1:
            _dress(axes[0], title, xlabel, ylabel)
        yield fig, axes[0] if len(axes) == 1 else axes


def color(name: str) -> str:
    """The colour of a role of `PALETTE`; any other colour is returned as it is.

    Args:
        name: a role, such as "query", or a colour of matplotlib's.

    Returns:
        what matplotlib takes as a colour.

    Example:
        >>> pe_lab.plots.color("query"), pe_lab.plots.color("black")
        ('#0072B2', 'black')
    """
    return PALETTE.get(name, name)


def heatmap(
    matrix: Any,
    *,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    scale: str = "",
    xticks: Sequence[object] | None = None,
    yticks: Sequence[object] | None = None,
    limit: float | None = None,
    annotate: bool = False,
    decimals: int = 2,
    size: tuple[float, float] | None = None,
) -> BookFigure:
    """A matrix as colours: row 0 on top, zero white, the scale symmetric about it.

    Args:
        matrix: (rows, columns). nan and infinite entries are grey.
        title, xlabel, ylabel, scale: text; `scale` stands at the colour bar.
        xticks, yticks: one label for each column, row. Default: their numbers.
        limit: colours span -limit to limit (0 to limit for a matrix without negative
            entries). Default: the largest magnitude.
        annotate: write the numbers into the cells, with this many `decimals`.
        size: width and height in inches. Default: from the shape of the matrix.

    Returns:
        the figure.

    Raises:
        ValueError: if the matrix is not two-dimensional, is empty, or has other numbers
            of rows and columns than there are labels.

    Example:
        >>> table = pe_lab.sinusoidal(16, 8)
        >>> pe_lab.plots.heatmap(table, xlabel="channel", ylabel="position")
        <BookFigure with 1 panel>
    """
    return heatmaps(
        [matrix],
        titles=[title],
        xlabel=xlabel,
        ylabel=ylabel,
        scale=scale,
        xticks=xticks,
        yticks=yticks,
        limit=limit,
        annotate=annotate,
        decimals=decimals,
        size=size,
    )


def heatmaps(
    matrices: Sequence[Any],
    *,
    titles: Sequence[str] = (),
    xlabel: str = "",
    ylabel: str = "",
    scale: str = "",
    xticks: Sequence[object] | None = None,
    yticks: Sequence[object] | None = None,
    limit: float | None = None,
    annotate: bool = False,
    decimals: int = 2,
    columns: int = 3,
    size: tuple[float, float] | None = None,
) -> BookFigure:
    """Matrices side by side in one colour scale. Arguments as in `heatmap`.

    Args:
        matrices: equal shapes, or different ones when no tick labels are given.
        titles: one for each matrix, or none.
        columns: panels in a row, at most.

    Returns:
        the figure.

    Raises:
        ValueError: as for `heatmap`, if there is no matrix, or if there are other
            numbers of titles than of matrices.

    Example:
        >>> orders = ["interleaved", "halves"]
        >>> tables = [pe_lab.sinusoidal(16, 8, order=order) for order in orders]
        >>> pe_lab.plots.heatmaps(tables, titles=orders)
        <BookFigure with 2 panels>
    """
    tables = [_matrix(matrix, f"matrices[{n}]") for n, matrix in enumerate(matrices)]
    _need(len(tables) > 0, "matrices is empty; give at least one.")
    titles = _one_each(titles, len(tables), "titles", "matrix") or [""] * len(tables)
    low, high = _limits(tables, limit)
    across = min(columns, len(tables))
    down = math.ceil(len(tables) / across)
    size = size or _heatmap_size(tables[0].shape, across, down)
    room = (size[0] - 1.0) / across * 72 / 6.6  # characters along the x axis
    with figure(across, down, size=size) as (fig, axes):
        fig.set_layout_engine("compressed")  # square cells leave no gaps
        panels: list[Axes] = axes if isinstance(axes, list) else [axes]
        for ax, table, title in zip(panels, tables, titles, strict=False):
            _draw_matrix(ax, table, low, high, xticks, yticks, room)
            _dress(ax, title, xlabel, ylabel if ax in panels[::across] else "")
            if annotate:
                _annotate(ax, table, (low, high), decimals)
        for ax in panels[len(tables) :]:
            ax.set_visible(False)
        if len({table.shape for table in tables}) == 1:
            for ax in set(panels) - set(panels[::across]):
                ax.tick_params(axis="y", labelleft=False)
        _colorbar(fig, panels, low, high, scale)
    return fig


def lines(
    x: Any,
    series: Mapping[str, Any],
    *,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    bands: Mapping[str, tuple[Any, Any]] | None = None,
    colors: Mapping[str, str] | str | None = None,
    dashed: Sequence[str] = (),
    markers: bool = False,
    xlog: bool = False,
    ylog: bool = False,
    ylim: tuple[float, float] | None = None,
    size: tuple[float, float] | None = None,
) -> BookFigure:
    """Curves over one axis, each labelled at its right end.

    Args:
        x: (n,) values of the horizontal axis; or label to (n,), where series were
            measured at places of their own.
        series: label to (n,) values; nan leaves a gap. A label that is a role of
            `PALETTE` ("query") has its colour.
        bands: label to (low, high), each (n,): a shaded spread around a series.
        colors: label to a role or colour; or "shades", for a family in order, dark
            to light.
        dashed: labels of series drawn dashed.
        markers: mark the points, for few and measured ones.
        xlog, ylog: logarithmic axes.

    Returns:
        the figure.

    Raises:
        ValueError: if lengths differ, nothing is given, or a logarithmic axis has no
            positive value.

    Example:
        >>> offsets = torch.arange(32)
        >>> series = {str(d): pe_lab.position_kernel(offsets, d) for d in (8, 64)}
        >>> pe_lab.plots.lines(offsets, series, xlabel="Δ", ylabel="K(Δ)")
        <BookFigure with 1 panel>
    """
    across = _places(x, series)
    curves = {
        label: _vector(y, f"series[{label!r}]", len(across[label]))
        for label, y in series.items()
    }
    _need(len(curves) > 0, "series is empty; give at least one label and its values.")
    paint, dots = _colors(curves, colors), "o" * markers
    with figure(size=size, title=title, xlabel=xlabel, ylabel=ylabel) as (fig, ax):
        _log_axes(ax, xlog and [*across.values()], ylog and [*curves.values()])
        for label, y in curves.items():
            dash = "--" if label in dashed else "-"
            ax.plot(
                across[label], y, dash, color=paint[label], label=label, marker=dots
            )
        for label, band in (bands or {}).items():
            _need(label in curves, f"bands has {label!r}, which series has not.")
            _shade(ax, label, across[label], band, paint[label])
        ax.margins(x=0.02 if markers else 0)
        if ylim is not None:
            ax.set_ylim(*ylim)
        if isinstance(x, Mapping):
            _lead_to_edge(ax)
        label_ends(ax)
    return fig


def plain_ticks(ax: Axes) -> None:
    """Write the ticks of logarithmic axes as plain numbers: 0.5, not 5 × 10⁻¹.

    Args:
        ax: the axes; those of its axes that are linear stay as they are.

    Example:
        >>> figure = pe_lab.plots.lines([1, 2], {"loss": [0.2, 0.8]}, ylog=True)
        >>> pe_lab.plots.plain_ticks(figure.axes[0])
        >>> {t.get_text() for t in figure.axes[0].get_yticklabels(minor=True)} - {""}
        {...'0.2'...}
    """
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(_PlainLog())
            axis.set_minor_formatter(_PlainLog(labelOnlyBase=False))


class _PlainLog(LogFormatter):
    """The ticks that matplotlib would label on a logarithmic axis, without powers."""

    def __call__(self, value: float, pos: int | None = None) -> str:
        return f"{value:g}" if super().__call__(value, pos) else ""


def label_ends(ax: Axes) -> None:
    """Write each line's label at its right end, moved apart where two would touch.

    For an axes from `figure`: lines whose label is empty or starts with "_" are left
    out. The axes become lower than they were only if there is no room for all.

    Args:
        ax: the axes, with the lines that are to be labelled.

    Raises:
        ValueError: if the axes are not from `figure`.

    Example:
        >>> with pe_lab.plots.figure() as (fig, ax):
        ...     _ = ax.plot([0, 1], [1, 0], label="key")
        ...     pe_lab.plots.label_ends(ax)
        >>> [text.get_text() for text in ax.texts]
        ['key']
    """
    fig = _figure_of(ax)
    lines_named = [line for line in ax.lines if str(line.get_label())[:1] not in "_"]
    ends = [(_end_height(ax, line), line) for line in lines_named]
    ends = sorted((e for e in ends if e[0] >= 0), key=lambda end: end[0])
    texts = [
        ax.text(
            1.025,
            0.5,
            str(line.get_label()),
            transform=ax.transAxes,
            color=readable(line.get_color()),
            va="center",
            gid="label",
        )
        for _, line in ends
    ]
    fig.draw_without_rendering()
    _place(ax, [end for end, _ in ends], texts)


def bars(
    labels: Sequence[object],
    values: Any,
    *,
    errors: Any = None,
    title: str = "",
    xlabel: str = "",
    colors: Sequence[str] | str = "position",
    decimals: int = 2,
    xlog: bool = False,
    size: tuple[float, float] | None = None,
) -> BookFigure:
    """Horizontal bars, the first on top, each with its value at the end.

    Args:
        labels, values: one each per bar.
        errors: half-lengths of error bars, one per bar, such as standard deviations.
        colors: a role or colour for all, or one per bar.
        decimals: of the values that are written.

    Returns:
        the figure.

    Raises:
        ValueError: if the counts differ or a logarithmic axis has no positive value.

    Example:
        >>> slopes = pe_lab.alibi_slopes(8)
        >>> pe_lab.plots.bars(range(8), slopes, xlabel="slope", decimals=4)
        <BookFigure with 1 panel>
    """
    lengths = _vector(values, "values")
    names = _one_each(labels, len(lengths), "labels", "value")
    spread = None if errors is None else _vector(errors, "errors", len(lengths))
    paint = [colors] * len(lengths) if isinstance(colors, str) else list(colors)
    _need(
        len(paint) == len(lengths),
        f"colors has {len(paint)} entries for {len(lengths)} bars; give one each.",
    )
    size = size or (WIDTH, 0.42 * len(lengths) + 1.1)
    with figure(size=size, title=title, xlabel=xlabel) as (fig, ax):
        _log_axes(ax, xlog and [lengths], False)
        rows = np.arange(len(lengths))
        ax.barh(rows, lengths, 0.66, color=[color(name) for name in paint])
        if spread is not None:
            ax.errorbar(lengths, rows, xerr=spread, fmt="none", ecolor=INK, capsize=3)
        ax.set_yticks(rows, [str(name) for name in names])
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.grid(axis="x", visible=True)
        _write_values(ax, lengths, spread, decimals)
    return fig


def histogram(
    values: Any,
    *,
    bins: int = 40,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "count",
    colors: Mapping[str, str] | None = None,
    size: tuple[float, float] | None = None,
) -> BookFigure:
    """How often values occur: one set of them, or a few by label over the same bins.

    Args:
        values: numbers, or label to numbers.

    Returns:
        the figure.

    Raises:
        ValueError: if there are none, or one is not finite.

    Example:
        >>> pe_lab.plots.histogram({"content": torch.randn(99), "position": [0.5, 1]})
        <BookFigure with 1 panel>
    """
    named = values if isinstance(values, Mapping) else {"": values}
    sets = {label: _finite(v, label or "values") for label, v in named.items()}
    _need(len(sets) > 0, "values is empty; give numbers.")
    paint = _colors(sets, colors)
    edges = np.histogram_bin_edges(np.concatenate(list(sets.values())), bins)
    with figure(size=size, title=title, xlabel=xlabel, ylabel=ylabel) as (fig, ax):
        for label, numbers in sets.items():
            counts, _ = np.histogram(numbers, edges)
            ax.stairs(counts, edges, fill=True, color=paint[label], alpha=0.35)
            ax.stairs(counts, edges, color=paint[label], lw=1.6)
            if label:
                _label_peak(ax, label, counts, edges, paint[label])
        ax.set_ylim(bottom=0)
        ax.margins(y=0.16)
    return fig


def clocks(
    angles: Any,
    *,
    labels: Sequence[object] | None = None,
    rows: Sequence[object] | None = None,
    title: str = "",
    color: str = "position",
) -> BookFigure:
    """Dials with one hand each, at (x, y) = (sin, cos): up at angle 0, then clockwise.

    Args:
        angles: (clocks,) or (rows, clocks), in radians.
        labels: one for each clock of a row, written above the first row.
        rows: one for each row, written at its left.

    Returns:
        the figure.

    Raises:
        ValueError: if there are no angles, more than two axes, or other numbers of
            labels than of clocks or rows.

    Example:
        >>> angles = torch.arange(3.0)[:, None] * pe_lab.inv_freq(8)
        >>> pe_lab.plots.clocks(angles, rows=["p = 0", "p = 1", "p = 2"])
        <BookFigure with 1 panel>
    """
    table = np.atleast_2d(_array(angles, "angles"))
    _matrix(table, "angles")
    down, across = table.shape
    tops = _one_each(labels or (), across, "labels", "clock")
    sides = _one_each(rows or (), down, "rows", "row")
    cell = min(1.25, (WIDTH - 0.9 * bool(sides)) / across)
    size = (cell * across + 0.9 * bool(sides), cell * down + 0.3 * bool(tops) + 0.45)
    with figure(size=size) as (fig, ax):
        ax.set(xlim=(-0.5, across - 0.5), ylim=(down - 0.5, -0.5), aspect="equal")
        ax.axis("off")
        ax.set_title(title, pad=26 if tops else 9)
        for (row, column), angle in np.ndenumerate(table):
            _dial(ax, column, row, float(angle), color)
        for column, text in enumerate(tops):
            ax.text(column, -0.52, str(text), ha="center", va="bottom")
        for row, text in enumerate(sides):
            ax.text(-0.56, row, str(text), ha="right", va="center")
    return fig


def vectors(
    arrows: Mapping[str, Any],
    *,
    title: str = "",
    colors: Mapping[str, str] | None = None,
    circle: bool = False,
    xlabel: str = "",
    ylabel: str = "",
    size: tuple[float, float] | None = None,
) -> BookFigure:
    """Arrows from the origin of a plane, each labelled at its tip.

    Args:
        arrows: label to (2,) coordinates (x, y).
        circle: draw the unit circle.

    Returns:
        the figure.

    Raises:
        ValueError: if there are none, or one has not two coordinates.

    Example:
        >>> pe_lab.plots.vectors({"query": (0.6, 0.8), "key": (1, 0)}, circle=True)
        <BookFigure with 1 panel>
    """
    tips = {label: _vector(v, f"arrows[{label!r}]", 2) for label, v in arrows.items()}
    _need(len(tips) > 0, "arrows is empty; give at least one label and its (x, y).")
    paint = _colors(tips, colors)
    reach = 1.25 * max(
        [float(circle), *(float(np.abs(t).max()) for t in tips.values())]
    )
    size = size or (4.6, 4.4)
    with figure(size=size, title=title, xlabel=xlabel, ylabel=ylabel) as (fig, ax):
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        ax.grid(visible=True)
        ax.axhline(0, color="#BDBDBD", lw=1)
        ax.axvline(0, color="#BDBDBD", lw=1)
        if circle:
            turn = np.linspace(0, 2 * np.pi, 181)
            ax.plot(np.cos(turn), np.sin(turn), color="#BDBDBD", lw=1.2)
        for label, tip in tips.items():
            _arrow(ax, label, tip, paint[label])
    return fig


def scatter(
    x: Any,
    y: Any,
    *,
    labels: Sequence[object] | None = None,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    color: str = "position",
    size: tuple[float, float] | None = None,
) -> BookFigure:
    """Points of a plane, with a label each if given.

    Args:
        x, y: (n,) coordinates.
        labels: one per point.

    Returns:
        the figure.

    Raises:
        ValueError: if lengths differ, or there are other numbers of labels.

    Example:
        >>> pe_lab.plots.scatter([0, 1, 2], [1, 0, 1], labels="abc")
        <BookFigure with 1 panel>
    """
    across = _vector(x, "x")
    up = _vector(y, "y", len(across))
    names = _one_each(labels or (), len(across), "labels", "point")
    with figure(size=size, title=title, xlabel=xlabel, ylabel=ylabel) as (fig, ax):
        face = PALETTE.get(color, color)
        ax.scatter(across, up, s=34, color=face, alpha=0.85, lw=0)
        for left, height, name in zip(across, up, names, strict=False):
            ax.annotate(str(name), (left, height), (5, 4), textcoords="offset points")
        ax.grid(axis="x", visible=True)
    return fig


# Input


def _need(condition: bool, sentence: str) -> None:
    """Refuse bad input with a sentence."""
    if not condition:
        raise ValueError(sentence)


def _array(values: Any, name: str) -> np.ndarray:
    """Any tensor, array or list of real numbers as float64."""
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        kind = type(values).__name__
        raise ValueError(
            f"{name} cannot be read as real numbers ({kind}); give a tensor, an array "
            "or a list with rows of equal length."
        ) from None
    _need(array.size > 0, f"{name} has shape {array.shape}: empty; nothing to draw.")
    return array


def _vector(values: Any, name: str, length: int | None = None) -> np.ndarray:
    """A (length,) array with at least one finite value."""
    array = _array(values, name)
    _need(
        array.ndim == 1,
        f"{name} has shape {array.shape}; one axis is needed: take a row of it.",
    )
    _need(
        length is None or len(array) == length,
        f"{name} has {len(array)} values where {length} are needed.",
    )
    _need(bool(np.isfinite(array).any()), f"{name} has no finite value to draw.")
    return array


def _places(x: Any, series: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The horizontal values of each series: one for all, or its own."""
    if not isinstance(x, Mapping):
        return dict.fromkeys(series, _vector(x, "x"))
    lacking = [label for label in series if label not in x]
    _need(not lacking, f"x has no values for {lacking}; give one axis, or one each.")
    return {label: _vector(x[label], f"x[{label!r}]") for label in series}


def _finite(values: Any, name: str) -> np.ndarray:
    """All values of an array, flat, each of them finite."""
    array = _array(values, name).ravel()
    bad = int((~np.isfinite(array)).sum())
    _need(bad == 0, f"{name} has {bad} values that are nan or infinite; drop them.")
    return array


def _matrix(values: Any, name: str) -> np.ndarray:
    """A (rows, columns) array with at least one finite value."""
    array = _array(values, name)
    _need(
        array.ndim == 2,
        f"{name} has shape {array.shape}; (rows, columns) is needed: index or squeeze "
        "the other axes away.",
    )
    _need(bool(np.isfinite(array).any()), f"{name} has no finite value to draw.")
    return array


def _one_each(
    texts: Sequence[object], count: int, name: str, thing: str
) -> Sequence[Any]:
    """`texts` if empty or one for each of `count` things."""
    _need(
        len(texts) in (0, count),
        f"{name} has {len(texts)} entries for {count}; give one per {thing}, or none.",
    )
    return texts


def _colors(
    labels: Mapping[str, Any], colors: Mapping[str, str] | str | None
) -> dict[str, str]:
    """A colour for each label: the one given, that of its role, or the next free."""
    if colors == "shades" or (colors is None and len(labels) > len(CYCLE)):
        shades = SEQUENTIAL(np.linspace(1.0, 0.32, len(labels)))
        return dict(zip(labels, map(to_hex, shades), strict=True))
    if isinstance(colors, str):
        raise ValueError(f'colors is {colors!r}; the only word for it is "shades".')
    given = dict(colors or {})
    unknown = [label for label in given if label not in labels]
    _need(not unknown, f"colors has {unknown}, none of {list(labels)}.")
    taken = {given.get(label, label) for label in labels}
    free = [name for name in CYCLE if name not in taken] or list(CYCLE)
    out, n = {}, 0
    for label in labels:
        if label in given or label in PALETTE:
            out[label] = color(given.get(label, label))
        else:
            out[label], n = PALETTE[free[n % len(free)]], n + 1
    return out


# Drawing


def _figure_of(ax: Axes) -> BookFigure:
    """The figure that an axes stands in."""
    fig = ax.get_figure(root=True)
    if not isinstance(fig, BookFigure):
        raise ValueError("These axes are not from plots.figure; make them there.")
    return fig


def _dress(ax: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Title and axis labels."""
    if title:
        ax.set_title(title)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)


def _log_axes(ax: Axes, xs: Any, ys: Any) -> None:
    """Make the axes with data logarithmic, if the data are positive somewhere."""
    for name, data in (("x", xs), ("y", ys)):
        if not data:
            continue
        for values in data:
            _need(
                bool((values > 0).any()),
                f"{name}log needs positive values; the largest is {values.max():.4g}.",
            )
        ax.set(**{f"{name}scale": "log"})


def _limits(tables: Sequence[np.ndarray], limit: float | None) -> tuple[float, float]:
    """Colour limits: (-limit, limit), or (0, limit) where nothing is negative."""
    finite = np.concatenate([table[np.isfinite(table)] for table in tables])
    if limit is None:
        limit = float(np.abs(finite).max()) or 1.0
    _need(
        math.isfinite(limit) and limit > 0,
        f"limit is {limit}; a positive number is needed.",
    )
    return (-limit if finite.min() < 0 else 0.0), float(limit)


def _heatmap_size(
    shape: tuple[int, ...], across: int, down: int
) -> tuple[float, float]:
    """Inches for a grid of panels that keeps cells square where that is sensible."""
    rows, columns = shape
    width = (WIDTH - 1.0) / across - 0.35
    ratio = rows / columns if _square(shape) else 0.62
    height = min(width * ratio, 4.6)
    if _square(shape):
        width = height / ratio
    return (width + 0.35) * across + 1.0, (height + 0.75) * down + 0.15


def _square(shape: tuple[int, ...]) -> bool:
    """True when square cells make a panel of reasonable proportions."""
    return 0.25 <= shape[0] / shape[1] <= 2.5


def _draw_matrix(
    ax: Axes,
    table: np.ndarray,
    low: float,
    high: float,
    xticks: Sequence[object] | None,
    yticks: Sequence[object] | None,
    room: float,
) -> None:
    """One panel of a heat map with its ticks."""
    shown = np.ma.masked_invalid(table)
    ax.imshow(
        shown,
        cmap=DIVERGING if low < 0 else SEQUENTIAL,
        vmin=low,
        vmax=high,
        aspect="equal" if _square(table.shape) else "auto",
    )
    ax.grid(visible=False)
    ax.spines[:].set(visible=True, color="#CFCFCF")
    rows, columns = table.shape
    most = min(8.0, room / (len(str(columns - 1)) + 1.5))
    _label_axis(ax.xaxis, xticks, columns, most, "xticks", "column")
    _label_axis(ax.yaxis, yticks, rows, 8.0, "yticks", "row")
    if xticks is not None and max(len(str(text)) for text in xticks) * columns > 45:
        ax.tick_params(axis="x", labelrotation=90)
    if max(rows, columns) <= 16:
        ax.set_xticks(np.arange(1, columns) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, rows) - 0.5, minor=True)
        ax.grid(which="minor", color="white", lw=1.2, visible=True)
        ax.tick_params(which="minor", length=0)


def _label_axis(
    axis: Any,
    texts: Sequence[object] | None,
    count: int,
    most: float,
    name: str,
    thing: str,
) -> None:
    """Tick labels of one axis of a heat map: those given, or at most `most` numbers."""
    axis.set_tick_params(length=0 if count <= 16 else 3)
    if texts is None:
        step = 2 ** max(0, math.ceil(math.log2(count / most)))
        axis.set_ticks(np.arange(0, count, step))
        return
    _one_each(texts, count, name, thing)
    if len(texts) > 0:
        axis.set_ticks(np.arange(count), [str(text) for text in texts])


def _annotate(
    ax: Axes, table: np.ndarray, limits: tuple[float, float], decimals: int
) -> None:
    """Write the numbers into the cells, in white where the cell is dark."""
    texts = {index: _number(value, decimals) for index, value in np.ndenumerate(table)}
    fig = _figure_of(ax)
    fig.draw_without_rendering()
    cell = ax.get_window_extent().width / table.shape[1] * 72 / fig.dpi
    size = min(10.5, cell / (0.68 * max(map(len, texts.values()))))
    _need(
        size >= 6,
        f"{table.shape[1]} columns leave no room to write {decimals} decimals; leave "
        "annotate out, or show fewer columns or decimals.",
    )
    low, high = limits
    colors = DIVERGING if low < 0 else SEQUENTIAL
    for (row, column), text in texts.items():
        shade = (table[row, column] - low) / (high - low)
        face = colors(float(np.clip(shade, 0, 1)))
        dark = np.isfinite(shade) and _luminance(face) < EVEN
        ink = "white" if dark else "black"
        ax.text(column, row, text, ha="center", va="center", color=ink, size=size)


def _number(value: float, decimals: int) -> str:
    """A number with a true minus sign, and no minus before zero."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "")
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def _colorbar(
    fig: BookFigure, axes: Sequence[Axes], low: float, high: float, scale: str
) -> None:
    """One colour bar for all panels."""
    image = axes[0].images[0]
    bar = fig.colorbar(image, ax=list(axes), aspect=28, pad=0.025, fraction=0.05)
    bar.outline.set_visible(False)
    ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    inside = [tick for tick in ticks if low - 1e-9 <= tick <= high + 1e-9]
    bar.set_ticks(inside, labels=[_short(tick) for tick in inside])
    bar.ax.tick_params(length=0)
    if scale:
        bar.set_label(scale)


def _short(value: float) -> str:
    """A number of three digits with a true minus sign."""
    return f"{value + 0.0:.3g}".replace("-", "−")


def _end_height(ax: Axes, line: Any) -> float:
    """Where a line ends, as a fraction of the height of its axes; -1 if nowhere."""
    data = np.asarray(line.get_ydata(), dtype=float)
    data = data[np.isfinite(data)]
    data = data[data > 0] if ax.get_yscale() == "log" else data
    if not len(data):
        return -1.0
    _, pixel = ax.transData.transform((ax.get_xlim()[1], data[-1]))
    height: float = ax.transAxes.inverted().transform((0, pixel))[1]
    return min(max(height, 0.0), 1.0)


def _shade(
    ax: Axes, label: str, at: np.ndarray, band: tuple[Any, Any], paint: str
) -> None:
    """The spread around a series."""
    low, high = (_vector(edge, f"bands[{label!r}]", len(at)) for edge in band)
    ax.fill_between(at, low, high, color=paint, alpha=0.2, lw=0)


def _lead_to_edge(ax: Axes) -> None:
    """Dots, level, from each line that ends early to where its label stands."""
    left, right = ax.get_xlim()
    for line in list(ax.lines):
        x, y = (np.asarray(data, dtype=float) for data in line.get_data())
        known = np.isfinite(y)
        ends, level = [x[known][-1], right], [y[known][-1]] * 2
        (first, _), (last, _) = ax.transData.transform(np.transpose([ends, level]))
        if last - first > 0.05 * ax.bbox.width:
            paint = line.get_color()
            ax.plot(ends, level, ":", color=paint, lw=1, alpha=0.7, label="_leader")
    ax.set_xlim(left, right)


def _place(ax: Axes, ends: Sequence[float], texts: Sequence[Any]) -> None:
    """Move labels to their lines' ends, apart from each other, with leaders."""
    if not texts:
        return
    fig = _figure_of(ax)
    box = ax.get_window_extent()
    gap = max(text.get_window_extent().height for text in texts) * 1.04 / box.height
    excess = gap * len(texts) - 1.05
    if excess > 0:
        width, height = fig.get_size_inches()
        fig.set_size_inches(width, height * (1 + excess + 0.05))
        fig.draw_without_rendering()
        gap *= box.height / ax.get_window_extent().height
    heights = spread(ends, gap)
    moved = any(abs(at - end) > gap / 3 for at, end in zip(heights, ends, strict=True))
    for end, at, text in zip(ends, heights, texts, strict=True):
        text.set_position((1.065 if moved else 1.025, at))
        if moved:  # all in one column, so that no leader crosses a label
            ax.plot(
                [1.005, 1.055],
                [end, at],
                transform=ax.transAxes,
                color=text.get_color(),
                lw=0.8,
                clip_on=False,
                label="_leader",
            )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The nearest heights, in the least-squares sense, that are `gap` apart.

    With z_i = y_i - i gap the condition is z_1 <= z_2 <= …: isotonic regression,
    solved by pooling neighbours that are out of order.

    Args:
        heights: ascending, within 0 to 1.
        gap: the least distance of two neighbours.

    Returns:
        as many heights, within 0 to 1 where there is room.

    Example:
        >>> pe_lab.plots.spread([0.25, 0.25], 0.5)
        [0.0, 0.5]
    """
    pools: list[list[float]] = []
    for n, height in enumerate(heights):
        pools.append([height - n * gap])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            last = pools.pop()
            pools[-1].extend(last)
    level = [float(np.mean(pool)) for pool in pools for _ in pool]
    top = max(0.0, 1.0 - gap * (len(level) - 1))
    return [min(max(z, 0.0), top) + n * gap for n, z in enumerate(level)]


def readable(name: Any) -> tuple[float, float, float]:
    """A colour darkened, where needed, to a contrast of 4.5 with white (WCAG AA).

    Args:
        name: a role of `PALETTE`, or a colour of matplotlib's.

    Returns:
        (red, green, blue), each within 0 to 1.

    Example:
        >>> pe_lab.plots.readable("black")
        (0.0, 0.0, 0.0)
        >>> sum(pe_lab.plots.readable("yellow")) < sum((1, 1, 0))
        True
    """
    red, green, blue = to_rgb(color(name) if isinstance(name, str) else name)
    for _ in range(100):
        if 1.05 / (_luminance((red, green, blue)) + 0.05) >= 4.5:
            break
        red, green, blue = 0.97 * red, 0.97 * green, 0.97 * blue
    return red, green, blue


def _luminance(rgb: Sequence[float]) -> float:
    """Relative luminance of an sRGB colour (WCAG 2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _write_values(
    ax: Axes, lengths: np.ndarray, errors: np.ndarray | None, decimals: int
) -> None:
    """The value of each bar behind its end."""
    for row, value in enumerate(lengths):
        tip = value + np.sign(value or 1) * (0 if errors is None else errors[row])
        right = value >= 0
        ax.annotate(
            _number(value, decimals),
            (tip, row),
            (5 if right else -5, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
        )
    ax.margins(x=0.14)


def _label_peak(
    ax: Axes, label: str, counts: np.ndarray, edges: np.ndarray, paint: str
) -> None:
    """A histogram's label above its highest bin."""
    top = int(counts.argmax())
    ax.annotate(
        label,
        ((edges[top] + edges[top + 1]) / 2, counts[top]),
        (0, 4),
        textcoords="offset points",
        ha="center",
        va="bottom",
        color=readable(paint),
    )


def _dial(ax: Axes, x: float, y: float, angle: float, paint: str) -> None:
    """A clock face of radius 0.42 with its hand; the axes' y runs downwards."""
    turn = np.linspace(0, 2 * np.pi, 121)
    ax.plot(x + 0.42 * np.sin(turn), y - 0.42 * np.cos(turn), color="#BDBDBD", lw=1.4)
    ax.plot([x, x], [y - 0.42, y - 0.36], color="#8A8A8A", lw=1.2)
    tip_x, tip_y = x + 0.36 * math.sin(angle), y - 0.36 * math.cos(angle)
    face = PALETTE.get(paint, paint)
    ax.plot([x, tip_x], [y, tip_y], color=face, lw=2.6)
    ax.plot([x], [y], "o", color=face, ms=4)


def _arrow(ax: Axes, label: str, tip: np.ndarray, paint: str) -> None:
    """One arrow from the origin with its label beyond the tip."""
    ax.annotate(
        "",
        tuple(tip),
        (0, 0),
        arrowprops={
            "arrowstyle": "-|>",
            "color": paint,
            "lw": 2,
            "shrinkA": 0,
            "shrinkB": 0,
        },
    )
    length = float(np.hypot(*tip)) or 1.0
    ax.annotate(
        label,
        tuple(tip),
        tuple(12 * tip / length),
        textcoords="offset points",
        ha="center",
        va="center",
        color=readable(paint),
    )
