"""Explorables on the site: they move when they are moved, with no kernel anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from tests.site.built import SITE, chapters

READY = "[data-pe-ready]"
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def explores(chapter: str) -> bool:
    """Whether a chapter's source shows an explorable; some questions have none."""
    source = NOTEBOOKS / Path(chapter).with_suffix(".py").name
    return "pe_lab.explore." in source.read_text(encoding="utf-8")


CHAPTERS = [chapter for chapter in chapters() if explores(chapter)] or ["no site"]

# All that a reader can see of an explorable: its text, its drawing, its pixels.
LOOK = """figure => figure.innerText + [...figure.querySelectorAll("svg")]
    .map(svg => svg.innerHTML).join() + [...figure.querySelectorAll("canvas")]
    .map(canvas => canvas.toDataURL()).join()"""


def controls(explorable: Locator) -> list[Locator]:
    """Its sliders, or else its buttons."""
    sliders = explorable.locator("input[type=range]:not([disabled])").all()
    return sliders or explorable.locator("button:not([disabled])").all()


def move(control: Locator) -> None:
    """Take a slider to its other end, or press a button."""
    if control.evaluate("control => control.tagName") == "BUTTON":
        control.click()
        return
    control.focus()
    at_end = control.evaluate("slider => slider.value === slider.max")
    control.press("Home" if at_end else "End")


def moves(page: Page, explorable: Locator, control: Locator) -> bool:
    """Whether moving one control changes what the explorable shows."""
    before = explorable.evaluate(LOOK)
    move(control)
    try:
        page.wait_for_function(
            f"([figure, before]) => ({LOOK})(figure) !== before",
            arg=[explorable.element_handle(), before],
            timeout=1500,
        )
    except PlaywrightTimeoutError:
        return False
    return True


def assert_moves(page: Page, explorable: Locator) -> None:
    """Some slider, or where there is none some button, changes what is shown."""
    explorable.scroll_into_view_if_needed()
    assert any(moves(page, explorable, control) for control in controls(explorable))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_each_explorable_moves(site, page, chapter):
    page.goto(f"{site}/{chapter}")
    page.wait_for_selector(READY)
    explorables = page.locator(READY)
    for number in range(explorables.count()):
        assert_moves(page, explorables.nth(number))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_can_be_read_from_a_folder(site, page, chapter):
    """No server at all: formulas and explorables work from file://."""
    page.goto((SITE / chapter).as_uri())
    page.wait_for_selector("mjx-container")
    page.wait_for_selector(READY)
    assert_moves(page, page.locator(READY).first)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_an_explorable_for_each_saved_widget(site, chapter):
    """Other widgets would need a kernel, so the host shows none of them."""
    text = (SITE / chapter).read_text(encoding="utf-8")
    assert text.count("application/vnd.jupyter.widget-view+json") >= 1
