"""Shuffle computes pe_lab.attention, and a word can be moved in three ways."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import torch

import pe_lab
from pe_lab.explore import Shuffle

WORDS = ["the", "cat", "eats", "the", "fish"]


def compare(run_js: Any, order: list[int], causal: bool, position: bool) -> Any:
    settings = json.dumps({"causal": causal, "addPosition": position})
    words = json.dumps(WORDS)
    return run_js("shuffle.js", f"m.compare({words}, {order}, {settings})")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", [False, True])
def test_the_head_is_pe_lab_attention(
    run_js: Any, causal: bool, position: bool
) -> None:
    order = [3, 0, 4, 2, 1]
    found = compare(run_js, order, causal, position)
    raw = run_js("shuffle.js", f"[{json.dumps(WORDS)}.map(m.embed), m.weights()]")
    x, (w_q, w_k, w_v) = (torch.tensor(part, dtype=torch.float64) for part in raw)
    for sequence, name in ((x, "straight"), (x[order], "shuffled")):
        if position:
            sequence = sequence + pe_lab.sinusoidal(5, 8, dtype=torch.float64)
        q, k, v = ((sequence @ w.T)[None, None] for w in (w_q, w_k, w_v))
        wanted = pe_lab.attention(q, k, v, causal=causal)[0, 0]
        got = torch.tensor(found[name], dtype=torch.float64)
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-9)


def test_all_120_orders_only_travel(run_js: Any) -> None:
    orders = [list(order) for order in itertools.permutations(range(5))]
    found = run_js(
        "shuffle.js",
        f"{orders}.map((order) => m.compare({json.dumps(WORDS)}, order, {{}}))"
        ".map(({most, pooled}) => [most, pooled])",
    )
    # outputs below 4 in size: a few roundings of 4.4e-16 each
    assert len(found) == 120 and max(map(max, found)) < 1e-14


@pytest.mark.parametrize(("causal", "position"), [(True, False), (False, True)])
def test_a_mask_or_a_position_breaks_it(
    run_js: Any, causal: bool, position: bool
) -> None:
    found = compare(run_js, [4, 3, 2, 1, 0], causal, position)
    assert found["most"] > 0.1 and found["pooled"] > 0.01


def test_equal_words_have_equal_outputs(run_js: Any) -> None:
    straight = compare(run_js, [0, 1, 2, 3, 4], False, False)["straight"]
    assert straight[0] == straight[3]


def test_moved_and_shuffled_are_permutations(run_js: Any) -> None:
    found = run_js(
        "shuffle.js",
        "[m.moved([0,1,2,3], 0, 2), m.moved([0,1,2,3], 3, 0),"
        " m.shuffledFrom([0,1,2,3], 1)]",
    )
    assert found[:2] == [[1, 2, 0, 3], [3, 0, 1, 2]]
    assert sorted(found[2]) == [0, 1, 2, 3] and found[2] != [0, 1, 2, 3]


def test_a_new_sentence_stands_as_it_is() -> None:
    figure = Shuffle(order=[4, 3, 2, 1, 0])
    figure.sentence = "fish eats cat"
    assert figure.order == [0, 1, 2]


def shown_order(page: Any) -> list[str]:
    """The words of the lower sentence, from left to right."""
    cards = page.locator(".pe-card").all()
    places = [(card.bounding_box()["x"], card.inner_text()) for card in cards]
    return [text.split()[0] for _, text in sorted(places)]


@pytest.fixture
def still(browser: Any) -> dict[str, str]:
    """A reader who asked for no motion: cards are where they belong at once."""
    return {"reduced_motion": "reduce"}


def test_arrow_keys_walk_a_word(open_page: Any, still: Any) -> None:
    page = open_page(Shuffle(sentence="cat eats fish"), **still)
    page.locator(".pe-card", has_text="cat").press("ArrowRight")
    page.get_by_text("the outputs only travelled").wait_for()
    assert shown_order(page) == ["eats", "cat", "fish"]


def test_a_word_can_be_dragged(open_page: Any, still: Any) -> None:
    page = open_page(Shuffle(sentence="cat eats fish"), **still)
    box = page.locator(".pe-card", has_text="cat").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 20
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 2.1 * box["width"], y, steps=8)
    page.get_by_text("the outputs only travelled").wait_for()
    page.mouse.up()
    assert shown_order(page) == ["eats", "fish", "cat"]


def test_buttons_reverse_and_restore(open_page: Any, still: Any) -> None:
    page = open_page(Shuffle(sentence="cat eats fish"), **still)
    page.get_by_role("button", name="Reverse").click()
    page.get_by_text("the outputs only travelled").wait_for()
    assert shown_order(page) == ["fish", "eats", "cat"]
    page.get_by_role("button", name="Restore").click()
    page.get_by_text("nothing has moved yet").wait_for()
    assert shown_order(page) == ["cat", "eats", "fish"]


def test_the_mask_shows_at_once(open_page: Any) -> None:
    page = open_page(Shuffle(order=[4, 3, 2, 1, 0]))
    page.get_by_label("causal mask").check()
    page.get_by_text("the outputs changed on the way").wait_for()
    assert page.locator(".pe-note.pe-changed").count() >= 4
