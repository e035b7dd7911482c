"""RotateByK turns with pe_lab.rotation_matrix, forwards and, transposed, backwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pe_lab
from pe_lab.explore import RotateByK


@pytest.mark.parametrize("d_model", [2, 8, 16])
@pytest.mark.parametrize("offset", [-32, -1, 0, 2, 32])
@pytest.mark.parametrize("base", [10.0, 1e4])
def test_the_matrix_is_the_rotation_matrix(
    run_js: Any, d_model: int, offset: int, base: float
) -> None:
    found = run_js("rotate_by_k.js", f"m.rotationMatrix({offset}, {d_model}, {base})")
    wanted = pe_lab.rotation_matrix(offset, d_model, base=base)
    torch.testing.assert_close(
        torch.tensor(found, dtype=torch.float64), wanted, rtol=0, atol=1e-9
    )


@pytest.mark.parametrize(("offset", "position"), [(2, 5), (-7, 30), (32, 64)])
def test_it_lands_on_p_plus_k_and_transposed_on_p_minus_k(
    run_js: Any, offset: int, position: int
) -> None:
    ahead, behind = run_js(
        "rotate_by_k.js",
        f"[m.rotationMatrix({offset}, 8, 1e4),"
        f" m.transposed(m.rotationMatrix({offset}, 8, 1e4))]"
        f".map((matrix) => m.apply(matrix, m.sinusoidal({position}, 8, 1e4)))",
    )
    wanted = pe_lab.sinusoidal(
        torch.tensor([position + offset, position - offset]), 8, dtype=torch.float64
    ).tolist()
    # two roundings of angles below 100 rad: 100 · 2.2e-16 each, far below 1e-12
    assert ahead == pytest.approx(wanted[0], abs=1e-12)
    assert behind == pytest.approx(wanted[1], abs=1e-12)


def test_moving_p_changes_no_entry_of_the_matrix(open_page: Any) -> None:
    page = open_page(RotateByK())
    matrix = page.locator(".pe-figure svg").last
    clocks = page.locator(".pe-figure svg").first
    before, hands = matrix.inner_html(), clocks.inner_html()
    page.get_by_role("slider", name="position p").press("ArrowRight")
    page.get_by_text("PE(8)").wait_for()
    assert matrix.inner_html() == before
    assert clocks.inner_html() != hands
    page.get_by_role("slider", name="offset k").press("ArrowRight")
    page.get_by_text("PE(9)").wait_for()
    assert matrix.inner_html() != before


def test_the_transpose_goes_back(open_page: Any) -> None:
    page = open_page(RotateByK())
    page.get_by_label("transpose").check()
    page.get_by_text("it went back").wait_for()
    lines = page.locator("output").inner_text().splitlines()
    assert "PE(7)" in lines[0] and "10⁻" not in lines[0]
    assert "PE(3)" in lines[1]
