"""Rotations beside transformers': which channels, which pairs, which frequencies.

transformers builds its tables in float32, so frequencies agree to a few roundings,
1e-6 relative, and turned vectors at short positions to 1e-5.
"""

import contextlib
import importlib
import inspect

import pytest
import torch

import pe_lab
from pe_lab import hf
from tests.hf.transformers_code import (
    CONFIGS,
    IDS,
    LLAMA,
    assert_same_table,
    of_kind,
    rotary,
    says,
    tiny,
    transformers,
)

ROTATING = [
    name for name, family in hf.FAMILIES.items()
    if family.scheme == "rope" and name in CONFIGS and name not in ("roformer", "gptj", "codegen")
]  # fmt: skip


@pytest.mark.parametrize("name", ROTATING)
def test_frequencies_of_every_family_equal_transformers(name):
    """Its default config, and the same without any rope keys: the family's defaults."""
    config, module = tiny(name)
    assert_same_table(hf.from_config(config), config, module)
    keys = config.to_dict()
    del keys["rope_parameters"]
    bare = hf.from_config(keys)
    assert_same_table(bare, config, module)


def turned_by_transformers(config, module, q, k):
    """q and k after the family's rotary code, whichever of its shapes that has."""
    table, kinds = rotary(config, module)
    kind = next(iter(kinds))
    extra = (kind,) if kind else ()
    found = table(q, IDS[None], *extra)
    if not isinstance(found, tuple):
        turn = module.apply_rotary_emb
        transpose = module.__name__.endswith("llama4")
        if transpose:
            return [
                t.transpose(1, 2)
                for t in turn(q.transpose(1, 2), k.transpose(1, 2), found)
            ]
        return turn(q, k, found)
    width = found[0].shape[-1]
    if getattr(
        config, "rope_interleave", hasattr(module, "apply_rotary_pos_emb_interleave")
    ):
        return module.apply_rotary_pos_emb_interleave(q, k, *found)
    turn = module.apply_rotary_pos_emb
    if "x" in inspect.signature(turn).parameters:
        return [turn(x, *found) for x in (q, k)]
    if "gpt_oss" in module.__name__ or width == q.shape[-1]:
        return turn(q, k, *found)
    with contextlib.suppress(RuntimeError):
        return turn(q, k, *found)
    # families whose attention splits the head before it calls the function
    parts = turn(q[..., :width], k[..., :width], *found)
    return [
        torch.cat((p, x[..., width:]), -1) for p, x in zip(parts, (q, k), strict=True)
    ]


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in ROTATING
        if n not in ("nomic_bert", "qwen3_vl", "qwen3_vl_moe", "qwen2_vl", "qwen2_5_vl")
    ],
)
def test_turned_vectors_of_every_family_give_transformers_scores(name):
    """Layout, width and gain at once: scores of all pairs of 9 tokens, 1e-5 of |q||k|."""
    config, module = tiny(name)
    reading = hf.from_config(config)
    encoding = of_kind(reading, config, next(iter(rotary(config, module)[1])))
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 9, encoding.head_dim)
    theirs = turned_by_transformers(config, module, q, k)
    ours = encoding.rotate(q, k, IDS, IDS)
    difference = ours[0] @ ours[1].mT - theirs[0] @ theirs[1].mT
    assert difference.abs().max() <= 1e-5 * (q.norm(dim=-1) @ k.norm(dim=-1).mT).max()
    if not hf.FAMILIES[name].mla:
        torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["gptj", "codegen"])
def test_gptj_turns_neighbours_in_the_first_channels(name):
    config, module = tiny(name, rotary_dim=8)
    encoding = hf.from_config(config).encoding
    assert (encoding.layout, encoding.rotary_dim, encoding.head_dim) == (
        "interleaved",
        8,
        16,
    )
    x = torch.randn(1, 4, 9, 16)
    table = module.create_sinusoidal_positions(9, 8)[None]
    sin, cos = table.chunk(2, -1)
    turned = module.apply_rotary_pos_emb(x.transpose(1, 2)[..., :8], sin, cos)
    theirs = torch.cat((turned, x.transpose(1, 2)[..., 8:]), -1).transpose(1, 2)
    torch.testing.assert_close(
        encoding.rotate(x, x, IDS, IDS)[0], theirs, rtol=0, atol=1e-5
    )


