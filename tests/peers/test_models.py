"""Attention layers of released models, with their own weights, as oracles of schemes.

Their float32 tables and sums are off by a few 1e-6 below 64 positions; outputs are of
size 1, and 2e-5 covers both. A pair mixed up, a sign or a shift is off by 0.1.
"""

import pytest
import torch
from torch import nn

import pe_lab

WIDTH, HEADS, LENGTH = 32, 4, 24
DIM = WIDTH // HEADS
IDS = torch.arange(LENGTH)
HIDDEN = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)[None, None]


def layer_of(family, name, config):
    """A layer of transformers with weights large enough for uneven attention."""
    module = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    config._attn_implementation = "eager"
    pe_lab.seed(0)
    layer = getattr(module, name)(config, layer_idx=0).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module, layer


def rope(**more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4} | more}


def heads(x, number):
    return x.unflatten(-1, (number, -1)).transpose(1, 2)


def joined(out):
    return out.transpose(1, 2).flatten(2)


def text():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, LENGTH, WIDTH, generator=generator)


def test_llama_is_half_rope_with_shared_keys():
    config = pytest.importorskip("transformers").LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=2, **rope()
    )
    module, layer = layer_of("llama", "LlamaAttention", config)
    x = text()
    table = module.LlamaRotaryEmbedding(config)(x, IDS[None])
    theirs, _ = layer(x, table, HIDDEN)
    q, k, v = heads(layer.q_proj(x), 4), heads(layer.k_proj(x), 2), heads(layer.v_proj(x), 2)  # fmt: skip
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    out = pe_lab.attention(q, k, v, causal=True, encoding=pe_lab.RoPE(DIM))
    assert (layer.o_proj(joined(out)) - theirs).abs().max() <= 2e-5


