"""Chapter 1 in JupyterLab: it looks as it should, runs, and its figures are alive."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page

from tests.site.built import ROOT
from tests.site.test_explorables import READY, assert_moves

CHAPTER = ROOT / "notebooks" / "01_break_symmetry.ipynb"

# All cells are drawn at once, so that the whole chapter can be looked at.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"checkForUpdates": False, "fetchNews": "false"},
}

DONE = """total => {
    const prompts = [...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")];
    const done = prompts.filter(prompt => /^\\[\\d+\\]:$/.test(prompt.textContent.trim()));
    return done.length >= total;
}"""


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_settings(folder: Path) -> None:
    """JupyterLab's settings as files."""
    for name, values in SETTINGS.items():
        plugin, _, file = name.partition("/")
        path = folder / "@jupyterlab" / plugin / f"{file}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    """Return when the server answers."""
    for _ in range(240):
        assert server.poll() is None, "JupyterLab did not start"
        try:
            urlopen(address, timeout=5).close()
            return
        except (URLError, OSError):
            time.sleep(0.5)
    pytest.fail("JupyterLab does not answer")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab that knows one notebook: a copy of chapter 1."""
    home = tmp_path_factory.mktemp("lab")
    (home / "notebooks").mkdir()
    shutil.copy(CHAPTER, home / "notebooks")
    write_settings(home / "settings")
    port = free_port()
    folders = {
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    command += ["--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=lab"]
    command += [f"--ServerApp.root_dir={home / 'notebooks'}"]
    log = (home / "log").open("wb")
    server = subprocess.Popen(
        command, env=os.environ | folders, stdout=log, stderr=log, cwd=home
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/api", server)
        yield f"http://127.0.0.1:{port}/lab/tree/{CHAPTER.name}?token=lab&reset"
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()


def code_cells() -> int:
    """How many cells of the chapter run."""
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    return sum(cell["cell_type"] == "code" for cell in cells)


def run_all(page: Page) -> None:
    """Run › Run All Cells, and wait until every code cell has its number."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator('li[data-command="runmenu:run-all"]').click()
    page.wait_for_function(DONE, arg=code_cells(), timeout=240_000)


def test_chapter_1_in_jupyterlab(lab: str, page: Page):
    page.goto(lab)
    page.wait_for_selector(".jp-MarkdownCell .myst h1")
    run_all(page)
    assert page.locator('[data-mime-type="application/vnd.jupyter.error"]').count() == 0
    assert (
        page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0
    )
    texts = page.locator(".jp-MarkdownCell .myst").all_inner_texts()
    assert len(texts) > 20
    assert [text for text in texts if ":::" in text or "```" in text] == []
    assert page.locator(".myst-proof").count() >= 1
    assert page.locator(".myst-exercise").count() >= 4
    page.wait_for_selector(READY)
    explorables = page.locator(READY)
    for number in range(explorables.count()):
        assert_moves(page, explorables.nth(number))
