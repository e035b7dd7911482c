"""What the reader can do with the site besides reading: themes, search, phone menu."""

from __future__ import annotations

import pytest

FRONT = "book/intro.html"


def test_the_fonts_of_the_site_are_used(site, page):
    page.goto(f"{site}/{FRONT}")
    page.evaluate("() => document.fonts.ready")
    for font in ("400 16px Inter", "700 16px Inter", "italic 400 16px Inter"):
        assert page.evaluate("font => document.fonts.check(font)", font), font
    loaded = "() => [...document.fonts].filter(font => font.status === 'loaded').length"
    assert page.evaluate(loaded) >= 2


def test_the_theme_can_be_changed_and_is_remembered(site, page):
    page.emulate_media(color_scheme="light")
    page.goto(f"{site}/{FRONT}")
    html = page.locator("html")
    assert html.get_attribute("data-theme") == "light"
    switch = page.locator("button.theme-switch-button:visible").first
    for _ in range(3):
        switch.click()
        if html.get_attribute("data-theme") == "dark":
            break
    assert html.get_attribute("data-theme") == "dark"
    page.goto(f"{site}/book/notation.html")
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_the_picture_on_the_front_page_follows_the_theme(site, page):
    page.emulate_media(color_scheme="dark")
    page.goto(f"{site}/{FRONT}")
    assert (
        page.locator("img.hero:visible").get_attribute("src").endswith("hero-dark.png")
    )


def test_search_works_without_a_network(site, page):
    page.goto(f"{site}/search.html?q=permutation")
    page.wait_for_selector("#search-results li")
    assert page.locator("#search-results li").count() >= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_stand_on_white(site, page, scheme):
    """Figures are drawn for white paper; in the dark they keep it, and their colours."""
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{site}/{FRONT}")
    page.evaluate(
        """() => document.querySelector("article").insertAdjacentHTML("beforeend",
            '<div class="cell_output"><img id="probe" alt=""></div>')"""
    )
    style = page.locator("#probe").evaluate(
        "image => ({filter: getComputedStyle(image).filter, "
        "paper: getComputedStyle(image).backgroundColor})"
    )
    assert style["filter"] == "none"
    if scheme == "dark":
        assert style["paper"] == "rgb(255, 255, 255)"


def test_the_menu_opens_on_a_phone(site, page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site}/{FRONT}")
    page.locator("button.primary-toggle").first.click()
    page.wait_for_selector("#pst-primary-sidebar-modal a.reference:visible")
