"""The Python face of an explorable, and the text that its front end is made of.

The front end is an "anywidget front-end module": an ES module whose default export has
`render({model, el})`. The same text runs in JupyterLab and on a static page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    import anywidget
    import ipywidgets
    import traitlets
except ImportError as missing:
    raise ImportError(
        f"Explorables need {missing.name}, which is not installed. "
        'Mend: pip install "pe-lab[book]"'
    ) from missing

_HERE = Path(__file__).parent
_SHARED = ("_maths.js", "_common.js")
_RELATIVE_IMPORT = re.compile(r'^import [^;]+ from "\./\w+\.js";\n', re.MULTILINE)

_alive: dict[str, Explorable] = {}


def bundle(module: str) -> str:
    """One self-contained ES module: the shared files, then the explorable's own.

    A front end travels as text and is imported from a Blob, which has no neighbours;
    so the files are joined and the imports between them, now idle, are dropped.
    """
    files = [(_HERE / name).read_text("utf-8") for name in (*_SHARED, module)]
    return _RELATIVE_IMPORT.sub("", "\n".join(files))


class Explorable(anywidget.AnyWidget):
    """An interactive figure that needs no kernel once it is drawn.

    A subclass names its ES module, says in `text` what the figure shows (for those who
    cannot see it or run it), and declares its settings with `Whole`, `Real`, `Choice`
    and `Switch`. The settings are in step
    with the figure while a kernel runs: read them or assign to them in a cell.

    Args:
        key: Name of the figure, unique on its page. It makes the identifiers in a saved
            notebook reproducible. A new figure replaces the one that had its key.
        settings: Starting values, by name.

    Raises: TypeError, ValueError for an unknown setting or a value out of range.

    Example:
        >>> pe_lab.explore.KernelShape.settings()
        ['d_model', 'base', 'max_offset', 'offset', 'alibi']
    """

    module = ""  # file name of the ES module
    text = ""
    about = traitlets.Unicode(read_only=True).tag(sync=True)
    bounds = traitlets.Dict(read_only=True).tag(sync=True)
    _css = (_HERE / "explore.css").read_text("utf-8")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "module" in cls.__dict__:
            cls._esm = bundle(cls.module)
        super().__init_subclass__(**kwargs)

    def __init__(self, key: str | None = None, **settings: Any) -> None:
        name = type(self).__name__
        unknown = sorted(settings.keys() - set(self.settings()))
        if unknown:
            raise TypeError(
                f"{name} has no setting {unknown[0]!r}; it has: "
                f"{', '.join(self.settings())}."
            )
        model_id = f"pe-{_key(name, key)}"
        if model_id in _alive:  # else its end would close the new figure's channel
            _alive[model_id].close()
        layout = ipywidgets.Layout(model_id=f"{model_id}-layout")
        try:
            super().__init__(model_id=model_id, layout=layout, **settings)
        except Exception:
            layout.close()
            raise
        _alive[model_id] = self

    @classmethod
    def settings(cls) -> list[str]:
        """Names of what the reader, or a cell, can set."""
        kinds = reversed(cls.__mro__)
        traits = [pair for kind in kinds for pair in vars(kind).items()]
        return [
            name
            for name, trait in traits
            if isinstance(trait, traitlets.TraitType) and trait.metadata.get("setting")
        ]

    @traitlets.default("about")
    def _default_about(self) -> str:
        return self.text

    @traitlets.default("bounds")
    def _default_bounds(self) -> dict[str, Any]:
        traits = {name: self.traits()[name] for name in self.settings()}
        return {n: t.bounds for n, t in traits.items() if hasattr(t, "bounds")}

    def close(self) -> None:
        """End the figure: it leaves the page and no longer follows its settings."""
        if self.comm is not None:
            _alive.pop(self.model_id, None)
            self.layout.close()
        super().close()

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in self.settings())
        return f"{type(self).__name__}({', '.join(values)})"


def _key(name: str, key: str | None) -> str:
    if key is None:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
    if not isinstance(key, str) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key):
        raise ValueError(
            f"key needs lower-case words joined by hyphens, got {key!r}; "
            'try key="my-figure".'
        )
    return key
