"""KernelShape draws pe_lab.position_kernel, and points out its turns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pe_lab

# The two sides sum up to 512 cosines of angles up to 2048 rad: rounding of the angle
# (2048 · 1.1e-16) and of the sum stays below 512 · 1e-12 by a wide margin.
TOLERANCE = 1e-9


@pytest.mark.parametrize("d_model", [2, 8, 64, 512, 1024])
@pytest.mark.parametrize("base", [10.0, 1e4, 1e6])
def test_the_curve_is_the_position_kernel(
    run_js: Any, d_model: int, base: float
) -> None:
    offsets = [0, 1, 2, 3, 6, 100, 511, 2048]
    found = run_js("kernel_shape.js", f"m.kernel({offsets}, {d_model}, {base})")
    wanted = pe_lab.position_kernel(torch.tensor(offsets), d_model, base=base)
    assert found == pytest.approx(wanted.tolist(), rel=0, abs=TOLERANCE)


def test_turns_of_the_eight_channel_kernel(run_js: Any) -> None:
    kernel = pe_lab.position_kernel(torch.arange(33), 8)
    values = kernel.tolist()
    turns = run_js("kernel_shape.js", f"m.firstTurns({values})")
    rises = [i for i in range(32) if values[i + 1] > values[i]]
    falls = [i for i in range(rises[0], 32) if values[i + 1] < values[i]]
    assert turns == {"minimum": rises[0], "rebound": falls[0]}
    assert turns == {"minimum": 3, "rebound": 6}


def test_a_curve_that_only_falls_has_no_turn(run_js: Any) -> None:
    turns = run_js("kernel_shape.js", "m.firstTurns([3, 2, 1])")
    assert turns == {"minimum": None, "rebound": None}


def test_slopes_are_those_of_alibi_with_eight_heads(run_js: Any) -> None:
    names = pe_lab.explore.KernelShape().bounds["alibi"]
    found = run_js("kernel_shape.js", f"{names}.map(m.slope)")
    assert found[0] is None
    assert found[1:] == pe_lab.alibi_slopes(8).tolist()


def test_pointing_at_the_curve_chooses_a_distance(open_page: Any) -> None:
    page = open_page(pe_lab.explore.KernelShape())
    box = page.locator(".pe-figure svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.55, box["y"] + 100)
    page.wait_for_function("!document.querySelector('output').innerText.match(/K.6/)")
    slider = page.get_by_label("distance Δ")
    assert 15 <= int(slider.input_value()) <= 18


def test_a_shorter_range_keeps_the_chosen_distance_inside(open_page: Any) -> None:
    page = open_page(pe_lab.explore.KernelShape(max_offset=64, offset=64))
    page.get_by_label("range of Δ").press("Home")
    page.wait_for_function("document.querySelector('output').innerText.match(/K.8/)")
