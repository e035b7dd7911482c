"""Position in Transformers, proved, measured, debugged.

The names below are imported when they are first used, so `import pe_lab` costs no more
than it must and never pulls in plotting or notebook packages.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# public name -> the module that defines it; a submodule maps to itself
_HOMES = {
    "sinusoidal": "encodings.sinusoidal",
    "rotation_matrix": "encodings.sinusoidal",
    "position_kernel": "encodings.sinusoidal",
    "score_matrix": "encodings.sinusoidal",
    "Sinusoidal": "encodings.sinusoidal",
    "Learned": "encodings.learned",
    "RoPE": "encodings.rope",
    "apply_rope": "encodings.rope",
    "ALiBi": "encodings.alibi",
    "alibi_slopes": "encodings.alibi",
    "alibi_bias": "encodings.alibi",
    "PositionalEncoding": "encodings.base",
    "NoPE": "encodings.base",
    "inv_freq": "frequencies",
    "rope_table": "tables",
    "attention": "attention",
    "MultiHeadAttention": "attention",
    "KeyValueCache": "attention",
    "Transformer": "model",
    "desiderata": "properties",
    "check": "exercises",
    "provenance": "provenance",
    "seed": "random",
}
_SUBMODULES = (
    "encodings",
    "exercises",
    "explore",
    "lab",
    "plots",
    "positions",
    "properties",
)

__all__ = sorted([*_HOMES, *_SUBMODULES])


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"pe_lab.{name}")
    if name in _HOMES:
        value = getattr(import_module(f"pe_lab.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(
        f"pe_lab has no name {name!r}; it has: {', '.join(__all__)}."
    )


def __dir__() -> list[str]:
    return __all__
