"""What an experiment is: a question, its variants, and how one variant is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from pe_lab.encodings.base import PositionalEncoding
from pe_lab.lab.results import Curve, Profile
from pe_lab.lab.tasks import Task
from pe_lab.lab.training import Session
from pe_lab.model import Transformer


class Measured(NamedTuple):
    """What came out of a run: as it was trained, at its end, and along an axis."""

    curves: dict[str, Curve]
    final: dict[str, float]
    profiles: dict[str, Profile] = {}


@dataclass(frozen=True)
class Experiment:
    """A question put to several variants of one model.

    Attributes:
        name: on the command line.
        question: one sentence, for people.
        variants: their names, in the order in which they are shown.
        quick_variants: those that a quick run trains by default.
        seeds: how many a full run uses.
        config: (variant, size, text name) → all that decides the outcome but the
            seed, ready for JSON; `config["recipe"]["steps"]` is the length of a run.
        measure: (config, seed, session) → what came out.
        sizes: `quick` for a first look, `full` for what is shipped, and `gpu` where a
            large one is planned.
    """

    name: str
    question: str
    variants: tuple[str, ...]
    quick_variants: tuple[str, ...]
    seeds: int
    config: Callable[[str, str, str], dict[str, Any]]
    measure: Callable[[dict[str, Any], int, Session], Measured]
    sizes: tuple[str, ...] = ("quick", "full")


def transformer(
    task: Task,
    sizes: dict[str, Any],
    encoding: PositionalEncoding | None,
    **options: Any,
) -> Transformer:
    """A Transformer for a task, whose outputs may be other symbols than its inputs.

    Args:
        task: says which kind of Transformer, and how many symbols on both sides.
        sizes: `d_model`, `num_heads`, `num_layers`, `norm`.
        encoding: position, or None.
        options: more of `Transformer`'s arguments.
    """
    two_sided = task.kind == "encoder-decoder"
    vocab_size = task.num_outputs if two_sided else task.num_inputs
    model = Transformer(
        vocab_size,
        **sizes,
        kind=task.kind,
        encoding=encoding,
        source_vocab_size=task.num_inputs if two_sided else None,
        **options,
    )
    if task.num_outputs != vocab_size:
        model.head = nn.Linear(model.head.in_features, task.num_outputs)
        nn.init.xavier_uniform_(model.head.weight)
        nn.init.zeros_(model.head.bias)
    return model
