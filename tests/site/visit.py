"""One visit to a page: what it asked for, and what a reader would be shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from playwright.sync_api import ConsoleMessage, Page, Request, Response

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
PHONE = {"width": 390, "height": 844}

# Formulas are set when MathJax says so, and figures drawn when they are marked ready.
SETTLED = """async () => {
    await document.fonts.ready;
    if (document.querySelector(".math")) {
        while (!window.MathJax?.startup?.promise) await new Promise(requestAnimationFrame);
        await window.MathJax.startup.promise;
    }
    const widgets = 'script[type="application/vnd.jupyter.widget-view+json"]';
    const wanted = document.querySelectorAll(widgets).length;
    for (let turn = 0; turn < 300; turn++) {
        if (document.querySelectorAll("[data-pe-ready]").length >= wanted) break;
        await new Promise(requestAnimationFrame);
    }
}"""

MEASURE = """() => ({
    math: document.querySelectorAll("article .math").length,
    typeset: document.querySelectorAll("article .math mjx-container").length,
    broken: document.querySelectorAll("mjx-merror, [data-mjx-error]").length,
    widgets: document.querySelectorAll(
        'script[type="application/vnd.jupyter.widget-view+json"]').length,
    live: document.querySelectorAll("[data-pe-ready]").length,
    raw: [...document.querySelectorAll("article p, article li")]
        .map(element => element.textContent)
        .filter(text => /^\\s*:::|```\\{/.test(text)),
})"""

# What sticks out to the right of a narrow window, unless it lies in a box that scrolls.
STICKS_OUT = """() => {
    if (document.documentElement.scrollWidth <= innerWidth) return [];
    return [...document.querySelectorAll("main *")]
        .filter(element => element.getBoundingClientRect().right > innerWidth + 1)
        .map(element => element.outerHTML.slice(0, 120)).slice(0, 3);
}"""

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@dataclass
class Visit:
    """What happened on one page."""

    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    shown: dict[str, Any] = field(default_factory=dict)
    barriers: dict[str, list[str]] = field(default_factory=dict)
    sticks_out: list[str] = field(default_factory=list)

    def watch(self, window: Page, site: str) -> None:
        """Note every request, answer and message of a window."""

        def request(request: Request) -> None:
            if not request.url.startswith((site, "data:", "blob:")):
                self.foreign.append(request.url)

        def failed(request: Request) -> None:
            self.failed.append(f"{request.url}: {request.failure}")

        def response(response: Response) -> None:
            if response.status >= 400:
                self.failed.append(f"{response.url}: {response.status}")

        def console(message: ConsoleMessage) -> None:
            if message.type == "error":
                self.errors.append(message.text)

        window.on("request", request)
        window.on("requestfailed", failed)
        window.on("response", response)
        window.on("console", console)
        window.on("pageerror", lambda error: self.errors.append(str(error)))


def barriers(window: Page) -> list[str]:
    """Violations of WCAG 2.1 A and AA, each with the first element that shows it."""
    if not window.evaluate("() => 'axe' in window"):
        window.evaluate(AXE)
    found = window.evaluate(
        "rules => axe.run(document, "
        "{runOnly: rules, resultTypes: ['violations'], preload: false})",
        RULES,
    )
    return [
        f"{broken['id']}: {node['html'][:160]} ({node['failureSummary']})"
        for broken in found["violations"]
        for node in broken["nodes"][:3]
    ]


def visit(window: Page, site: str, page: str) -> Visit:
    """Open a page; look at it in light, in dark, and through a narrow window."""
    seen = Visit()
    seen.watch(window, site)
    window.emulate_media(color_scheme="light", reduced_motion="reduce")
    window.goto(f"{site}/{page}", wait_until="load")
    window.evaluate(SETTLED)
    seen.shown = window.evaluate(MEASURE)
    seen.barriers["light"] = barriers(window)
    window.emulate_media(color_scheme="dark")
    window.wait_for_selector('html[data-theme="dark"]', state="attached")
    seen.barriers["dark"] = barriers(window)
    window.set_viewport_size(PHONE)
    window.evaluate("() => new Promise(requestAnimationFrame)")
    seen.sticks_out = window.evaluate(STICKS_OUT)
    return seen
