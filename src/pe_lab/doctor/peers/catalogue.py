"""Pieces of other libraries, with the defects that are known of them.

A piece is called as its documentation, or the layer around it, calls it; an adapter
moves axes and adds nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Peer:
    """A piece of a library.

    Args:
        package: its name as it is installed.
        what: the piece, and how it is built.
        kind: as what it is examined.
        make: a fresh one; imports inside.
        known: its defect in words, "" for a piece without one.
        finds: ids of checks, one of which must raise the alarm; empty for a piece
            without a known defect, which must raise none.
        options: what `diagnose` is told.
    """

    package: str
    what: str
    kind: str
    make: Callable[[], Any]
    known: str = ""
    finds: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


class Called(nn.Module):
    """A module of a library, and the call by which its documentation uses it."""

    def __init__(self, module: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.module, self.call = module, call

    def forward(self, *given: Any) -> Any:
        """What the call makes of the module and of what is given."""
        return self.call(self.module, *given)


class Turned(Called):
    """A rotation of x: (B, H, L, D) by positions."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x turned."""
        turned: Tensor = self.call(self.module, x, positions)
        return turned


class TurnedBoth(Called):
    """A rotation of q and k by positions."""

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        """(q, k) turned."""
        return self.call(self.module, q, k, positions)


# ------------------------------------------------------------------ transformers


def _model(name: str) -> Any:
    return import_module(f"transformers.models.{name}.modeling_{name}")


def _config(name: str, **settings: Any) -> Any:
    return getattr(import_module("transformers"), name)(**settings)


def _llama_turn(table: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
    rows = positions[None] if positions.dim() == 1 else positions
    return _model("llama").apply_rotary_pos_emb(q, k, *table(q, rows))


def _llama(longest: int = 2048, **rope: Any) -> TurnedBoth:
    """Llama's rotation of 64 channels with these rope_parameters."""
    config = _config(
        "LlamaConfig",
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=longest,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, **rope},
    )
    return TurnedBoth(_model("llama").LlamaRotaryEmbedding(config), _llama_turn)


def _uncast() -> Callable[..., Any]:
    """Llama's rotation out of reach of a cast of the module."""
    table = _llama()
    return lambda q, k, positions: table(q, k, positions)


_LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 32,
    "long_factor": [4.0] * 32,
    "original_max_position_embeddings": 16,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _gptj(name: str, dtype: torch.dtype) -> TurnedBoth:
    """The table of GPT-J or CodeGen as a model that is built in this dtype makes it."""
    module, before = _model(name.lower()), torch.get_default_dtype()
    config = _config(f"{name}Config", n_embd=128, n_head=2, rotary_dim=64)
    torch.set_default_dtype(dtype)
    try:
        table = getattr(module, f"{name}RotaryEmbedding")(config)
    finally:
        torch.set_default_dtype(before)

    def turn(table: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        rows = positions[None] if positions.dim() == 1 else positions
        sin, cos = table(q, rows)
        apply = module.apply_rotary_pos_emb
        both = (apply(x.transpose(1, 2), sin, cos).transpose(1, 2) for x in (q, k))
        return tuple(x.to(q.dtype) for x in both)  # as their attention goes on

    return TurnedBoth(table, turn)


def _bloom(q_len: int, k_len: int) -> Tensor:
    mask = torch.ones(1, k_len, dtype=torch.long)
    row: Tensor = _model("bloom").build_alibi_tensor(mask, 12, torch.float32)
    return row


def _falcon(q_len: int, k_len: int) -> Tensor:
    mask = torch.ones(1, k_len, dtype=torch.long)
    row: Tensor = _model("falcon").build_alibi_tensor(mask, 12, torch.float32)
    return row


def _mpt(q_len: int, k_len: int) -> Tensor:
    row: Tensor = _model("mpt").build_mpt_alibi_tensor(12, k_len)
    return row


def _t5(*, decoder: bool) -> Called:
    config = _config("T5Config", d_model=16, d_kv=4, num_heads=4, is_decoder=decoder)
    layer = _model("t5").T5Attention(
        config, has_relative_attention_bias=True, layer_idx=0
    )
    return Called(layer, lambda t5, q, k: t5.compute_bias(q, k, past_seen_tokens=k - q))


def _bloom_slopes(heads: int) -> Tensor:
    mask = torch.ones(1, 2, dtype=torch.long)
    row: Tensor = _model("bloom").build_alibi_tensor(mask, heads, torch.float32)
    return row[:, 0, 1]


def _distilbert(length: int, d_model: int) -> Tensor:
    table = nn.Parameter(torch.empty(length, d_model), requires_grad=False)
    _model("distilbert").create_sinusoidal_embeddings(length, d_model, table)
    return table.detach()


def _speech_to_text(length: int, d_model: int) -> Tensor:
    kind = _model("speech_to_text").Speech2TextSinusoidalPositionalEmbedding
    table: Tensor = kind.get_embedding(length, d_model)
    return table


def _tiny_llama(longest: int = 64, **rope: Any) -> Any:
    """A model of two layers and 32 channels, drawn anew."""
    torch.manual_seed(0)
    config = _config(
        "LlamaConfig",
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=longest,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, **rope},
    )
    return import_module("transformers").LlamaForCausalLM(config).eval()


