"""Layer by layer: which see a window, which do not turn, and the encoding of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pe_lab import refuse
from pe_lab.encodings.base import NoPE, PositionalEncoding

from .config import Config
from .keys import mapping, word
from .rotary import rotation
from .schemes import SCHEMES, scheme, t5

Layers = tuple[list[PositionalEncoding], float]


def layers(config: Config) -> Layers:
    """An encoding for each layer, one if none is counted, and the softmax factor."""
    name = scheme(config)
    if name == "rope":
        return _rotations(config)
    if name == "t5":
        return t5(config)
    return [SCHEMES[name](config)] * max(config.num_layers or 1, 1), 1.0


def chosen(
    config: Config, encodings: list[PositionalEncoding], layer: int | None
) -> PositionalEncoding:
    """The layer asked for, or the encoding that most layers have."""
    if layer is not None:
        number, count = refuse.whole("layer", layer, 0), len(encodings)
        if count == 1 and config.num_layers is None:
            return encodings[0]
        if number >= count:
            raise ValueError(f"layer needs one of 0 … {count - 1}, got {number}.")
        return encodings[number]
    (common, count), *others = Counter(encodings).most_common()
    if others:
        config.note(
            f"Layers differ: encoding is that of {count} of {len(encodings)} layers; "
            "per_layer has them all."
        )
    return common


def _rotations(config: Config) -> Layers:
    kinds = _kinds(config) or ["full_attention"]
    still = _still(config, kinds)
    made: dict[str, tuple[PositionalEncoding, float]] = {"None": (NoPE(), 1.0)}
    found = []
    for i, kind in enumerate(kinds):
        own = None if i in still else _parameters(config, kind)
        if own is not None and repr(own) not in made:
            made[repr(own)] = rotation(config.with_rope(own), kind)
        found.append(made[repr(own)])
    if still:
        config.note(f"{len(still)} of {len(kinds)} layers have no position (NoPE).")
    if "sliding_attention" in kinds and config.get("sliding_window") is not None:
        config.note(
            "Layers of kind sliding_attention see a window: that is a mask's task.",
            "not expressed",
            key="sliding_window",
        )
    return [encoding for encoding, _ in found], max(factor for _, factor in found)


def _kinds(config: Config) -> list[str]:
    """The kind of each layer's attention; empty if their number is not known."""
    given, rule = config.get("layer_types"), config.family.full_every
    if given is not None:
        names = refuse.listed("layer_types", given, "words, one per layer")
        return [word("layer_types", name) for name in names]
    count = config.num_layers or 0
    if not count or rule is None:
        return ["full_attention"] * count
    key, default, remainder = rule
    pattern = config.values.get(key, default)
    if isinstance(pattern, str):
        full = [pattern[i % len(pattern)] == "G" for i in range(count) if pattern]
    else:
        every = config.whole(key, 0) if key in config.values else default
        full = [not every or (i - remainder) % every == 0 for i in range(count)]
    return ["full_attention" if f else "sliding_attention" for f in full]


def _still(config: Config, kinds: list[str]) -> set[int]:
    """The layers that have no position at all."""
    nope, listed = config.family.nope, config.get("no_rope_layers")
    if nope in ("full", "hybrid"):
        window = nope == "full" or config.get("sliding_window") is not None
        return {i for i, k in enumerate(kinds) if window and k == "full_attention"}
    if listed is None and nope != "listed":
        return set()
    turned = refuse.listed("no_rope_layers", listed or [], "0s and 1s")
    if not turned:
        every = config.whole("no_rope_layer_interval") or 4
        return set(range(every - 1, len(kinds), every))
    if len(turned) < len(kinds):
        raise ValueError(
            f"no_rope_layers needs one number per layer, {len(kinds)}, got "
            f"{len(turned)}."
        )
    return {i for i in range(len(kinds)) if not turned[i]}


def _parameters(config: Config, kind: str) -> dict[str, Any] | None:
    """The rope parameters of one kind of layer, None for layers without position."""
    rope, local = config.rope.values, config.family.local
    if "attention" not in kind or "linear" in kind:
        told = f"Layers of kind {kind!r:.80} have no attention scores to encode."
        config.note(told, "not expressed", key="layer_types")
        return None
    if any(isinstance(value, Mapping) for value in rope.values()):
        return _nested(config, kind)
    if local is None or kind != "sliding_attention":
        return rope
    key, default = local
    base = config.values.get(key)
    if base is None:
        told = f"{key} is not given: {default:g} is the family's."
        config.note(told, "assumed", key=key)
    shared = rope if key == "local_rope_theta" else {}
    return shared | {"rope_theta": default if base is None else base}


def _nested(config: Config, kind: str) -> dict[str, Any] | None:
    """The rope parameters that stand under the name of a kind of layer."""
    own = config.rope.get(kind)
    if own is None:
        severity = "note" if kind in config.rope.values else "risky"
        told = f"rope_parameters has nothing for {kind!r:.80}: no rotation."
        config.note(told, "assumed", severity, "rope_parameters")
        return None
    own = mapping(f"rope_parameters[{kind!r:.80}]", own)
    if own.get("truncate") is None or "truncate" in config.rope.values:
        return own
    config.note(
        "truncate inside a kind of layer is ignored: transformers looks for it one "
        "level up.",
        "ignored",
        "note" if own["truncate"] is True else "wrong",
        "truncate",
    )
    return own | {"truncate": True}
