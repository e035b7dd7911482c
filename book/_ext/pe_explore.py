"""Says in words what an explorable shows, for a reader without JavaScript.

MyST-NB leaves two script tags for a widget: its state in the head of the page, and in
the body a tag that names the model. After the latter goes a ``noscript`` paragraph
with the description that the state carries.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

from sphinx.application import Sphinx

VIEW = re.compile(
    r'<script type="application/vnd\.jupyter\.widget-view\+json">(.*?)</script>',
    re.DOTALL,
)
STATE = "application/vnd.jupyter.widget-state+json"


def descriptions(scripts: Iterable[Any]) -> dict[str, str]:
    """What each widget model on a page says that it shows, by model id."""
    found = {}
    for script in scripts:
        attributes = getattr(script, "attributes", {})
        if attributes.get("type") == STATE:
            models = json.loads(attributes["body"])["state"]
            for model_id, model in models.items():
                if "about" in model["state"]:
                    found[model_id] = model["state"]["about"]
    return found


def add_descriptions(body: str, about: dict[str, str]) -> str:
    """The page, with a ``noscript`` paragraph after each widget that is described."""

    def extend(tag: re.Match[str]) -> str:
        text = about.get(json.loads(tag[1])["model_id"])
        if text is None:
            return tag[0]
        note = f"An interactive figure, which needs JavaScript. {html.escape(text)}"
        return f"{tag[0]}<noscript><p>{note}</p></noscript>"

    return VIEW.sub(extend, body)


def on_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Complete one page before it is written."""
    if "body" in context:
        about = descriptions(context.get("script_files", []))
        context["body"] = add_descriptions(context["body"], about)


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.connect("html-page-context", on_page)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
