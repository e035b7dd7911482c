"""Layers that differ, beside transformers' layers."""

import importlib
import inspect
import json

import pytest
import torch

import pe_lab
from pe_lab import hf
from tests.hf.test_rules import SCALED
from tests.hf.transformers_code import (
    IDS,
    LLAMA,
    assert_same_table,
    says,
    tiny,
    transformers,
)


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
