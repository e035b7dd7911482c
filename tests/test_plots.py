"""Figures share one style, leave no trace, and are legible; bad input is refused."""

import io
import math
import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from PIL import Image

from pe_lab import plots

MATRIX = torch.linspace(-1, 3, 24).reshape(4, 6)
STEPS = torch.arange(20)


def custom():
    with plots.figure(2, sharey=True) as (fig, axes):
        for ax in axes:
            ax.plot([1, 2, 3], label="query")
            plots.label_ends(ax)
    return fig


FIGURES = {
    "figure": custom,
    "heatmap": lambda: plots.heatmap(
        MATRIX, title="t", xlabel="x", ylabel="y", scale="s", annotate=True
    ),
    "heatmaps": lambda: plots.heatmaps(
        [MATRIX, -MATRIX, MATRIX, MATRIX], titles=["a", "b", "c", "d"]
    ),
    "lines": lambda: plots.lines(
        STEPS,
        {"query": STEPS.cos(), "key": STEPS.sin()},
        bands={"key": (STEPS.sin() - 0.1, STEPS.sin() + 0.1)},
        dashed=["query"],
        title="t",
    ),
    "log lines": lambda: plots.lines(
        STEPS + 1, {"a": 1 / (STEPS + 1)}, xlog=True, ylog=True, markers=True
    ),
    "lines with places of their own": lambda: plots.lines(
        {"long": [0, 1, 2, 3], "short": [0, 1]},
        {"long": [4, 3, 2, 1], "short": [4, 2]},
        bands={"short": ([4, 1], [4, 3])},
        markers=True,
    ),
    "bars": lambda: plots.bars(["a", "b"], [1.0, -2.0], errors=[0.1, 0.2], title="t"),
    "histogram": lambda: plots.histogram({"a": torch.randn(99), "b": [1.0, 2.0]}),
    "clocks": lambda: plots.clocks(
        MATRIX[:, :3], labels=["1", "2", "3"], rows="abcd", title="t"
    ),
    "vectors": lambda: plots.vectors({"query": [1, 0], "key": [0, 1]}, circle=True),
    "scatter": lambda: plots.scatter([1, 2], [3, 4], labels=["a", "b"]),
}
each_figure = pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES.keys())


def pixels(fig):
    return Image.open(io.BytesIO(fig.png()))


# ── every figure ─────────────────────────────────────────────────────────────────


@each_figure
def test_leaves_pyplot_and_rcparams_alone(make):
    settings, figures = dict(mpl.rcParams), plt.get_fignums()
    fig = make()
    fig.png()
    assert isinstance(fig, plots.BookFigure)
    assert plt.get_fignums() == figures
    assert dict(mpl.rcParams) == settings


@each_figure
def test_looks_the_same_whatever_the_reader_has_set(make):
    torch.manual_seed(0)
    expected = make().png()
    with mpl.rc_context(
        {"font.size": 30, "axes.facecolor": "black", "lines.linewidth": 9}
    ):
        torch.manual_seed(0)
        assert make().png() == expected


@each_figure
def test_fits_the_column_and_is_sharp(make):
    width, height = pixels(make()).size
    assert 400 <= width <= 1100  # the 52rem column is 832 px wide
    assert 150 <= height <= 1300


@each_figure
def test_text_is_large_enough_and_lies_within_the_picture(make):
    fig = make()
    fig.draw_without_rendering()
    box = fig.get_tightbbox().transformed(fig.dpi_scale_trans)
    for ax in fig.axes:
        titles = [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label]
        for text in [*ax.texts, *titles]:
            extent = text.get_window_extent()
            assert text.get_fontsize() >= 6, text
            assert not text.get_text() or box.x0 - 1 <= extent.x0, text
            assert not text.get_text() or extent.x1 <= box.x1 + 1, text
        for label in ax.get_xticklabels() + ax.get_yticklabels():
            assert label.get_fontsize() >= 10


@each_figure
def test_is_a_png_in_a_notebook(make):
    assert make()._repr_png_().startswith(b"\x89PNG")


def test_a_figure_is_shown_as_png_by_ipython():
    formatters = pytest.importorskip(
        "IPython.core.formatters", reason="IPython comes with the book extra"
    )
    data, _ = formatters.DisplayFormatter().format(FIGURES["bars"]())
    assert data["image/png"].startswith(b"\x89PNG")
    assert data["text/plain"].startswith("<BookFigure with 1 panel>")


