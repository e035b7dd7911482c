"""The page on speed shows what ``benchmarks/results`` holds, and nothing else.

``.. speed-table:: rotate`` is one table of the stored run, ``.. speed-aims::`` the
targets with their verdicts, ``.. speed-figure::`` the picture, ``.. speed-origin::``
the machine and the date, ``.. speed-gpu::`` the run on a GPU if there is one, and
``:speed:`rotate-peer-fp32``` one number in a sentence.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from matplotlib.text import Text
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

from pe_lab import plots

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are no installed package

from benchmarks import gpu_report, report  # noqa: E402

DARK = {"ink": "#dde3ea", "line": "#8b95a1", "grid": "#3a424d"}
PAINT = {
    "light": {"ours": "#00735a", "peer": "#8a8a8a", "bound": "#c9c9c9"},
    "dark": {"ours": "#4cc3a0", "peer": "#8b95a1", "bound": "#4b5563"},
}


# ── tables ───────────────────────────────────────────────────────────────────────


def cell(text: str, *, number: bool) -> nodes.entry:
    """One cell; numbers stand to the right."""
    paragraph = nodes.paragraph("", text)
    return nodes.entry("", paragraph, classes=["text-right"] if number else [])


def table_row(cells: Iterable[str]) -> nodes.row:
    """A name and its numbers."""
    return nodes.row("", *(cell(t, number=i > 0) for i, t in enumerate(cells)))


def table_node(table: report.Table, *classes: str) -> nodes.table:
    """A table of the report as a table of the page."""
    columns = [nodes.colspec(colwidth=1) for _ in table.head]
    head = nodes.thead("", table_row(table.head))
    body = nodes.tbody("", *map(table_row, table.rows))
    group = nodes.tgroup("", *columns, head, body, cols=len(table.head))
    return nodes.table("", group, classes=["speed", *classes])


class SpeedDirective(SphinxDirective):
    """What all directives here share: the stored run, on which the page depends."""

    def contents(self) -> report.Contents:
        """Each file, noted so that a new run makes a new page."""
        for name in (*report.NAMES, "gpu"):
            self.env.note_dependency(str(report.RESULTS / f"{name}.json"))
        return report.load()


class SpeedTable(SpeedDirective):
    """One benchmark's table; for ``memory``, one job's."""

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table."""
        name, *job = self.arguments
        content = self.contents()[name]
        table: Any = report.TABLES[name]
        return [table_node(table(content, *job))]


class SpeedAims(SpeedDirective):
    """The targets, what was measured, and whether they are met."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        return [table_node(report.target_table(self.contents()), "fits-a-phone")]


class SpeedOrigin(SpeedDirective):
    """When, on what, and with which versions the stored runs were made."""

    def run(self) -> list[nodes.Node]:
        """One sentence."""
        return [nodes.paragraph("", report.origin(self.contents()))]


class SpeedGpu(SpeedDirective):
    """The run on a GPU: its tables, or that there is none."""

    def run(self) -> list[nodes.Node]:
        """One sentence, or sentence and tables."""
        self.contents()
        found = gpu_report.load()
        if found is None:
            return [nodes.paragraph("", gpu_report.NONE)]
        tables = (gpu_report.checks(found), gpu_report.timings(found))
        origin = nodes.paragraph("", gpu_report.origin(found))
        return [origin, *map(table_node, tables)]


class Speed(SphinxRole):
    """One number of the stored run."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The number as text; a name that is not there is an error of the page."""
        known = report.numbers(report.load())
        if self.text not in known:
            message = self.inliner.reporter.error(
                f"no number is called {self.text!r}; there are: {', '.join(known)}",
                line=self.lineno,
            )
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [
                message
            ]
        return [nodes.Text(known[self.text])], []


# ── the picture ──────────────────────────────────────────────────────────────────


def picture(contents: report.Contents, theme: str) -> plots.BookFigure:
    """Bars of time over the bound, a panel for each job."""
    panels = report.panels(contents)
    heights = [len(panel.values) for panel in panels]
    size = (plots.WIDTH, 0.27 * sum(heights) + 0.62 * len(panels))
    ratios = {"gridspec_kw": {"height_ratios": heights}}
    with plots.figure(nrows=len(panels), size=size, **ratios) as (fig, axes):
        for ax, panel in zip(axes, panels, strict=True):
            draw_panel(ax, panel, PAINT[theme])
        if theme == "dark":
            darken(fig)
    return fig


def draw(contents: report.Contents, theme: str) -> bytes:
    """The picture as SVG without a background; the same bytes for the same numbers."""
    stream = io.BytesIO()
    with plots.style():
        picture(contents, theme).savefig(
            stream, format="svg", transparent=True, metadata={"Date": None}
        )
    return with_plain_ids(stream.getvalue().decode()).encode()


def with_plain_ids(svg: str) -> str:
    """The picture with ids that are counted, where matplotlib draws them by lot."""
    names = dict.fromkeys(re.findall(r'id="([pm][0-9a-f]{10})"', svg))
    for number, name in enumerate(names):
        svg = svg.replace(name, f"i{number}")
    return svg


def draw_panel(ax: Any, panel: report.Panel, paint: dict[str, str]) -> None:
    """One job: who takes how many times as long as the bound."""
    rows = range(len(panel.values))
    colors = [paint[kind] for kind in panel.kinds]
    ax.barh(rows, panel.values, 0.7, color=colors)
    ax.axvline(1, color=paint["peer"], lw=1, ls=":")
    ax.set_yticks(rows, panel.names)
    ax.tick_params(axis="y", length=0, labelsize=9)
    ax.tick_params(axis="x", labelsize=9)
    ax.invert_yaxis()
    ax.set_title(panel.title, fontsize=10.5)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", visible=True)
    ax.margins(x=0.1)
    for row, value in zip(rows, panel.values, strict=True):
        text = report.times(value)
        ax.annotate(text, (value, row), (4, 0), textcoords="offset points",
                    va="center", fontsize=9)  # fmt: skip


def darken(fig: Any) -> None:
    """The same picture for a dark page."""
    for ax in fig.axes:
        ax.set_facecolor("none")
        ax.tick_params(
            colors=DARK["line"], labelcolor=DARK["ink"], grid_color=DARK["grid"]
        )
        for spine in ax.spines.values():
            spine.set_color(DARK["line"])
    for text in fig.findobj(Text):
        text.set_color(DARK["ink"])


class SpeedFigure(SpeedDirective):
    """The picture, one for light pages and one for dark ones."""

    def run(self) -> list[nodes.Node]:
        """Two images, of which the page shows one, with one description."""
        contents = self.contents()
        folder = Path(self.env.app.outdir).parent / "generated"
        folder.mkdir(parents=True, exist_ok=True)
        alt = report.describe(report.panels(contents))
        here = Path(self.env.doc2path(self.env.docname)).parent
        images: list[nodes.Node] = []
        for theme in ("light", "dark"):
            path = folder / f"speed-{theme}.svg"
            path.write_bytes(draw(contents, theme))
            uri = Path(os.path.relpath(path, here)).as_posix()
            images.append(nodes.image(uri=uri, alt=alt, classes=[f"only-{theme}"]))
        return images


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.add_role("speed", Speed())
    for name, directive in (
        ("speed-table", SpeedTable),
        ("speed-aims", SpeedAims),
        ("speed-figure", SpeedFigure),
        ("speed-origin", SpeedOrigin),
        ("speed-gpu", SpeedGpu),
    ):
        app.add_directive(name, directive)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
