"""The laboratory: small experiments with small Transformers, and their results.

`load("sqrt-d")` gives a result that comes with the package; `run("sqrt-d", quick=True)`
makes a small one in some seconds.
"""

from .results import Curve, Result, Run, load, mean_spread, read_result
from .runner import run

__all__ = ["Curve", "Result", "Run", "load", "mean_spread", "read_result", "run"]
