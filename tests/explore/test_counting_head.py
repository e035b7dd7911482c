"""CountingHead's outputs are those of pe_lab.attention, rounded as torch rounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import pe_lab
from pe_lab.explore import CountingHead

DTYPES = ["float64", "float32", "float16", "bfloat16"]


def outputs(run_js: Any, **settings: Any) -> Any:
    base = {"length": 16, "start": 0, "marked": 1, "causal": True, "dtype": "float64"}
    return run_js("counting_head.js", f"m.outputs({json.dumps(base | settings)})")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("start", "marked"), [(0, 1), (3, 1), (0, 4), (14, 8)])
def test_outputs_are_those_of_a_head_with_equal_scores(
    run_js: Any, causal: bool, start: int, marked: int
) -> None:
    found = outputs(run_js, start=start, marked=marked, causal=causal)
    zero = torch.zeros(1, 1, 16, 4).double()
    value = torch.zeros(1, 1, 16, 1).double()
    value[:, :, start : start + marked] = 1
    wanted = pe_lab.attention(zero, zero, value, causal=causal).flatten()
    # a division there, a sum of equal weights here: some roundings of 1e-16
    assert found == pytest.approx(wanted.tolist(), rel=0, abs=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_that_of_torch(run_js: Any, dtype: str) -> None:
    """1/n, ties between two numbers, and numbers below the least normal one."""
    ties = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 - 2.0**-12]
    values = [1 / n for n in range(1, 3000)] + ties + [3e-7, 6.1e-5, 1e-8, 0.0]
    found = run_js("counting_head.js", f"{values}.map((v) => m.rounded(v, '{dtype}'))")
    exact = torch.tensor(values, dtype=torch.float64)
    assert found == exact.to(getattr(torch, dtype)).double().tolist()


def test_places_are_read_back_where_all_marks_are_seen(run_js: Any) -> None:
    found = run_js(
        "counting_head.js",
        "m.outputs({length: 50, start: 0, marked: 3, causal: true, dtype: 'float64'})"
        ".map((y) => m.readBack(y, 3))",
    )
    assert found[:3] == [2, 2, 2]  # two of the marks are not told from the third
    # 1/(1/n) is n up to two roundings of numbers below 50
    assert found[2:] == pytest.approx(range(2, 50), rel=0, abs=1e-13)
    assert run_js("counting_head.js", "m.readBack(0, 1)") is None


@pytest.mark.parametrize(("dtype", "length"), [("float16", 4096), ("bfloat16", 512)])
def test_the_first_neighbours_with_one_output(
    run_js: Any, dtype: str, length: int
) -> None:
    settings = {"length": length, "start": 0, "marked": 1, "causal": True}
    text = json.dumps(settings | {"dtype": dtype})
    found = run_js("counting_head.js", f"m.firstMerge(m.outputs({text}))")
    kept = (1 / torch.arange(1, length + 1).double()).to(getattr(torch, dtype))
    assert found == (kept[1:] == kept[:-1]).nonzero()[0].item()
    assert run_js("counting_head.js", "m.firstMerge([1, 0.5, 0, 0])") is None


def test_without_the_mask_the_readout_says_that_all_are_alike(open_page: Any) -> None:
    page = open_page(CountingHead())
    page.get_by_text("read back as 7.").wait_for()
    page.get_by_role("checkbox", name="causal mask").uncheck()
    page.get_by_text("every place has the same output").wait_for()
    page.get_by_text("Outputs that differ: 1 of 16.").wait_for()


def test_a_short_sequence_keeps_its_places(open_page: Any) -> None:
    page = open_page(CountingHead(length=8, place=400, start=300))
    page.get_by_text("Place 7 sees 8 tokens").wait_for()
    assert page.get_by_label("place that looks").get_attribute("max") == "7"