_PARTIAL = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
    "partial_rotary_factor": 0.5,
    "rope_theta": 1e4,
}
_NULL_WIDTH = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "head_dim": None,
    "max_position_embeddings": 8192,
    "rope_theta": 1e4,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 2048,
    },
}
_CAST = (
    "a model-wide .to(bfloat16) rounds inv_freq, and with it every angle; "
    "from_pretrained(dtype=…) does not"
)
_PATIENT = {"seconds": 120.0}  # a whole model, on a machine that has more to do
_FOUR: dict[str, Any] = {"factor": 4.0}
_TRANSFORMERS = (
    Peer("transformers", "Llama's rotation", "rope", _llama, _CAST, ("D-DTYPE",)),
    Peer("transformers", "Llama's rotation, cast never", "rope", _uncast),
    Peer(
        "transformers",
        "Llama's rotation, linear 4",
        "rope",
        lambda: _llama(rope_type="linear", **_FOUR),
        _CAST,
        ("D-DTYPE",),
    ),
    Peer(
        "transformers",
        "Llama's rotation, llama3 8",
        "rope",
        lambda: _llama(131072, **_LLAMA3),
        _CAST,
        ("D-DTYPE",),
    ),
    Peer(
        "transformers",
        "Llama's rotation, yarn 4",
        "rope",
        lambda: _llama(
            8192, rope_type="yarn", original_max_position_embeddings=2048, **_FOUR
        ),
        _CAST,
        ("D-DTYPE",),
    ),
    Peer(
        "transformers",
        "Llama's rotation, dynamic 2 from 16",
        "rope",
        lambda: _llama(16, rope_type="dynamic", factor=2.0),
        "its base grows with the longest text so far: results depend on earlier calls, "
        "and keys of a cache keep the old base",
        ("D-HISTORY", "D-CACHE", "D-BATCH", "D-BASE"),
    ),
    Peer(
        "transformers",
        "Llama's rotation, longrope from 16",
        "rope",
        lambda: _llama(64, **_LONG),
        "the longest row of a batch chooses the factors of all rows, and keys of a "
        "cache keep the old ones",
        ("D-BATCH", "D-CACHE", "D-BASE"),
    ),
    *(
        piece
        for name in ("GPTJ", "CodeGen")
        for piece in (
            Peer(
                "transformers",
                f"{name}'s rotation",
                "rope",
                lambda name=name: _gptj(name, torch.float32),  # type: ignore[misc]
            ),
            Peer(
                "transformers",
                f"{name}'s rotation, built in bfloat16",
                "rope",
                lambda name=name: _gptj(name, torch.bfloat16),  # type: ignore[misc]
                "frequencies are made in the default dtype, so in bfloat16",
                ("D-DTYPE", "D-LONG", "D-BASE"),
            ),
        )
    ),
    Peer("transformers", "BLOOM's bias", "bias", lambda: _bloom),
    Peer("transformers", "MPT's bias", "bias", lambda: _mpt),
    Peer(
        "transformers",
        "Falcon's bias",
        "bias",
        lambda: _falcon,
        "slope·j is made in bfloat16, as it was in training",
        ("D-DTYPE",),
    ),
    Peer("transformers", "T5's bias, encoder", "bias", lambda: _t5(decoder=False)),
    Peer("transformers", "T5's bias, decoder", "bias", lambda: _t5(decoder=True)),
    Peer("transformers", "BLOOM's slopes", "slopes", lambda: _bloom_slopes),
    Peer("transformers", "DistilBERT's table", "table", lambda: _distilbert),
    Peer("transformers", "Speech2Text's table", "table", lambda: _speech_to_text),
    Peer("transformers", "Llama, two layers", "model", _tiny_llama, options=_PATIENT),
    Peer(
        "transformers",
        "Llama, two layers, dynamic 2 from 8",
        "model",
        lambda: _tiny_llama(8, rope_type="dynamic", factor=2.0),
        "keys of a cache keep the base that they were turned with",
        ("D-CACHE", "D-HISTORY", "D-BATCH", "D-CAUSAL"),
        _PATIENT,
    ),
    Peer(
        "transformers",
        "a Llama config with partial_rotary_factor",
        "config",
        lambda: _PARTIAL,
        "the factor is ignored for the default rope type, so whole heads turn",
        ("D-CONFIG", "D-DIM"),
    ),
    Peer(
        "transformers",
        "a Llama config with head_dim null and yarn",
        "config",
        lambda: _NULL_WIDTH,
        "yarn reads head_dim without a fallback and raises TypeError",
        ("D-CONFIG", "D-DIM"),
    ),
)


