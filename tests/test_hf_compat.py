"""compat="hf": Hugging Face's numbers, bit for bit, and only where they are asked for."""

import pytest
import torch

import pe_lab
from pe_lab import hf_compat

rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
llama = pytest.importorskip("transformers.models.llama.modeling_llama")
LlamaConfig = pytest.importorskip("transformers").LlamaConfig

LENGTHS = {"original_max_position_embeddings": 1024}
FACTORS = [1.0 + 0.37 * i for i in range(32)]
RULES = {
    "default": ({}, lambda d, b: hf_compat.inv_freq(d, base=b)),
    "linear": ({"factor": 3.0}, lambda d, b: hf_compat.linear(d, 3.0, base=b)),
    "dynamic": (
        {"factor": 3.0},
        lambda d, b: hf_compat.dynamic_ntk(d, 3.0, length=4096, original_length=4096, base=b),
    ),
    "llama3": (
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LENGTHS},
        lambda d, b: hf_compat.llama3(d, 8.0, original_length=1024, base=b),
    ),
    "yarn": (
        {"factor": 4.0, **LENGTHS},
        lambda d, b: hf_compat.yarn(d, 4.0, original_length=1024, base=b),
    ),
    "yarn, not truncated": (
        {"factor": 4.0, "truncate": False, "beta_fast": 20.0, "beta_slow": 2.0, **LENGTHS},
        lambda d, b: hf_compat.yarn(
            d, 4.0, original_length=1024, truncate=False, beta_fast=20.0, beta_slow=2.0, base=b
        ),
    ),
    "longrope": (
        {"factor": 4.0, "short_factor": FACTORS, "long_factor": FACTORS, **LENGTHS},
        lambda d, b: hf_compat.longrope(d, FACTORS, base=b),
    ),
}  # fmt: skip


def module(rule, base):
    parameters = {"rope_type": rule.split(",")[0], "rope_theta": base, **RULES[rule][0]}
    config = LlamaConfig(
        hidden_size=256, num_attention_heads=4, head_dim=64, max_position_embeddings=4096,
        rope_parameters=parameters,
    )  # fmt: skip
    return llama.LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("base", [10000.0, 500000.0, 1e6])
@pytest.mark.parametrize("rule", RULES)
def test_frequencies_are_theirs_to_the_bit(rule, base):
    ours, theirs = RULES[rule][1](64, base), module(rule, base).inv_freq
    assert ours.dtype == torch.float32
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1, 3, 17, 900])
@pytest.mark.parametrize("rule", ["default", "llama3", "yarn"])
def test_turned_queries_are_theirs_to_the_bit(rule, length, dtype):
    """Llama's rotary module and rotation, at near and far positions, in each dtype."""
    theirs = module(rule, 500000.0)
    rope = pe_lab.RoPE(
        64, base=500000.0, compat="hf", gain=theirs.attention_scaling,
        scaling=lambda _: RULES[rule][1](64, 500000.0),
    )  # fmt: skip
    q = torch.randn(2, 4, length, 64, dtype=torch.float64).to(dtype)
    k = torch.randn(2, 2, length, 64, dtype=torch.float64).to(dtype)
    for start in (0, 10**6):
        ids = torch.arange(start, start + length)[None].expand(2, -1)
        cos, sin = theirs(q, ids)
        expected = llama.apply_rotary_pos_emb(q, k, cos, sin)
        ours = rope.rotate(q, k, ids, ids)
        for a, b in zip(ours, expected, strict=True):
            assert torch.equal(a, b)


def test_interleaved_pairs_are_those_of_gptj():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    table = gptj.create_sinusoidal_positions(3000, 32)
    sin, cos = table[None].chunk(2, dim=-1)
    q = torch.randn(1, 3000, 2, 32)
    theirs = gptj.apply_rotary_pos_emb(q, sin, cos).transpose(1, 2)
    rope = pe_lab.RoPE(32, layout="interleaved", compat="hf")
    ids = torch.arange(3000)
    assert torch.equal(rope.rotate(*(q.transpose(1, 2),) * 2, ids, ids)[0], theirs)


def test_without_compat_far_angles_are_exact_and_with_it_they_drift():
    """At a million, float32 angles are off by up to 0.06 rad; that is what is copied."""
    x, ids = torch.randn(1, 1, 1, 128), torch.tensor([10**6])
    exact = pe_lab.RoPE(128).rotate(x, x, ids, ids)[0]
    copied = pe_lab.RoPE(128, compat="hf").rotate(x, x, ids, ids)[0]
    assert (exact - copied).abs().max() > 1e-2
    assert "compat='hf'" in repr(pe_lab.RoPE(128, compat="hf"))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pe_lab.RoPE(8, compat="llama"), ValueError, "compat needs 'hf'"),
        (lambda: hf_compat.inv_freq(7), ValueError, "even number, got 7"),
        (lambda: hf_compat.longrope(8, [1.0, 2.0]), ValueError, "needs 4 positive factors"),
        (lambda: hf_compat.linear(8, 0.5), ValueError, "from 1 to inf"),
        (lambda: hf_compat.dynamic_ntk(2, 2.0, length=9, original_length=4), ValueError, "at least 2 frequencies"),
        (lambda: hf_compat.yarn(8, 4.0, original_length=0), ValueError, "at least 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
