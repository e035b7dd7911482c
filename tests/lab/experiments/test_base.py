"""The Transformer of an experiment reads and writes the vocabularies of its task."""

import pytest
import torch

from pe_lab.lab import tasks
from pe_lab.lab.data import number_pairs
from pe_lab.lab.experiments.base import transformer
from pe_lab.lab.training import logits_of

SIZES = {"d_model": 16, "num_heads": 2, "num_layers": 1, "norm": "pre"}


@pytest.mark.parametrize(
    "task",
    [tasks.position(6), tasks.left_neighbour(6), tasks.numbers(number_pairs(5_000))],
    ids=lambda task: task.name,
)
def test_logits_have_one_entry_for_each_answer(task):
    batch = task.draw(3, torch.Generator())
    logits = logits_of(transformer(task, SIZES, None), batch)
    assert logits.shape == (*batch.inputs.shape, task.num_outputs)
