"""Every page: alone in the world, complete, readable by all, on any screen."""

from __future__ import annotations

import pytest

from tests.site.built import PAGES

every_page = pytest.mark.parametrize("page", PAGES)


@every_page
def test_nothing_comes_from_another_host(seen, page):
    assert seen(page).foreign == []


@every_page
def test_everything_loads_without_an_error(seen, page):
    assert seen(page).failed == []
    assert seen(page).errors == []


@every_page
def test_formulas_are_set(seen, page):
    shown = seen(page).shown
    assert shown["typeset"] >= shown["math"]
    assert shown["broken"] == 0


@every_page
def test_no_markup_is_left_in_the_text(seen, page):
    assert seen(page).shown["raw"] == []


@every_page
def test_every_explorable_is_live(seen, page):
    assert seen(page).shown["live"] == seen(page).shown["widgets"]


@every_page
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_there_is_no_barrier(seen, page, theme):
    """WCAG 2.1 A and AA, as far as axe-core can tell."""
    assert seen(page).barriers[theme] == []


@every_page
def test_nothing_sticks_out_on_a_phone(seen, page):
    assert seen(page).sticks_out == []


def test_the_address_of_the_site_leads_to_the_front_page(site, page):
    page.goto(f"{site}/")
    page.wait_for_url("**/book/intro.html")
    assert "book/intro.html" in PAGES
