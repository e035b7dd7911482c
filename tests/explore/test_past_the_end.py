"""PastTheEnd reads the rows that pe_lab.Learned and the experiment's ways out read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pe_lab
from pe_lab.explore import PastTheEnd
from pe_lab.lab.experiments import panorama

SIZES = [(2, 2), (8, 20), (5, 64), (32, 33), (8, 5)]


def weights_of(run_js: Any, way: str, rows: int, length: int) -> torch.Tensor:
    """(positions, rows): how much of each row is read for each position."""
    found = run_js(
        "past_the_end.js",
        f"Array.from({{length: {length}}}, (_, p) => m.reads('{way}', {rows}, {length}, p))",
    )
    weights = torch.zeros(length, max(rows, length), dtype=torch.float64)
    for position, pairs in enumerate(found):
        for row, share in pairs:
            weights[position, row] = share
    return weights


def unit_rows(rows: int) -> pe_lab.Learned:
    """A table of which one sees which rows were read."""
    table = pe_lab.Learned(rows, rows).double()
    with torch.no_grad():
        table.weight.copy_(torch.eye(rows))
    return table


@pytest.mark.parametrize(("rows", "length"), SIZES)
@pytest.mark.parametrize("way", ["clamp", "wrap", "resample"])
def test_a_way_out_is_that_of_the_experiment(
    run_js: Any, way: str, rows: int, length: int
) -> None:
    out = panorama.WAYS_OUT["learned"][way]
    encoding, places = out(unit_rows(rows), rows, length)
    wanted = encoding.table(places(torch.arange(length))).detach()
    found = weights_of(run_js, way, rows, length)
    # one division on both sides, in another order: places below 64 to 1e-14
    assert (found[:, :rows] - wanted).abs().max() <= 1e-13
    assert not found[:, rows:].any()


@pytest.mark.parametrize(("rows", "length"), SIZES)
def test_a_longer_table_is_read_row_by_row(run_js: Any, rows: int, length: int) -> None:
    found = weights_of(run_js, "untrained", rows, length)
    assert torch.equal(found, torch.eye(*found.shape, dtype=torch.float64))
    refused = weights_of(run_js, "error", rows, length)
    assert torch.equal(refused[:rows], found[:rows])
    assert not refused[rows:].any()


def test_the_refusal_is_the_packages(run_js: Any) -> None:
    settings = "{way: 'error', rows: 8, length: 20, position: 11}"
    said, cost = run_js("past_the_end.js", f"m.readout({settings})")
    with pytest.raises(IndexError) as error:
        pe_lab.Learned(8, 4).table(torch.tensor([11]))
    words = str(error.value).removeprefix("position 11 ").partition(").")[0]
    assert said == f"Position 11 {words}): IndexError."
    assert cost == "12 of 20 positions are refused."


@pytest.mark.parametrize(
    ("way", "lines"),
    [
        ("clamp", ["reads row 7.", "Positions 7 … 19 read it."]),
        ("wrap", ["reads row 3.", "Positions 3, 11 and 19 read it."]),
        (
            "untrained",
            ["reads row 11, which no gradient ever reached.", "12 of 20 positions"],
        ),
        (
            "resample",
            ["place 11 · 7/19: 0.947 of row 4 and 0.053 of row 5.", "0.368 rows apart"],
        ),
    ],
)
def test_the_readout_says_what_is_read(run_js: Any, way: str, lines: list[str]) -> None:
    settings = f"{{way: '{way}', rows: 8, length: 20, position: 11}}"
    found = run_js("past_the_end.js", f"m.readout({settings})")
    assert all(part in line for part, line in zip(lines, found, strict=True))


def test_the_defaults_are_those_of_the_tests_above() -> None:
    figure = PastTheEnd()
    assert (figure.rows, figure.length, figure.position) == (8, 20, 11)
    figure.close()


def test_pointing_chooses_a_position_and_a_shorter_text_keeps_it(
    open_page: Any,
) -> None:
    page = open_page(PastTheEnd(way="wrap"))
    box = page.locator(".pe-figure svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 16, box["y"] + 100)
    page.get_by_text("Position 19 reads row 3.").wait_for()
    page.get_by_label("positions asked for L").press("Home")
    page.get_by_text("Position 1 reads row 1.").wait_for()
