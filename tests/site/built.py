"""What the tests of the site share: its pages, read as files."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
MISSING = f"There is no built site in {SITE}: run `make book` first."


def pages() -> list[str]:
    """Every page of the site as an address, but for the one that leads to the first."""
    files = (path.relative_to(SITE) for path in SITE.rglob("*.html"))
    names = (path.as_posix() for path in files if path.parts[0] != "_static")
    return sorted(name for name in names if name != "index.html")


def chapters() -> list[str]:
    """The pages made from notebooks."""
    return [page for page in pages() if page.startswith("notebooks/")]


# A test for each page; where there is no site, one that says so.
PAGES = pages() or ["no site"]


@dataclass
class Parsed(HTMLParser):
    """One page: where its links lead, what can be linked to, its pictures."""

    links: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    images: list[dict[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag == "img":
            self.images.append(values)


def parse(page: Path) -> Parsed:
    """Read one page."""
    parsed = Parsed()
    parsed.feed(page.read_text(encoding="utf-8"))
    return parsed
