"""ALiBi: slopes for any head count, and a bias made from differences."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pe_lab


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),  # 1/4 1/16 1/64 1/256 1/2 1/8, not sorted on purpose
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes(num_heads, exponents):
    slopes = pe_lab.alibi_slopes(num_heads)
    assert slopes.dtype == torch.float64
    assert slopes.tolist() == pytest.approx([2.0**-e for e in exponents], rel=1e-15)


@given(st.integers(1, 200))
def test_every_head_has_its_own_slope_in_the_unit_interval(num_heads):
    slopes = pe_lab.alibi_slopes(num_heads)
    assert len(slopes) == len(set(slopes.tolist())) == num_heads
    assert ((slopes > 0) & (slopes < 1)).all()


def test_bias_is_minus_slope_times_distance():
    slopes = torch.tensor([0.5, 0.25])
    bias = pe_lab.alibi_bias(torch.tensor([3]), torch.arange(5), slopes)
    assert bias.shape == (1, 2, 1, 5)
    assert bias[0, 0, 0].tolist() == [-1.5, -1.0, -0.5, 0.0, 0.5]
    both = pe_lab.alibi_bias(torch.tensor([3]), torch.arange(5), slopes, symmetric=True)
    assert both[0, 1, 0].tolist() == [-0.75, -0.5, -0.25, 0.0, -0.25]


def test_one_decoded_token_still_sees_distances():
    """Cache 3, query 1: neighbouring keys differ by one slope, not by zero."""
    q, k = torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 3, 4)
    bias = pe_lab.ALiBi(2).bias(q, k, torch.tensor([2]), torch.arange(3))
    assert torch.allclose(bias.diff(dim=-1)[0, :, 0, 0], pe_lab.alibi_slopes(2).float())


def test_differences_survive_sixteen_bits():
    """At position 10⁶ the bias near the diagonal is what it is at 0."""
    near, far = torch.arange(64), torch.arange(10**6, 10**6 + 64)
    slopes = pe_lab.alibi_slopes(8)
    a, b = (pe_lab.alibi_bias(t, t, slopes).bfloat16() for t in (near, far))
    assert torch.equal(a, b)


def test_rows_of_positions():
    ids = torch.tensor([[0, 1, 2], [0, 0, 1]])
    x = torch.zeros(2, 4, 3, 8)
    bias = pe_lab.ALiBi(4).bias(x, x, ids, ids)
    assert bias.shape == (2, 4, 3, 3)
    assert torch.equal(bias[1:], pe_lab.ALiBi(4).bias(x[:1], x[:1], ids[1], ids[1]))


def test_refusals():
    for bad in (0, -2):
        with pytest.raises(ValueError, match="num_heads needs"):
            pe_lab.ALiBi(bad)
    with pytest.raises(TypeError, match="num_heads needs"):
        pe_lab.alibi_slopes(2.0)
    x = torch.zeros(1, 3, 5, 8)
    with pytest.raises(ValueError, match="need 4 heads in axis 1"):
        pe_lab.ALiBi(4).bias(x, x, torch.arange(5), torch.arange(5))
    with pytest.raises(ValueError, match="one id for each token"):
        pe_lab.ALiBi(3).bias(x, x, torch.arange(4), torch.arange(5))


def test_the_bias_has_the_dtype_of_the_slopes():
    ids = torch.arange(3).double()
    assert pe_lab.alibi_bias(ids, ids, pe_lab.alibi_slopes(2).float()).dtype == torch.float32  # fmt: skip


def test_other_slopes_replace_the_papers_and_survive_casts():
    """Falcon divides its slopes by √D: the bias is linear in them. Exact halving."""
    halved = pe_lab.alibi_slopes(4) / 2
    scheme = pe_lab.ALiBi(4, slopes=halved.tolist()).bfloat16()
    q, ids = torch.zeros(1, 4, 6, 8), torch.arange(6)
    whole = pe_lab.ALiBi(4).bias(q, q, ids, ids)
    assert torch.equal(scheme.bias(q, q, ids, ids), whole / 2)
    assert torch.equal(scheme.slopes, halved)


@pytest.mark.parametrize("slopes", [[0.5], [0.5, float("nan")], "steep"])
def test_slopes_that_do_not_fit_the_heads_are_refused(slopes):
    with pytest.raises((TypeError, ValueError), match="slopes need|slopes\\[|needs a"):
        pe_lab.ALiBi(2, slopes=slopes)