def test_rotary_dim_is_exact_where_a_share_would_round():
    """44 · (30/44) is below 30 in float64."""
    keys = {"model_type": "gptj", "n_embd": 88, "n_head": 2, "rotary_dim": 30}
    encoding = hf.from_config(keys).encoding
    torch.testing.assert_close(encoding.inv_freq, pe_lab.inv_freq(30), rtol=0, atol=0)


def test_roformer_turns_neighbours():
    config, module = tiny("roformer", max_position_embeddings=16)
    encoding = hf.from_config(config).encoding
    x = torch.randn(1, 4, 9, 16)
    embedding = module.RoFormerSinusoidalPositionalEmbedding(16, 16)
    table = embedding.create_weight()[:9][None, None]
    attention = module.RoFormerSelfAttention
    theirs, _ = attention.apply_rotary_position_embeddings(table, x, x)
    torch.testing.assert_close(
        encoding.rotate(x, x, IDS, IDS)[0], theirs, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
def test_m_rope_equals_qwen(name):
    parameters = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e6}
    config, module = tiny(name, rope_parameters=parameters)
    encoding = hf.from_config(config).encoding
    assert isinstance(encoding, pe_lab.MRoPE) and encoding.sections == (2, 3, 3)
    cells, _ = pe_lab.positions.mrope([2, (1, 2, 2), 3])
    table, _ = rotary(config, module)
    x = torch.randn(1, 2, len(cells), 16)
    cos, sin = table(x, cells.T[:, None])
    theirs, _ = module.apply_rotary_pos_emb(x, x, cos, sin)
    ours, _ = encoding.rotate(x, x, cells, cells)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_qwens_own_sections_are_those_of_its_heads_of_128():
    keys = LLAMA | {"model_type": "qwen2_vl", "head_dim": 128}
    assert hf.from_config(keys).encoding.sections == (16, 24, 24)


def test_woven_sections_are_declared_right_for_text_only():
    config, module = tiny(
        "qwen3_vl",
        rope_parameters={
            "rope_type": "default",
            "mrope_section": [4, 2, 2],
            "rope_theta": 5e6,
        },
        head_dim=16,
    )
    reading = hf.from_config(config)
    says(reading, "right for text", "not for images")
    x = torch.randn(1, 2, 9, 16)
    theirs, _ = module.apply_rotary_pos_emb(
        x, x, *rotary(config, module)[0](x, IDS[None])
    )
    torch.testing.assert_close(
        reading.encoding.rotate(x, x, IDS, IDS)[0], theirs, rtol=0, atol=1e-5
    )


def test_llama_ignores_partial_rotary_like_transformers():
    keys = LLAMA | {"partial_rotary_factor": 0.5}
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    reading = hf.from_config(keys)
    assert reading.encoding.rotary_dim == 64
    assert_same_table(reading, transformers.LlamaConfig(**keys), module)


def test_legacy_names_of_gpt_neox_and_minimax():
    neox = hf.from_config(
        LLAMA
        | {
            "model_type": "gpt_neox",
            "rope_theta": None,
            "rotary_pct": 0.5,
            "rotary_emb_base": 20000,
        }
    )
    assert (neox.encoding.rotary_dim, neox.encoding.base) == (32, 20000)
    minimax = hf.from_config(
        LLAMA | {"model_type": "minimax_m2", "head_dim": 64, "rotary_dim": 16}
    )
    assert minimax.encoding.rotary_dim == 16


@pytest.mark.parametrize("interleave", [True, False])
def test_deepseek_splits_heads_and_corrects_the_softmax_scale(interleave):
    rule = {
        "rope_type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 64,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    config, module = tiny(
        "deepseek_v3",
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        rope_interleave=interleave,
        rope_parameters=rule | {"rope_theta": 1e4},
        max_position_embeddings=2560,
    )
    reading = hf.from_config(config)
    encoding = reading.encoding
    assert (encoding.head_dim, encoding.gain) == (8, 1.0)
    assert encoding.layout == ("interleaved" if interleave else "half")
    attention = module.DeepseekV3Attention(config, 0)
    assert reading.softmax_scale_factor == pytest.approx(attention.scaling * 24**0.5)
    assert reading.softmax_scale_factor == pytest.approx(1.87385, abs=1e-5)
    says(reading, "the 8 channels of qk_rope_head_dim", "softmax scale × 1.87385")
