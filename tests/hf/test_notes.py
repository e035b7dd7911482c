"""What a config leaves open, contradicts or cannot say is in the notes."""

import copy
import pickle

import pytest

from pe_lab import hf
from tests.hf.test_rules import SCALED
from tests.hf.transformers_code import LLAMA, says


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


@pytest.mark.parametrize(
    ("changes", "key", "sort", "severity"),
    [
        ({"head_dim": None}, "head_dim", "derived", "note"),
        ({"num_attention_heads": 3}, "head_dim", "derived", "risky"),
        ({"rope_theta": None}, "rope_theta", "assumed", "note"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_type", "legacy", "note"),
        ({"rope_scaling": {"type": "mrope", "rope_type": "default"}}, "rope_type", "legacy", "note"),
        ({"rope_scaling": {"type": "linear", "rope_type": "default"}}, "rope_type", "contradiction", "risky"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor", "ignored", "wrong"),
        ({"rope_interleave": True}, "rope_interleave", "ignored", "wrong"),
        # a factor that nothing reads, one that does nothing, a word of nobody's, a slip
        ({"rope_scaling": {"rope_type": "default", "factor": 4.0}}, "factor", "ignored", "risky"),
        ({"rope_scaling": {"rope_type": "default", "factor": 1.0}}, "factor", "ignored", "note"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0, "finetuned": True}}, "finetuned", "ignored", "note"),
        ({"rope_scaling": SCALED["yarn"] | {"rope_type": "yarn", "beta_fst": 8}}, "beta_fst", "ignored", "risky"),
        # a reach that is not used up, and one that does not suffice
        ({"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}}, "factor", "contradiction", "note"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}}, "factor", "contradiction", "risky"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "original_max_position_embeddings", "assumed", "risky"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64}}, "original_max_position_embeddings", "contradiction", "risky"),
        ({"use_logn_attn": True}, "use_logn_attn", "not expressed", "note"),
        ({"position_embedding_type": "alibi"}, "position_embedding_type", "ignored", "risky"),
    ],
)  # fmt: skip
def test_a_note_says_of_which_sort_it_is_and_how_grave(changes, key, sort, severity):
    found = [n for n in hf.from_config(LLAMA | changes).notes if n.key == key]
    assert (sort, severity) in [(n.sort, n.severity) for n in found], found


def test_a_note_is_a_text_that_survives_copies():
    note = hf.Note("a text", "ignored", "risky", "factor")
    for twin in (copy.deepcopy(note), pickle.loads(pickle.dumps(note))):
        assert twin == "a text" and isinstance(twin, hf.Note)
        assert (twin.sort, twin.severity, twin.key) == ("ignored", "risky", "factor")
    assert note.upper() == "A TEXT" and repr(note) == "'a text'"
    with pytest.raises(ValueError, match="sort needs"):
        hf.Note("a text", "odd")


def test_the_layout_of_a_family_is_not_changed_by_a_key_that_its_code_does_not_read():
    """Only DeepSeek's code and its heirs read rope_interleave in transformers 5.24."""
    reading = hf.from_config(LLAMA | {"rope_interleave": True})
    assert reading.encoding.layout == "half"
    says(reading, "rope_interleave True is ignored: code of this family has 'half'")
    assert (
        hf.from_config(LLAMA | {"rope_interleave": False, "head_dim": 64}).notes == ()
    )
