"""Hugging Face configs, read: the encoding that a config.json means, and the doubts.

A table says what families of models do where their configs do not; the rest reads
keys, old names and new. Nothing is downloaded, no code of a checkpoint is run, and
transformers is not imported. What its code computes was checked in release 5.24.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pe_lab import refuse
from pe_lab.encodings.base import PositionalEncoding

from .config import read
from .families import FAMILIES, Family
from .layers import chosen, layers
from .note import Note

__all__ = ["FAMILIES", "Family", "Note", "Reading", "from_config"]


@dataclass(frozen=True)
class Reading:
    """What a config means.

    Args:
        encoding: computes what the model computes; of the layer asked for, or of most.
        notes: sentences: all that was assumed, derived, contradictory or ignored; each
            also says of which sort it is.
        model_type: the family that was read.
        per_layer: one encoding for each layer; empty if the number is not known.
        softmax_scale_factor: what the scheme asks 1/√head_dim to be multiplied by.

    Example:
        >>> config = {"model_type": "t5", "num_heads": 2, "d_kv": 16}
        >>> pe_lab.hf.from_config(config).softmax_scale_factor
        4.0
    """

    encoding: PositionalEncoding
    notes: tuple[Note, ...] = ()
    model_type: str = ""
    per_layer: tuple[PositionalEncoding, ...] = ()
    softmax_scale_factor: float = 1.0


def from_config(
    config: Any,
    *,
    layer: int | None = None,
    length: int | None = None,
    part: str | None = None,
) -> Reading:
    """Read the positional encoding out of a Hugging Face config.

    Args:
        config: a dict, the path of a config.json or of its folder, or an object with
            `to_dict()` or with the keys as attributes.
        layer: which layer's encoding is wanted, counted from 0.
        length: how long texts will be, for the rules that change with it ("dynamic"
            and "longrope"). Decide once: cached keys of one rule do not fit the other.
        part: "encoder" or "decoder", of models that have both.

    Returns:
        a `Reading`: the encoding, and what had to be assumed to get it.

    Raises:
        TypeError, ValueError: for what is no config, values that make no encoding, or
            keys from which no scheme can be told; the sentence lists what was sought.
    Convention: where a config contradicts itself, what transformers computes is read,
        and a note says so. Tables and biases come untrained: copy a checkpoint's.
    Source: the configs and the modelling code of transformers 5.24.

    Example:
        >>> config = {"model_type": "phi", "hidden_size": 64, "num_attention_heads": 4}
        >>> reading = pe_lab.hf.from_config(config)
        >>> reading.encoding
        RoPE(16, base=10000, layout='half', rotary_dim=8)
        >>> reading.notes[0]
        'head_dim is not given: 64 / 4 = 16.'
    """
    if part is not None:
        refuse.one_of("part", part, ("encoder", "decoder"))
    if length is not None:
        refuse.whole("length", length)
    keys = read(config, length, part)
    found, factor = layers(keys)
    return Reading(
        chosen(keys, found, layer),
        tuple(dict.fromkeys(keys.notes)),
        keys.model_type,
        tuple(found) if keys.get("num_layers") is not None else (),
        factor,
    )
