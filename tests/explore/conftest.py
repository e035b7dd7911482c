"""Run an explorable's arithmetic under node, and its front end in a browser."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anywidget", reason="explorables need the extra pe-lab[book]")

from pe_lab import explore  # noqa: E402
from pe_lab.explore.base import Explorable, bundle  # noqa: E402

HOST = Path(__file__).parents[2] / "book/_static/explorables/host.js"
NAMES = [name for name in explore.__all__ if name != "Explorable"]


@pytest.fixture
def run_js(tmp_path: Path) -> Callable[[str, str], Any]:
    """run_js("kernel_shape.js", "m.kernel([0], 8, 1e4)") → the value, through JSON.

    The module is the very text that a browser gets; `m` holds its exports.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the JavaScript cannot be run")

    def run(module: str, expression: str) -> Any:
        (tmp_path / "module.mjs").write_text(bundle(module), "utf-8")
        script = tmp_path / "run.mjs"
        script.write_text(
            'import * as m from "./module.mjs";\n'
            f"console.log(JSON.stringify({expression}));\n",
            "utf-8",
        )
        done = subprocess.run(
            [node, str(script)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def page_of(*widgets: Explorable) -> str:
    """A page with the tags that MyST-NB writes for a notebook with these widgets."""

    def tag(kind: str, content: Any) -> str:
        text = json.dumps(content).replace("</", "<\\/")
        mime = f"application/vnd.jupyter.widget-{kind}+json"
        return f'<script type="{mime}">{text}</script>'

    state = {w.model_id: w._get_embed_state() for w in widgets}
    views = "".join(f"<div>{tag('view', w.get_view_spec())}</div>" for w in widgets)
    return (
        '<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<link rel="icon" href="data:,"><title>Explorables</title>'
        f"{tag('state', {'state': state})}"
        f'<script defer src="host.js"></script>{views}</html>'
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with the host in it, to put a page into."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(HOST, name)
        yield Path(name)


@pytest.fixture
def address(folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the page in `folder` is served: "http" (the default) or "file"."""
    if getattr(request, "param", "http") == "file":
        yield (folder / "page.html").as_uri()
        return
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/page.html"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that does not chat."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def open_page(browser: Any, folder: Path, address: str) -> Iterator[Callable[..., Any]]:
    """open_page(widget, …, width=900) → the page; at the end, no complaint is left."""
    complaints: list[str] = []
    pages = []

    def open_one(*widgets: Explorable, width: int = 900, **options: Any) -> Any:
        (folder / "page.html").write_text(page_of(*widgets), "utf-8")
        size = {"width": width, "height": 800}
        page = browser.new_page(viewport=size, **options)
        pages.append(page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.locator("[data-pe-ready=true]").nth(len(widgets) - 1).wait_for()
        return page

    yield open_one
    for page in pages:
        page.close()
    assert [text for text in complaints if "favicon" not in text] == []