# ---------------------------------------------------------------- x-transformers


def _x() -> Any:
    return import_module("x_transformers.x_transformers")


def _x_rotation() -> Turned:
    def turn(rotary: Any, x: Tensor, positions: Tensor) -> Any:
        freqs, scale = rotary(positions)
        return _x().apply_rotary_pos_emb(x, freqs, scale)

    return Turned(_x().RotaryEmbedding(64), turn)


def _x_sinusoid() -> Any:
    return _x().ScaledSinusoidalEmbedding(64)


def _x_bias(name: str, *given: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: getattr(_x(), name)(*given, **settings)


_X = (
    Peer(
        "x-transformers",
        "rotation",
        "rope",
        _x_rotation,
        "after .to(bfloat16) frequencies and positions are rounded",
        ("D-DTYPE",),
    ),
    Peer(
        "x-transformers",
        "ALiBi",
        "bias",
        _x_bias("AlibiPositionalBias", 8),
        "a bias made under inference_mode is kept, so training after it fails",
        ("D-STATE",),
    ),
    Peer(
        "x-transformers",
        "ALiBi of ids",
        "bias",
        lambda: _x().AlibiPositionalBias(8).forward_custom_pos,
    ),
    Peer(
        "x-transformers",
        "T5's bias, two directions",
        "bias",
        _x_bias("RelativePositionBias", 1.0, heads=4),
    ),
    Peer(
        "x-transformers",
        "T5's bias, causal",
        "bias",
        _x_bias("RelativePositionBias", 8.0, causal=True, heads=4),
    ),
    Peer(
        "x-transformers",
        "bias of a small network",
        "bias",
        _x_bias("DynamicPositionBias", dim=16, heads=4, depth=2),
        "after .to(bfloat16) it fails: float32 distances meet bfloat16 weights",
        ("D-DTYPE",),
    ),
    Peer(
        "x-transformers",
        "ALiBi's slopes",
        "slopes",
        lambda: _x().AlibiPositionalBias._get_slopes,
    ),
    Peer(
        "x-transformers",
        "learned embedding",
        "add",
        _x_bias("AbsolutePositionalEmbedding", 32, 128),
    ),
    Peer(
        "x-transformers",
        "scaled sinusoid",
        "add",
        _x_sinusoid,
        "after .to(bfloat16) frequencies and positions are rounded",
        ("D-DTYPE",),
    ),
)


# -------------------------------------------------------- rotary-embedding-torch


def _rotary(**settings: Any) -> nn.Module:
    built: nn.Module = import_module("rotary_embedding_torch").RotaryEmbedding(
        64, **settings
    )
    return built


def _by_offset(rotary: Any, x: Tensor, positions: Tensor) -> Any:
    """rotate_queries_or_keys, which counts from an offset; ids with gaps one by one."""
    if positions.dim() == 2 and len(positions) > 1:
        raise NotImplementedError("it counts all rows of a batch from one offset")
    ids = positions.flatten().tolist()
    if ids == list(range(int(ids[0]), int(ids[0]) + len(ids))):
        return rotary.rotate_queries_or_keys(x, offset=int(ids[0]))
    parts = [
        rotary.rotate_queries_or_keys(x[..., i : i + 1, :], offset=int(p))
        for i, p in enumerate(ids)
    ]
    return torch.cat(parts, -2)


def _by_ids(rotary: Any, x: Tensor, positions: Tensor) -> Any:
    turn = import_module("rotary_embedding_torch").apply_rotary_emb
    return turn(rotary(positions.float()), x)


def _rotary_in(dtype: torch.dtype) -> Turned:
    """Built while this dtype is the default, as loaders of models do."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return Turned(_rotary(), _by_offset)
    finally:
        torch.set_default_dtype(before)


_ROTARY = (
    Peer(
        "rotary-embedding-torch",
        "rotate_queries_or_keys",
        "rope",
        lambda: Turned(_rotary(), _by_offset),
        "positions are counted in the dtype of x, and wrong angles are kept for later "
        "calls",
        ("D-DTYPE", "D-HISTORY"),
    ),
    Peer(
        "rotary-embedding-torch",
        "rotate_queries_or_keys, built in bfloat16",
        "rope",
        lambda: _rotary_in(torch.bfloat16),
        "the kept angles are in bfloat16: the first call is right, the second wrong",
        ("D-HISTORY", "D-DTYPE", "D-BASE", "D-LONG"),
    ),
    Peer(
        "rotary-embedding-torch",
        "angles of ids, without its memory",
        "rope",
        lambda: (
            lambda x, positions: _by_ids(_rotary(cache_if_possible=False), x, positions)
        ),
    ),
)


# ---------------------------------------------------------- positional-encodings


def _encodings() -> Any:
    return import_module("positional_encodings.torch_encodings")


def _table(length: int, d_model: int) -> Tensor:
    made = _encodings().PositionalEncoding1D(d_model)
    table: Tensor = made(torch.zeros(1, length, d_model))[0].clone()
    return table


_ENCODINGS = (
    Peer("positional-encodings", "one axis, as a table", "table", lambda: _table),
    Peer(
        "positional-encodings",
        "one axis, as a module",
        "add",
        lambda: _encodings().PositionalEncoding1D(32),
        "kept by shape alone: dtype and later edits of a result are ignored, and "
        "training fails after inference_mode; .to(bfloat16) rounds frequencies",
        ("D-STATE", "D-DTYPE", "D-HISTORY"),
    ),
    Peer(
        "positional-encodings",
        "one axis, added by Summer",
        "add",
        lambda: _encodings().Summer(_encodings().PositionalEncoding1D(32)),
        "as above",
        ("D-STATE", "D-DTYPE", "D-HISTORY"),
    ),
)


# --------------------------------------------------------------------- torchtune


def _torchtune() -> Turned:
    modules = import_module("torchtune.modules")

    def turn(rotary: Any, x: Tensor, positions: Tensor) -> Any:
        rows = positions.expand(len(x), -1) if positions.dim() == 1 else positions
        return rotary(x.transpose(1, 2), input_pos=rows).transpose(1, 2)

    return Turned(modules.RotaryPositionalEmbeddings(64), turn)


_TORCHTUNE = (Peer("torchtune", "rotation", "rope", _torchtune),)

PEERS = (*_TRANSFORMERS, *_X, *_ROTARY, *_ENCODINGS, *_TORCHTUNE)
