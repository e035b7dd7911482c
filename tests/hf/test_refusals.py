"""What cannot be read is refused in words, and junk breaks nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pe_lab
from pe_lab import hf
from pe_lab.hf.config import REMARKS
from pe_lab.hf.keys import NAMES, names
from tests.hf.transformers_code import LLAMA
from tests.test_refusals import refused_by_pe_lab


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
    {name for thing in NAMES for name in names(thing)} - {"text_config", "llm_config", "language_config"}
    | set(REMARKS)
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