def test_without_matplotlib_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import pe_lab\n"
        "try:\n    import pe_lab.plots\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert 'pip install "pe-lab[book]"' in done.stdout, done.stderr


# ── colours ──────────────────────────────────────────────────────────────────────

# Linear-RGB matrices of Machado, Oliveira and Fernandes 2009, severity 1.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(rgb, matrix):
    """CIE Lab of an sRGB colour as seen through a linear-RGB matrix."""
    c = np.array(rgb[:3])
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(matrix) @ linear, 0, 1)
    to_xyz = [
        [0.4124, 0.3576, 0.1805],
        [0.2126, 0.7152, 0.0722],
        [0.0193, 0.1192, 0.9505],
    ]
    t = np.asarray(to_xyz) @ seen / [0.9505, 1.0, 1.089]
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("matrix", BLINDNESS.values(), ids=BLINDNESS.keys())
def test_roles_differ_for_every_eye(matrix):
    # A distance of 2.3 is just noticeable; 10 is plain for lines side by side.
    colours = [lab(to_rgb(c), matrix) for c in plots.PALETTE.values()]
    for n, one in enumerate(colours):
        for other in colours[n + 1 :]:
            assert np.linalg.norm(one - other) > 10


@pytest.mark.parametrize("matrix", BLINDNESS.values(), ids=BLINDNESS.keys())
def test_maps_are_ordered_by_lightness_for_every_eye(matrix):
    shades = np.linspace(0, 1, 65)
    up = np.array([lab(plots.SEQUENTIAL(s), matrix)[0] for s in shades])
    assert (np.diff(up) < 0).all()
    both = np.array([lab(plots.DIVERGING(s), matrix)[0] for s in shades])
    assert both.argmax() == 32
    assert (np.diff(both[:33]) > 0).all()
    assert (np.diff(both[32:]) < 0).all()


def test_the_ends_of_the_diverging_map_differ_for_every_eye():
    for matrix in BLINDNESS.values():
        low, high = (lab(plots.DIVERGING(s), matrix) for s in (0.1, 0.9))
        assert np.linalg.norm(low - high) > 20


