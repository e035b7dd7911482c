"""Inverse frequencies against 60-digit arithmetic."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pe_lab
from pe_lab.frequencies import as_inv_freq
from tests.oracle import exact_inv_freq


@given(dim=st.integers(1, 600), base=st.sampled_from([2.0, 100.0, 1e4, 5e5, 1e8]))
def test_paper_spacing_is_exact(dim, base):
    """base^(−2i/dim) within 1e-14 relative: the exponent's rounding times ln(base)."""
    digits = [float(w) for w in exact_inv_freq(dim, base)]
    exact = torch.tensor(digits, dtype=torch.float64)
    ours = pe_lab.inv_freq(dim, base=base)
    assert ours.dtype == torch.float64
    assert ours.shape == ((dim + 1) // 2,)
    assert torch.allclose(ours, exact, rtol=1e-14, atol=0)


def test_first_frequency_is_exactly_one():
    """A table of which the first frequency is not 1 came from uninitialised memory."""
    for dim in (1, 2, 7, 64):
        assert pe_lab.inv_freq(dim)[0] == 1


def test_slowest_pair_of_the_paper_and_of_tensor2tensor():
    """At d = 512 the paper's last wavelength is 60 611 positions, not 2π·10000."""
    paper = pe_lab.inv_freq(512)
    assert paper[-1].item() == pytest.approx(1.0366e-4, rel=5e-5)
    assert round(2 * torch.pi / paper[-1].item()) == 60611
    other = pe_lab.inv_freq(512, spacing="tensor2tensor")
    assert other[-1].item() == pytest.approx(1e-4, rel=1e-14)
    assert other.shape == paper.shape


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"dim": 0}, ValueError, "at least 1, got 0"),
        ({"dim": -4}, ValueError, "got -4"),
        ({"dim": 2.5}, TypeError, "2.5"),
        ({"dim": True}, TypeError, "True"),
        ({"dim": "8"}, TypeError, "'8'"),
        ({"dim": 8, "base": 1}, ValueError, "above 1, got 1"),
        ({"dim": 8, "base": 0.0}, ValueError, "got 0.0"),
        ({"dim": 8, "base": float("nan")}, ValueError, "nan"),
        ({"dim": 8, "base": float("inf")}, ValueError, "inf"),
        ({"dim": 8, "base": "1e4"}, TypeError, "'1e4'"),
        ({"dim": 8, "spacing": "linear"}, ValueError, "'paper' or 'tensor2tensor'"),
        (
            {"dim": 2, "spacing": "tensor2tensor"},
            ValueError,
            "even dim of at least 4, got 2",
        ),
        ({"dim": 7, "spacing": "tensor2tensor"}, ValueError, "got 7"),
    ],
)
def test_bad_input_is_refused_with_the_value_and_the_mend(arguments, error, words):
    with pytest.raises(error) as caught:
        pe_lab.inv_freq(**arguments)
    assert words in str(caught.value)
    assert "needs" in str(caught.value)


@pytest.mark.parametrize(
    ("given_freq", "error"),
    [
        (torch.ones(3), ValueError),
        (torch.ones(4, dtype=torch.bfloat16), TypeError),
        (torch.ones(4, dtype=torch.long), TypeError),
        (torch.ones(4, 1), ValueError),
        (torch.full((4,), torch.nan), ValueError),
        ([1.0, 0.1, 0.01, 0.001], TypeError),
    ],
)
def test_own_frequencies_are_checked(given_freq, error):
    with pytest.raises(error, match="inv_freq needs"):
        as_inv_freq(given_freq, 4)
