"""Every rope type of transformers as a whole: frequencies, gain, turned vectors.

Their tables are float32 products: below 64 positions of at most 1 rad each the angle is
off by 64 · 2⁻²⁴ ≈ 4e-6, which 2e-5 covers for vectors up to 4.
"""

import math

import pytest
import torch

import pe_lab
from pe_lab import scaling

DIM, LENGTH = 32, 64
SHORT = [1 + i / 40 for i in range(DIM // 2)]
LONG = [1 + i / 3 for i in range(DIM // 2)]
ORIGINAL = {"original_max_position_embeddings": LENGTH}
LONGROPE = {"short_factor": SHORT, "long_factor": LONG} | ORIGINAL


def longrope(length):
    return lambda w: scaling.longrope(w, SHORT, LONG, length=length, original_length=LENGTH)  # fmt: skip


def proportional(w):
    """A quarter of the pairs turn, with the ladder of the whole head; the rest stand."""
    return torch.cat((w[:4], 0 * w[4:])) / 2


# name -> (rope type, its parameters, length in use, our rule, our gain)
TYPES = {
    "default": ("default", {}, 64, None, 1.0),
    "linear": ("linear", {"factor": 4.0}, 64, lambda w: scaling.linear(w, 4), 1.0),
    "dynamic, within": ("dynamic", {"factor": 2.0}, 64, lambda w: scaling.dynamic_ntk(w, 2, length=64, original_length=LENGTH), 1.0),
    "dynamic, beyond": ("dynamic", {"factor": 2.0}, 150, lambda w: scaling.dynamic_ntk(w, 2, length=150, original_length=LENGTH), 1.0),
    "llama3": ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | ORIGINAL, 64, lambda w: scaling.llama3(w, 8, original_length=LENGTH), 1.0),
    "yarn": ("yarn", {"factor": 4.0} | ORIGINAL, 64, lambda w: scaling.yarn(w, 4, original_length=LENGTH), scaling.yarn_gain(4)),
    "yarn, not truncated": ("yarn", {"factor": 4.0, "truncate": False, "beta_fast": 8.0, "beta_slow": 2.0} | ORIGINAL, 64, lambda w: scaling.yarn(w, 4, original_length=LENGTH, truncate=False, beta_fast=8, beta_slow=2), scaling.yarn_gain(4)),
    "yarn, DeepSeek's pair": ("yarn", {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707} | ORIGINAL, 64, lambda w: scaling.yarn(w, 40, original_length=LENGTH), scaling.yarn_gain(40, mscale=1.0, mscale_all_dim=0.707)),
    "yarn, equal pair": ("yarn", {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0} | ORIGINAL, 64, lambda w: scaling.yarn(w, 40, original_length=LENGTH), 1.0),
    "yarn, gain given": ("yarn", {"factor": 4.0, "attention_factor": 1.3} | ORIGINAL, 64, lambda w: scaling.yarn(w, 4, original_length=LENGTH), 1.3),
    "longrope, short": ("longrope", {"factor": 4.0} | LONGROPE, 64, longrope(64), scaling.longrope_gain(4, original_length=LENGTH)),
    "longrope, long": ("longrope", {"factor": 4.0} | LONGROPE, 65, longrope(65), scaling.longrope_gain(4, original_length=LENGTH)),
    "proportional": ("proportional", {"factor": 2.0, "partial_rotary_factor": 0.25}, 64, proportional, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("base", [1e4, 5e5])
@pytest.mark.parametrize("name", TYPES)
def test_equals_the_rotary_module_of_transformers(name, base):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    kind, parameters, length, rule, gain = TYPES[name]
    config = pytest.importorskip("transformers").LlamaConfig(
        hidden_size=2 * DIM, num_attention_heads=2, max_position_embeddings=LENGTH,
        rope_parameters={"rope_type": kind, "rope_theta": base} | parameters,
    )  # fmt: skip
    theirs = llama.LlamaRotaryEmbedding(config)
    ids = torch.arange(length)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 2, length, DIM, generator=generator).clamp(-4, 4)
    cos, sin = theirs(q, ids[None])
    ours = pe_lab.RoPE(DIM, base=base, scaling=rule, gain=gain)
    frequencies = theirs.inv_freq.double()
    assert torch.allclose(ours.inv_freq, frequencies, rtol=1e-6, atol=1e-12)
    assert ours.gain == pytest.approx(theirs.attention_scaling)
    turned = llama.apply_rotary_pos_emb(q, k, cos, sin)
    for a, b in zip(ours.rotate(q, k, ids, ids), turned, strict=True):
        assert (a - b)[:, :, :LENGTH].abs().max() <= 2e-5


def test_every_rope_type_of_transformers_is_here():
    """A release that adds a type turns this red."""
    known = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    assert set(known) <= {kind for kind, *_ in TYPES.values()}


def test_yarn_of_the_released_code():
    """Its index of r turns, d·ln(L/2πr)/(2 ln b), rounded outwards; a ramp between."""
    dim, base, length, factor = 128, 1e4, 4096, 16
    low, high = (
        dim * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))
        for turns in (32, 1)
    )
    ramp = [min(max((i - math.floor(low)) / (math.ceil(high) - math.floor(low)), 0), 1) for i in range(64)]  # fmt: skip
    w = [base ** (-2 * i / dim) for i in range(64)]
    expected = [x * (1 - r) + x / factor * r for x, r in zip(w, ramp, strict=True)]
    ours = scaling.yarn(pe_lab.inv_freq(dim), factor, original_length=length)
    assert ours.tolist() == pytest.approx(expected, rel=1e-13)
    assert scaling.yarn_gain(factor) == pytest.approx(0.1 * math.log(factor) + 1)


def test_llama_3_of_torchtune_and_meta():
    """By wavelength: kept below 2048, divided by 8 above 8192, blended between."""
    w = pe_lab.inv_freq(128, base=5e5)
    expected = []
    for x in w.tolist():
        wavelength = 2 * math.pi / x
        share = (8192 / wavelength - 1) / 3
        kept = wavelength < 2048
        blended = x if kept else (1 - share) * x / 8 + share * x
        expected.append(x / 8 if wavelength > 8192 else blended)
    ours = scaling.llama3(w, 8, original_length=8192)
    assert ours.tolist() == pytest.approx(expected, rel=1e-13)


def test_linear_and_ntk_of_rotary_embedding_torch_and_x_transformers():
    x, ids = torch.randn(1, 2, LENGTH, DIM).clamp(-4, 4), torch.arange(LENGTH)
    rotary = pytest.importorskip("rotary_embedding_torch")
    layers = pytest.importorskip("x_transformers.x_transformers")
    for rule, ours_words, their_words in (
        (scaling.linear, "interpolate_factor", "interpolation_factor"),
        (scaling.ntk, "theta_rescale_factor", "base_rescale_factor"),
    ):
        ours = pe_lab.RoPE(DIM, layout="interleaved", scaling=lambda w, r=rule: r(w, 4.0))  # fmt: skip
        turned, _ = ours.rotate(x, x, ids, ids)
        one = rotary.RotaryEmbedding(DIM, **{ours_words: 4.0}).rotate_queries_or_keys(x)
        table = layers.RotaryEmbedding(DIM, **{their_words: 4.0})(ids)
        other = layers.apply_rotary_pos_emb(x, *table)
        assert (turned - one).abs().max() <= 5e-5
        assert (turned - other).abs().max() <= 5e-5
