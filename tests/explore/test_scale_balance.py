"""ScaleBalance's lengths, shares and angle are those of random words and pe_lab's table."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import pe_lab
from pe_lab.explore import ScaleBalance


def balance(run_js: Any, d_model: int, init: str, words: bool, positions: str) -> Any:
    settings = (
        f"{{dModel: {d_model}, init: '{init}', scaleWords: {str(words).lower()},"
        f" scalePositions: '{positions}'}}"
    )
    return run_js("scale_balance.js", f"m.balance({settings})")


@pytest.mark.parametrize("d_model", [1, 2, 16, 512, 4096])
def test_mean_length_is_the_chi_mean(run_js: Any, d_model: int) -> None:
    found = run_js("scale_balance.js", f"m.meanLength({d_model})")
    log_ratio = math.lgamma((d_model + 1) / 2) - math.lgamma(d_model / 2)
    # lgamma(2048) is about 1.4e4, so the difference carries about 1e-11
    assert found == pytest.approx(math.sqrt(2) * math.exp(log_ratio), rel=1e-9)


@pytest.mark.parametrize("d_model", [16, 512])
@pytest.mark.parametrize("init", ["1/sqrt(d)", "1", "0.02"])
@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("positions", ["1", "1/sqrt(d)"])
def test_against_random_words(
    run_js: Any, d_model: int, init: str, words: bool, positions: str
) -> None:
    found = balance(run_js, d_model, init, words, positions)
    std = {"1/sqrt(d)": d_model**-0.5, "1": 1.0, "0.02": 0.02}[init]
    std *= d_model**0.5 if words else 1
    factor = 1 if positions == "1" else d_model**-0.5
    draw = torch.Generator().manual_seed(0)
    e = std * torch.randn(4000, d_model, generator=draw, dtype=torch.float64)
    p = factor * pe_lab.sinusoidal(4000, d_model, dtype=torch.float64)
    cosine = torch.cosine_similarity(e + p, e, dim=-1).mean()
    # 4000 draws: the mean length is known to 1/√(2·d·4000), 0.3 % at d = 16; the cosine
    # in the formula is that of root-mean-square lengths, apart from the mean by O(1/d)
    assert found["word"] == pytest.approx(e.norm(dim=-1).mean().item(), rel=0.01)
    assert found["position"] == pytest.approx(p.norm(dim=-1).mean().item(), rel=1e-9)
    assert found["cosine"] == pytest.approx(cosine.item(), abs=1 / d_model)
    energy = e.square().sum() / (e.square().sum() + p.square().sum())
    assert found["shareOfEnergy"] == pytest.approx(energy.item(), abs=0.01)


def test_figures_at_512(run_js: Any) -> None:
    forgotten = balance(run_js, 512, "1/sqrt(d)", False, "1")
    assert forgotten["position"] == pytest.approx(16, rel=1e-12)
    assert round(forgotten["shareOfLength"], 3) == 0.059
    assert round(forgotten["shareOfEnergy"], 4) == 0.0039
    paper = balance(run_js, 512, "1/sqrt(d)", True, "1")
    other = balance(run_js, 512, "1/sqrt(d)", False, "1/sqrt(d)")
    assert paper["word"] / paper["position"] == pytest.approx(
        other["word"] / other["position"], rel=1e-12
    )


def test_the_named_cases_have_the_verdicts_of_the_chapter(run_js: Any) -> None:
    verdicts = run_js(
        "scale_balance.js",
        "Object.fromEntries(m.CASES.map(([name, , [init, scaleWords, scalePositions]])"
        " => [name, m.verdict(m.balance("
        "{dModel: 512, init, scaleWords, scalePositions}))]))",
    )
    assert verdicts == {
        "√d forgotten": "The position drowns the word.",
        "the paper": "Neither drowns the other.",
        "positions ÷ √d": "Neither drowns the other.",
        "both": "The word drowns the position.",
        "PyTorch default": "Neither drowns the other.",
        "PyTorch × √d": "The word drowns the position.",
    }


def test_a_named_case_sets_the_controls_and_is_marked(open_page: Any) -> None:
    page = open_page(ScaleBalance())
    button = page.get_by_role("button", name="PyTorch × √d")
    button.click()
    page.get_by_text("The word drowns the position.").wait_for()
    assert page.get_by_label("words times √d").is_checked()
    assert page.locator("[aria-pressed=true]").all_inner_texts() == ["PyTorch × √d"]
    page.get_by_label("words drawn from").select_option("N(0, 0.02²)")
    page.wait_for_function("!document.querySelector('[aria-pressed=true]')")
