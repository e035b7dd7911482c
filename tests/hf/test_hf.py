"""Configs read into encodings, with transformers' own code as the oracle.

transformers builds its tables in float32, so frequencies agree to a few roundings,
1e-6 relative, and turned vectors at short positions to 1e-5.
"""

import contextlib
import importlib
import inspect
import json
import math
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pe_lab
from pe_lab import hf
from tests.test_refusals import refused_by_pe_lab

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
CONFIGS = transformers.models.auto.configuration_auto.CONFIG_MAPPING

SIZES = {
    "hidden_size": 64, "n_embd": 64, "num_attention_heads": 4, "n_head": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 8, "n_layer": 8,
    "intermediate_size": 64, "vocab_size": 99, "pad_token_id": 0, "bos_token_id": 0,
    "eos_token_id": 0, "max_position_embeddings": 64,
}  # fmt: skip
IDS = torch.arange(9)


def tiny(name, **changes):
    """A small config of this model type, and the module with its code."""
    cls = CONFIGS[name]
    if "text_config" in getattr(cls, "sub_configs_defaults", {}):
        cls = type(cls().text_config)
    known = inspect.signature(cls.__init__).parameters
    config = cls(**{k: v for k, v in SIZES.items() if k in known} | changes)
    code = cls.__module__.replace("configuration_", "modeling_")
    return config, importlib.import_module(code)


def rotary(config, module):
    """transformers' table of frequencies by kind of layer, and its gain."""
    classes = inspect.getmembers(module, inspect.isclass)
    named = [c for n, c in classes if n.endswith("RotaryEmbedding")]
    own = [
        c
        for c in named
        if "Vision" not in c.__name__ and c.__module__ == module.__name__
    ]
    table = own[0](config)
    buffers = dict(table.named_buffers())
    kinds = {
        n.removesuffix("inv_freq").rstrip("_"): v.double()
        for n, v in buffers.items()
        if n.endswith("inv_freq") and "original" not in n
    }
    return table, kinds


def inv_freq_of(encoding):
    if isinstance(encoding, pe_lab.MRoPE):
        return pe_lab.inv_freq(encoding.head_dim, base=encoding.base)
    return encoding.inv_freq


def of_kind(reading, config, kind):
    """The encoding of a layer of this kind that turns."""
    layers = enumerate(reading.per_layer)
    return next(
        e for i, e in layers
        if not isinstance(e, pe_lab.NoPE) and (not kind or config.layer_types[i] == kind)
    )  # fmt: skip


def assert_same_table(reading, config, module):
    table, kinds = rotary(config, module)
    assert kinds
    for kind, theirs in kinds.items():
        ours = of_kind(reading, config, kind)
        torch.testing.assert_close(inv_freq_of(ours), theirs, rtol=1e-6, atol=0)
        gain = (
            getattr(table, f"{kind}_attention_scaling", None)
            if kind
            else table.attention_scaling
        )
        assert getattr(ours, "gain", 1.0) == pytest.approx(gain, rel=1e-12)


def says(reading, *phrases):
    for phrase in phrases:
        assert any(phrase in note for note in reading.notes), (phrase, reading.notes)


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


# ------------------------------------------------------------------------ scaling rules

