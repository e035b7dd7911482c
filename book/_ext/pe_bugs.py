"""The index of public bugs, from ``book/bugs.yml``.

``{bug-index} layout`` lists one family, each bug with its text, where it hides, the
checks that see it, the page that explains it, and the public reports;
``{bug-hides}`` lists all of them by where they hide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

BUGS = Path(__file__).resolve().parents[1] / "bugs.yml"

# In the order of the chapter: what a test has to leave to see the bug.
HIDES = {
    "position 0": "at position 0",
    "square": "on squares and powers of two",
    "short text": "in short texts",
    "one row": "in a batch of one",
    "softmax": "after the softmax",
    "first call": "in the first call",
    "other path": "on the path that is tested",
}


def families() -> list[dict[str, Any]]:
    """The families, in the order of the file."""
    loaded: list[dict[str, Any]] = yaml.safe_load(BUGS.read_text(encoding="utf-8"))
    return loaded


def address(report: str) -> str:
    """``repository#number`` on GitHub, which sends an issue's address to its pull."""
    repository, _, number = report.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


def entry(bug: dict[str, Any]) -> list[str]:
    """The Markdown lines of one bug."""
    links = ", ".join(f"[{report}]({address(report)})" for report in bug["reports"])
    checks = ", ".join(bug["checks"])
    return [
        f"(bug-{bug['id']})=",
        f"**{bug['title']}.** {bug['text']}",
        f"*Invisible {HIDES[bug['hides']]}. Seen by {checks}. "
        f"Explained in {{ref}}`{bug['chapter']}`. Reports:* {links}",
        "",
    ]


def by_hiding_place() -> list[str]:
    """The Markdown lines of all bugs, by where they hide."""
    bugs = [bug for family in families() for bug in family["bugs"]]
    lines = []
    for hides, words in HIDES.items():
        here = [bug for bug in bugs if bug["hides"] == hides]
        names = (f"{{ref}}`{bug['title']} <bug-{bug['id']}>`" for bug in here)
        lines += [f"Invisible {words} ({len(here)})", f": {'; '.join(names)}.", ""]
    return lines


class BugDirective(SphinxDirective):
    """What both directives share: Markdown that is made, then parsed."""

    def parsed(self, lines: list[str]) -> list[nodes.Node]:
        """The nodes of Markdown lines."""
        self.env.note_dependency(str(BUGS))
        place = nodes.container(classes=["bugs"])
        text = StringList(lines, source=str(BUGS))
        self.state.nested_parse(text, self.content_offset, place)
        return list(place.children)


class BugIndex(BugDirective):
    """One family."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Its bugs, one paragraph each."""
        (family,) = (f for f in families() if f["family"] == self.arguments[0])
        return self.parsed([line for bug in family["bugs"] for line in entry(bug)])


class BugHides(BugDirective):
    """All of them, by hiding place."""

    def run(self) -> list[nodes.Node]:
        """A definition list."""
        return self.parsed(by_hiding_place())


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("bug-index", BugIndex)
    app.add_directive("bug-hides", BugHides)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
