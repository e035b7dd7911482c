"""The index of public bugs is complete, and everything that it points to is there."""

from __future__ import annotations

import re
from itertools import chain

import pytest
import yaml

from book._ext import pe_bugs
from tests.book.chapters import ROOT

FIELDS = {"id", "title", "hides", "checks", "chapter", "reports", "text"}
REPORT = re.compile(r"[A-Za-z0-9][\w-]*/[\w.-]+#\d+")
CHECK = re.compile(r'"(D-[A-Z]+)"')

FAMILIES = pe_bugs.families()
BUGS = list(chain.from_iterable(family["bugs"] for family in FAMILIES))
each_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug["id"])


def labels() -> set[str]:
    """The labels of all pages."""
    sources = [*ROOT.glob("notebooks/*.py"), *ROOT.glob("book/*.md")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    return set(re.findall(r"(?m)^(?:# )?\((\S+)\)=$", text))


def known_checks() -> set[str]:
    """The checks that the doctor makes."""
    sources = (ROOT / "src/pe_lab/doctor").rglob("*.py")
    return set(CHECK.findall("".join(p.read_text(encoding="utf-8") for p in sources)))


@each_bug
def test_a_bug_has_every_field_and_each_says_something(bug):
    assert set(bug) == FIELDS
    assert all(bug.values())
    assert bug["hides"] in pe_bugs.HIDES
    assert bug["text"].endswith(".")
    assert not bug["title"].endswith(".")


@each_bug
def test_its_reports_have_addresses_and_none_is_named_twice(bug):
    assert all(REPORT.fullmatch(report) for report in bug["reports"])
    assert len(set(bug["reports"])) == len(bug["reports"])


@each_bug
def test_its_chapter_and_its_checks_are_there(bug):
    assert bug["chapter"] in labels()
    assert set(bug["checks"]) <= known_checks()


def test_ids_and_titles_name_one_bug_each():
    for field in ("id", "title"):
        names = [bug[field] for bug in BUGS]
        assert len(set(names)) == len(names)


def test_every_hiding_place_and_family_has_bugs_and_its_place_on_the_page():
    assert {bug["hides"] for bug in BUGS} == set(pe_bugs.HIDES)
    page = (ROOT / "book/bugs.md").read_text(encoding="utf-8")
    shown = re.findall(r"(?m)^## (.+)\n\n```\{bug-index\} (\S+)$", page)
    assert shown == [(f["title"], f["family"]) for f in FAMILIES]


def test_the_chapter_says_how_many_there_are():
    (chapter,) = ROOT.glob("notebooks/18_*.py")
    text = chapter.read_text(encoding="utf-8")
    assert f"We collected {len(BUGS)} such bugs" in text


def test_the_chapter_lists_every_check_that_the_doctor_makes():
    (chapter,) = ROOT.glob("notebooks/18_*.py")
    table = chapter.read_text(encoding="utf-8").partition("(sec-bugs-checks)=")[2]
    listed = re.findall(r"(?m)^# \| `(D-[A-Z]+)` \|", table)
    assert len(set(listed)) == len(listed)
    assert set(listed) == known_checks()


def test_an_entry_links_its_reports():
    bug = {
        "id": "one",
        "title": "One",
        "text": "It fails.",
        "hides": "square",
        "checks": ["D-GRID"],
        "chapter": "ch-bugs",
        "reports": ["owner/name.py#12"],
    }
    lines = "\n".join(pe_bugs.entry(bug))
    link = "[owner/name.py#12](https://github.com/owner/name.py/issues/12)"
    assert link in lines
    assert "(bug-one)=" in lines


def test_the_file_is_plain_enough_to_be_read_by_a_person():
    text = pe_bugs.BUGS.read_text(encoding="utf-8")
    assert yaml.safe_load(text) == FAMILIES
    assert all(len(line) <= 88 for line in text.splitlines())
