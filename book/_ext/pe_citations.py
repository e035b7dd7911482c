"""Citations in the running text as Author (year), in round brackets."""

from __future__ import annotations

from dataclasses import dataclass, field

from sphinx.application import Sphinx
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle


def round_brackets() -> BracketStyle:
    """The brackets around a year, or around a whole citation."""
    return BracketStyle(left="(", right=")")


@dataclass
class RoundAuthorYear(AuthorYearReferenceStyle):
    """Vaswani et al. (2017), and (Vaswani et al., 2017) in parentheses."""

    bracket_parenthetical: BracketStyle = field(default_factory=round_brackets)
    bracket_textual: BracketStyle = field(default_factory=round_brackets)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the style under the name that ``_config.yml`` gives."""
    register_plugin(
        "sphinxcontrib.bibtex.style.referencing", "author_year_round", RoundAuthorYear
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
