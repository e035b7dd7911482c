"""One seed for all generators."""

import random

import numpy as np
import pytest
import torch

import pe_lab


def draw():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_the_same_seed_gives_the_same_numbers_everywhere():
    pe_lab.seed(3)
    first = draw()
    assert draw() != first
    pe_lab.seed(3)
    assert draw() == first
    pe_lab.seed(4)
    assert all(a != b for a, b in zip(draw(), first, strict=True))


@pytest.mark.parametrize("bad", [-1, 2**32, 1.5, "0", None, True])
def test_other_seeds_are_refused(bad):
    with pytest.raises(ValueError, match="seed needs an integer"):
        pe_lab.seed(bad)
