"""Links and pictures, read from the files: no browser needed."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.site.built import PAGES, SITE, Parsed, parse

parsed = cache(parse)
every_page = pytest.mark.parametrize("page", PAGES)


def broken_links(page: Path, content: Parsed) -> list[str]:
    """Links within the site that lead nowhere."""
    broken = []
    for link in content.links:
        address = urlsplit(link)
        if address.scheme or address.netloc:
            continue
        target = page
        if address.path:
            target = (page.parent / unquote(address.path)).resolve()
        place = unquote(address.fragment)
        if not target.is_file():
            broken.append(f"{link}: no such file")
        elif place and target.suffix == ".html" and place not in parsed(target).ids:
            broken.append(f"{link}: no such place")
    return broken


@every_page
def test_every_link_within_the_site_leads_somewhere(site, page):
    path = SITE / page
    assert broken_links(path, parsed(path)) == []


@every_page
def test_every_picture_says_what_it_shows(site, page):
    nameless = [
        image["src"] for image in parsed(SITE / page).images if "alt" not in image
    ]
    assert nameless == []


@every_page
def test_every_figure_of_the_text_is_described(site, page):
    """The logo beside the title is decoration; every other picture has words."""
    empty = [
        image["src"]
        for image in parsed(SITE / page).images
        if not image.get("alt") and "logo__image" not in str(image.get("class"))
    ]
    assert empty == []


@every_page
def test_a_name_on_a_page_is_given_once(site, page):
    twice = [name for name, n in Counter(parsed(SITE / page).ids).items() if n > 1]
    assert twice == []


def test_a_broken_link_is_seen(tmp_path: Path):
    page = tmp_path / "a.html"
    page.write_text(
        '<a href="b.html">b</a><a href="#c">c</a><h1 id="d"></h1><a href="#d">d</a>'
    )
    assert broken_links(page, parse(page)) == [
        "b.html: no such file",
        "#c: no such place",
    ]
