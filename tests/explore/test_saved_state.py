"""Figures saved in the chapters are the figures of this package, and can be hosted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pe_lab import explore
from tests.explore.conftest import NAMES

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
KINDS = {
    f"{k.__module__}.{k.__name__}": k for k in (getattr(explore, n) for n in NAMES)
}
MIME = "application/vnd.jupyter.widget-"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_saved_figures_are_current(path: Path) -> None:
    """A figure carries its program; an old copy would show an old figure."""
    saved = json.loads(path.read_text("utf-8"))["metadata"].get("widgets", {})
    models = saved.get(f"{MIME}state+json", {"state": {}})["state"]
    for model in models.values():
        state = model["state"]
        if "_esm" not in state:
            continue
        current = KINDS[state["_anywidget_id"]]()
        stale = f"run book/tools/run_notebooks.py notebooks/{path.stem}.py again"
        assert state["_esm"] == current._esm, stale
        assert state["_css"] == current._css, stale
        assert state["about"] == current.about, stale


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_shown_widget_is_an_explorable(path: Path) -> None:
    """Any other widget would be dead on the static page."""
    notebook = json.loads(path.read_text("utf-8"))
    saved = notebook["metadata"].get("widgets", {})
    models = saved.get(f"{MIME}state+json", {"state": {}})["state"]
    outputs = [out for cell in notebook["cells"] for out in cell.get("outputs", [])]
    for output in outputs:
        view: Any = output.get("data", {}).get(f"{MIME}view+json")
        if view is not None:
            state = models[view["model_id"]]["state"]
            assert state["_anywidget_id"] in KINDS
