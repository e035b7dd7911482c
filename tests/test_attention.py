"""Attention against plain loops, and the rules about masks, order and ids."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pe_lab
from tests.oracle import loop_attention


def heads(batch=2, num_heads=3, q_len=5, k_len=5, dim=4, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, num_heads, n, dim) for n in (q_len, k_len, k_len)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]  # fmt: skip


@settings(max_examples=30)
@given(
    batch=st.integers(1, 3), q_len=st.integers(1, 6), extra=st.integers(0, 4),
    causal=st.booleans(), masked=st.booleans(), seed=st.integers(0, 999),
)  # fmt: skip
def test_equals_loops(batch, q_len, extra, causal, masked, seed):
    """float64, so 1e-12; fused and returned-weights paths alike, dead rows included."""
    q, k, v = heads(batch, 2, q_len, q_len + extra, seed=seed)
    shape = (batch, 2, q_len, q_len + extra)
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(shape, generator=generator) < 0.6 if masked else None
    visible = torch.ones(shape).bool() if mask is None else mask
    if causal:
        visible = visible & torch.ones(shape[2:]).bool().tril(extra)
    expected = loop_attention(q, k, v, visible)
    fused = pe_lab.attention(q, k, v, mask=mask, causal=causal)
    output, weights = pe_lab.attention(q, k, v, mask=mask, causal=causal, return_weights=True)  # fmt: skip
    assert torch.allclose(fused, expected, atol=1e-12)
    assert torch.allclose(output, expected, atol=1e-12)
    alive = visible.any(-1).double()
    assert torch.allclose(weights.sum(-1), alive, atol=1e-12)
    assert (weights[~visible] == 0).all()


def test_a_query_that_sees_nothing_gives_zeros_and_finite_gradients():
    q, k, v = (t.requires_grad_() for t in heads())
    mask = torch.ones(5, 5).bool()
    mask[2] = False
    for out in (
        pe_lab.attention(q, k, v, mask=mask),
        pe_lab.attention(q, k, v, mask=mask, return_weights=True)[0],
    ):
        assert (out[:, :, 2] == 0).all()
        grads = torch.autograd.grad(out.sum(), (q, k, v), retain_graph=True)
        assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize(
    "encoding",
    [None, pe_lab.NoPE(), pe_lab.RoPE(4), pe_lab.ALiBi(3), pe_lab.ALiBi(3, symmetric=True)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("causal", [False, True])
def test_both_paths_agree_for_every_scheme(encoding, causal):
    """The fused kernel and the written-out formula."""
    q, k, v = heads()
    fused = pe_lab.attention(q, k, v, encoding=encoding, causal=causal)
    plain, _ = pe_lab.attention(q, k, v, encoding=encoding, causal=causal, return_weights=True)  # fmt: skip
    assert torch.allclose(fused, plain, atol=1e-12)


@pytest.mark.parametrize("encoding", [pe_lab.RoPE(4), pe_lab.ALiBi(3)], ids=str)
def test_positions_are_data(encoding):
    """Permuting keys, values and their ids together changes nothing."""
    q, k, v = heads()
    q_pos, k_pos = torch.arange(5), torch.tensor([3, 0, 9, 4, 4])
    order = torch.tensor([4, 2, 0, 1, 3])
    a = pe_lab.attention(q, k, v, encoding=encoding, q_pos=q_pos, k_pos=k_pos)
    b = pe_lab.attention(
        q, k[:, :, order], v[:, :, order],
        encoding=encoding, q_pos=q_pos, k_pos=k_pos[order],
    )  # fmt: skip
    assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("encoding", [None, pe_lab.RoPE(4), pe_lab.ALiBi(3)], ids=str)
def test_the_last_query_sits_on_the_last_key(encoding):
    """One new query over a cache of five keys is the last row of the full pass."""
    q, k, v = heads()
    full = pe_lab.attention(q, k, v, causal=True, encoding=encoding)
    for new in (1, 2, 5):
        part = pe_lab.attention(q[:, :, -new:], k, v, causal=True, encoding=encoding)
        assert torch.allclose(part, full[:, :, -new:], atol=1e-12)


def test_scale_and_dropout():
    q, k, v = heads()
    _, weights = pe_lab.attention(q, k, v, scale=1.0, return_weights=True)
    assert torch.allclose(weights, (q @ k.mT).softmax(-1), atol=1e-12)
    ones = torch.ones(1, 1, 400, 400, dtype=torch.float64)
    _, weights = pe_lab.attention(ones, ones, ones, dropout=0.5, return_weights=True)
    dropped = (weights == 0).double().mean().item()
    assert dropped == pytest.approx(0.5, abs=0.02)  # 160 000 draws: σ = 0.00125
    assert weights.sum(-1).mean().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes_stay_close_to_float64(dtype):
    """Outputs are averages of |v| ≤ 4, so the error is a few roundings of 4."""
    q, k, v = (t.to(dtype) for t in heads())
    exact = pe_lab.attention(q.double(), k.double(), v.double(), causal=True, encoding=pe_lab.ALiBi(3))  # fmt: skip
    ours = pe_lab.attention(q, k, v, causal=True, encoding=pe_lab.ALiBi(3))
    assert ours.dtype == dtype
    assert (ours.double() - exact).abs().max() <= 8 * torch.finfo(dtype).eps


def test_values_may_have_another_width_and_sequences_may_be_empty():
    q, k, _ = heads()
    assert pe_lab.attention(q, k, torch.zeros(2, 3, 5, 7).double()).shape == (
        2,
        3,
        5,
        7,
    )
    q, k, v = heads(q_len=0)
    assert pe_lab.attention(q, k, v).shape == (2, 3, 0, 4)
    q, k, v = heads(batch=0)
    assert pe_lab.attention(q, k, v, causal=True).shape == (0, 3, 5, 4)
    q, k, v = heads(k_len=0)
    assert (pe_lab.attention(q, k, v) == 0).all()


def test_gradients():
    q, k, v = (t[:1, :3, :3].requires_grad_() for t in heads())
    for encoding in (None, pe_lab.RoPE(4), pe_lab.ALiBi(3)):
        for weights in (False, True):

            def run(*heads, encoding=encoding, weights=weights):
                out = pe_lab.attention(*heads, causal=True, encoding=encoding, return_weights=weights)  # fmt: skip
                return out[0] if weights else out

            assert torch.autograd.gradcheck(run, (q, k, v))


Q, K, V = heads()
BAD = [
    ({"q": Q[0]}, ValueError, "4 axes"),
    ({"q": Q.long()}, TypeError, "floating-point"),
    ({"q": Q.tolist()}, TypeError, "torch tensor"),
    ({"q": Q.float()}, TypeError, "one dtype"),
    ({"q": Q[..., :3]}, ValueError, "same head_dim"),
    ({"k": K[:1]}, ValueError, "same batch and heads"),
    ({"v": V[:, :, :4]}, ValueError, "5 keys and 4 values"),
    ({"k": K[:, :, :4], "v": V[:, :, :4], "causal": True}, ValueError, "5 queries and 4 keys"),
    ({"mask": torch.ones(5, 5)}, TypeError, "boolean tensor"),
    ({"mask": torch.ones(2, 5).bool()}, ValueError, "mask[:, None, None, :]"),
    ({"mask": torch.ones(4, 5, 5).bool()}, ValueError, "broadcasts"),
    ({"mask": torch.ones(9, 2, 3, 5, 5).bool()}, ValueError, "broadcasts"),
    ({"encoding": pe_lab.RoPE(4), "q_pos": torch.arange(5)}, ValueError, "q_pos and k_pos"),
    ({"encoding": pe_lab.RoPE(4), "k": K[:, :, :4], "v": V[:, :, :4]}, ValueError, "q_pos and k_pos"),
    ({"encoding": pe_lab.RoPE(6)}, ValueError, "head_dim = 6"),
    ({"encoding": pe_lab.RoPE(4), "k": K[:, :, :4], "v": V[:, :, :4], "causal": True}, ValueError, "5 queries and 4 keys"),
    ({"encoding": pe_lab.Shaw(4, 2), "v": V[..., :1]}, ValueError, "v needs 4 channels"),
    ({"encoding": pe_lab.ALiBi(4)}, ValueError, "4 heads"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "error", "words"), BAD)
def test_what_does_not_fit_is_refused(changes, error, words):
    arguments = {"q": Q, "k": K, "v": V} | changes
    with pytest.raises(error) as caught:
        pe_lab.attention(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **arguments)  # fmt: skip
    assert words in str(caught.value)


class TestMultiHeadAttention:
    def test_equals_torch(self):
        """nn.MultiheadAttention with the same weights, padding and causal mask."""
        pe_lab.seed(0)
        ours = pe_lab.MultiHeadAttention(12, 3).double()
        theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True).double()
        with torch.no_grad():
            theirs.in_proj_weight.copy_(torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight]))  # fmt: skip
            theirs.in_proj_bias.copy_(torch.cat([ours.w_q.bias, ours.w_k.bias, ours.w_v.bias]))  # fmt: skip
        theirs.out_proj.load_state_dict(ours.w_o.state_dict())
        x = torch.randn(2, 5, 12).double()
        mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
        hidden = ~torch.ones(5, 5).bool().tril()
        expected, _ = theirs(x, x, x, key_padding_mask=~mask, attn_mask=hidden)
        out = ours(x, mask=mask[:, None, None], causal=True)
        assert torch.allclose(out, expected, atol=1e-12)

    def test_refusals(self):
        with pytest.raises(ValueError, match="multiple of num_heads = 3, got 8"):
            pe_lab.MultiHeadAttention(8, 3)
        with pytest.raises(ValueError, match="x needs 3 axes"):
            pe_lab.MultiHeadAttention(8, 2)(torch.zeros(5, 8))


@pytest.mark.parametrize("weights", [False, True])
def test_autocast_changes_neither_dtype_nor_the_formula(weights):
    """The fused kernel may be coarser under autocast, the formula may not."""
    q, k, v = heads(dtype=torch.float32)
    exact, p = pe_lab.attention(q, k, v, return_weights=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = pe_lab.attention(q, k, v, return_weights=weights)
    out = out[0] if weights else out
    assert out.dtype == torch.float32
    tolerance = 1e-6 if weights else 0.1
    assert torch.allclose(out, exact, atol=tolerance)


def test_a_wider_bias_does_not_widen_the_output():
    """Float64 positions make a float64 bias; the output keeps the dtype of q."""
    q, k, v = heads(dtype=torch.float32)
    ids = torch.arange(5).double()
    expected = pe_lab.attention(q, k, v, encoding=pe_lab.ALiBi(3))
    module = pe_lab.Kerple(3).double()
    for encoding in (pe_lab.ALiBi(3), module):
        out, p = pe_lab.attention(q, k, v, encoding=encoding, q_pos=ids, k_pos=ids, return_weights=True)  # fmt: skip
        assert out.dtype == p.dtype == torch.float32
        if encoding is not module:
            assert torch.allclose(out, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gap", [5_000, 1_000_000])
def test_a_bias_far_from_every_key_survives_sixteen_bits(dtype, gap):
    """bfloat16 steps by 32 at 5000 and float16 ends at 65504; keys differ by 1/2 here.

    Against float64, with the tolerance of the test of other dtypes; a row that is
    hidden whole stays zero.
    """
    q, k, v = (t.to(dtype) for t in heads())
    mask = torch.ones(5, 5).bool()
    mask[1] = False
    places = {"q_pos": torch.arange(5) + gap, "k_pos": torch.arange(5), "mask": mask}
    scheme = pe_lab.ALiBi(3)
    exact = pe_lab.attention(q.double(), k.double(), v.double(), encoding=scheme, **places)  # fmt: skip
    ours = pe_lab.attention(q, k, v, encoding=scheme, **places)
    assert (ours.double() - exact).abs().max() <= 8 * torch.finfo(dtype).eps
    assert (ours[:, :, 1] == 0).all()