def contrast(one, other):
    low, high = sorted((plots._luminance(one), plots._luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_label_colours_are_readable_on_white():
    for name in plots.PALETTE:
        assert contrast(plots.readable(name), (1, 1, 1)) >= 4.5
    assert plots.readable("query") == to_rgb(plots.PALETTE["query"])


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_numbers_in_cells_are_readable_on_any_shade(low):
    values = np.linspace(low, 1, 60).reshape(10, 6)
    fig = plots.heatmap(values, annotate=True)
    cmap = plots.DIVERGING if low else plots.SEQUENTIAL
    texts = fig.axes[0].texts
    assert len(texts) == 60
    for text, value in zip(texts, values.ravel(), strict=True):
        face = cmap((value - low) / (1 - low))
        assert contrast(to_rgb(text.get_color()), face[:3]) >= 4.5


def test_a_role_has_its_colour():
    fig = plots.lines(STEPS, {"key": STEPS, "mine": -STEPS, "yours": STEPS + 9})
    key, mine, yours = (line.get_color() for line in fig.axes[0].lines[:3])
    assert key == plots.PALETTE["key"]
    assert len({key, mine, yours}) == 3


def test_many_series_are_shades_of_one_colour():
    series = {str(n): STEPS + n for n in range(9)}
    fig = plots.lines(STEPS, series)
    lightness = [plots._luminance(to_rgb(x.get_color())) for x in fig.axes[0].lines[:9]]
    assert lightness == sorted(lightness)
    assert len(set(lightness)) == 9


# ── heat maps ────────────────────────────────────────────────────────────────────


def test_limits_are_symmetric_when_something_is_negative():
    assert plots.heatmap(MATRIX).axes[0].images[0].get_clim() == (-3.0, 3.0)
    assert plots.heatmap(MATRIX, limit=5).axes[0].images[0].get_clim() == (-5.0, 5.0)


def test_limits_start_at_zero_when_nothing_is_negative():
    assert plots.heatmap(MATRIX.abs()).axes[0].images[0].get_clim() == (0.0, 3.0)


def test_zero_is_white():
    for matrix in (MATRIX, MATRIX.abs()):
        image = plots.heatmap(matrix).axes[0].images[0]
        assert image.cmap(image.norm(0.0))[:3] == pytest.approx((1, 1, 1))


def test_panels_share_one_scale():
    fig = plots.heatmaps([MATRIX, 9 * MATRIX])
    clims = {ax.images[0].get_clim() for ax in fig.axes[:2]}
    assert clims == {(-27.0, 27.0)}


def test_masked_scores_are_grey_and_do_not_set_the_scale():
    masked = MATRIX.clone()
    masked[0, 0], masked[0, 1] = -math.inf, math.nan
    fig = plots.heatmap(masked, annotate=True)
    image = fig.axes[0].images[0]
    assert image.get_clim() == (-3.0, 3.0)
    assert image.get_array().mask[0, :3].tolist() == [True, True, False]
    assert [text.get_text() for text in fig.axes[0].texts[:2]] == ["−∞", ""]


def test_a_matrix_of_zeros_can_be_drawn():
    assert plots.heatmap(torch.zeros(3, 3)).png()


def test_numbers_are_rounded_without_a_negative_zero():
    fig = plots.heatmap([[-0.001, -1.25]], annotate=True, decimals=1)
    assert [text.get_text() for text in fig.axes[0].texts] == ["0.0", "−1.2"]


def test_labels_go_to_rows_and_columns():
    words = ["cat", "eats", "fish"]
    ax = plots.heatmap(torch.eye(3), xticks=words, yticks=range(5, 8)).axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == words
    assert [t.get_text() for t in ax.get_yticklabels()] == ["5", "6", "7"]


def test_ticks_of_large_tables_are_powers_of_two_apart():
    ax = plots.heatmap(torch.rand(512, 64)).axes[0]
    assert ax.get_yticks().tolist() == list(range(0, 512, 64))
    assert ax.get_xticks().tolist() == list(range(0, 64, 8))


# ── labels at the ends of lines ──────────────────────────────────────────────────


def labels_of(fig):
    fig.draw_without_rendering()
    texts = [t for ax in fig.axes for t in ax.texts if t.get_gid() == "label"]
    return {text.get_text(): text.get_window_extent() for text in texts}


@pytest.mark.parametrize("count", [1, 2, 5, 12, 30])
def test_labels_do_not_touch_even_where_lines_end_together(count):
    series = {f"series {n}": STEPS * 0 + 1 + 1e-9 * n for n in range(count)}
    boxes = list(labels_of(plots.lines(STEPS, series)).values())
    assert len(boxes) == count
    for n, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[n + 1 :])


@settings(max_examples=25)
@given(st.lists(st.integers(-9, 9), min_size=2, max_size=7, unique=True))
def test_labels_never_touch_and_keep_the_order_of_the_lines(ends):
    series = {str(n): [0.0, end] for n, end in enumerate(ends)}
    boxes = labels_of(plots.lines([0, 1], series, size=(4, 2.5)))
    ordered = [boxes[str(n)] for n in np.argsort(ends, kind="stable")]
    for lower, upper in zip(ordered, ordered[1:], strict=False):
        assert lower.y1 <= upper.y0 + 0.5  # half a pixel: text is placed on pixels


def test_labels_stand_beside_their_lines_where_there_is_room():
    fig = plots.lines([0, 1], {"low": [0, 0.1], "high": [0, 0.9]})
    boxes = labels_of(fig)
    ax = fig.axes[0]
    for name, value in (("low", 0.1), ("high", 0.9)):
        _, y = ax.transData.transform((1, value))
        middle = (boxes[name].y0 + boxes[name].y1) / 2
        assert abs(middle - y) < boxes[name].height / 2
        assert boxes[name].x0 > ax.get_window_extent().x1


def test_labels_stand_in_one_column_beyond_the_leaders():
    fig = plots.lines([0, 1], {"a": [0, 1], "b": [1, 1], "c": [0, 1], "far": [0, 0]})
    boxes = labels_of(fig)
    assert len({round(box.x0) for box in boxes.values()}) == 1
    leaders = [x for x in fig.axes[0].lines if x.get_label() == "_leader"]
    assert len(leaders) == 4
    assert max(x.get_window_extent().x1 for x in leaders) < boxes["far"].x0


def test_lines_that_end_in_nan_are_labelled_where_they_stop():
    assert "gap" in labels_of(plots.lines([0, 1], {"gap": [0.5, math.nan]}))


def test_dots_lead_from_a_line_that_ends_early_to_its_label():
    """They are level, begin where the line ends, and only that line has them."""
    fig = FIGURES["lines with places of their own"]()
    dots = [line for line in fig.axes[0].lines if line.get_linestyle() == ":"]
    assert len(dots) == 1
    assert dots[0].get_xdata()[0] == 1 and dots[0].get_xdata()[1] >= 3
    assert list(dots[0].get_ydata()) == [2, 2]
    assert [text.get_text() for text in fig.axes[0].texts] == ["long", "short"]


def test_unnamed_lines_are_not_labelled():
    with plots.figure() as (fig, ax):
        ax.plot([1, 2])
        ax.plot([1, 2], label="_hidden")
        ax.plot([2, 1], label="shown")
        plots.label_ends(ax)
    assert list(labels_of(fig)) == ["shown"]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=8).map(sorted),
    st.floats(0.001, 0.12),
)
def test_spread_is_in_order_apart_and_within_the_axes(heights, gap):
    placed = plots.spread(heights, gap)
    assert len(placed) == len(heights)
    assert all(-1e-9 <= y <= 1 + 1e-9 for y in placed)
    for low, high in zip(placed, placed[1:], strict=False):
        assert high - low >= gap - 1e-9


