"""A learned table has the rows it has: reading another one is an error."""

import pytest
import torch

import pe_lab


def test_reads_the_row_of_each_id():
    module = pe_lab.Learned(6, 2)
    with torch.no_grad():
        module.weight.copy_(torch.arange(6.0)[:, None].expand(6, 2))
    x, ids = torch.zeros(2, 3, 2), torch.tensor([[0, 1, 2], [0, 0, 5]])
    assert module.embed(x, ids)[..., 0].tolist() == [[0, 1, 2], [0, 0, 5]]
    assert module.table(2).tolist() == [[0, 0], [1, 1]]


def test_only_rows_that_were_read_get_gradients():
    module = pe_lab.Learned(6, 2)
    module.embed(torch.zeros(1, 2, 2), torch.tensor([1, 4])).sum().backward()
    assert module.weight.grad.abs().sum(1).tolist() == [0, 2, 0, 0, 2, 0]


def test_initialisation_and_dtype():
    pe_lab.seed(0)
    weight = pe_lab.Learned(400, 400, std=0.5).weight
    assert weight.std().item() == pytest.approx(0.5, rel=0.02)
    out = pe_lab.Learned(4, 2).embed(torch.zeros(1, 4, 2).bfloat16(), torch.arange(4))
    assert out.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        (torch.tensor([0, 6]), IndexError, "position 6 has no row in a table of 6"),
        (torch.tensor([0, -1]), IndexError, "position -1 has no row"),
        (torch.tensor([0.0, 1.0]), TypeError, "whole positions"),
        (torch.tensor([0, 1, 2]), ValueError, "one id for each token"),
    ],
)
def test_other_rows_are_refused(ids, error, words):
    with pytest.raises(error, match=words):
        pe_lab.Learned(6, 4).embed(torch.zeros(1, 2, 4), ids)


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="max_len needs"):
        pe_lab.Learned(0, 4)
    with pytest.raises(TypeError, match="d_model needs"):
        pe_lab.Learned(4, 4.0)
    with pytest.raises(ValueError, match="4 channels"):
        pe_lab.Learned(6, 4).embed(torch.zeros(1, 2, 3), torch.arange(2))