LLAMA = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_attention_heads": 2,
    "max_position_embeddings": 256,
    "rope_theta": 1e4,
    "num_hidden_layers": 2,
}
PAIRS = 32
SCALED = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
    "yarn by other turns": {"factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2},
    "yarn, ramp not rounded": {"factor": 32.0, "original_max_position_embeddings": 128, "truncate": False},
    "yarn, its own gain": {"factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.5},
    "yarn, DeepSeek's pair": {"factor": 40, "original_max_position_embeddings": 64, "mscale": 0.707, "mscale_all_dim": 1.0},
    "llama3": {"factor": 8.0, "original_max_position_embeddings": 64, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": {"factor": 4.0, "original_max_position_embeddings": 64, "short_factor": [1.0 + i / 9 for i in range(PAIRS)], "long_factor": [2.0 + i for i in range(PAIRS)]},
    "longrope, its own gain": {"attention_factor": 1.25, "original_max_position_embeddings": 64, "short_factor": [1.0] * PAIRS, "long_factor": [2.0] * PAIRS},
}  # fmt: skip


@pytest.mark.parametrize("new", [True, False], ids=["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("case", SCALED)
def test_scaled_frequencies_and_gain_equal_transformers(case, new):
    """New and old spelling of each rule."""
    rule = SCALED[case] | {
        "rope_type" if new else "type": case.split(",")[0].split()[0]
    }
    keys = dict(LLAMA)
    if new:
        keys["rope_parameters"] = rule | {"rope_theta": keys.pop("rope_theta")}
    else:
        keys["rope_scaling"] = rule
    config = transformers.LlamaConfig(**json.loads(json.dumps(keys)))
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    reading = hf.from_config(keys)
    assert_same_table(reading, config, module)
    if not new:
        says(reading, "is the old name of rope_type")


@pytest.mark.parametrize("length", [200, 256, 257, 1024])
def test_dynamic_takes_the_length_as_an_argument(length):
    keys = LLAMA | {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    table, _ = rotary(transformers.LlamaConfig(**keys), module)
    table(torch.zeros(1), torch.arange(length)[None])
    ours = hf.from_config(keys, length=length).encoding.inv_freq
    torch.testing.assert_close(ours, table.inv_freq.double(), rtol=2e-6, atol=0)
    says(hf.from_config(keys), "'dynamic' without length", "earlier calls")


@pytest.mark.parametrize("length", [64, 65])
def test_longrope_switches_by_the_argument(length):
    keys = LLAMA | {"rope_scaling": SCALED["longrope"] | {"rope_type": "longrope"}}
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    table, _ = rotary(transformers.LlamaConfig(**keys), module)
    table(torch.zeros(1), torch.arange(length)[None])
    ours = hf.from_config(keys, length=length).encoding.inv_freq
    torch.testing.assert_close(ours, table.inv_freq.double(), rtol=1e-6, atol=0)
    says(hf.from_config(keys), "'longrope' without length", "longest row of a batch")


def test_proportional_stops_the_slow_pairs():
    rope = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["proportional"]
    keys = LLAMA | {
        "rope_parameters": {
            "rope_type": "proportional",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
            "factor": 2.0,
        }
    }
    theirs, _ = rope(transformers.LlamaConfig(**keys))
    encoding = hf.from_config(keys).encoding
    assert encoding.rotary_dim == 64
    torch.testing.assert_close(encoding.inv_freq, theirs.double(), rtol=1e-6, atol=0)


def test_of_two_blocks_and_two_lengths_transformers_choice_is_read():
    """rope_scaling before rope_parameters, a length beside the block before one in it."""
    rule = SCALED["yarn"] | {"rope_type": "yarn"}
    keys = LLAMA | {"rope_scaling": rule, "original_max_position_embeddings": 32}
    keys |= {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}
    module = importlib.import_module("transformers.models.llama.modeling_llama")
    config = transformers.LlamaConfig(**json.loads(json.dumps(keys)))
    assert_same_table(hf.from_config(keys), config, module)


def test_gpt_oss_ramp_is_not_rounded():
    config, module = tiny("gpt_oss")
    rounded = config.to_dict()
    rounded["rope_parameters"] = rounded["rope_parameters"] | {"truncate": True}
    ours = hf.from_config(config).encoding.inv_freq
    assert not torch.equal(ours, hf.from_config(rounded).encoding.inv_freq)


def test_phimoe_has_gains_of_its_own():
    rule = SCALED["longrope"] | {
        "rope_type": "longrope",
        "short_mscale": 1.1,
        "long_mscale": 1.3,
    }
    keys = LLAMA | {"model_type": "phimoe", "rope_scaling": rule}
    assert hf.from_config(keys, length=64).encoding.gain == 1.1
    assert hf.from_config(keys, length=65).encoding.gain == 1.3


def test_phi3_reads_su_and_yarn_as_longrope():
    lists = {k: [2.0] * 32 for k in ("short_factor", "long_factor")}
    keys = LLAMA | {"model_type": "phi3", "original_max_position_embeddings": 64}
    for old in ("su", "yarn"):
        reading = hf.from_config(keys | {"rope_scaling": {"type": old, **lists}})
        says(reading, "'longrope'")
        assert reading.encoding.gain == pytest.approx(
            math.sqrt(1 + math.log(4) / math.log(64))
        )


# -------------------------------------------------------------------- what must be noted


@pytest.mark.parametrize(
    ("changes", "phrases"),
    [
        # B42, B43: the factor, given and implied
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}}, ["factor 4 contradicts", "= 1; factor counts"]),
        ({"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 64}}, ["factor is not given", "= 4."]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 1.5}}, ["original_max_position_embeddings is not given", "may already be the extended length"]),
        ({"original_max_position_embeddings": 32, "rope_scaling": SCALED["yarn"] | {"rope_type": "yarn"}}, ["64 of the rope parameters is ignored: beside them stands 32"]),
        ({"rope_scaling": SCALED["yarn, its own gain"] | {"rope_type": "yarn"}}, ["attention_factor 1.5 is given and counts; 1.13863 would be implied"]),
        ({"rope_scaling": SCALED["yarn"] | {"rope_type": "yarn"}}, ["attention_factor is not given: 1.13863 is implied"]),
        # B45: two corrections
        ({"rope_scaling": SCALED["yarn, DeepSeek's pair"] | {"rope_type": "yarn"}}, ["DeepSeek's code would multiply the softmax scale by 1.87385, this family's does not"]),
        ({"rope_scaling": SCALED["yarn"] | {"rope_type": "yarn", "mscale": 0.7}}, ["set the gain only together"]),
        # B36, B40
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, ["keys cached at one do not fit another"]),
        ({"rope_scaling": SCALED["longrope"] | {"rope_type": "longrope"}}, ["keys cached on one side do not fit the other"]),
        # B47
        ({"rope_scaling": {"type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}}, ["'type' is the old name of rope_type", "low_freq_factor is not given: 1", "high_freq_factor is not given: 4"]),
        ({"rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4}}, ["type 'linear' is ignored: rope_type is 'llama3'"]),
        # B48
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, ["rope_theta 10000.0 is ignored: the rope parameters say 500000.0"]),
        ({"rope_theta": None}, ["rope_theta is not given: 10000 is the family's"]),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, ["rope_parameters is ignored"]),
        # B50 and L5
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor 0.5 is ignored"]),
        ({"model_type": "phi"}, ["partial_rotary_factor is not given: 0.5 is the family's", "The first 32 of 64 channels turn"]),
        ({"model_type": "minimax_m2", "rotary_dim": 32, "head_dim": 64}, ["The first 32 of 64 channels turn"]),
        ({"model_type": "gpt_neox", "rotary_pct": 0.5, "rotary_dim": 16}, ["given twice", "rotary_pct 0.5, rotary_dim 0.25"]),
        # L7
        ({"head_dim": None, "rope_scaling": SCALED["yarn"] | {"rope_type": "yarn"}}, ["128 / 2 = 64", "head_dim null makes transformers 5.24 fail with 'yarn'"]),
        ({"num_attention_heads": 3}, ["128 / 3 rounds down to 42"]),
        # what an encoding cannot say
        ({"rope_scaling": SCALED["yarn"] | {"rope_type": "yarn", "llama_4_scaling_beta": 0.1}}, ["llama_4_scaling_beta", "the encoding does not"]),
        ({"use_logn_attn": True}, ["use_logn_attn"]),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 32}}, ["Ignored in the rope parameters: beta_fast"]),
        # names
        ({"model_type": "brand_new"}, ["'brand_new' is not known here", "rope_theta"]),
        ({"model_type": "chatglm", "kv_channels": 64, "rope_ratio": 50}, ["rope_ratio 50 multiplies the base", "ChatGLM2 divided positions"]),
        ({"model_type": "qwen2_vl", "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}}, ["'mrope' is a retired name", "Ids have three numbers"]),
        ({"model_type": "qwen2_vl", "rope_scaling": SCALED["yarn"] | {"type": "yarn", "mrope_section": [8, 12, 12]}}, ["not for images"]),
        ({"rope_scaling": {"full_attention": SCALED["yarn, ramp not rounded"] | {"rope_type": "yarn"}}}, ["truncate inside a kind of layer is ignored"]),
        ({"layer_types": ["full_attention", "linear_attention"]}, ["no attention scores to encode", "Layers differ"]),
    ],
)  # fmt: skip
def test_every_trap_is_named(changes, phrases):
    says(hf.from_config(LLAMA | changes), *phrases)


def test_a_plain_config_leaves_nothing_to_say():
    assert hf.from_config(LLAMA | {"head_dim": 64}).notes == ()


def test_nested_truncate_is_where_transformers_looks_for_it():
    """The nested form rounds its ramp although it says not to; the flat one obeys."""
    rule = SCALED["yarn, ramp not rounded"] | {"rope_type": "yarn", "rope_theta": 1e4}
    keys = LLAMA | {
        "model_type": "olmo3",
        "layer_types": ["full_attention"] * 2,
        "rope_theta": None,
    }
    keys |= {
        "rope_parameters": {
            "full_attention": rule,
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    }
    config = transformers.Olmo3Config(**json.loads(json.dumps(keys)))
    theirs, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](
        _with_head_dim(config), layer_type="full_attention"
    )
    ours = hf.from_config(keys).encoding.inv_freq
    torch.testing.assert_close(ours, theirs.double(), rtol=1e-6, atol=0)


def _with_head_dim(config):
    config.head_dim = config.hidden_size // config.num_attention_heads
    return config


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


def test_multimodal_configs_are_read_inside():
    keys = {
        "model_type": "llava",
        "rope_theta": 5.0,
        "text_config": LLAMA | {"rope_theta": 1e6},
    }
    reading = hf.from_config(keys)
    assert (reading.model_type, reading.encoding.base) == ("llama", 1e6)
    says(reading, "Read from text_config", "rope_theta beside text_config is ignored")


# ---------------------------------------------------------------------- layers that differ


def test_gemma3_has_a_base_for_each_kind_of_layer():
    """Old keys: rope_scaling is for the layers that see everything."""
    keys = LLAMA | {
        "model_type": "gemma3_text",
        "num_hidden_layers": 12,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "sliding_window": 16,
        "head_dim": 64,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    reading = hf.from_config(keys)
    assert [e.base for e in reading.per_layer] == ([1e4] * 5 + [1e6]) * 2
    assert reading.encoding is reading.per_layer[0]
    full = hf.from_config(keys, layer=5).encoding
    torch.testing.assert_close(full.inv_freq, pe_lab.inv_freq(64, base=1e6) / 8)
    says(reading, "Layers differ: encoding is that of 10 of 12", "a mask's task")
    module = importlib.import_module("transformers.models.gemma3.modeling_gemma3")
    config = transformers.Gemma3TextConfig(**keys | {"num_key_value_heads": 2})
    assert_same_table(reading, config, module)


def test_modernbert_has_two_bases():
    keys = {
        "model_type": "modernbert",
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 7,
        "global_rope_theta": 2e5,
        "local_rope_theta": 5e3,
    }
    bases = [e.base for e in hf.from_config(keys).per_layer]
    assert bases == [2e5, 5e3, 5e3, 2e5, 5e3, 5e3, 2e5]


@pytest.mark.parametrize("name", ["smollm3", "llama4", "cohere2", "exaone4"])
def test_layers_without_rotation_are_transformers(name):
    """A layer that has position is told from one that has none by shifting its ids."""
    config, module = tiny(name)
    layers = hf.from_config(config).per_layer
    attention = next(
        c
        for n, c in inspect.getmembers(module, inspect.isclass)
        if n.endswith("Attention") and "Vision" not in n
    )
    table = next(
        c
        for n, c in inspect.getmembers(module, inspect.isclass)
        if n.endswith("RotaryEmbedding") and "Vision" not in n
    )(config)
    config._attn_implementation = "eager"
    if name == "llama4":
        config.attn_temperature_tuning = False
    torch.manual_seed(0)
    x = torch.randn(1, 9, config.hidden_size)
    for i, encoding in enumerate(layers):
        layer = attention(config, layer_idx=i).eval()
        out = [
            layer(x, position_embeddings=table(x, ids[None]), attention_mask=None)[0]
            for ids in (IDS, 7 * IDS)
        ]
        assert torch.equal(*out) == isinstance(encoding, pe_lab.NoPE), i
    assert len({type(e) for e in layers}) == 2


@pytest.mark.parametrize("name", ["smollm3", "llama4"])
def test_every_fourth_layer_has_no_rotation_if_nothing_is_said(name):
    config, _ = tiny(name)
    keys = config.to_dict()
    del keys["no_rope_layers"]
    layers = hf.from_config(keys).per_layer
    turned = [not isinstance(e, pe_lab.NoPE) for e in layers]
    assert turned == [bool(n) for n in config.no_rope_layers]


def test_layers_that_only_see_less_share_one_encoding():
    config, _ = tiny("gpt_oss")
    reading = hf.from_config(config)
    assert len({id(e) for e in reading.per_layer}) == 1
    assert not any("Layers differ" in note for note in reading.notes)


def test_every_way_to_pass_a_config(tmp_path):
    """Dict, file, folder, transformers' object and plain attributes mean the same."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    theirs = transformers.LlamaConfig(**LLAMA)
    for config in (path, str(path), tmp_path, SimpleNamespace(**LLAMA), theirs):
        encoding = hf.from_config(config).encoding
        assert torch.equal(encoding.inv_freq, pe_lab.inv_freq(64)), config
        assert encoding.head_dim == 64


def test_a_config_is_not_changed():
    keys = LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    before = json.dumps(keys)
    hf.from_config(keys)
    assert json.dumps(keys) == before


# ------------------------------------------------------------------------- biases, tables


@pytest.mark.parametrize("heads", [4, 6])
def test_bloom_bias_up_to_a_constant_per_row(heads):
    bloom = importlib.import_module("transformers.models.bloom.modeling_bloom")
    encoding = hf.from_config(
        {"model_type": "bloom", "n_head": heads, "n_layer": 2}
    ).encoding
    theirs = bloom.build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)
    assert_same_softmax(encoding, heads, theirs.view(heads, 1, 9))


@pytest.mark.parametrize(("heads", "steepest"), [(4, 8), (6, 8), (4, 16), (12, 4)])
def test_mpt_bias_up_to_a_constant_per_row(heads, steepest):
    mpt = importlib.import_module("transformers.models.mpt.modeling_mpt")
    config = transformers.MptConfig(
        n_heads=heads, d_model=heads * 8, attn_config={"alibi_bias_max": steepest}
    )
    reading = hf.from_config(config)
    theirs = mpt.build_mpt_alibi_tensor(heads, 9, alibi_bias_max=steepest)
    assert_same_softmax(reading.encoding, heads, theirs)
    says(reading, "learned_pos_emb is ignored")


def test_falcon_divides_its_bias():
    falcon = importlib.import_module("transformers.models.falcon.modeling_falcon")
    config = transformers.FalconConfig(
        hidden_size=64, num_attention_heads=4, alibi=True, num_hidden_layers=1
    )
    reading = hf.from_config(config)
    theirs = falcon.build_alibi_tensor(torch.ones(1, 9).long(), 4, torch.float32)
    # slopes of 4 heads are powers of two, so even bfloat16 is exact here
    assert_same_softmax(reading.encoding, 4, theirs.view(4, 1, 9) / 16**0.5)
    says(reading, "divides by √16", "rounds m_h·n to bfloat16")
    assert isinstance(hf.from_config(transformers.FalconConfig()).encoding, pe_lab.RoPE)


def assert_same_softmax(encoding, heads, theirs):
    """A constant added to a row changes no probability; 1e-6 for float32."""
    q = torch.zeros(1, heads, 9, 8)
    ours = encoding.bias(q, q, IDS, IDS)[0].softmax(-1)
    torch.testing.assert_close(
        ours, theirs.expand(heads, 9, 9).softmax(-1), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("part", ["encoder", "decoder"])
@pytest.mark.parametrize("name", ["t5", "mt5", "umt5"])
def test_t5_bias_equals_transformers(name, part):
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    config = CONFIGS[name](
        d_model=32,
        d_kv=8,
        num_heads=4,
        num_layers=3,
        num_decoder_layers=2,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        vocab_size=9,
    )
    config.is_decoder = part == "decoder"
    reading = hf.from_config(config, part=part)
    attention = next(
        c
        for n, c in inspect.getmembers(module, inspect.isclass)
        if n.endswith("Attention")
    )
    theirs = attention(config, has_relative_attention_bias=True, layer_idx=0)
    encoding = reading.encoding
    with torch.no_grad():
        encoding.weight.copy_(theirs.relative_attention_bias.weight)
    q = torch.zeros(1, 4, 30, 8)
    ids = torch.arange(30)
    ours = encoding.bias(q, q, ids, ids)
    assert torch.equal(ours.tril(), theirs.compute_bias(30, 30, device="cpu").tril())
    assert len(reading.per_layer) == (3 if part == "encoder" else 2)
    assert len({id(e) for e in reading.per_layer}) == (
        len(reading.per_layer) if name == "umt5" else 1
    )
    assert reading.softmax_scale_factor == 8**0.5


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        "bert",
        "albert",
        "electra",
        "distilbert",
        "opt",
        "bart",
        "biogpt",
        "roberta",
        "xlm-roberta",
        "camembert",
        "mpnet",
        "esm",
    ],
)
def test_tables_have_transformers_size_and_rows(name):
    """The row that each of 9 tokens reads, found by looking what the model looks up."""
    changes = {"pad_token_id": 1} if hf.FAMILIES[name].offset < 0 else {}
    known = inspect.signature(CONFIGS[name].__init__).parameters
    sizes = {
        "d_model": 64,
        "dim": 64,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
        "ffn_dim": 8,
        "word_embed_proj_dim": 64,
        "embedding_size": 32,
        "n_positions": 64,
        "n_layers": 1,
        "n_heads": 4,
        "n_layer": 1,
        "num_hidden_layers": 1,
    }
    config = CONFIGS[name](
        **{k: v for k, v in (SIZES | sizes | changes).items() if k in known}
    )
    model = transformers.AutoModel.from_config(config).eval()
    table = next(
        m
        for n, m in model.named_modules()
        if n.endswith(("position_embeddings", "wpe", "embed_positions"))
    )
    seen = []
    table.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        model(torch.arange(5, 14)[None])
    encoding = hf.from_config(config).encoding
    assert encoding.weight.shape == table.weight.shape
    encoding.weight.data.copy_(table.weight.data)
    x = torch.zeros(1, 9, table.weight.shape[1])
    assert torch.equal(encoding.embed(x, IDS), seen[0].reshape(x.shape))


def test_roberta_counts_from_its_padding():
    reading = hf.from_config(
        {"model_type": "roberta", "hidden_size": 8, "max_position_embeddings": 514}
    )
    assert (reading.encoding.max_len, reading.encoding.offset) == (512, 2)
    says(
        reading,
        "pad_token_id is not given: 1",
        "Position 0 is row 2: 512 positions, 514 rows",
    )


def test_esm_can_rotate():
    config = {
        "model_type": "esm",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "max_position_embeddings": 9,
    }
    assert isinstance(hf.from_config(config).encoding, pe_lab.Learned)
    turned = hf.from_config(config | {"position_embedding_type": "rotary"}).encoding
    assert isinstance(turned, pe_lab.RoPE) and turned.layout == "half"


def test_bert_with_relative_keys_is_shaws():
    """Scores gain q·E[m − n + L − 1]/√D, as transformers 4 had it; rows run backwards."""
    keys = {
        "model_type": "bert",
        "hidden_size": 16,
        "num_attention_heads": 2,
        "max_position_embeddings": 9,
        "position_embedding_type": "relative_key",
    }
    reading = hf.from_config(keys)
    table, q = torch.randn(17, 8), torch.randn(1, 2, 9, 8)
    reading.encoding.keys.data.copy_(table.flip(0))
    distance = IDS[:, None] - IDS + 8
    theirs = torch.einsum("bhld,lrd->bhlr", q, table[distance]) / 8**0.5
    torch.testing.assert_close(
        reading.encoding.bias(q, q, IDS, IDS), theirs, rtol=0, atol=1e-5
    )
    says(reading, "flip the checkpoint's table", "reads this key no more")
    assert reading.encoding.read(torch.ones(1, 2, 9, 9), IDS, IDS) is None


@pytest.mark.parametrize("name", ["marian", "m2m_100", "whisper", "distilbert", "xglm"])
def test_sinusoids_equal_transformers(name):
    """Tables at 9 positions from where the family begins to count; float32 angles."""
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    keys = {
        "model_type": name,
        "d_model": 64,
        "dim": 64,
        "pad_token_id": 1,
        "sinusoidal_pos_embds": True,
    }
    reading = hf.from_config(keys, part="encoder")
    if name == "marian":
        theirs, begin = (
            module.MarianSinusoidalPositionalEmbedding(20, 64).create_weight(),
            0,
        )
    elif name == "whisper":
        theirs, begin = module.sinusoids(20, 64), 0
    elif name == "distilbert":
        theirs, begin = torch.nn.Parameter(torch.empty(20, 64), requires_grad=False), 0
        module.create_sinusoidal_embeddings(20, 64, theirs)
    else:
        cls = next(
            c
            for n, c in inspect.getmembers(module, inspect.isclass)
            if n.endswith("SinusoidalPositionalEmbedding")
        )
        theirs, begin = cls.get_embedding(20, 64, 1), 2
        says(reading, "positions + 2")
    ours = reading.encoding.table(IDS + begin, torch.float32)
    torch.testing.assert_close(ours, theirs[begin : begin + 9], rtol=0, atol=2e-5)


def test_whispers_decoder_has_a_table():
    keys = {"model_type": "whisper", "d_model": 8, "max_target_positions": 448}
    assert hf.from_config(keys, part="decoder").encoding.max_len == 448


def test_xlnet_scores_equal_transformers():
    """(q + u)·k + (q + v)·r(m − n), over √D, with our W, u, v copied from its layer."""
    module = importlib.import_module("transformers.models.xlnet.modeling_xlnet")
    config = transformers.XLNetConfig(d_model=16, n_head=2, n_layer=1, d_inner=8)
    encoding = hf.from_config(config).encoding
    layer, model = module.XLNetRelativeAttention(config), module.XLNetModel(config)
    layer.eval()
    torch.manual_seed(0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    encoding.weight.data.copy_(layer.r.data.permute(1, 2, 0))
    encoding.u.data.copy_(layer.r_w_bias.data[:, None])
    encoding.v.data.copy_(layer.r_r_bias.data[:, None])
    q, k = torch.randn(2, 9, 1, 2, 8)
    r = torch.einsum(
        "ibh,hnd->ibnd", model.relative_positional_encoding(9, 9, bsz=1), layer.r
    )
    v = torch.zeros_like(k)
    _, theirs = layer.rel_attn_core(q, k, v, r, output_attentions=True)
    q, k = (x.permute(1, 2, 0, 3) for x in (q, k))
    ours = (q @ k.mT / 8**0.5 + encoding.bias(q, k, IDS, IDS)).softmax(-1)
    torch.testing.assert_close(ours, theirs.permute(2, 3, 0, 1), rtol=0, atol=1e-5)


def test_vit_and_jamba():
    vit = hf.from_config(
        {"model_type": "vit", "image_size": 224, "patch_size": 16, "hidden_size": 8}
    )
    assert vit.encoding.max_len == 197
    says(vit, "[CLS]", "raster order")
    assert isinstance(
        hf.from_config({"model_type": "jamba", "num_hidden_layers": 2}).encoding,
        pe_lab.NoPE,
    )


# ------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "none of these is there: rope_theta, rotary_emb_base, .*rope_scaling, partial_rotary_factor"),
        ({"model_type": "mamba"}, "got 'mamba'"),
        (LLAMA | {"rope_scaling": {"rope_type": "wavy"}}, "rope_type needs 'default' or 'linear' or"),
        (LLAMA | {"rope_scaling": {"rope_type": "linear"}}, "'linear' needs factor"),
        (LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, "factor needs"),
        (LLAMA | {"num_attention_heads": None}, "config needs num_attention_heads or n_head"),
        (LLAMA | {"model_type": "phi", "partial_rotary_factor": 4.0}, "at most 1"),
        ({"model_type": "gpt2", "n_positions": 10**12, "n_embd": 64}, "n_positions|max_position_embeddings needs"),
        ("meta-llama/Llama-3.1-8B", "Nothing is downloaded"),
        (LLAMA | {"no_rope_layers": [1]}, "one number per layer, 2, got 1"),
        (LLAMA | {"rope_scaling": {"rope_type": "longrope"}}, "short_factor needs"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_words(config, words):
    with pytest.raises((TypeError, ValueError), match=words):
        hf.from_config(config)


def test_a_layer_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="layer needs one of 0 … 1, got 2"):
        hf.from_config(LLAMA, layer=2)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.sampled_from([0, 1, 2, 4, 64, 10**9, 10**400, -1, float("nan"), float("inf"), 1e300, 1e-300, 0.25, 0.5, 1e4]),
    st.floats(), st.text(max_size=3), st.lists(st.one_of(st.integers(-2, 9), st.floats(), st.none()), max_size=4), st.lists(st.sampled_from(["full_attention", "sliding_attention", "mamba"]), max_size=4),
    st.sampled_from(["yarn", "linear", "dynamic", "longrope", "llama3", "su", "mrope", "proportional", "rotary", "relative_key", "nope", "LLG"]),
)  # fmt: skip
KEYS = sorted(
    {n for names in hf.NAMES.values() for n in names} - {"text_config", "llm_config", "language_config"}
    | set(hf.REMARKS)
    | {"rope_theta", "rotary_dim", "qk_rope_head_dim", "rope_local_base_freq", "local_rope_theta", "layer_types", "no_rope_layers", "no_rope_layer_interval", "sliding_window", "sliding_window_pattern", "position_embedding_type", "alibi", "image_size", "patch_size", "max_target_positions", "clamp_len", "original_max_position_embeddings", "rope_ratio", "relative_attention_num_buckets", "relative_attention_max_distance", "sinusoidal_embeddings"}
)  # fmt: skip
RULE_KEYS = [
    "rope_type",
    "type",
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "short_factor",
    "long_factor",
    "low_freq_factor",
    "high_freq_factor",
    "mrope_section",
    "partial_rotary_factor",
    "rope_theta",
    "full_attention",
]
RULES = st.dictionaries(st.sampled_from(RULE_KEYS), VALUES, max_size=6)


@given(
    model_type=st.sampled_from([*hf.FAMILIES, "unheard_of"]),
    junk=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5),
    rules=st.one_of(st.none(), RULES, st.fixed_dictionaries({"full_attention": RULES})),
    start=st.sampled_from([{}, LLAMA, LLAMA | {"image_size": 8, "patch_size": 2, "qk_rope_head_dim": 8}]),
    length=st.sampled_from([None, 1, 1000]),
)  # fmt: skip
@settings(max_examples=600)
def test_junk_is_read_or_refused_by_pe_lab(model_type, junk, rules, start, length):
    config = start | junk | {"model_type": model_type}
    if rules is not None:
        config["rope_scaling"] = rules
    for whole in (config, {"text_config": config}):
        try:
            reading = hf.from_config(whole, length=length)
        except (TypeError, ValueError) as error:
            assert refused_by_pe_lab(error), f"{type(error).__name__}: {error}"
        else:
            assert isinstance(reading.encoding, pe_lab.PositionalEncoding)
            assert all(note.endswith(".") for note in reading.notes)


def test_transformers_is_not_imported():
    """In a fresh process: neither by the import nor by reading a config."""
    code = (
        "import sys, pe_lab\n"
        "from pe_lab import hf\n"
        "hf.from_config({'model_type': 'llama', 'head_dim': 8, 'rope_theta': 1e4})\n"
        "print('transformers' in sys.modules, 'huggingface_hub' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
