"""The page on the laboratory shows what the shipped results hold, and nothing else.

``.. results-costs::`` is a table of what each experiment took, ``.. results-figure::
sqrt-d`` the picture that ``pe-lab plot sqrt-d`` draws, and ``:results:`hours``` one
number in a sentence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

from pe_lab.lab import Result, figures, load, store
from pe_lab.lab.experiments import EXPERIMENTS

HEAD = ("experiment", "question", "variants", "seeds", "CPU time", "slowest run")


def shipped() -> dict[str, Result]:
    """Every shipped result, by its name."""
    return {name: load(name) for name in store.shipped()}


def seconds(result: Result) -> list[float]:
    """CPU seconds of each run."""
    return [float(run.provenance["cpu_seconds"]) for run in result.runs]


def duration(value: float) -> str:
    """Seconds as people say them; two digits are what another machine may confirm."""
    for unit, size in (("h", 3600), ("min", 60)):
        if value >= 1.5 * size:
            return f"{value / size:.2g} {unit}"
    return f"{value:.2g} s"


def costs(results: dict[str, Result]) -> list[tuple[str, ...]]:
    """A row for each experiment: its question, its size, and what it took."""
    rows = []
    for name, result in results.items():
        seeds = {len(result.of(variant)) for variant in result.variants}
        rows.append(
            (
                name,
                EXPERIMENTS[name].question,
                str(len(result.variants)),
                "–".join(map(str, sorted({min(seeds), max(seeds)}))),
                duration(result.cpu_seconds),
                duration(max(seconds(result))),
            )
        )
    return rows


def numbers(results: dict[str, Result]) -> dict[str, str]:
    """The numbers that sentences quote."""
    spent = {name: result.cpu_seconds for name, result in results.items()}
    slowest = max(max(seconds(result)) for result in results.values())
    return {
        "runs": str(sum(len(result.runs) for result in results.values())),
        "total": duration(sum(spent.values())),
        "half": duration(sum(spent.values()) / 2),
        "slowest-run": duration(slowest),
        "largest": max(spent, key=lambda name: spent[name]),
    }


class ResultsDirective(SphinxDirective):
    """What the directives share: the page depends on the stored results."""

    def results(self) -> dict[str, Result]:
        """Each result, noted so that a new one makes a new page."""
        for name in store.shipped():
            self.env.note_dependency(str(store.SHIPPED / f"{name}.json"))
        return shipped()


class Costs(ResultsDirective):
    """The table of what each experiment took."""

    def run(self) -> list[nodes.Node]:
        """One table."""
        rows = costs(self.results())
        columns = [nodes.colspec(colwidth=1) for _ in HEAD]
        head, body = nodes.thead("", row(HEAD)), nodes.tbody("", *map(row, rows))
        group = nodes.tgroup("", *columns, head, body, cols=len(HEAD))
        return [nodes.table("", group, classes=["speed"])]


def row(cells: Iterable[str]) -> nodes.row:
    """A name and a question, and numbers, which stand to the right."""
    return nodes.row(
        "",
        *(
            nodes.entry(
                "", nodes.paragraph("", text), classes=["text-right"] * (place > 1)
            )
            for place, text in enumerate(cells)
        ),
    )


class Picture(ResultsDirective):
    """What ``pe-lab plot NAME`` draws."""

    required_arguments = 1
    option_spec = {
        "metric": directives.unchanged,
        "alt": directives.unchanged_required,
        "ylog": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        """One image."""
        name = self.arguments[0]
        figure = figures.draw(
            self.results()[name],
            self.options.get("metric"),
            ylog="ylog" in self.options,
        )
        folder = Path(self.env.app.outdir).parent / "generated"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"results-{name}.svg"
        figures.save(figure, path)
        here = Path(self.env.doc2path(self.env.docname)).parent
        uri = Path(os.path.relpath(path, here)).as_posix()
        return [nodes.paragraph("", "", nodes.image(uri=uri, alt=self.options["alt"]))]


class Number(SphinxRole):
    """One number of the stored results."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The number as text; a name that is not there is an error of the page."""
        known = numbers(shipped())
        if self.text in known:
            return [nodes.Text(known[self.text])], []
        message = self.inliner.reporter.error(
            f"no number is called {self.text!r}; there are: {', '.join(known)}",
            line=self.lineno,
        )
        return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [
            message
        ]


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.add_role("results", Number())
    app.add_directive("results-costs", Costs)
    app.add_directive("results-figure", Picture)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
