"""transformers' own code as the oracle: small configs, and its tables by kind of layer."""

import importlib
import inspect

import pytest
import torch

import pe_lab

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


LLAMA = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_attention_heads": 2,
    "max_position_embeddings": 256,
    "rope_theta": 1e4,
    "num_hidden_layers": 2,
}