@given(st.lists(st.integers(0, 8), min_size=1, max_size=8, unique=True).map(sorted))
def test_spread_moves_nothing_that_is_apart(heights):
    fractions = [height / 8 for height in heights]
    assert plots.spread(fractions, 0.125) == pytest.approx(fractions)


@given(st.lists(st.floats(0.4, 0.6), min_size=2, max_size=5).map(sorted))
def test_spread_moves_as_little_as_possible(heights):
    # The mean is kept: no common shift could bring the labels nearer to their lines.
    placed = plots.spread(heights, 0.01)
    assert np.mean(placed) == pytest.approx(np.mean(heights))


# ── the other figures ────────────────────────────────────────────────────────────


def test_plain_ticks_are_numbers_without_powers():
    fig = plots.lines([1, 300], {"a": [0.002, 0.8]}, xlog=True, ylog=True)
    ax = fig.axes[0]
    assert any("10^" in text.get_text() for text in ax.get_yticklabels())
    plots.plain_ticks(ax)
    assert {text.get_text() for text in ax.get_yticklabels()} >= {"0.01", "0.1"}
    assert {text.get_text() for text in ax.get_xticklabels()} >= {"1", "10", "100"}


def test_a_vector_picture_is_the_same_in_two_runs_and_has_no_date():
    first, second = (FIGURES["lines"]().svg().decode() for _ in range(2))
    assert first == second and "<svg" in first and "dc:date" not in first


def test_bars_write_their_values_outside_of_bar_and_error():
    fig = plots.bars(["a", "b"], [1.0, -2.0], errors=[0.5, 0.25], decimals=1)
    fig.draw_without_rendering()
    ax = fig.axes[0]
    right, left = ax.texts
    assert (right.get_text(), left.get_text()) == ("1.0", "−2.0")
    assert right.get_window_extent().x0 > ax.transData.transform((1.5, 0))[0]
    assert left.get_window_extent().x1 < ax.transData.transform((-2.25, 0))[0]
    for text in (right, left):
        assert ax.get_window_extent().x0 <= text.get_window_extent().x0
        assert text.get_window_extent().x1 <= ax.get_window_extent().x1


def test_bars_run_from_top_to_bottom():
    ax = plots.bars(["first", "second"], [1, 2]).axes[0]
    bottom, top = ax.get_ylim()
    assert bottom > top


def test_clock_hands_point_to_sin_and_cos():
    angle = 1.0
    ax = plots.clocks([angle]).axes[0]
    (hand,) = [line for line in ax.lines if len(line.get_xdata()) == 2][1:]
    x, y = hand.get_xdata()[1], hand.get_ydata()[1]
    assert x / math.hypot(x, y) == pytest.approx(math.sin(angle))
    bottom, top = ax.get_ylim()
    assert -y / math.hypot(x, y) == pytest.approx(math.cos(angle))
    assert bottom > top  # y runs downwards, so up is negative


