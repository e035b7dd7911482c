"""A report as HTML that looks right in JupyterLab, on the site and on its own page.

Severity is a sign and a word; colour only repeats it. Letters and colours of text are
those of the page around, so that they suit its light or dark theme.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from pe_lab.doctor.report import SEVERITIES, SIGNS, Finding, Report, details, shown

# Edges that have at least 3:1 against white and against black.
_STYLE = """<style>
.pe-report{max-width:46rem;overflow-wrap:anywhere;line-height:1.5}
div.pe-report p.pe-line{margin:.2rem 0}
div.pe-report dl.pe-list{display:grid;grid-template-columns:max-content 1fr;
gap:.1rem .9rem;margin:.6rem 0}
div.pe-report dl.pe-list dt{font-weight:600;margin:0;padding:0}
div.pe-report dl.pe-list dd{margin:0;padding:0;min-width:0}
div.pe-report ol.pe-list,div.pe-report ul.pe-list{list-style:none;margin:.6rem 0;
padding:0}
div.pe-report .pe-list li{margin:0 0 .5rem;padding:.35rem .7rem;
background:rgba(127,127,127,.1);border-left:.3rem solid #7a828c}
div.pe-report ul.pe-list li{padding:.1rem .7rem;margin:0 0 .2rem}
div.pe-report .pe-list li.pe-wrong{border-color:#d92d20}
div.pe-report .pe-list li.pe-risky{border-color:#b76e00}
div.pe-report .pe-list li.pe-differs{border-color:#2f7fd0}
div.pe-report li p.pe-line+p.pe-line{font-size:.9em}
.pe-report summary{cursor:pointer}
</style>"""


def page(report: Report) -> str:
    """The element that shows a report."""
    facts = "".join(
        f"<dt>{escape(str(name))}</dt><dd>{escape(shown(value))}</dd>"
        for name, value in report.identity.items()
    )
    findings = "".join(map(_finding, report.findings))
    return (
        f'<div class="pe-report">{_STYLE}<p class="pe-line">'
        f"<strong>{escape(report.subject)}</strong>, examined as "
        f"{escape(report.kind)}: {_verdict(report)}</p>"
        + (f'<dl class="pe-list">{facts}</dl>' if facts else "")
        + (f'<ol class="pe-list">{findings}</ol>' if findings else "")
        + _rest(report)
        + "</div>"
    )


def _verdict(report: Report) -> str:
    """Such as "1 wrong, 2 notes", the worst first."""
    counts = {s: sum(f.severity == s for f in report.findings) for s in SEVERITIES}
    words = [
        f"{n} {name}{'s' * (name == 'note' and n > 1)}"
        for name, n in counts.items()
        if n
    ]
    return ", ".join(words) or "nothing found"


def _finding(finding: Finding) -> str:
    more = escape(" · ".join(details(finding)))
    return (
        f'<li class="pe-{finding.severity}"><p class="pe-line"><strong>'
        f"{SIGNS[finding.severity]} {finding.severity}</strong> "
        f'{escape(finding.message)}</p><p class="pe-line">{more}</p></li>'
    )


def _rest(report: Report) -> str:
    """What passed and what does not apply, folded away."""
    passed = _items(f"{p.check}: {p.message}{_number(p.value)}" for p in report.passed)
    others = _items(f"{o.check}: {o.why}" for o in report.not_applicable)
    return (
        f"<details><summary>{len(report.passed)} checks passed</summary>{passed}"
        f"</details><details><summary>{len(report.not_applicable)} do not apply"
        f"</summary>{others}</details>"
    )


def _items(lines: Iterable[str]) -> str:
    return (
        '<ul class="pe-list">'
        + "".join(f"<li>{escape(line)}</li>" for line in lines)
        + "</ul>"
    )


def _number(value: float | None) -> str:
    return "" if value is None else f" ({value:.3g})"
