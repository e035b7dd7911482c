"""A line is the mean over seeds, a band reaches from the lowest to the highest."""

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from pe_lab.lab import Curve, Profile, Result, Run, figures, load

LONG = ("no encoding at all", "RoPE, base 10000, NTK-aware", "T5 bias, 32 buckets")


def made(variant, seed, height, places=(32, 64, 128)):
    steps = [0, 10, 20]
    curve = Curve(steps, [3.0, 2.0 + height, 1.0 + height])
    profile = Profile(list(places), [float(height + at / 32) for at in places])
    return Run(
        variant,
        seed,
        {},
        {"held_out_loss": curve},
        {},
        {},
        {"perplexity/plain": profile},
    )


RESULT = Result(
    "toy",
    "full",
    (
        *(made("a", seed, height) for seed, height in enumerate((0.1, 0.2, 0.6))),
        *(made("b", seed, height) for seed, height in enumerate((1.0, 1.5, 2.0))),
        made("short", 0, 0.5, places=(32,)),
    ),
)


def lines(figure):
    found = figure.axes[0].lines
    return {line.get_label(): line for line in found if line.get_label()[0] != "_"}


def test_a_line_is_the_mean_and_its_band_the_range_over_seeds():
    figure = figures.curves(RESULT, variants=["a"])
    assert lines(figure)["a"].get_ydata() == pytest.approx([3.0, 2.3, 1.3])
    (band,) = figure.axes[0].collections
    corners = band.get_paths()[0].vertices
    at_end = corners[corners[:, 0] == 20, 1]
    assert (at_end.min(), at_end.max()) == pytest.approx((1.1, 1.6))


def test_a_profile_is_drawn_at_its_places_each_with_a_tick():
    figure = figures.profiles(RESULT, "perplexity/plain", xlabel="length", xlog=True)
    ax = figure.axes[0]
    assert lines(figure)["b"].get_xdata().tolist() == [32, 64, 128]
    assert lines(figure)["b"].get_ydata() == pytest.approx([2.5, 3.5, 5.5])
    assert lines(figure)["short"].get_xdata().tolist() == [32]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["32", "64", "128"]
    assert all(line.get_marker() == "o" for line in lines(figure).values())


def test_the_figure_says_what_lines_and_bands_are():
    def note(result):
        return figures.curves(result).axes[0].get_xlabel().split("\n")[1]

    assert note(RESULT) == "mean of 1 to 3 seeds; band: lowest to highest"
    part = Result("toy", "full", RESULT.runs[:3])
    assert note(part) == "mean of 3 seeds; band: lowest to highest"
    assert note(Result("toy", "full", RESULT.runs[:1])) == "one seed each"


def test_variants_are_chosen_ordered_and_named():
    names = {"a": LONG[0], "b": LONG[1]}
    figure = figures.curves(RESULT, variants=["b", "a"], names=names)
    assert list(lines(figure)) == [LONG[1], LONG[0]]
    labels = {text.get_text() for text in figure.axes[0].texts}
    assert labels == {LONG[0], LONG[1]}


def test_only_variants_that_were_measured_are_drawn_by_default():
    other = Run("c", 0, {}, {}, {"score": 1.0})
    mixed = Result("toy", "full", (*RESULT.runs, other))
    assert list(lines(figures.curves(mixed))) == ["a", "b", "short"]


def test_the_metric_decides_what_is_drawn():
    assert figures.draw(RESULT).axes[0].get_ylabel() == "held-out loss, nats"
    profile = figures.draw(RESULT, "perplexity/plain")
    assert profile.axes[0].get_ylabel() == "perplexity/plain"
    no_curves = Result(
        "toy", "full", (Run("a", 0, {}, {}, {}, {}, RESULT.runs[0].profiles),)
    )
    assert figures.default_metric(no_curves) == "perplexity/plain"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: figures.draw(RESULT, "bleu"),
            "no curve or profile 'bleu'; curves: held_out_loss; profiles: perplexity/",
        ),
        (lambda: figures.curves(RESULT, "bleu"), "no curve 'bleu'; it has: held_out"),
        (lambda: figures.profiles(RESULT, "bleu"), "no profile 'bleu'; it has: perp"),
        (lambda: figures.curves(RESULT, variants=["c"]), "no variant 'c'; it has: a"),
        (lambda: figures.curves(RESULT, names={"c": "C"}), "no variant 'c'; it has: a"),
        (
            lambda: figures.curves(RESULT, names={"a": "x", "b": "x"}),
            "calls two variants 'x'; give every line a name of its own",
        ),
        (
            lambda: figures.draw(Result("toy", "full", ())),
            "toy has no curve and no profile to draw",
        ),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


def test_every_line_of_many_is_told_apart_by_colour_or_dashes():
    """Fourteen: seven colours that the colour-blind can tell apart, solid and dashed."""
    runs = tuple(
        made(f"{letter}{letter}", 0, n) for n, letter in enumerate("abcdefghijklmn")
    )
    drawn = lines(figures.curves(Result("toy", "full", runs))).values()
    looks = {(line.get_color(), line.get_linestyle()) for line in drawn}
    assert len(looks) == 14


def test_long_names_lie_within_the_picture_and_do_not_touch():
    runs = tuple(made(f"{name} {n}", 0, n / 50) for n in range(3) for name in LONG)
    figure = figures.curves(Result("toy", "full", runs[:8]))
    figure.draw_without_rendering()
    box = figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    extents = sorted(
        (text.get_window_extent() for text in figure.axes[0].texts), key=lambda e: e.y0
    )
    assert len(extents) == 8
    assert all(extent.x1 <= box.x1 + 1 for extent in extents)
    assert all(a.y1 <= b.y0 + 1 for a, b in zip(extents, extents[1:], strict=False))


def test_logarithmic_axes_have_plain_numbers():
    ax = figures.curves(RESULT, ylog=True).axes[0]
    texts = [label.get_text() for label in ax.get_yticklabels(which="both")]
    assert "2" in texts and not any("10^" in text or "times" in text for text in texts)


def test_a_figure_is_saved_as_its_name_ends(tmp_path):
    figure = figures.draw(RESULT)
    figures.save(figure, tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").width > 400
    for name in "ab":
        figures.save(figures.draw(RESULT), tmp_path / f"{name}.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text() and "<svg" in text
    with pytest.raises(ValueError, match=r"a\.pdf ends in '\.pdf'; \.png or \.svg is"):
        figures.save(figure, tmp_path / "a.pdf")


def test_two_figures_of_a_shipped_result_are_the_same_picture():
    result = load("sqrt-d")
    first, second = (figures.draw(result).png() for _ in range(2))
    pixels = [np.asarray(Image.open(io.BytesIO(png))) for png in (first, second)]
    assert (pixels[0] == pixels[1]).all()


def test_without_matplotlib_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pe_lab import cli\n"
        "sys.exit(cli.main(['plot', 'stall']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'Install it with: pip install "pe-lab[book]"' in done.stderr
    assert "Traceback" not in done.stderr
