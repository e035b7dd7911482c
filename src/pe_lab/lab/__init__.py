"""The laboratory: small experiments with small Transformers, and their results.

`load("sqrt-d")` gives a result that comes with the package, and
`run("sqrt-d", size="quick")` makes a small one in some seconds; `figures` draws either.
"""

from . import (
    data,
    fetch,
    figures,
    minilm,
    probes,
    scoring,
    strings,
    subwords,
    tasks,
    text,
    training,
    verses,
)
from .report import table
from .results import Curve, Profile, Result, Run, mean_spread
from .runner import run
from .store import load, read_result

__all__ = [
    "Curve",
    "Profile",
    "Result",
    "Run",
    "data",
    "fetch",
    "figures",
    "load",
    "mean_spread",
    "minilm",
    "probes",
    "read_result",
    "run",
    "scoring",
    "strings",
    "subwords",
    "table",
    "tasks",
    "text",
    "training",
    "verses",
]
