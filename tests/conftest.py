"""Settings that every test shares: one thread, repeatable examples, no display."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest
import torch

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ.setdefault("MPLBACKEND", "Agg")

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

# deadline: a first call pays for imports and compilation, which is no failure.
# derandomize: a red run must be red again for whoever looks at it; set
# HYPOTHESIS_PROFILE=explore to hunt with fresh examples.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Chromium as it runs in a container, and silent: it calls nobody by itself.
CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SITE_TESTS = Path(__file__).with_name("site")
START_KERNELS = (
    ".ipynb", "test_lab.py", "test_run_notebooks.py", "test_contributing.py",
)  # fmt: skip


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The tests in tests/site read the built site: they run only when named."""
    if collection_path != SITE_TESTS:
        return None
    named = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    return not any(path.is_relative_to(SITE_TESTS) for path in named) or None


def pytest_runtest_setup() -> None:
    """The same draws for a test, whichever ran before it in this process."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n 2`, a file is for one process, and so are all that start kernels.

    Two processes that start kernels at the same time can pick the same free ports.
    """
    from xdist.scheduler import LoadFileScheduling

    class KernelsInOne(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return "kernels" if file.endswith(START_KERNELS) else file

    return KernelsInOne(config, log)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium. One for all: Playwright runs once in a process."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: no browser to drive"
    )
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("chromium is not installed: pages cannot be seen")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=CHROMIUM)
        yield chromium
        chromium.close()
