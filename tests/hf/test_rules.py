"""Every rope type beside transformers', whose float32 agrees to 1e-6 relative."""

import importlib
import json
import math

import pytest
import torch

from pe_lab import hf
from tests.hf.transformers_code import (
    LLAMA,
    assert_same_table,
    rotary,
    says,
    tiny,
    transformers,
)

PAIRS = 32
SCALED = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
    "yarn by other turns": {"factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2},
    "yarn, as many slow turns as fast": {"factor": 32.0, "original_max_position_embeddings": 64, "beta_fast": 1.0, "beta_slow": 1.0},
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


@pytest.mark.parametrize("length", [64, 65])
def test_of_phimoe_it_is_said_that_transformers_never_reads_the_long_factors(length):
    """Its module at one position past the trained length; float32 angles, 1e-5."""
    gains = {"short_mscale": 1.1, "long_mscale": 1.3, "rope_type": "longrope"}
    keys = LLAMA | {"rope_parameters": SCALED["longrope"] | gains | {"rope_theta": 1e4}}
    config, module = tiny("phimoe", **keys | {"model_type": "phimoe"})
    cos, _ = rotary(config, module)[0](torch.zeros(1), torch.arange(length)[None])
    short = hf.from_config(config, length=64)
    angles = (length - 1) * short.encoding.inv_freq
    gain = hf.from_config(config, length=length).encoding.gain
    theirs = cos[0, -1, :PAIRS].double()
    torch.testing.assert_close(theirs, gain * angles.cos(), rtol=0, atol=1e-5)
    says(short, "transformers reads Phi-MoE's short_factor at every length")


def test_phi3_reads_su_and_yarn_as_longrope():
    lists = {k: [2.0] * 32 for k in ("short_factor", "long_factor")}
    keys = LLAMA | {"model_type": "phi3", "original_max_position_embeddings": 64}
    for old in ("su", "yarn"):
        reading = hf.from_config(keys | {"rope_scaling": {"type": old, **lists}})
        says(reading, "'longrope'")
        assert reading.encoding.gain == pytest.approx(
            math.sqrt(1 + math.log(4) / math.log(64))
        )