def test_gpt_neox_is_half_rope_on_some_channels():
    config = pytest.importorskip("transformers").GPTNeoXConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, **rope(partial_rotary_factor=0.5)
    )
    module, layer = layer_of("gpt_neox", "GPTNeoXAttention", config)
    x = text()
    table = module.GPTNeoXRotaryEmbedding(config)(x, IDS[None])
    theirs, _ = layer(x, HIDDEN, position_embeddings=table)
    q, k, v = heads(layer.query_key_value(x), HEADS).chunk(3, dim=-1)
    scheme = pe_lab.RoPE(DIM, rotary_dim=DIM // 2)
    out = pe_lab.attention(q, k, v, causal=True, encoding=scheme)
    assert (layer.dense(joined(out)) - theirs).abs().max() <= 2e-5


def test_gpt_j_is_interleaved_rope_on_some_channels():
    config = pytest.importorskip("transformers").GPTJConfig(
        n_embd=WIDTH, n_head=HEADS, rotary_dim=DIM // 2, n_positions=64
    )
    module, layer = layer_of("gptj", "GPTJAttention", config)
    x = text()
    table = module.create_sinusoidal_positions(64, DIM // 2)[:LENGTH][None]
    theirs, _ = layer(x, table.chunk(2, dim=-1), HIDDEN)
    q, k, v = (heads(p(x), HEADS) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    scheme = pe_lab.RoPE(DIM, rotary_dim=DIM // 2, layout="interleaved")
    out = pe_lab.attention(q, k, v, causal=True, encoding=scheme)
    assert (layer.out_proj(joined(out)) - theirs).abs().max() <= 2e-5


def test_qwen2_vl_is_mrope_on_text_and_images():
    config = pytest.importorskip("transformers").Qwen2VLTextConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=HEADS,
        num_hidden_layers=1, **rope(mrope_section=[2, 1, 1]),
    )  # fmt: skip
    module, layer = layer_of("qwen2_vl", "Qwen2VLAttention", config)
    ids, _ = pe_lab.positions.mrope([5, (1, 3, 4), 7])
    x = text()
    table = module.Qwen2VLRotaryEmbedding(config)(x, ids.T[:, None])
    theirs = layer(x, HIDDEN, position_embeddings=table)[0]
    q, k, v = (heads(p(x), HEADS) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    scheme = pe_lab.MRoPE(DIM, (2, 1, 1))
    out = pe_lab.attention(q, k, v, causal=True, encoding=scheme, q_pos=ids, k_pos=ids)
    assert (layer.o_proj(joined(out)) - theirs).abs().max() <= 2e-5


@pytest.mark.parametrize("decoder", [False, True])
def test_t5_is_its_bias_without_a_scale(decoder):
    config = pytest.importorskip("transformers").T5Config(
        d_model=WIDTH, d_kv=DIM, num_heads=HEADS, is_decoder=decoder, dropout_rate=0.0,
        relative_attention_num_buckets=16, relative_attention_max_distance=20,
    )  # fmt: skip
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    config._attn_implementation = "eager"
    pe_lab.seed(0)
    layer = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    scheme = pe_lab.T5Bias(HEADS, bidirectional=not decoder, num_buckets=16, max_distance=20)  # fmt: skip
    scheme.load_state_dict({"weight": layer.relative_attention_bias.weight})
    x = text()
    q, k, v = (heads(p(x), HEADS) for p in (layer.q, layer.k, layer.v))
    assert torch.equal(scheme.bias(q, k, IDS, IDS), layer.compute_bias(LENGTH, LENGTH))
    step = scheme.bias(q[:, :, -1:], k, IDS[-1:], IDS)
    past = layer.compute_bias(1, LENGTH, past_seen_tokens=LENGTH - 1)
    assert torch.equal(step, past)
    theirs = layer(x, mask=HIDDEN if decoder else None)[0]
    out = pe_lab.attention(q, k, v, causal=decoder, encoding=scheme, scale=1.0)
    assert (layer.o(joined(out)) - theirs).abs().max() <= 2e-5


@pytest.mark.parametrize("number", [4, 6])
def test_bloom_is_alibi_after_the_softmax(number):
    """BLOOM adds m·n with n counted over the mask: another constant per row, the same
    probabilities, padded rows included. Float64 throughout, so 1e-12.
    """
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    mask = torch.tensor([[1] * 9, [0, 0, 0] + [1] * 6])
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 2, number, 9, DIM, generator=generator, dtype=torch.float64)
    added = bloom.build_alibi_tensor(mask, number, torch.float64).view(2, number, 1, 9)
    visible = mask.bool()[:, None, None] & torch.ones(9, 9).bool().tril()
    scores = q @ k.mT * DIM**-0.5 + added
    theirs = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    ids = pe_lab.positions.from_mask(mask)
    _, ours = pe_lab.attention(
        q, k, k, encoding=pe_lab.ALiBi(number), q_pos=ids, k_pos=ids, mask=visible,
        return_weights=True,
    )  # fmt: skip
    real = mask.bool()
    assert (ours - theirs).transpose(1, 2)[real].abs().max() <= 1e-12


def test_xlnet_s_table_is_our_sinusoid_of_falling_offsets():
    """Offsets klen … −qlen + 1, sines first: float32 angles below 12 rad."""
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    config = pytest.importorskip("transformers").XLNetConfig(
        d_model=16, n_head=2, n_layer=1, d_inner=8, vocab_size=5
    )
    theirs = xlnet.XLNetModel(config).relative_positional_encoding(7, 12)[:, 0]
    ours = pe_lab.sinusoidal(torch.arange(12, -7, -1), 16, order="halves")
    assert (ours - theirs).abs().max() <= 5e-6


def test_x_transformers_alibi_and_t5_bias():
    """Both for a query over a longer cache; theirs multiplies T5's numbers by a scale."""
    layers = pytest.importorskip("x_transformers.x_transformers")
    q, k = torch.zeros(1, HEADS, 3, DIM), torch.zeros(1, HEADS, 11, DIM)
    q_pos, k_pos = torch.arange(8, 11), torch.arange(11)
    ours = pe_lab.ALiBi(HEADS, symmetric=True).bias(q, k, q_pos, k_pos)
    assert torch.allclose(ours[0], layers.AlibiPositionalBias(HEADS)(3, 11), atol=1e-6)
    for causal in (True, False):
        theirs = layers.RelativePositionBias(
            2.0, causal=causal, heads=HEADS, num_buckets=8, max_distance=9
        )
        ours = pe_lab.T5Bias(HEADS, bidirectional=not causal, num_buckets=8, max_distance=9)  # fmt: skip
        ours.load_state_dict({"weight": theirs.relative_attention_bias.weight})
        bias = ours.bias(q, k, q_pos, k_pos)[0]
        assert torch.allclose(2 * bias, theirs(3, 11), atol=1e-6)


def test_x_transformers_xpos_is_ours_with_its_centre():
    """Its centre is half the length; ours is told. Scores, to float32 angles: 5e-4."""
    layers = pytest.importorskip("x_transformers.x_transformers")
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 2, LENGTH, 16, generator=generator)
    freqs, scale = layers.RotaryEmbedding(16, use_xpos=True)(IDS)
    a = layers.apply_rotary_pos_emb(q, freqs, scale)
    b = layers.apply_rotary_pos_emb(k, freqs, scale**-1)
    ours = pe_lab.XPos(16, layout="interleaved", centre=LENGTH // 2)
    c, d = ours.rotate(q, k, IDS, IDS)
    assert (a - c).abs().max() <= 1e-4
    assert (b - d).abs().max() <= 1e-4


def test_rotary_embedding_torch_turns_grids_as_ours_does():
    """Its axial angles for 3 × 5 cells, rows in the first half of the channels."""
    rotary = pytest.importorskip("rotary_embedding_torch")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, 3, 5, 16, generator=generator)
    freqs = rotary.RotaryEmbedding(8).get_axial_freqs(3, 5)
    theirs = rotary.apply_rotary_emb(freqs, x).flatten(2, 3)
    ids, flat = pe_lab.positions.grid(3, 5), x.flatten(2, 3)
    ours, _ = pe_lab.AxialRoPE(16, layout="interleaved").rotate(flat, flat, ids, ids)
    assert (ours - theirs).abs().max() <= 5e-6


def test_torchtune_s_rotation_is_a_product_of_complex_numbers():
    """(x₀ + i x₁)·e^{ipθ} on adjacent channels, for rows with ids of their own."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 7, 16, generator=generator, dtype=torch.float64)
    ids = torch.tensor([[0, 1, 2, 3, 0, 1, 2], [90, 91, 92, 93, 94, 95, 96]])
    theta = torch.tensor([1e4 ** (-i / 8) for i in range(8)], dtype=torch.float64)
    turn = torch.exp(1j * ids[:, None, :, None] * theta)
    theirs = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (8, 2))) * turn)
    scheme = pe_lab.RoPE(16, layout="interleaved")
    ours, _ = scheme.rotate(x, x, ids, ids)
    assert (ours - theirs.flatten(-2)).abs().max() <= 1e-13


@pytest.mark.parametrize("number", range(1, 41))
def test_alibi_s_released_slopes(number):
    """The recursion of its code: every other slope of the next power of two follows."""

    def slopes(n):
        power = 1 << (n.bit_length() - 1)
        if power == n:
            return [2.0 ** (-8 * (h + 1) / n) for h in range(n)]
        return slopes(power) + slopes(2 * power)[0::2][: n - power]

    assert pe_lab.alibi_slopes(number).tolist() == pytest.approx(slopes(number), rel=1e-14)  # fmt: skip
