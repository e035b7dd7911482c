"""The host makes every explorable live without a kernel, from http and from a file."""

from __future__ import annotations

from typing import Any

import pytest

from pe_lab import explore
from tests.explore.conftest import NAMES

ROOT = ".pe-explore"


def touch_first_control(page: Any) -> None:
    """Use the first control as a keyboard user would."""
    control = page.locator(".pe-controls :is(input, select, button)").first
    control.focus()
    kind = control.evaluate("control => control.type")
    keys = {"range": "ArrowRight", "select-one": "ArrowDown"}
    control.press(keys.get(kind, "Space"))


@pytest.mark.parametrize("address", ["http", "file"], indirect=True)
@pytest.mark.parametrize("name", NAMES)
def test_it_starts_and_answers(open_page: Any, name: str) -> None:
    page = open_page(getattr(explore, name)())
    before = page.locator("output").inner_text()
    assert before.strip()
    touch_first_control(page)
    page.wait_for_function(
        "before => document.querySelector('output').innerText !== before", arg=before
    )


@pytest.mark.parametrize("name", NAMES)
def test_it_fits_a_phone(open_page: Any, name: str) -> None:
    page = open_page(getattr(explore, name)(), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    inside = page.evaluate(
        """() => {
          const root = document.querySelector('.pe-explore').getBoundingClientRect();
          return [...document.querySelectorAll('.pe-explore *')].every((element) => {
            const box = element.getBoundingClientRect();
            if (!box.width) return true; // an <option> has no box of its own
            return box.left >= root.left - 1 && box.right <= root.right + 1;
          });
        }"""
    )
    assert inside


@pytest.mark.parametrize("name", NAMES)
def test_every_control_has_a_visible_name(open_page: Any, name: str) -> None:
    page = open_page(getattr(explore, name)())
    for control in page.locator(f"{ROOT} :is(input, select)").all():
        label = page.locator(f"label[for='{control.get_attribute('id')}']")
        assert label.inner_text().strip() and label.is_visible()
    for button in page.locator(f"{ROOT} button").all():
        assert button.inner_text().strip()


@pytest.mark.parametrize("name", NAMES)
def test_a_new_theme_and_a_new_width_redraw_it(open_page: Any, name: str) -> None:
    page = open_page(getattr(explore, name)())
    ink = f"getComputedStyle(document.querySelector('{ROOT}')).color"
    light = page.evaluate(ink)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert page.evaluate(ink) != light
    wide = page.locator(".pe-figure").inner_html()
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function(
        "wide => document.querySelector('.pe-figure').innerHTML !== wide", arg=wide
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_violation_of_wcag_aa(open_page: Any, theme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="axe-playwright-python is not installed: nothing to judge with",
    )
    figures = [getattr(explore, name)() for name in NAMES if name != "Shuffle"]
    page = open_page(explore.Shuffle(order=[4, 0, 1, 2, 3], causal=True), *figures)
    page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = axe.Axe().run(page, options=rules)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(open_page: Any, theme: str) -> None:
    """axe cannot judge text in a drawing; every colour of text must reach 4.5 : 1."""
    page = open_page(explore.KernelShape())
    page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    names = ["surface", "ink", "muted", "content", "position", "accent"]
    surface, *inks = page.evaluate(
        """names => {
          const root = document.querySelector('.pe-explore');
          return names.map((name) => {
            root.style.color = `var(--_${name})`;
            return getComputedStyle(root).color.match(/\\d+/g).map(Number);
          });
        }""",
        names,
    )
    for name, ink in zip(names[1:], inks, strict=True):
        assert contrast(ink, surface) >= 4.5, name


def contrast(one: list[int], other: list[int]) -> float:
    """Contrast ratio of two sRGB colours (WCAG 2.1)."""

    def luminance(colour: list[int]) -> float:
        shares = [part / 255 for part in colour[:3]]
        linear = [
            share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
            for share in shares
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_all_live_together_on_one_page(open_page: Any) -> None:
    page = open_page(*(getattr(explore, name)() for name in NAMES))
    assert page.locator("[data-pe-ready=true]").count() == len(NAMES)
    assert page.locator("style[data-pe-explore]").count() == 1


def test_a_module_that_fails_leaves_its_description(browser: Any, folder: Any) -> None:
    from tests.explore.conftest import page_of

    figure = explore.KernelShape()
    broken = page_of(figure).replace("export default", "throw new Error();")
    (folder / "page.html").write_text(broken, "utf-8")
    page = browser.new_page()
    page.goto((folder / "page.html").as_uri())
    page.get_by_text("could not start").wait_for()
    assert figure.about in page.locator("body").inner_text()
    page.close()
