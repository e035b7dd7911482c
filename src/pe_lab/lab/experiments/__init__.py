"""The experiments, one file each: adding one means a file and a line here."""

from . import (
    add_concat,
    anchors,
    lengths,
    minilm,
    panorama,
    probes,
    sqrt_d,
    stall,
    stretch,
)
from .base import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        stall,
        add_concat,
        sqrt_d,
        panorama,
        lengths,
        anchors,
        stretch,
        minilm,
        probes,
    )
}

__all__ = ["EXPERIMENTS", "Experiment"]
