"""ALiBi as channels: the bias to the bit, and attention without an L×L tensor."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import pe_lab

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def heads(*shape, dtype=torch.float64):
    return torch.randn(3, *shape, dtype=torch.float64).to(dtype)


def by_channels(alibi, q, k, ids=None):
    """Whether attention takes channels, and not the bias."""
    ids = torch.arange(k.shape[2]) if ids is None else ids
    return alibi.channels(q, k, ids, ids, scale=1.0, dtype=q.dtype) is not None


@settings(max_examples=60)
@given(
    dtype=st.sampled_from(DTYPES), num_heads=st.integers(1, 20), start=st.integers(0, 10**12),
    span=st.sampled_from([1, 5, 300, 5000, 70_000, 2**24 - 1]), seed=st.integers(0, 99),
)  # fmt: skip
def test_the_product_of_the_channels_is_the_bias(dtype, num_heads, start, span, seed):
    """Each product of two channels is exact; two pieces hold 2·bits of a slope.

    16 bits: slopes to 2^-16, or 2^-24 at worst where float16 ends; then 2^-24 and 2^-52.
    A row's differences are compared, as narrow channels leave out what it shares.
    """
    generator = torch.Generator().manual_seed(seed)
    q_pos, k_pos = (torch.randint(start, start + span, (n,), generator=generator) for n in (7, 9))  # fmt: skip
    slopes = pe_lab.alibi_slopes(num_heads) * 11.3  # as divided by a scale
    q, k = pe_lab.alibi_channels(q_pos, k_pos, slopes, dtype=dtype)
    assert q.dtype == k.dtype == dtype
    assert q.shape == (1, num_heads, 7, 8) and k.shape == (1, 1, 9, 8)
    ours = q.double() @ k.double().mT
    exact = pe_lab.alibi_bias(q_pos, k_pos, slopes)
    gap = (ours - ours[..., :1]) - (exact - exact[..., :1])
    digits = {torch.float32: 24, torch.float64: 50}.get(dtype, 14)
    assert gap.abs().max() <= 2.0**-digits * slopes.max() * span
    if dtype in (torch.float32, torch.float64):
        assert (ours - exact).abs().max() <= 2.0**-digits * slopes.max() * span


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_heads", [1, 6, 8])
def test_attention_by_channels_is_attention_by_bias(dtype, num_heads):
    """Against the formula in float64; 16 bits: rounded weights and values up to 4.

    float32: the sum starts with the exact difference if it runs in order; in any order
    it is within 2^-24 of its largest term, slope/scale · L < 2^12.
    """
    q, k, v = heads(2, num_heads, 300, 32, dtype=dtype)
    alibi = pe_lab.ALiBi(num_heads)
    ours = pe_lab.attention(q, k, v, causal=True, encoding=alibi)
    exact, _ = pe_lab.attention(
        q.double(), k.double(), v.double(), causal=True, encoding=alibi, return_weights=True
    )  # fmt: skip
    allowed = {torch.float64: 1e-11, torch.float32: 2.0**-12}.get(dtype)
    allowed = allowed or 8 * torch.finfo(dtype).eps
    assert ours.dtype == dtype
    assert (ours.double() - exact).abs().max() <= allowed


def test_far_from_zero_sixteen_bits_are_as_exact_as_near():
    """Ids are counted from the first key, so a million does not cost digits."""
    q, k, v = heads(1, 4, 64, 16, dtype=torch.bfloat16)
    near, far = torch.arange(64), torch.arange(10**6, 10**6 + 64)
    alibi = pe_lab.ALiBi(4)
    at = [
        pe_lab.attention(q, k, v, causal=True, encoding=alibi, q_pos=ids, k_pos=ids)
        for ids in (near, far)
    ]
    assert torch.equal(*at)


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return out


@pytest.mark.parametrize("encoding", [pe_lab.ALiBi(2), pe_lab.RoPE(16), pe_lab.NoPE()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_tensor_of_queries_times_keys_is_made(encoding, dtype):
    """Forward and backward, causal; one with L×L numbers would be 125 times as large."""
    q, k, v = (t.requires_grad_() for t in heads(1, 2, 4000, 16, dtype=dtype))
    with Largest() as made:
        out = pe_lab.attention(q, k, v, causal=True, encoding=encoding)
        out.float().sum().backward()
    assert made.numbers <= 2 * 4000 * 2 * 16
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_gradients_are_those_of_the_bias():
    q, k, v = (t.requires_grad_() for t in heads(1, 2, 30, 8))
    slope = torch.randn(1, 2, 30, 8, dtype=torch.float64)
    alibi = pe_lab.ALiBi(2)
    assert by_channels(alibi, q, k)
    ours = pe_lab.attention(q, k, v, causal=True, encoding=alibi)
    exact, _ = pe_lab.attention(q, k, v, causal=True, encoding=alibi, return_weights=True)  # fmt: skip
    grads = [torch.autograd.grad((o * slope).sum(), (q, k, v)) for o in (ours, exact)]
    for a, b in zip(*grads, strict=True):
        assert (a - b).abs().max() <= 1e-11


@pytest.mark.parametrize("width", [8, 16, 24, 5])
def test_values_of_any_width_come_back_whole(width):
    q, k, _ = heads(1, 2, 30, 16)
    v = torch.randn(1, 2, 30, width, dtype=torch.float64)
    alibi = pe_lab.ALiBi(2)
    assert by_channels(alibi, q, k)
    ours = pe_lab.attention(q, k, v, causal=True, encoding=alibi)
    exact, _ = pe_lab.attention(q, k, v, causal=True, encoding=alibi, return_weights=True)  # fmt: skip
    assert (ours - exact).abs().max() <= 1e-12


@pytest.mark.parametrize(
    ("alibi", "ids"),
    [
        (pe_lab.ALiBi(2, symmetric=True), torch.arange(30)),
        (pe_lab.ALiBi(2), torch.arange(30) / 2),
        (pe_lab.ALiBi(2), torch.tensor([*range(29), 2**25])),
    ],
)
def test_what_channels_cannot_hold_goes_by_the_bias(alibi, ids):
    """Symmetric penalties, fractions, ids too far apart: the same numbers as ever."""
    q, k, v = heads(1, 2, 30, 8)
    ours = pe_lab.attention(q, k, v, encoding=alibi, q_pos=ids, k_pos=ids)
    exact, _ = pe_lab.attention(
        q, k, v, encoding=alibi, q_pos=ids, k_pos=ids, return_weights=True
    )
    assert (ours - exact).abs().max() <= 1e-12
    assert alibi.channels(q, k, ids, ids, scale=1.0, dtype=q.dtype) is None


@pytest.mark.parametrize(("batch", "longest"), [(1, 16), (2, 32), (32, 512)])
def test_a_bias_that_is_smaller_than_its_channels_is_added(batch, longest):
    """L² numbers for a head against 8 · 2L for each row: equal at L = 16 · batch."""
    alibi = pe_lab.ALiBi(2)
    q = torch.zeros(batch, 2, longest, 8)
    longer = torch.zeros(batch, 2, longest + 1, 8)
    assert not by_channels(alibi, q, q) and by_channels(alibi, longer, longer)
    rows = torch.arange(longest).expand(batch, -1)  # then each row has its own bias
    assert by_channels(alibi, q, q, rows) is (batch > 1)
    narrow = q.bfloat16()
    assert by_channels(alibi, narrow, narrow)


def test_autocast_gets_channels_for_its_own_dtype():
    """Slopes in pieces for float32 would be rounded again by the cast to bfloat16."""
    q, k, v = heads(1, 4, 300, 32, dtype=torch.float32)
    alibi = pe_lab.ALiBi(4)
    exact, _ = pe_lab.attention(q, k, v, causal=True, encoding=alibi, return_weights=True)  # fmt: skip
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = pe_lab.attention(q, k, v, causal=True, encoding=alibi)
    assert (ours - exact).abs().max() <= 0.06  # the products' own rounding


class Squared(pe_lab.ALiBi):
    """A bias of its own, and nothing said about channels."""

    def bias(self, q, k, q_pos, k_pos):
        return -(super().bias(q, k, q_pos, k_pos) ** 2)


def test_a_changed_bias_does_not_inherit_the_channels_of_its_parent():
    q, k, v = heads(1, 2, 6, 8)
    ours = pe_lab.attention(q, k, v, causal=True, encoding=Squared(2))
    exact, _ = pe_lab.attention(
        q, k, v, causal=True, encoding=Squared(2), return_weights=True
    )
    assert (ours - exact).abs().max() <= 1e-12
    ids = torch.arange(6)
    with pytest.raises(TypeError, match="Squared; pe_lab.attention computes it"):
        pe_lab.flex.score_mod(Squared(2), ids, ids)


def test_fractions_and_odd_dtypes_are_refused():
    ids, slopes = torch.arange(3), pe_lab.alibi_slopes(2)
    with pytest.raises(TypeError, match="q_pos needs whole positions, got torch.float32"):
        pe_lab.alibi_channels(ids.float(), ids, slopes, dtype=torch.float32)
    with pytest.raises(TypeError, match="torch.int64"):
        pe_lab.alibi_channels(ids, ids, slopes, dtype=torch.int64)


def gap_in_eps(dtype, k_pos, *, slopes=None, scale=None):
    """The largest error of causal attention against float64, in eps of the dtype."""
    q, k, v = heads(1, 8, 40, 16, dtype=dtype)
    alibi = pe_lab.ALiBi(8, slopes=slopes)
    at = {"q_pos": k_pos, "k_pos": k_pos, "scale": scale, "encoding": alibi}
    ours = pe_lab.attention(q, k, v, causal=True, **at)
    exact, _ = pe_lab.attention(
        q.double(), k.double(), v.double(), causal=True, return_weights=True, **at
    )
    return ((ours.double() - exact).abs().max() / torch.finfo(dtype).eps).item()


@pytest.mark.parametrize("gap", [10**5, 10**6, 10**7])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float16, 16), (torch.bfloat16, 8), (torch.float64, 1e5)])  # fmt: skip
def test_one_key_far_from_the_others_costs_no_digits(dtype, most, gap):
    """Attention sinks: scores are slope · gap large, and a sum would round the rest.

    Up to 2^17 they go by channels: slope · gap · 2^-24 is a few eps of float16.
    """
    far = torch.cat((torch.tensor([0]), torch.arange(39) + gap))
    assert gap_in_eps(dtype, far) <= most


@pytest.mark.parametrize(("slopes", "scale"), [([100.0] * 8, None), (None, 1e-4)])
def test_slopes_that_leave_float16_go_by_the_bias(slopes, scale):
    """256 · slope / scale would be infinite, and the output NaN."""
    ids = torch.arange(40)
    assert gap_in_eps(torch.float16, ids, slopes=slopes, scale=scale) <= 8
