"""The laboratory: small experiments with small Transformers, and their results.

`load("sqrt-d")` gives a result that comes with the package; `run("sqrt-d", quick=True)`
makes a small one in some seconds.
"""

from . import data, scoring, tasks, text, training
from .results import Curve, Result, Run, load, mean_spread, read_result, table
from .runner import run

__all__ = [
    "Curve",
    "Result",
    "Run",
    "data",
    "load",
    "mean_spread",
    "read_result",
    "run",
    "scoring",
    "table",
    "tasks",
    "text",
    "training",
]
