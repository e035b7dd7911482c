"""Chapter 09: the loss at every place of texts longer than the trained ones.

The losses are those of the shipped result `panorama`, means over its seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from pe_lab.explore.base import Explorable
from pe_lab.explore.settings import Choice, Switch, Whole

PLAIN = (
    "alibi", "learned", "learned-small", "none", "rope", "rope-base5", "shaw",
    "sinusoidal", "t5",
)  # fmt: skip
TABLES = ("learned", "learned-small")
SERIES = (
    *(f"{name}/{way}" for way in ("plain", "window") for name in PLAIN),
    *(f"{name}/{way}" for way in ("clamp", "wrap", "resample") for name in TABLES),
    "sinusoidal/interpolate",
)


class LossByPosition(Explorable):
    """Mean loss ℓ_p at place p of 256, for two of the shipped panorama's models.

    Perplexity over the places a … b − 1 is exp((ℓ_a + … + ℓ_{b−1})/(b − a)). A running
    mean over w places is centred, and narrower at both ends.

    Move: two models, how many places are read, and over how many places the curve is
    averaged.

    Notice: one perplexity over 64 places hides what happens at place 32. A wide running
    mean turns a cliff into a gentle slope.

    Args:
        first, second: encoding and way to run it, such as "rope/plain"; the ways are
            "plain", "window" (each token sees the last 32), and for tables "clamp",
            "wrap" and "resample", for sinusoids "interpolate".
        length: how many places of the 256 are shown and counted, from 32.
        smooth: places in the running mean, 1 … 32.
        log: show positions on a logarithmic axis.

    Example:
        >>> figure = pe_lab.explore.LossByPosition(second="alibi/plain")
        >>> len(figure.losses["rope/window"])
        256
        >>> figure.close()
    """

    module = "loss_by_position.js"
    text = (
        "Two curves of the loss against the position in a text of 256 characters, for "
        "models that were trained on 32. The part that was trained is marked."
    )

    first = Choice("sinusoidal/plain", *(s for s in SERIES if s != "sinusoidal/plain"))
    second = Choice("rope/plain", *(s for s in SERIES if s != "rope/plain"))
    length = Whole(64, 32, 256, step=32)
    smooth = Whole(1, 1, 32)
    log = Switch(False)
    losses = traitlets.Dict(read_only=True).tag(sync=True)

    @traitlets.default("losses")
    def _default_losses(self) -> dict[str, Any]:
        from pe_lab import lab

        result = lab.load("panorama")
        return {series: _mean_losses(result, *series.split("/")) for series in SERIES}


def _mean_losses(result: Any, variant: str, way: str) -> list[float]:
    """Loss at each place, the mean over seeds, in thousandths of a nat."""
    _, losses = result.profile(variant, f"loss/{way}")
    rounded: list[float] = np.round(losses.mean(axis=0), 3).tolist()
    return rounded
