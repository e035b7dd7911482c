"""ContextStretch computes every rule as pe_lab.scaling does, and counts pairs rightly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pe_lab
from pe_lab import scaling
from pe_lab.explore import ContextStretch

LADDERS = [(16, 1e4, 32, 4.0), (128, 1e4, 4096, 16.0), (128, 5e5, 8192, 8.0)]
Rule = Callable[[Tensor, int, float], Tensor]

# the function in JavaScript → the same rule in pe_lab, for one ladder, length, factor
RULES: dict[str, Rule] = {
    "linear": lambda w, trained, s: scaling.linear(w, s),
    "ntk": lambda w, trained, s: scaling.ntk(w, s),
    "byParts": lambda w, trained, s: scaling.ntk_by_parts(w, s, original_length=trained),
    "llama3": lambda w, trained, s: scaling.llama3(w, s, original_length=trained),
    "yarn": lambda w, trained, s: scaling.yarn(w, s, original_length=trained),
}  # fmt: skip


def js(function: str, inv_freq: Tensor, **settings: Any) -> str:
    """A call of a rule of the module."""
    return f"m.{function}({json.dumps(inv_freq.tolist())}, {json.dumps(settings)})"


def close(found: Any, wanted: Tensor) -> bool:
    """Equal but for roundings: each rule is some products and powers in float64."""
    return bool(
        torch.allclose(
            torch.tensor(found, dtype=torch.float64), wanted, rtol=1e-12, atol=0
        )
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("dim", "base", "trained", "factor"), LADDERS)
def test_each_rule_is_that_of_the_package(
    run_js: Any, rule: str, dim: int, base: float, trained: int, factor: float
) -> None:
    ladder = pe_lab.inv_freq(dim, base=base)
    found = run_js(
        "context_stretch.js", js(rule, ladder, factor=factor, trained=trained)
    )
    assert close(found, RULES[rule](ladder, trained, factor))


@pytest.mark.parametrize("length", [1000, 4096, 10000])
def test_dynamic_is_that_of_the_package(run_js: Any, length: int) -> None:
    ladder = pe_lab.inv_freq(64)
    call = js("dynamic", ladder, factor=2.0, trained=4096, length=length)
    wanted = scaling.dynamic_ntk(ladder, 2, length=length, original_length=4096)
    assert close(run_js("context_stretch.js", call), wanted)


@pytest.mark.parametrize("turns", [(1, 1), (0.5, 8), (3, 300)])
def test_yarn_takes_other_turns(run_js: Any, turns: tuple[float, float]) -> None:
    ladder = pe_lab.inv_freq(64)
    slow, fast = turns
    call = js("yarn", ladder, factor=4, trained=4096, slow=slow, fast=fast)
    wanted = scaling.yarn(
        ladder, 4, original_length=4096, beta_slow=slow, beta_fast=fast
    )
    assert close(run_js("context_stretch.js", call), wanted)


def test_yarn_divides_all_pairs_where_none_makes_a_turn(run_js: Any) -> None:
    ladder = pe_lab.inv_freq(16)
    for trained, wanted in [(1, ladder / 4), (4, None)]:
        if wanted is None:  # the rounding outwards keeps a pair of 0.6 turns
            wanted = scaling.yarn(ladder, 4, original_length=trained)
            assert wanted[0] == 1
        call = js("yarn", ladder, factor=4, trained=trained)
        assert close(run_js("context_stretch.js", call), wanted)


def test_another_base_is_another_ladder(run_js: Any) -> None:
    call = js("rebase", pe_lab.inv_freq(96), base=1e4, newBase=5e5)
    assert close(run_js("context_stretch.js", call), pe_lab.inv_freq(96, base=5e5))


def test_longrope_divides_by_the_long_list(run_js: Any) -> None:
    ladder = pe_lab.inv_freq(96)
    factors = run_js("context_stretch.js", "m.PHI3")
    call = js("longrope", ladder, factors=factors)
    wanted = scaling.longrope(
        ladder, [1.0] * 48, factors, length=4097, original_length=4096
    )
    assert factors == sorted(factors)
    assert close(run_js("context_stretch.js", call), wanted)


def unseen(ladder: Tensor, scaled: Tensor, trained: int, length: int) -> int:
    """How many pairs reach a step of the circle, of 3600, that training did not reach."""
    lost = 0
    for before, after in zip(ladder.tolist(), scaled.tolist(), strict=True):
        seen = min(1.0, trained * before / math.tau)
        reached = min(1.0, length * after / math.tau)
        lost += round(3600 * reached, 6) > round(3600 * seen, 6)
    return lost


@pytest.mark.parametrize("method", ContextStretch().bounds["method"])
@pytest.mark.parametrize("reach", [1, 3, 32])
def test_kept_divided_and_unseen_pairs(run_js: Any, method: str, reach: int) -> None:
    """A second way to count: arcs of the circle, before and after."""
    settings = {"method": method, "factor": 32, "trained": 4096, "reach": reach,
                "base": 1e4, "headDim": 96}  # fmt: skip
    found = run_js("context_stretch.js", f"m.family({json.dumps(settings)})")
    ladder = pe_lab.inv_freq(96)
    slowed = torch.tensor(found["slowed"], dtype=torch.float64)
    top = slowed[-1].item() if method == "dynamic" else 32
    assert found["length"] == reach * 4096
    assert found["kept"] == int((slowed <= 1 + 1e-9).sum())
    assert found["divided"] == (int((slowed >= top - 1e-6).sum()) if top > 1 else 0)
    assert found["lost"] == unseen(ladder, ladder / slowed, 4096, reach * 4096)


def test_figures_of_the_chapter(run_js: Any) -> None:
    """Llama 2 stretched 16 times by YaRN: 21 kept, 18 divided, 25 between, none unseen."""
    settings = "{method: 'yarn', factor: 16, trained: 4096, reach: 16, base: 1e4, headDim: 128}"
    found = run_js("context_stretch.js", f"m.family({settings})")
    assert (found["kept"], found["divided"], found["lost"]) == (21, 18, 0)
    assert sum(turn >= 1 for turn in found["turns"]) == 46
    ntk = run_js("context_stretch.js", f"m.family({settings.replace('yarn', 'ntk')})")
    assert (ntk["kept"], ntk["divided"], ntk["lost"]) == (1, 1, 17)


def test_a_named_case_sets_the_controls(open_page: Any) -> None:
    page = open_page(ContextStretch())
    page.get_by_text("5 pairs meet").wait_for()
    page.get_by_role("button", name="Llama 2, ×16").click()
    page.get_by_text("21 of 64 pairs kept, 18 slowed").wait_for()
    assert (
        page.get_by_label("rule", exact=True).evaluate("e => e.selectedOptions[0].text")
        == "YaRN"
    )
    page.get_by_label("rule", exact=True).select_option("linear (PI)")
    page.get_by_text("0 of 64 pairs kept, 64 slowed").wait_for()
