"""Biases for FlexAttention give what `pe_lab.attention` gives."""

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

import pe_lab

SCHEMES = [
    pe_lab.ALiBi(2), pe_lab.ALiBi(2, symmetric=True), pe_lab.T5Bias(2),
    pe_lab.T5Bias(2, bidirectional=True, num_buckets=8, max_distance=20),
    pe_lab.Kerple(2), pe_lab.Kerple(2, kind="power"), pe_lab.NoPE(),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize("rows", [False, True])
def test_flex_attention_gives_what_attention_gives(scheme, rows):
    """In float32, ids of one row or of every row, queries before and after keys."""
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 2, 40, 16), torch.randn(2, 2, 50, 16), torch.randn(2, 2, 50, 16)  # fmt: skip
    q_pos, k_pos = torch.arange(5, 45), torch.randperm(50)
    if rows:
        q_pos, k_pos = torch.stack((q_pos, q_pos + 7)), torch.stack((k_pos, k_pos.flip(0)))
    with torch.no_grad():
        ours = pe_lab.attention(q, k, v, encoding=scheme, q_pos=q_pos, k_pos=k_pos)
        mod = pe_lab.flex.score_mod(scheme, q_pos, k_pos)
        theirs = flex_attention(q, k, v, score_mod=mod)
    assert (ours - theirs).abs().max() <= 2e-5  # scores up to 45, float32


def test_a_scheme_without_bias_needs_no_function():
    ids = torch.arange(4)
    assert pe_lab.flex.score_mod(pe_lab.RoPE(8), ids, ids) is None


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        (pe_lab.Shaw(8, 4), "got Shaw; pe_lab.attention computes it"),
        (pe_lab.Fire(2), "got Fire"),
        ("alibi", "encoding needs the doors"),
    ],
)
def test_a_bias_of_more_than_positions_is_refused(scheme, words):
    with pytest.raises(TypeError, match=words):
        pe_lab.flex.score_mod(scheme, torch.arange(4), torch.arange(4))
