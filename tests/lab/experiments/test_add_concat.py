"""Adding, multiplying, concatenating: the encodings do that, at equal parameters."""

import pytest
import torch

from pe_lab import sinusoidal
from pe_lab.lab import load
from pe_lab.lab.experiments.add_concat import (
    PLACE_DIM,
    VOCABULARIES,
    Concatenated,
    Multiplied,
    balanced_d_ff,
    config,
    encoding_of,
)
from pe_lab.lab.training import parameters_of
from pe_lab.model import Transformer


def test_concatenation_keeps_words_and_place_in_channels_of_their_own():
    x, positions = torch.randn(2, 5, 12), torch.arange(5)
    joined = Concatenated(4).embed(x, positions)
    assert torch.equal(joined[..., :12], x)
    assert torch.equal(joined[1, :, 12:], sinusoidal(5, 4))


def test_multiplication_deletes_half_of_the_first_word():
    x = torch.ones(1, 3, 8)
    joined = Multiplied().embed(x, torch.arange(3))
    assert torch.equal(joined[0], sinusoidal(3, 8))
    assert (joined[0, 0] == 0).sum() == 4


@pytest.mark.parametrize("vocabulary_size", [65, 2048])
@pytest.mark.parametrize("way", PLACE_DIM)
def test_every_way_has_the_same_number_of_parameters(vocabulary_size, way):
    place_dim = PLACE_DIM[way]
    model = Transformer(
        vocabulary_size,
        64,
        4,
        2,
        d_ff=balanced_d_ff(vocabulary_size, place_dim),
        token_dim=64 - place_dim,
        encoding=encoding_of(way),
    )
    plain = parameters_of(Transformer(vocabulary_size, 64, 4, 2))
    # one feed-forward channel more or less is 258 parameters: d_ff is rounded to one
    assert abs(parameters_of(model) - plain) <= 258 / 2
    assert model(torch.zeros(2, 7, dtype=torch.long)).shape == (2, 7, vocabulary_size)


@pytest.mark.parametrize("symbols", VOCABULARIES)
def test_shipped_runs_were_compared_at_equal_parameters(symbols):
    result = load("add-concat")
    counts = [
        int(result.final(f"{symbols}/{way}", "parameters")[0]) for way in PLACE_DIM
    ]
    assert max(counts) - min(counts) < 0.0025 * min(counts)


def test_a_quick_config_names_its_text():
    made = config("characters/add", "quick", "topics")
    assert made["text"] == "topics"
    assert len(made["data"]) == 16
