"""T5's buckets in whole numbers, and the bias read from them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pe_lab


def test_buckets_of_a_public_bug_report():
    """k − q: −1→1, 0→0, +1→17, −16→10, −128→15, +8→24 in two directions."""
    relative = torch.tensor([-1, 0, 1, -16, -128, 8])
    buckets = pe_lab.t5_bucket(relative, bidirectional=True)
    assert buckets.tolist() == [1, 0, 17, 10, 15, 24]
    one_way = pe_lab.t5_bucket(torch.tensor([5, 0, -1, -15, -16, -10**9]), bidirectional=False)
    assert one_way.tolist() == [0, 0, 1, 15, 16, 31]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (16, 32), (64, 1000), (8, 20)])
def test_equals_transformers(bidirectional, buckets, far):
    """Everywhere, since its float32 logarithm rounds no boundary of these wrongly."""
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    relative = torch.arange(-3 * far, 3 * far)
    theirs = t5.T5Attention._relative_position_bucket(
        relative, bidirectional=bidirectional, num_buckets=buckets, max_distance=far
    )
    ours = pe_lab.t5_bucket(relative, bidirectional=bidirectional, num_buckets=buckets, max_distance=far)  # fmt: skip
    assert torch.equal(ours, theirs)


@given(half=st.integers(2, 40), more=st.integers(1, 500))
def test_buckets_are_monotone_start_at_zero_and_end_at_the_last(half, more):
    far = half + more
    distance = torch.arange(2 * far)
    buckets = pe_lab.t5_bucket(-distance, bidirectional=False, num_buckets=2 * half, max_distance=far)  # fmt: skip
    assert buckets[:half].tolist() == list(range(half))
    assert (buckets.diff() >= 0).all()
    assert buckets[-1] == 2 * half - 1
    assert (buckets[far:] == 2 * half - 1).all()


def test_bias_is_the_weight_of_the_bucket():
    module = pe_lab.T5Bias(3, bidirectional=True)
    x, ids = torch.zeros(2, 3, 4, 8), torch.tensor([[0, 1, 2, 3], [5, 5, 90, 7]])
    bias = module.bias(x, x, ids, ids)
    assert bias.shape == (2, 3, 4, 4)
    bucket = pe_lab.t5_bucket(torch.tensor(5 - 90), bidirectional=True)
    assert torch.equal(bias[1, :, 2, 0], module.weight[bucket])
    assert torch.equal(bias[:1], module.bias(x[:1], x[:1], ids[0], ids[0]))
    bias.sum().backward()
    assert module.weight.grad.sum() == 2 * 3 * 16


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pe_lab.t5_bucket(torch.tensor([0.5]), bidirectional=True), TypeError, "integers"),
        (lambda: pe_lab.t5_bucket(3, bidirectional=True), TypeError, "tensor of integers"),
        (lambda: pe_lab.T5Bias(2, num_buckets=1), ValueError, "num_buckets needs"),
        (lambda: pe_lab.T5Bias(2, bidirectional=True, num_buckets=7), ValueError, "even number"),
        (lambda: pe_lab.T5Bias(2, max_distance=16), ValueError, "max_distance needs"),
        (lambda: pe_lab.T5Bias(2, bidirectional=1), TypeError, "True or False"),
        (lambda: pe_lab.T5Bias(0), ValueError, "num_heads needs"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
