"""The built site behind a file server that nothing else can reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Route,
    ViewportSize,
)

from tests.site.built import MISSING, SITE
from tests.site.visit import Visit, visit

DESKTOP: ViewportSize = {"width": 1280, "height": 900}


class Quiet(SimpleHTTPRequestHandler):
    """A plain file server that does not log."""

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """The address of the built site."""
    if not (SITE / "index.html").exists():
        pytest.fail(MISSING, pytrace=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def new_context(browser: Browser) -> BrowserContext:
    """A fresh profile on a desktop screen, with the network unplugged."""
    context = browser.new_context(viewport=DESKTOP)
    context.set_default_timeout(120_000)  # ms; a busy machine is no failure
    context.route("**/*", refuse_other_hosts)
    return context


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh window."""
    context = new_context(browser)
    yield context.new_page()
    context.close()


def refuse_other_hosts(route: Route) -> None:
    """Let a request through only to this machine."""
    local = ("http://127.0.0.1:", "file:", "data:", "blob:")
    if route.request.url.startswith(local):
        route.continue_()
    else:
        route.abort()


@pytest.fixture(scope="session")
def seen(browser: Browser, site: str) -> Iterator[Callable[[str], Visit]]:
    """What was seen on a page, visited once for all tests."""
    context = new_context(browser)
    visits: dict[str, Visit] = {}

    def look(page: str) -> Visit:
        if page not in visits:
            window = context.new_page()
            visits[page] = visit(window, site, page)
            window.close()
        return visits[page]

    yield look
    context.close()