def test_histogram_counts_every_value():
    fig = plots.histogram(torch.arange(10.0), bins=5)
    heights = fig.axes[0].patches[0].get_data().values
    assert heights.sum() == 10


def test_one_panel_is_an_axes_and_several_are_a_flat_list():
    with plots.figure() as (_, ax):
        assert isinstance(ax, mpl.axes.Axes)
    with plots.figure(2, 3) as (_, axes):
        assert len(axes) == 6


@pytest.mark.parametrize(
    "values",
    [
        torch.ones(2, 2, dtype=torch.bfloat16),
        torch.ones(2, 2, requires_grad=True),
        torch.ones(2, 2, dtype=torch.bool),
        np.ones((2, 2), dtype=np.float16),
        [[1, 1], [1, 1]],
    ],
)
def test_any_kind_of_numbers_is_drawn(values):
    assert plots.heatmap(values).axes[0].images[0].get_array().tolist() == [[1, 1]] * 2


# ── bad input ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: plots.heatmap(torch.zeros(3)), r"\(3,\); \(rows, columns\)"),
        (lambda: plots.heatmap(torch.zeros(0, 3)), "empty"),
        (lambda: plots.heatmap("text"), "str"),
        (lambda: plots.heatmap([[1.0], [1.0, 2.0]]), "equal length"),
        (lambda: plots.heatmap([[math.nan]]), "no finite"),
        (lambda: plots.heatmap(MATRIX, xticks=["a"]), "1 entries for 6"),
        (lambda: plots.heatmap(MATRIX, yticks=["a"]), "1 entries for 4"),
        (lambda: plots.heatmap(MATRIX, limit=0), "limit is 0"),
        (lambda: plots.heatmap(MATRIX, limit=math.nan), "limit is nan"),
        (lambda: plots.heatmap(torch.ones(9, 64), annotate=True), "64 columns"),
        (lambda: plots.heatmaps([]), "matrices is empty"),
        (lambda: plots.heatmaps([MATRIX], titles=["a", "b"]), "2 entries for 1"),
        (lambda: plots.lines([1, 2], {"a": [1]}), r"'a'\] has 1 values where 2"),
        (lambda: plots.lines([1, 2], {}), "series is empty"),
        (lambda: plots.lines([1], {"a": [math.nan]}), "no finite"),
        (lambda: plots.lines([1], {"a": [-1]}, ylog=True), "ylog needs positive"),
        (lambda: plots.lines([-1], {"a": [1]}, xlog=True), "xlog needs positive"),
        (lambda: plots.lines([1], {"a": [1]}, bands={"b": ([0], [1])}), "bands has"),
        (lambda: plots.lines({"a": [1]}, {"a": [1], "b": [2]}), "no values for .*'b'"),
        (lambda: plots.lines({"a": [1]}, {"a": [1, 2]}), "2 values where 1 are needed"),
        (lambda: plots.lines([1], {"a": [1]}, colors={"b": "key"}), "colors has"),
        (lambda: plots.lines([1], {"a": [1]}, colors="rainbow"), "shades"),
        (lambda: plots.lines(MATRIX, {"a": [1]}), "one axis"),
        (lambda: plots.bars(["a"], [1, 2]), "1 entries for 2"),
        (lambda: plots.bars(["a"], [1], errors=[1, 2]), "2 values where 1"),
        (lambda: plots.bars(["a"], [1], colors=["key", "query"]), "2 entries for 1"),
        (lambda: plots.histogram([math.inf]), "nan or infinite"),
        (lambda: plots.histogram({}), "values is empty"),
        (lambda: plots.clocks(torch.zeros(2, 2, 2)), r"\(rows, columns\)"),
        (lambda: plots.clocks([1, 2], labels=["a"]), "1 entries for 2"),
        (lambda: plots.vectors({}), "arrows is empty"),
        (lambda: plots.vectors({"a": [1, 2, 3]}), "3 values where 2"),
        (lambda: plots.scatter([1], [1, 2]), "2 values where 1"),
        (lambda: plots.label_ends(mpl.figure.Figure().subplots()), "plots.figure"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()
