"""The sinusoid of other libraries, as independent oracles at short positions.

At long positions they drift (float32 products), which is measured here too.
"""

import math

import pytest
import torch

import pe_lab
from tests.oracle import exact_sinusoidal

NEAR = 2e-5  # float32 angles below 64 rad: 64 · 2^-24 ≈ 4e-6, a few times over


def test_positional_encodings_is_our_interleaved_order():
    """Its one-dimensional table, positions 0 … 63."""
    peer = pytest.importorskip("positional_encodings.torch_encodings")
    theirs = peer.PositionalEncoding1D(16)(torch.zeros(1, 64, 16))[0]
    assert (pe_lab.sinusoidal(64, 16) - theirs).abs().max() <= NEAR


def test_gptj_table_is_our_halves_order():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    theirs = gptj.create_sinusoidal_positions(64, 16)
    ours = pe_lab.sinusoidal(64, 16, order="halves")
    assert (ours - theirs).abs().max() <= NEAR


def test_fairseq_style_table_is_tensor2tensor_spacing_in_halves_order():
    """Speech2Text keeps fairseq's table: sines then cosines, exponents i/(d/2 − 1)."""
    speech = pytest.importorskip(
        "transformers.models.speech_to_text.modeling_speech_to_text"
    )
    theirs = speech.Speech2TextSinusoidalPositionalEmbedding.get_embedding(64, 16)
    spacing = pe_lab.inv_freq(16, spacing="tensor2tensor")
    ours = pe_lab.sinusoidal(64, 16, order="halves", inv_freq=spacing)
    assert (ours - theirs).abs().max() <= NEAR


def test_distilbert_table_is_the_paper_interleaved():
    distil = pytest.importorskip("transformers.models.distilbert.modeling_distilbert")
    theirs = torch.nn.Parameter(torch.empty(64, 16), requires_grad=False)
    distil.create_sinusoidal_embeddings(64, 16, theirs)
    assert (pe_lab.sinusoidal(64, 16) - theirs).abs().max() <= NEAR


def test_float32_products_drift_and_ours_do_not():
    """p·ω in float32 at p = 10⁶ is off by up to 10⁶ · 2^-24 ≈ 0.06 rad."""
    places = [10**6 - 1, 10**6]
    exact = exact_sinusoidal(places, 128)
    ids = torch.tensor(places)
    angle = ids.float()[:, None] * pe_lab.inv_freq(128).float()
    common = torch.stack((angle.sin(), angle.cos()), -1).flatten(1)
    assert 1e-2 < (common - exact).abs().max() < 1e-1
    assert (pe_lab.sinusoidal(ids, 128) - exact).abs().max() <= 3.3e-8


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rope_equals_transformers(layout):
    family = {"half": "llama", "interleaved": "gptj"}[layout]
    module = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    x, ids = torch.randn(1, 2, 40, 16), torch.arange(40)
    cos, sin = pe_lab.rope_table(ids, pe_lab.inv_freq(16))
    ours = pe_lab.apply_rope(x, cos, sin, layout=layout)
    if layout == "half":
        both = (torch.cat((t, t), -1)[None] for t in (cos, sin))
        theirs, _ = module.apply_rotary_pos_emb(x, x, *both)
    else:
        theirs = module.apply_rotary_pos_emb(x.transpose(1, 2), sin[None], cos[None])
        theirs = theirs.transpose(1, 2)
    assert (ours - theirs).abs().max() <= 1e-6


def test_rope_equals_rotary_embedding_torch_and_x_transformers():
    x = torch.randn(1, 2, 40, 16)
    ours, _ = pe_lab.RoPE(16, layout="interleaved").rotate(
        x, x, torch.arange(40), torch.arange(40)
    )
    rotary = pytest.importorskip("rotary_embedding_torch")
    theirs = rotary.RotaryEmbedding(16).rotate_queries_or_keys(x)
    assert (ours - theirs).abs().max() <= 1e-4
    layers = pytest.importorskip("x_transformers.x_transformers")
    freqs, scale = layers.RotaryEmbedding(16)(torch.arange(40))
    theirs = layers.apply_rotary_pos_emb(x, freqs, scale)
    assert (ours - theirs).abs().max() <= 1e-4


@pytest.mark.parametrize("num_heads", [1, 2, 3, 6, 8, 12, 20, 64])
def test_alibi_slopes_equal_bloom_and_x_transformers(num_heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    mask = torch.ones(1, 5)
    theirs = bloom.build_alibi_tensor(mask, num_heads, torch.float32).view(num_heads, 5)
    slopes = pe_lab.alibi_slopes(num_heads)
    assert torch.allclose(theirs[:, 1].double(), slopes, rtol=1e-6, atol=0)
    layers = pytest.importorskip("x_transformers.x_transformers")
    other = torch.as_tensor(layers.AlibiPositionalBias._get_slopes(num_heads))
    assert torch.allclose(other.double().flatten(), slopes, rtol=1e-6, atol=0)


def test_alibi_differs_from_bloom_only_by_a_constant_per_row():
    """BLOOM adds m·n, we −m·(m − n): the softmax cannot tell."""
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 6), 4, torch.float64).view(4, 1, 6)
    ids = torch.arange(6)
    ours = pe_lab.alibi_bias(ids, ids, pe_lab.alibi_slopes(4))[0]
    difference = theirs - ours
    assert torch.allclose(difference, difference[..., :1].expand_as(difference))
    assert math.isclose(difference[0, 5, 0].item(), 5 * pe_lab.alibi_slopes(4)[0])
