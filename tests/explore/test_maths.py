"""The shared JavaScript arithmetic equals pe_lab's, for every order, odd widths too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pe_lab

# Angles reach 2048 rad and carry a rounding of about 2048 · 2.2e-16 = 4.5e-13 on either
# side; sines and cosines pass it on undiminished at worst.
TOLERANCE = 1e-9


@pytest.mark.parametrize("d_model", [4, 5, 8, 16, 63, 64])
@pytest.mark.parametrize("base", [10.0, 1e4, 1e6])
@pytest.mark.parametrize("order", ["interleaved", "halves"])
def test_rows_of_the_table(run_js: Any, d_model: int, base: float, order: str) -> None:
    positions = [0, 1, 2, 17, 127, 2048]
    rows = f"{positions}.map((p) => m.sinusoidal(p, {d_model}, {base}, '{order}'))"
    found = torch.tensor(run_js("table_builder.js", rows), dtype=torch.float64)
    wanted = pe_lab.sinusoidal(
        torch.tensor(positions), d_model, base=base, order=order, dtype=torch.float64
    )
    torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("d_model", [2, 5, 512])
def test_frequencies(run_js: Any, d_model: int) -> None:
    found = run_js("kernel_shape.js", f"m.invFreq({d_model}, 1e4)")
    assert found == pytest.approx(pe_lab.inv_freq(d_model).tolist(), rel=TOLERANCE)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 4, "0"),
        (1.03663e-4, 5, "1.0366·10⁻⁴"),
        (-2.5e-16, 2, "−2.5·10⁻¹⁶"),
        (60611.2, 5, "60\u202f611"),
        (0.0123456, 3, "0.0123"),
        (-12.5, 3, "−12.5"),
    ],
)
def test_numbers_for_reading(run_js: Any, value: float, digits: int, text: str) -> None:
    assert run_js("kernel_shape.js", f"m.significant({value}, {digits})") == text


def test_a_rounded_zero_has_no_sign(run_js: Any) -> None:
    found = run_js("kernel_shape.js", "[m.number(-0.001, 2), m.number(-0.006, 2)]")
    assert found == ["0.00", "−0.01"]
