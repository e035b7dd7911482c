"""What a config says that a model is: the names and numbers of its encodings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from pe_lab.doctor.config.tools import blocks, is_number, tried
from pe_lab.doctor.waves import short
from pe_lab.encodings.alibi import ALiBi
from pe_lab.encodings.axial import MRoPE
from pe_lab.encodings.base import NoPE, PositionalEncoding
from pe_lab.encodings.learned import Learned
from pe_lab.encodings.rope import RoPE
from pe_lab.encodings.shaw import Shaw
from pe_lab.encodings.sinusoidal import Sinusoidal
from pe_lab.encodings.t5 import T5Bias
from pe_lab.encodings.transformer_xl import TransformerXL
from pe_lab.hf import Reading
from pe_lab.hf.config import Config
from pe_lab.hf.rotary import rope_type


def identity_of(config: Config, reading: Reading) -> dict[str, Any]:
    """Of the encoding that most layers have, and how the others differ."""
    scheme, describe = _WAYS.get(type(reading.encoding), ("other", lambda _: {}))
    identity = {"scheme": scheme} | describe(reading.encoding)
    rotates = any(isinstance(e, RoPE | MRoPE) for e in _each(reading))
    if rotates:
        identity["scaling"] = _scaling(config)
    if reading.softmax_scale_factor != 1:
        identity["softmax_scale"] = reading.softmax_scale_factor
    identity["family"] = reading.model_type or "none named"
    layers = _layers(reading)
    return identity | ({"layers": layers} if layers else {})


def _each(reading: Reading) -> tuple[PositionalEncoding, ...]:
    return reading.per_layer or (reading.encoding,)


def _scaling(config: Config) -> str:
    """The rule and its factor; of several kinds of layers, of those that are scaled."""
    rules = map(_rule, blocks(config).values())
    return next((rule for rule in rules if rule != "none"), "none")


def _rule(config: Config) -> str:
    name, factor = tried(rope_type, config), config.rope.get("factor")
    if name in ("default", None):
        return "none"
    return f"{name} {short(float(factor))}" if is_number(factor) else str(name)


def _layers(reading: Reading) -> str:
    """Such as "5 of 6: RoPE, base 10000; 1 of 6: none"."""
    told = Counter(_in_short(encoding) for encoding in reading.per_layer)
    total = len(reading.per_layer)
    return "; ".join(f"{n} of {total}: {what}" for what, n in told.most_common())


def _in_short(encoding: PositionalEncoding) -> str:
    scheme, describe = _WAYS.get(type(encoding), ("other", lambda _: {}))
    said = {k: v for k, v in describe(encoding).items() if k in ("base", "gain")}
    if isinstance(encoding, RoPE):
        said["slowest"] = float(encoding.inv_freq[encoding.inv_freq > 0].min())
    return ", ".join([scheme, *(f"{k} {text(v)}" for k, v in said.items() if v != 1)])


def _rope(e: RoPE) -> dict[str, Any]:
    return {
        "layout": e.layout,
        "rotary_dim": e.rotary_dim,
        "head_dim": e.head_dim,
        "base": float(e.base),
        "scaling": "none",
        "gain": float(e.gain),
    }


def _mrope(e: MRoPE) -> dict[str, Any]:
    return {
        "layout": "half",
        "axes": len(e.sections),
        "sections": list(e.sections),
        "rotary_dim": e.head_dim,
        "head_dim": e.head_dim,
        "base": float(e.base),
        "scaling": "none",
    }


def _alibi(e: ALiBi) -> dict[str, Any]:
    return {
        "slopes": [round(float(s), 9) for s in e.slopes],
        "symmetric": bool(e.symmetric),
    }


def _t5(e: T5Bias) -> dict[str, Any]:
    return {
        "buckets": e.num_buckets,
        "max_distance": e.max_distance,
        "directions": 2 if e.bidirectional else 1,
    }


def _sinusoidal(e: Sinusoidal) -> dict[str, Any]:
    return {"order": e.order, "base": float(e.base), "width": e.d_model}


def _learned(e: Learned) -> dict[str, Any]:
    rows = e.max_len + e.offset
    size = {"max_len": e.max_len, "rows": rows, "width": e.d_model}
    return size | {"offset": e.offset, "parameters": rows * e.d_model}


def _shaw(e: Shaw) -> dict[str, Any]:
    return {"max_distance": e.max_distance, "head_dim": e.head_dim}


def _xl(e: TransformerXL) -> dict[str, Any]:
    return {"base": float(e.base), "head_dim": e.head_dim}


_WAYS: dict[type, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    RoPE: ("RoPE", _rope),
    MRoPE: ("M-RoPE", _mrope),
    ALiBi: ("ALiBi", _alibi),
    T5Bias: ("T5 buckets", _t5),
    Sinusoidal: ("sinusoid", _sinusoidal),
    Learned: ("learned", _learned),
    Shaw: ("Shaw", _shaw),
    TransformerXL: ("Transformer-XL", _xl),
    NoPE: ("none", lambda _: {}),
}


def text(value: Any) -> str:
    """A value as a report writes it."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    return f"{value:g}" if isinstance(value, float) else str(value)
