"""Explorables: interactive figures that compute in the reader's browser.

Each is a widget in JupyterLab and stays alive on a static page, where
`book/_static/explorables/host.js` shows it without a kernel. One class and one ES
module for each; `base.py` and `_common.js` hold what they share.
"""

from importlib import import_module
from typing import Any

# public name -> the module that defines it
_HOMES = {
    "Shuffle": "shuffle",
    "TableBuilder": "table_builder",
    "RotateByK": "rotate_by_k",
    "KernelShape": "kernel_shape",
    "ScaleBalance": "scale_balance",
    "ContextStretch": "context_stretch",
    "PastTheEnd": "past_the_end",
    "LossByPosition": "loss_by_position",
    "CountingHead": "counting_head",
    "Explorable": "base",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(
            f"pe_lab.explore has no name {name!r}; it has: {', '.join(__all__)}."
        )
    value = getattr(import_module(f"pe_lab.explore.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
