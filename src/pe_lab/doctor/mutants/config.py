"""Configs with one bug each, and those of released models, cut down to position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_lab.doctor.mutants import Healthy, Mutant

Keys = dict[str, Any]

_LENGTH = "original_max_position_embeddings"
_LLAMA: Keys = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32,
    "max_position_embeddings": 131072, "rope_theta": 500000.0,
}  # fmt: skip
_LLAMA3: Keys = {
    "rope_type": "llama3", "factor": 8.0, _LENGTH: 8192,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
_LLAMA31 = _LLAMA | {"rope_scaling": _LLAMA3}
_LLAMA2: Keys = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_hidden_layers": 32, "max_position_embeddings": 4096,
}  # fmt: skip
_QWEN: Keys = {
    "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
    "num_hidden_layers": 28, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
    "sliding_window": 131072, "use_sliding_window": False,
}  # fmt: skip
_YARN: Keys = {"type": "yarn", "factor": 4.0, _LENGTH: 32768}
_DEEPSEEK: Keys = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128,
    "num_hidden_layers": 61, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "max_position_embeddings": 163840, "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn", "factor": 40, _LENGTH: 4096, "beta_fast": 32, "beta_slow": 1,
        "mscale": 1.0, "mscale_all_dim": 1.0,
    },
}  # fmt: skip
# Phi-3's factors in shape: 1 for the fastest pairs, growing to some 64
_SHORT = [1 + 0.04 * i for i in range(48)]
_LONG = [1 + 1.35 * i for i in range(48)]
_PHI3: Keys = {
    "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32,
    "num_hidden_layers": 32, "max_position_embeddings": 131072, _LENGTH: 4096,
    "rope_theta": 10000.0, "sliding_window": 262144,
    "rope_scaling": {"type": "su", "short_factor": _SHORT, "long_factor": _LONG},
}  # fmt: skip
_NEOX: Keys = {
    "model_type": "gpt_neox", "hidden_size": 6144, "num_attention_heads": 64,
    "num_hidden_layers": 44, "max_position_embeddings": 2048, "rotary_pct": 0.25,
    "rotary_emb_base": 10000,
}  # fmt: skip
_GEMMA3: Keys = {
    "model_type": "gemma3_text", "hidden_size": 1152, "num_attention_heads": 4,
    "num_hidden_layers": 26, "head_dim": 256, "max_position_embeddings": 32768,
    "rope_theta": 1000000, "rope_local_base_freq": 10000, "rope_scaling": None,
    "sliding_window": 512, "sliding_window_pattern": 6,
}  # fmt: skip
_MODERNBERT: Keys = {
    "model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12,
    "num_hidden_layers": 22, "max_position_embeddings": 8192, "local_attention": 128,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0, "position_embedding_type": "absolute",
}  # fmt: skip
_GPT_OSS: Keys = {
    "model_type": "gpt_oss", "hidden_size": 2880, "num_attention_heads": 64,
    "num_hidden_layers": 24, "head_dim": 64, "max_position_embeddings": 131072,
    "sliding_window": 128, "rope_theta": 150000,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 32.0, _LENGTH: 4096, "beta_fast": 32.0,
        "beta_slow": 1.0, "truncate": False,
    },
}  # fmt: skip
_ROBERTA: Keys = {
    "model_type": "roberta", "hidden_size": 768, "num_attention_heads": 12,
    "num_hidden_layers": 12, "max_position_embeddings": 514, "pad_token_id": 1,
    "position_embedding_type": "absolute",
}  # fmt: skip
_OPT: Keys = {
    "model_type": "opt", "hidden_size": 768, "num_attention_heads": 12,
    "num_hidden_layers": 12, "max_position_embeddings": 2048, "pad_token_id": 1,
    "word_embed_proj_dim": 768,
}  # fmt: skip
_MPT: Keys = {
    "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
    "max_seq_len": 2048, "learned_pos_emb": True,
    "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_type": "multihead"},
}  # fmt: skip
_QWEN_VL: Keys = {
    "model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28,
    "num_hidden_layers": 28, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
}  # fmt: skip


def _scaled(keys: Keys, **changes: Any) -> Keys:
    """The keys with other rope parameters; None takes one out."""
    scaling = {**keys.get("rope_scaling", {}), **changes}
    kept = {k: v for k, v in scaling.items() if v is not None}
    return keys | {"rope_scaling": kept}


def _less(keys: Keys, *names: str) -> Keys:
    return {k: v for k, v in keys.items() if k not in names}


def _mutant(
    name: str,
    keys: Keys,
    *checks: str,
    source: str = "",
    smallest: str = "",
    **options: Any,
) -> Mutant:
    return Mutant(name, "config", lambda: keys, checks, source, smallest, options)


def _healthy(
    name: str, keys: Keys, identity: Mapping[str, Any] | None = None
) -> Healthy:
    return Healthy(name, "config", lambda: keys, identity or {})


_QWEN_YARN = _QWEN | {"rope_scaling": _YARN}
_LINEAR = _LLAMA2 | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}

MUTANTS: tuple[Mutant, ...] = (
    # bases
    _mutant("base 0", _LLAMA31 | {"rope_theta": 0}, "D-BASE"),
    _mutant("base 1", _LLAMA31 | {"rope_theta": 1.0}, "D-BASE"),
    _mutant("base negative", _LLAMA31 | {"rope_theta": -10000.0}, "D-BASE"),
    _mutant(
        "base is the smallest frequency", _LLAMA31 | {"rope_theta": 2e-6}, "D-BASE"
    ),
    _mutant("base is a text", _LLAMA31 | {"rope_theta": "10000"}, "D-BASE"),
    _mutant(
        "base left out, llama3 rule",
        _less(_LLAMA31, "rope_theta"),
        "D-BASE",
        source="vllm-project/vllm#9502",
        smallest="pair 63 at position 1: ω 2.5e-6/8 instead of 2.5e-7 … for base 5e5",
    ),
    _mutant("base left out, long texts", _less(_LLAMA, "rope_theta"), "D-BASE"),
    _mutant(
        "base of the top level and of the block differ",
        _LLAMA
        | {"rope_theta": 10000.0, "rope_parameters": _LLAMA3 | {"rope_theta": 5e5}},
        "D-BASE",
        source="THUDM/slime#1720",
        smallest="rope_theta 10000 and 500000",
    ),
    _mutant(
        "base beside the text model",
        {"model_type": "llava", "rope_theta": 1e6, "text_config": _LLAMA2},
        "D-BASE",
    ),
    _mutant(
        "local and global base exchanged",
        _GEMMA3 | {"rope_theta": 10000, "rope_local_base_freq": 1000000},
        "D-BASE",
    ),
    _mutant(
        "local and global base exchanged, by kind of layer",
        _less(_GEMMA3, "rope_theta", "rope_local_base_freq", "rope_scaling")
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e6},
            }
        },
        "D-BASE",
    ),
    _mutant(
        "another base than expected",
        _LLAMA31 | {"rope_theta": 10000.0},
        "D-BASE",
        expected={"base": 500000.0},
    ),
    # rules
    _mutant(
        "rule left out",
        _LLAMA,
        "D-BASE",
        expected={"scaling": "llama3 8"},
        source="ggml-org/llama.cpp#8650",
        smallest="d 128, base 5e5: 29 pairs kept, 6 blended, 29 divided by 8",
    ),
    _mutant(
        "two names of the rule disagree",
        _scaled(_LLAMA31, type="linear"),
        "D-CONFIG",
        source="lablup/mlxcel#1355",
    ),
    _mutant(
        "a rule that nobody knows", _scaled(_LLAMA31, rope_type="llama4"), "D-CONFIG"
    ),
    _mutant("rule is no block", _LLAMA | {"rope_scaling": "linear"}, "D-CONFIG"),
    _mutant(
        "two blocks that differ",
        _LINEAR | {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
        "D-CONFIG",
        smallest="factor 4 and factor 2",
    ),
    _mutant(
        "factor of a rule that has none",
        _scaled(_LLAMA, rope_type="default", factor=4.0),
        "D-CONFIG",
    ),
    _mutant(
        "YaRN without factor, trained length that of the texts",
        _QWEN | {"rope_scaling": {"type": "yarn", _LENGTH: 32768}},
        "D-CONFIG",
    ),
    _mutant(
        "length in quotes", _LLAMA31 | {"max_position_embeddings": "131072"}, "D-CONFIG"
    ),
    _mutant("factor missing", _scaled(_LLAMA31, factor=None), "D-CONFIG"),
    _mutant("factor inverted", _scaled(_LINEAR, factor=0.25), "D-CONFIG"),
    _mutant("factor 0", _scaled(_LINEAR, factor=0), "D-CONFIG"),
    _mutant("factor is a text", _scaled(_LINEAR, factor="4"), "D-CONFIG"),
    _mutant(
        "dynamic with a negative factor",
        _LLAMA2 | {"rope_scaling": {"type": "dynamic", "factor": -2.0}},
        "D-CONFIG",
        source="vllm-project/vllm#52665",
        smallest="−2·2 + 3 = −1 at twice the length",
    ),
    _mutant(
        "dynamic with a factor below 1",
        _LLAMA2 | {"rope_scaling": {"type": "dynamic", "factor": 0.5}},
        "D-CONFIG",
    ),
    _mutant(
        "dynamic with a trained length that is not read",
        _LLAMA2 | {"rope_scaling": {"type": "dynamic", "factor": 2.0, _LENGTH: 2048}},
        "D-CONFIG",
    ),
    _mutant(
        "factor below what the length asks",
        _scaled(_QWEN_YARN | {"max_position_embeddings": 131072}, factor=2.0),
        "D-CONFIG",
        source="huggingface/transformers#38224",
        smallest="factor 2, 131072 / 32768 = 4",
    ),
    _mutant(
        "trained length left out, the longest is the extended",
        _scaled(_QWEN_YARN | {"max_position_embeddings": 131072}, **{_LENGTH: None}),
        "D-CONFIG",
        source="NVIDIA/Megatron-LM#1418",
        smallest="131072 is taken for 32768: blends at 4 times the wavelengths",
    ),
    _mutant(
        "llama3 without the trained length",
        _scaled(_LLAMA31, **{_LENGTH: None}),
        "D-CONFIG",
    ),
    _mutant(
        "llama3 without its bounds",
        _scaled(_LLAMA31, low_freq_factor=None, high_freq_factor=None),
        "D-CONFIG",
    ),
    _mutant(
        "llama3 with bounds exchanged",
        _scaled(_LLAMA31, low_freq_factor=4.0, high_freq_factor=1.0),
        "D-CONFIG",
    ),
    _mutant(
        "YaRN's two numbers of turns exchanged",
        _scaled(_QWEN_YARN, beta_fast=1.0, beta_slow=32.0),
        "D-CONFIG",
    ),
    _mutant("two trained lengths", _QWEN_YARN | {_LENGTH: 8192}, "D-CONFIG"),
    _mutant(
        "a parameter misspelt",
        _scaled(_LLAMA31, high_freq_factor=None, high_freq_facter=4.0),
        "D-CONFIG",
    ),
    _mutant(
        "a parameter misspelt that has a default",
        _scaled(_QWEN_YARN, beta_fst=16),
        "D-CONFIG",
    ),
    _mutant(
        "parameters of another rule",
        _scaled(_LINEAR, low_freq_factor=1.0, high_freq_factor=4.0),
        "D-CONFIG",
    ),
    _mutant(
        "one of DeepSeek's two corrections",
        _scaled(_DEEPSEEK, mscale_all_dim=None, mscale=0.707),
        "D-CONFIG",
        source="huggingface/transformers#47435",
        smallest="gain 1.3689, not 1.2608",
    ),
    _mutant(
        "the other of DeepSeek's corrections",
        _scaled(_DEEPSEEK, mscale=None),
        "D-CONFIG",
    ),
    _mutant(
        "rounding of the ramp asked for where nobody looks",
        _less(_GPT_OSS, "rope_scaling")
        | {
            "rope_parameters": {
                "full_attention": _GPT_OSS["rope_scaling"],
                "sliding_attention": {"rope_type": "default"},
            }
        },
        "D-CONFIG",
    ),
    _mutant(
        "a kind of layer without parameters",
        _less(_GEMMA3, "rope_scaling")
        | {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        "D-CONFIG",
    ),
    _mutant(
        "served below the trained length",
        _LLAMA31 | {"max_position_embeddings": 2048},
        "D-CONFIG",
        source="vllm-project/vllm#52665",
        smallest="2048 / 8192 = 1/4",
    ),
    _mutant(
        "YaRN served below the trained length",
        _QWEN_YARN | {"max_position_embeddings": 4096},
        "D-CONFIG",
    ),
    _mutant(
        "a block without a rule",
        _LLAMA2 | {"rope_scaling": {"factor": 4.0}},
        "D-CONFIG",
    ),
    _mutant("a gain of 0", _scaled(_QWEN_YARN, attention_factor=0), "D-CONFIG"),
    _mutant(
        "a gain ten times too large",
        _scaled(_QWEN_YARN, attention_factor=11.386),
        "D-CONFIG",
    ),
    _mutant(
        "corrections below 0",
        _scaled(_DEEPSEEK, mscale=-1.0, mscale_all_dim=-1.0),
        "D-CONFIG",
    ),
    _mutant(
        "fewer kinds than layers",
        _GEMMA3 | {"layer_types": ["sliding_attention"] * 5},
        "D-CONFIG",
    ),
    _mutant("ALiBi asked of Llama", _LLAMA2 | {"alibi": True}, "D-CONFIG"),
    # names of other tools
    _mutant(
        "the base by another tool's name",
        _less(_LLAMA2, "rope_theta") | {"rope_base": 500000.0},
        "D-CONFIG",
    ),
    _mutant("the base misspelt", _LLAMA2 | {"rope_thetha": 500000.0}, "D-CONFIG"),
    _mutant(
        "the share by another tool's name",
        _less(_NEOX, "rotary_pct") | {"rotary_percent": 0.5},
        "D-CONFIG",
    ),
    _mutant(
        "a factor outside the block", _LLAMA2 | {"rope_scaling_factor": 4.0}, "D-CONFIG"
    ),
    _mutant("GLM's ratio given to Llama", _LLAMA2 | {"rope_ratio": 16}, "D-BASE"),
    # LongRoPE's lists
    _mutant("LongRoPE that never switches", _PHI3 | {_LENGTH: 131072}, "D-CONFIG"),
    _mutant(
        "a factor for each channel", _scaled(_PHI3, long_factor=2 * _LONG), "D-CONFIG"
    ),
    _mutant(
        "a short list too short", _scaled(_PHI3, short_factor=_SHORT[:-1]), "D-CONFIG"
    ),
    _mutant("a list left out", _scaled(_PHI3, long_factor=None), "D-CONFIG"),
    _mutant(
        "lists exchanged",
        _scaled(_PHI3, long_factor=_SHORT, short_factor=_LONG),
        "D-CONFIG",
    ),
    _mutant(
        "factors inverted to 0", _scaled(_PHI3, long_factor=[0.0] * 48), "D-CONFIG"
    ),
    _mutant(
        "LongRoPE without the trained length",
        _less(_PHI3, _LENGTH),
        "D-CONFIG",
        source="vllm-project/vllm#27414",
    ),
    # widths
    _mutant(
        "share that the family's code does not read",
        _LLAMA2 | {"partial_rotary_factor": 0.5},
        "D-DIM",
        source="huggingface/transformers#48241",
        smallest="64 of 128 meant, 128 turned",
    ),
    _mutant("share in percent", _NEOX | {"rotary_pct": 25}, "D-DIM"),
    _mutant("share 0", _NEOX | {"rotary_pct": 0.0}, "D-DIM"),
    _mutant("share negative", _NEOX | {"rotary_pct": -0.25}, "D-DIM"),
    _mutant(
        "share given twice",
        _NEOX | {"partial_rotary_factor": 0.5, "rotary_dim": 24},
        "D-DIM",
    ),
    _mutant("share of an odd width", _NEOX | {"rotary_pct": 0.27}, "D-DIM"),
    _mutant(
        "width of the model for that of a head",
        {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_dim": 4096},
        "D-DIM",
    ),
    _mutant(
        "width left out",
        {
            "model_type": "minimax_m2",
            "hidden_size": 3072,
            "num_attention_heads": 48,
            "head_dim": 128,
            "num_hidden_layers": 62,
            "rope_theta": 5e6,
        },
        "D-DIM",
        source="huggingface/transformers#48241",
        smallest="channel 64 of a head turns, and should not",
        expected={"rotary_dim": 64},
    ),
    _mutant(
        "heads that do not divide the width",
        _LLAMA2 | {"num_attention_heads": 30},
        "D-DIM",
    ),
    _mutant("heads of an odd width", _LLAMA2 | {"hidden_size": 32 * 65}, "D-DIM"),
    _mutant(
        "head_dim null",
        _QWEN_YARN | {"head_dim": None},
        "D-DIM",
        smallest="transformers 5.24: None · 1.0 raises TypeError",
    ),
    _mutant(
        "sections of another width",
        _scaled(_QWEN_VL, mrope_section=[8, 12, 12]),
        "D-DIM",
    ),
    # layouts
    _mutant(
        "layout that the family's code does not read",
        _LLAMA2 | {"rope_interleave": True},
        "D-LAYOUT",
    ),
    _mutant(
        "another layout than expected",
        _DEEPSEEK | {"rope_interleave": False},
        "D-LAYOUT",
        source="huggingface/transformers#25199",
        expected={"layout": "interleaved"},
    ),
    # tables
    _mutant(
        "RoBERTa with 512 rows",
        _ROBERTA | {"max_position_embeddings": 512},
        "D-LEN",
        source="huggingface/transformers#11242",
        smallest="token 510 asks for row 512; 512 tokens need 514 rows",
    ),
    _mutant(
        "padding id beyond the table",
        _ROBERTA | {"pad_token_id": 50000},
        "D-LEN",
        source="huggingface/transformers#36537",
    ),
    _mutant(
        "padding id that eats the table", _ROBERTA | {"pad_token_id": 400}, "D-LEN"
    ),
    _mutant(
        "OPT with its offset counted twice",
        _OPT | {"max_position_embeddings": 2050},
        "D-LEN",
        source="huggingface/transformers#20761",
    ),
    _mutant("texts longer than the table", _ROBERTA, "D-LEN", max_len=513),
    _mutant(
        "texts longer than the rotation was trained for", _LLAMA2, "D-LEN", max_len=8192
    ),
    _mutant(
        "offset that is not expected",
        _less(_OPT, "model_type") | {"model_type": "gpt2"},
        "D-LEN",
        expected={"offset": 2},
    ),
    # switches that nothing reads
    _mutant(
        "ALiBi switched off in vain",
        _MPT | {"attn_config": {"alibi": False}},
        "D-CONFIG",
    ),
    _mutant(
        "rotation switched on in vain",
        _MPT | {"attn_config": {"alibi": True, "rope": True}},
        "D-CONFIG",
    ),
    _mutant(
        "relative keys that transformers 5 reads no more",
        _less(_ROBERTA, "pad_token_id")
        | {
            "model_type": "bert",
            "max_position_embeddings": 512,
            "position_embedding_type": "relative_key",
        },
        "D-CONFIG",
    ),
    _mutant(
        "ALiBi asked of BERT",
        _ROBERTA | {"model_type": "bert", "position_embedding_type": "alibi"},
        "D-CONFIG",
    ),
    _mutant(
        "slopes other than expected",
        {"model_type": "bloom", "n_head": 6, "n_layer": 2},
        "D-BIAS",
        expected={"slopes": [2.0 ** (-8 * h / 6) for h in range(1, 7)]},
    ),
    _mutant(
        "another scheme than expected",
        _less(_LLAMA31, "rope_scaling"),
        "D-CONFIG",
        expected={"scheme": "ALiBi"},
    ),
)

HEALTHY: tuple[Healthy, ...] = (
    _healthy(
        "Llama 2 7B", _LLAMA2, {"scheme": "RoPE", "base": 10000.0, "rotary_dim": 128}
    ),
    _healthy(
        "Llama 4 Scout, a step",
        _scaled(_LLAMA31, factor=16.0, high_freq_factor=1.0)
        | {
            "model_type": "llama4_text",
            "hidden_size": 5120,
            "head_dim": 128,
            "num_attention_heads": 40,
            "num_hidden_layers": 48,
            "no_rope_layers": [],
            "max_position_embeddings": 10485760,
        },  # fmt: skip
        {"scaling": "llama3 16"},
    ),
    _healthy(
        "Command R7B",
        {
            "model_type": "cohere2",
            "hidden_size": 4096,
            "head_dim": 128,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "rope_theta": 50000,
            "max_position_embeddings": 8192,
            "sliding_window": 4096,
            "sliding_window_pattern": 4,
            "rotary_pct": 1.0,
            "position_embedding_type": "rope_gptj",
        },  # fmt: skip
        {"scheme": "RoPE", "layout": "interleaved", "base": 50000.0},
    ),
    _healthy("Llama 3.1 8B", _LLAMA31, {"scaling": "llama3 8", "base": 500000.0}),
    _healthy(
        "Llama 3.2 1B",
        _scaled(_LLAMA31, factor=32.0)
        | {"hidden_size": 2048, "head_dim": 64, "num_hidden_layers": 16},
        {"scaling": "llama3 32", "rotary_dim": 64},
    ),
    _healthy(
        "Llama 3.1 8B, keys of transformers 5",
        _less(_LLAMA31, "rope_scaling", "rope_theta")
        | {"rope_parameters": _LLAMA3 | {"rope_theta": 5e5}},
        {"scaling": "llama3 8", "base": 500000.0},
    ),
    _healthy(
        "Code Llama",
        _LLAMA2 | {"rope_theta": 1000000, "max_position_embeddings": 16384},
        {"base": 1e6},
    ),
    _healthy(
        "LongChat, linear",
        _LLAMA2
        | {
            "max_position_embeddings": 32768,
            "rope_scaling": {"type": "linear", "factor": 8.0},
        },
        {"scaling": "linear 8"},
    ),
    _healthy(
        "InternLM2, dynamic",
        _LLAMA2
        | {
            "rope_theta": 1000000,
            "max_position_embeddings": 32768,
            "rope_scaling": {"type": "dynamic", "factor": 2.0},
        },
        {"scaling": "dynamic 2"},
    ),
    _healthy(
        "YaRN Llama 2 64k",
        _LLAMA2
        | {
            "max_position_embeddings": 65536,
            "rope_scaling": {
                "type": "yarn",
                "factor": 16.0,
                _LENGTH: 4096,
                "finetuned": True,
            },
        },
        {"scaling": "yarn 16"},
    ),
    _healthy(
        "Mistral 7B v0.1",
        {
            "model_type": "mistral",
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "max_position_embeddings": 32768,
            "rope_theta": 10000.0,
            "sliding_window": 4096,
        },
        {"base": 10000.0},
    ),
    _healthy(
        "Mixtral 8x7B",
        {
            "model_type": "mixtral",
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "max_position_embeddings": 32768,
            "rope_theta": 1000000.0,
            "sliding_window": None,
        },
        {"base": 1e6},
    ),
    _healthy("Qwen 2.5 7B", _QWEN, {"base": 1e6, "scaling": "none"}),
    _healthy(
        "Qwen 2.5 7B with the YaRN of its readme", _QWEN_YARN, {"scaling": "yarn 4"}
    ),
    _healthy(
        "Qwen 3 8B with the YaRN of its readme",
        {
            "model_type": "qwen3",
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "head_dim": 128,
            "num_hidden_layers": 36,
            "max_position_embeddings": 40960,
            "rope_theta": 1000000,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, _LENGTH: 32768},
        },
        {"scaling": "yarn 4"},
    ),
    _healthy("Qwen 2 VL 7B", _QWEN_VL, {"scheme": "M-RoPE", "sections": [16, 24, 24]}),
    _healthy(
        "Qwen 2.5 VL, saved again",
        _scaled(_QWEN_VL, rope_type="default")
        | {"model_type": "qwen2_5_vl", "max_position_embeddings": 128000},
        {"scheme": "M-RoPE"},
    ),
    _healthy(
        "DeepSeek V3",
        _DEEPSEEK,
        {"layout": "interleaved", "rotary_dim": 64, "scaling": "yarn 40", "gain": 1.0},
    ),
    _healthy(
        "DeepSeek V2 Lite",
        _scaled(_DEEPSEEK, mscale=0.707, mscale_all_dim=0.707)
        | {"model_type": "deepseek_v2", "hidden_size": 2048, "num_attention_heads": 16},
        {"rotary_dim": 64},
    ),
    _healthy(
        "Kimi K2",
        _scaled(_DEEPSEEK, factor=32.0, beta_fast=1.0, beta_slow=1.0)
        | {
            "model_type": "kimi_k2",
            "num_attention_heads": 64,
            "rope_theta": 50000.0,
            "max_position_embeddings": 131072,
        },
        {"base": 50000.0},
    ),
    _healthy("Phi-3 mini 128k", _PHI3, {"scaling": "longrope", "rotary_dim": 96}),
    _healthy("Phi-3.5 mini", _scaled(_PHI3, type="longrope"), {"rotary_dim": 96}),
    _healthy(
        "Phi-4 mini",
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "num_attention_heads": 24,
            "num_hidden_layers": 32,
            "max_position_embeddings": 131072,
            _LENGTH: 4096,
            "partial_rotary_factor": 0.75,
            "rope_theta": 10000.0,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0] * 48,
                "long_factor": _LONG,
            },
        },
        {"rotary_dim": 96, "head_dim": 128},
    ),
    _healthy(
        "Phi-2",
        {
            "model_type": "phi",
            "hidden_size": 2560,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "max_position_embeddings": 2048,
            "partial_rotary_factor": 0.4,
            "rope_theta": 10000.0,
        },
        {"rotary_dim": 32, "head_dim": 80},
    ),
    _healthy("GPT-NeoX 20B", _NEOX, {"rotary_dim": 24, "head_dim": 96}),
    _healthy(
        "Pythia 160m",
        _NEOX | {"hidden_size": 768, "num_attention_heads": 12},
        {"rotary_dim": 16},
    ),
    _healthy(
        "GPT-J 6B",
        {
            "model_type": "gptj",
            "n_embd": 4096,
            "n_head": 16,
            "n_layer": 28,
            "n_positions": 2048,
            "rotary_dim": 64,
        },
        {"layout": "interleaved", "rotary_dim": 64, "head_dim": 256},
    ),
    _healthy(
        "StableLM 2",
        {
            "model_type": "stablelm",
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "num_hidden_layers": 24,
            "max_position_embeddings": 4096,
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000,
        },
        {"rotary_dim": 16},
    ),
    _healthy(
        "GLM-4 9B",
        {
            "model_type": "chatglm",
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_layers": 40,
            "kv_channels": 128,
            "seq_length": 131072,
            "rope_ratio": 500,
        },
        {"layout": "interleaved", "rotary_dim": 64, "base": 5e6},
    ),
    _healthy(
        "ChatGLM2 6B 32k",
        {
            "model_type": "chatglm",
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_layers": 28,
            "kv_channels": 128,
            "seq_length": 32768,
            "rope_ratio": 16,
        },
    ),
    _healthy(
        "MiniMax M2",
        {
            "model_type": "minimax_m2",
            "hidden_size": 3072,
            "num_attention_heads": 48,
            "head_dim": 128,
            "num_hidden_layers": 62,
            "rotary_dim": 64,
            "rope_theta": 5000000,
            "max_position_embeddings": 196608,
        },
        {"rotary_dim": 64, "head_dim": 128},
    ),
    _healthy(
        "Gemma 2B",
        {
            "model_type": "gemma",
            "hidden_size": 2048,
            "num_attention_heads": 8,
            "head_dim": 256,
            "num_hidden_layers": 18,
            "max_position_embeddings": 8192,
            "rope_theta": 10000.0,
        },
        {"rotary_dim": 256},
    ),
    _healthy("Gemma 3 1B", _GEMMA3, {"scheme": "RoPE", "base": 10000.0}),
    _healthy(
        "Gemma 3 4B",
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
                "num_attention_heads": 8,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            },
        },
        {"scaling": "linear 8"},
    ),
    _healthy("ModernBERT base", _MODERNBERT, {"rotary_dim": 64}),
    _healthy(
        "mmBERT, one base for both",
        _MODERNBERT | {"local_rope_theta": 160000.0},
        {"base": 160000.0},
    ),
    _healthy("gpt-oss 20B", _GPT_OSS, {"scaling": "yarn 32", "base": 150000.0}),
    _healthy(
        "gpt-oss with OpenAI's own names",
        _less(_GPT_OSS, "rope_scaling")
        | {"rope_scaling_factor": 32.0, "rope_ntk_alpha": 1, "rope_ntk_beta": 32},
        {"base": 150000.0},
    ),
    _healthy(
        "OLMo 2",
        _LLAMA2 | {"model_type": "olmo2", "rope_theta": 500000},
        {"base": 500000.0},
    ),
    _healthy(
        "Command R",
        {
            "model_type": "cohere",
            "hidden_size": 8192,
            "num_attention_heads": 64,
            "num_hidden_layers": 40,
            "max_position_embeddings": 8192,
            "rope_theta": 8000000.0,
        },
        {"layout": "interleaved", "base": 8e6},
    ),
    _healthy(
        "SmolLM3",
        {
            "model_type": "smollm3",
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "num_hidden_layers": 36,
            "max_position_embeddings": 65536,
            "rope_theta": 5000000.0,
            "no_rope_layer_interval": 4,
            "rope_scaling": None,
        },
        {"base": 5e6},
    ),
    _healthy(
        "Falcon 7B",
        {
            "model_type": "falcon",
            "hidden_size": 4544,
            "num_attention_heads": 71,
            "num_hidden_layers": 32,
            "alibi": False,
        },
        {"scheme": "RoPE", "rotary_dim": 64},
    ),
    _healthy(
        "Falcon RW 1B",
        {
            "model_type": "falcon",
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "num_hidden_layers": 24,
            "alibi": True,
        },
        {"scheme": "ALiBi"},
    ),
    _healthy(
        "BLOOM 560m",
        {"model_type": "bloom", "hidden_size": 1024, "n_head": 16, "n_layer": 24},
        {"scheme": "ALiBi", "symmetric": False},
    ),
    _healthy("MPT 7B", _MPT, {"scheme": "ALiBi"}),
    _healthy(
        "T5 small",
        {
            "model_type": "t5",
            "d_model": 512,
            "d_kv": 64,
            "num_heads": 8,
            "num_layers": 6,
            "n_positions": 512,
            "relative_attention_num_buckets": 32,
        },
        {"scheme": "T5 buckets", "buckets": 32},
    ),
    _healthy("OPT 125m", _OPT, {"scheme": "learned", "offset": 2, "max_len": 2048}),
    _healthy(
        "RoBERTa base", _ROBERTA, {"scheme": "learned", "offset": 2, "max_len": 512}
    ),
    _healthy(
        "XLM-RoBERTa base", _ROBERTA | {"model_type": "xlm-roberta"}, {"max_len": 512}
    ),
    _healthy(
        "Longformer",
        _ROBERTA | {"model_type": "longformer", "max_position_embeddings": 4098},
        {"max_len": 4096},
    ),
    _healthy(
        "ESM-2",
        {
            "model_type": "esm",
            "hidden_size": 1280,
            "num_attention_heads": 20,
            "pad_token_id": 1,
            "num_hidden_layers": 33,
            "max_position_embeddings": 1026,
            "position_embedding_type": "rotary",
        },
        {"scheme": "RoPE", "rotary_dim": 64},
    ),
    _healthy(
        "BERT base",
        {
            "model_type": "bert",
            "hidden_size": 768,
            "num_attention_heads": 12,
            "pad_token_id": 0,
            "num_hidden_layers": 12,
            "max_position_embeddings": 512,
            "position_embedding_type": "absolute",
        },
        {"scheme": "learned", "offset": 0, "max_len": 512},
    ),
    _healthy(
        "GPT-2",
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_head": 12,
            "n_layer": 12,
            "n_positions": 1024,
            "n_ctx": 1024,
        },
        {"scheme": "learned", "max_len": 1024},
    ),
    _healthy(
        "BART base",
        {
            "model_type": "bart",
            "d_model": 768,
            "encoder_attention_heads": 12,
            "pad_token_id": 1,
            "encoder_layers": 6,
            "max_position_embeddings": 1024,
        },
        {"offset": 2},
    ),
    _healthy(
        "Whisper tiny",
        {
            "model_type": "whisper",
            "d_model": 384,
            "encoder_attention_heads": 6,
            "encoder_layers": 4,
            "max_source_positions": 1500,
            "max_target_positions": 448,
        },
        {"scheme": "sinusoid"},
    ),
    _healthy(
        "Marian",
        {
            "model_type": "marian",
            "d_model": 512,
            "encoder_attention_heads": 8,
            "encoder_layers": 6,
            "max_position_embeddings": 512,
            "pad_token_id": 58100,
        },
        {"order": "halves"},
    ),
    _healthy(
        "XLNet base",
        {
            "model_type": "xlnet",
            "d_model": 768,
            "n_head": 12,
            "n_layer": 12,
            "d_head": 64,
            "clamp_len": -1,
        },
        {"scheme": "Transformer-XL"},
    ),
    _healthy(
        "Jamba",
        {
            "model_type": "jamba",
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
        },
        {"scheme": "none"},
    ),
    _healthy(
        "ViT base",
        {
            "model_type": "vit",
            "hidden_size": 768,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "image_size": 224,
            "patch_size": 16,
        },
        {"scheme": "learned", "max_len": 197},
    ),
    _healthy(
        "a model nobody knows, by Llama's rule",
        _LLAMA2 | {"model_type": "internlm2", "rope_theta": 1000000},
        {"scheme": "RoPE"},
    ),
)
