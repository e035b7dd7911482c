"""LossByPosition shows the shipped losses, and sums them up as the laboratory does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pe_lab import lab
from pe_lab.explore import LossByPosition
from pe_lab.explore.loss_by_position import SERIES


def call(run_js: Any, function: str, *arguments: Any) -> Any:
    listed = ", ".join(json.dumps(argument) for argument in arguments)
    return run_js("loss_by_position.js", f"m.{function}({listed})")


def test_every_loss_by_place_that_is_shipped_can_be_chosen() -> None:
    result = lab.load("panorama")
    metrics = [m for m in result.metrics("profile") if m.startswith("loss/")]
    shipped = {
        f"{variant}/{metric.removeprefix('loss/')}"
        for metric in metrics
        for variant in result.having("profile", metric)
    }
    assert set(SERIES) == shipped
    figure = LossByPosition()
    for name in ("first", "second"):
        assert set(figure.bounds[name]) == shipped
    assert set(figure.losses) == shipped


@pytest.mark.parametrize("series", SERIES)
def test_its_perplexity_is_that_of_the_result(run_js: Any, series: str) -> None:
    """exp of a mean over seeds of mean losses: their geometric mean perplexity."""
    variant, way = series.split("/")
    _, perplexities = lab.load("panorama").profile(variant, f"perplexity/{way}")
    wanted = np.exp(np.log(perplexities[:, -1]).mean())
    losses = LossByPosition().losses[series]
    found = call(run_js, "perplexity", losses, 0, 256)
    # a loss is rounded to 1/1000 nat: at most half of that in the mean, and in the log
    assert found == pytest.approx(wanted, rel=6e-4)


def test_a_perplexity_is_over_the_places_that_are_asked_for(run_js: Any) -> None:
    losses = [1.0, 2.0, 4.0, 8.0]
    # two roundings of numbers of this size
    assert call(run_js, "perplexity", losses, 1, 3) == pytest.approx(np.exp(3), 1e-14)
    assert call(run_js, "perplexity", losses, 3, 4) == pytest.approx(np.exp(8), 1e-14)


@pytest.mark.parametrize("width", [1, 2, 3, 8, 32])
def test_the_running_mean_is_centred_and_shorter_at_the_ends(
    run_js: Any, width: int
) -> None:
    losses = np.random.default_rng(0).uniform(1, 4, 40).round(3)
    found = call(run_js, "smoothed", losses.tolist(), width)
    before = (width - 1) // 2
    wanted = [losses[max(0, p - before) : p - before + width].mean() for p in range(40)]
    # sums of up to 32 numbers below 4
    assert found == pytest.approx(wanted, rel=1e-14)


def test_every_series_has_a_name_of_its_own(run_js: Any) -> None:
    names = run_js("loss_by_position.js", f"{json.dumps(SERIES)}.map(m.nameOf)")
    assert len(set(names)) == len(SERIES)
    assert not any("undefined" in name for name in names)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("length", [32, 96, 256])
def test_ticks_are_places_of_the_text(run_js: Any, length: int, log: bool) -> None:
    places = call(run_js, "ticks", length, log)
    assert places[0] == 0 and places[-1] < length
    assert 2 <= len(places) <= 9
    assert sorted(set(places)) == places


def test_the_readout_follows_the_length(open_page: Any) -> None:
    page = open_page(LossByPosition(first="alibi/plain"))
    readout = page.locator("output")
    assert "at the 32 trained places" in readout.inner_text()
    page.get_by_label("length of the text").press("Home")
    page.wait_for_function(
        "!document.querySelector('output').innerText.includes('trained places')"
    )
    page.get_by_label("first model").select_option("sinusoidal, interpolated")
    page.get_by_text("sinusoidal, interpolated: perplexity").wait_for()
