"""TableBuilder explains each cell of pe_lab.sinusoidal, and keys and pointer agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pe_lab
from pe_lab.explore import TableBuilder


@pytest.mark.parametrize("d_model", [4, 5, 8, 63])
@pytest.mark.parametrize("order", ["interleaved", "halves"])
def test_every_explained_cell_is_the_cell(
    run_js: Any, d_model: int, order: str
) -> None:
    settings = f"{{dModel: {d_model}, base: 1e4, order: '{order}'}}"
    found = run_js(
        "table_builder.js",
        f"[0, 3, 100].map((p) => Array.from({{length: {d_model}}}, (_, channel) =>"
        f" m.explain(p, channel, {settings}).value))",
    )
    wanted = pe_lab.sinusoidal(
        torch.tensor([0, 3, 100]), d_model, order=order, dtype=torch.float64
    )
    torch.testing.assert_close(
        torch.tensor(found, dtype=torch.float64), wanted, rtol=0, atol=1e-9
    )


def test_frequency_and_wavelength_of_the_slowest_pair(run_js: Any) -> None:
    settings = "{dModel: 512, base: 1e4, order: 'interleaved'}"
    cell = run_js("table_builder.js", f"m.explain(1, 511, {settings})")
    slowest = pe_lab.inv_freq(512)[-1].item()
    assert (cell["pair"], cell["cosine"]) == (255, True)
    assert cell["omega"] == pytest.approx(slowest, rel=1e-12)
    assert cell["wavelength"] == pytest.approx(2 * torch.pi / slowest, rel=1e-12)


def test_arrow_keys_walk_and_stop_at_the_edge(open_page: Any) -> None:
    page = open_page(TableBuilder(d_model=4, num_positions=4, position=2, channel=2))
    pad = page.get_by_role("application")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        pad.press(key)
    page.get_by_text("PE[3, 3] = cos(3").wait_for()


def test_pointing_chooses_a_cell(open_page: Any) -> None:
    page = open_page(TableBuilder(position=0, channel=0))
    box = page.get_by_role("application").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + box["height"] * 0.5)
    before = page.locator("output").inner_text()
    page.wait_for_function("!document.querySelector('output').innerText.match(/0, 0/)")
    assert "PE[0, 0]" in before or "PE[" in before


def test_the_order_moves_columns_and_changes_no_number(open_page: Any) -> None:
    page = open_page(TableBuilder(position=3, channel=1))
    page.get_by_text("cos(3 × 1) = −0.9900").wait_for()
    page.get_by_label("order of the channels").select_option(index=1)
    page.get_by_text("sin(3 × 0.1) = 0.2955").wait_for()


def test_a_narrower_table_keeps_the_chosen_cell_inside(open_page: Any) -> None:
    page = open_page(TableBuilder(d_model=64, channel=60))
    page.get_by_label("width d_model").press("Home")
    page.get_by_text("PE[3, 3]").wait_for()
