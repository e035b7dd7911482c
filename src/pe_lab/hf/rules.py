"""The rope types: from a plain ladder of frequencies to a scaled one and its gains."""

from __future__ import annotations

import math
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NamedTuple

from torch import Tensor

from pe_lab import scaling

from .config import REMARKS, Config

_LENGTH = "original_max_position_embeddings"


class Scaled(NamedTuple):
    """What a rule gives."""

    inv_freq: Tensor
    gain: float = 1.0  # of cos and sin
    softmax: float = 1.0  # what 1/√head_dim is multiplied by


def scaled(rope_type: str, config: Config, plain: Tensor) -> Scaled:
    """Apply the rule of this name, and note the parameters that it has no use for."""
    rule, used = RULES[rope_type]
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    known |= {"mrope_section", "mrope_interleaved", *REMARKS, *used.split()}
    unused = {k: v for k, v in config.rope.values.items() if k not in known}
    if unused:
        told = f"Ignored in the rope parameters: {', '.join(sorted(unused))}."
        meant = any(_meant(name, value, known) for name, value in unused.items())
        key = min(unused, key=lambda name: not _meant(name, unused[name], known))
        config.note(told, "ignored", "risky" if meant else "note", key)
    return rule(config, plain)


def _meant(name: str, value: Any, known: set[str]) -> bool:
    """Whether an ignored key would change numbers: another rule's, or misspelt."""
    plain = value is None or (name in ("factor", "attention_factor") and value == 1)
    if plain or name.endswith("max_position_embeddings"):
        return False
    others = {used for _, words in RULES.values() for used in words.split()}
    return name in others or bool(get_close_matches(name, known | others, 1, 0.8))


def _dynamic(config: Config, plain: Tensor) -> Scaled:
    factor, original = _factor(config), config.need("max_length", 1, 2**40)
    length, trained = max(config.length or 1, original), config.rope.get(_LENGTH)
    if trained not in (None, original):
        config.note(
            f"{_LENGTH} {trained!r:.40} is ignored: 'dynamic' counts from "
            f"max_position_embeddings {original} on.",
            "contradiction",
            "risky",
            _LENGTH,
        )
    if config.length is None:
        config.note(
            f"'dynamic' without length: as for texts of up to {original} tokens. "
            "Beyond, frequencies change with length, and keys cached at one do not fit "
            "another; transformers lets them depend on earlier calls.",
            "assumed",
            key="rope_type",
        )
    return Scaled(
        scaling.dynamic_ntk(plain, factor, length=length, original_length=original)
    )


def _llama3(config: Config, plain: Tensor) -> Scaled:
    inv_freq = scaling.llama3(
        plain,
        _factor(config),
        original_length=_original(config),
        low_freq_factor=_assumed(config, "low_freq_factor", 1.0),
        high_freq_factor=_assumed(config, "high_freq_factor", 4.0),
    )
    return Scaled(inv_freq)


def _yarn(config: Config, plain: Tensor) -> Scaled:
    rope = config.rope
    factor, original = _growth(config)
    inv_freq = scaling.yarn(
        plain,
        factor,
        original_length=original,
        beta_fast=rope.number("beta_fast") or 32.0,
        beta_slow=rope.number("beta_slow") or 1.0,
        truncate=rope.flag("truncate", True),
    )
    mscale = rope.number("mscale", -1e6, 1e6) or 0.0
    all_dim = rope.number("mscale_all_dim", -1e6, 1e6) or 0.0
    if bool(mscale) != bool(all_dim):
        told = "mscale and mscale_all_dim set the gain only together: one is 0."
        same = mscale == 1  # and alone, it would say what is assumed anyway
        severity = "note" if same else "risky"
        config.note(told, "ignored", severity, "mscale")
    pair = (mscale, all_dim) if mscale and all_dim else (1.0, 0.0)
    implied = scaling.yarn_gain(factor, mscale=pair[0], mscale_all_dim=pair[1])
    softmax = _softmax(config, factor, all_dim)
    return Scaled(inv_freq, _gain(config, implied), softmax)


def _softmax(config: Config, factor: float, all_dim: float) -> float:
    """DeepSeek's factor on the softmax scale."""
    softmax = scaling.yarn_gain(factor, mscale=all_dim) ** 2
    if all_dim and config.family.mscale:
        told = f"mscale_all_dim {all_dim:g}: softmax scale × {softmax:.6g}."
        config.note(told, key="mscale_all_dim")
        return softmax
    if all_dim:
        config.note(
            f"mscale_all_dim {all_dim:g}: DeepSeek's code would multiply the softmax "
            f"scale by {softmax:.6g}, this family's does not.",
            "ignored",
            key="mscale_all_dim",
        )
    return 1.0


def _longrope(config: Config, plain: Tensor) -> Scaled:
    rope, length = config.rope, config.length
    factor, original = _growth(config)
    if length is None:
        config.note(
            f"'longrope' without length: short_factor is read, right for up to "
            f"{original} tokens. transformers switches by the longest row of a batch, "
            "and keys cached on one side do not fit the other.",
            "assumed",
            key="rope_type",
        )
    if config.model_type == "phimoe":
        told = "transformers reads Phi-MoE's short_factor at every length."
        config.note(told, "ignored", key="long_factor")
    lists = [rope.get(name) or [] for name in ("short_factor", "long_factor")]
    inv_freq = scaling.longrope(
        plain, *lists, length=length or 1, original_length=original
    )
    name = "long_mscale" if (length or 1) > original else "short_mscale"
    gain = rope.number(name, 0, 1e6)
    if gain is not None:
        told = f"{name} {gain:g} is the gain, in place of attention_factor."
        config.note(told, key=name)
        return Scaled(inv_freq, gain)
    implied = scaling.longrope_gain(max(factor, 1.0), original_length=original)
    return Scaled(inv_freq, _gain(config, implied))


def _assumed(config: Config, name: str, default: float, least: float = 0.0) -> float:
    """A number of the rope parameters, or its default with a note."""
    value = config.rope.number(name, least)
    if value is None:
        severity = "note" if name == "factor" else "risky"  # transformers fails
        told = f"{name} is not given: {default:g} is assumed."
        config.note(told, "assumed", severity, name)
        return default
    return value


def _factor(config: Config) -> float:
    """By how much contexts grow, which must be given."""
    factor = config.rope.number("factor")
    if factor is None:
        rope_type = config.rope.get("rope_type") or config.rope.get("type")
        raise ValueError(f"rope_type {rope_type!r:.40} needs factor; it is missing.")
    return factor


def _growth(config: Config) -> tuple[float, int]:
    """By how much contexts grow and from where, which the longest may contradict."""
    original = _original(config)
    longest = config.whole("max_length", 1, 2**40)
    if longest is None:
        return _factor(config), original
    factor, implied = config.rope.number("factor"), longest / original
    if factor is None:
        config.note(
            f"factor is not given: max_position_embeddings / {_LENGTH} = {implied:g}.",
            key="factor",
        )
        return implied, original
    if not math.isclose(implied, factor, rel_tol=1e-6):
        config.note(
            f"factor {factor:g} contradicts max_position_embeddings / {_LENGTH} = "
            f"{implied:g}; factor counts.",
            "contradiction",
            "risky" if implied > factor else "note",  # a reach that is not used up
            "factor",
        )
    return factor, original


def _original(config: Config) -> int:
    """The trained length, wherever it is written."""
    inside, outside = config.rope.get(_LENGTH), config.get(_LENGTH)
    if None not in (inside, outside) and inside != outside:
        config.note(
            f"{_LENGTH} {inside!r:.40} of the rope parameters is ignored: beside them "
            f"stands {outside!r:.40}.",
            "contradiction",
            "risky",
            _LENGTH,
        )
    length = (config.rope if outside is None else config).whole(_LENGTH, 1, 2**40)
    if length is None:
        length = config.need("max_length", 1, 2**40)
        config.note(
            f"{_LENGTH} is not given: max_position_embeddings {length} is assumed, "
            "which may already be the extended length.",
            "assumed",
            "risky",
            _LENGTH,
        )
    return length


def _gain(config: Config, implied: float) -> float:
    """attention_factor, or what the other numbers imply."""
    gain = config.rope.number("attention_factor", 0, 1e6)
    if gain is None:
        told = f"attention_factor is not given: {implied:.6g} is implied."
        config.note(told, key="attention_factor")
        return implied
    if not math.isclose(gain, implied, rel_tol=1e-6):
        config.note(
            f"attention_factor {gain:.6g} is given and counts; {implied:.6g} would be "
            "implied.",
            "contradiction",
            "wrong"
            if gain == 0
            else "note"
            if implied / 2 <= gain <= 2 * implied
            else "risky",
            "attention_factor",
        )
    return gain


# Each rule, and the rope parameters that it reads.
RULES: dict[str, tuple[Callable[[Config, Tensor], Scaled], str]] = {
    "default": (lambda _, w: Scaled(w), ""),
    "linear": (lambda c, w: Scaled(scaling.linear(w, _factor(c))), "factor"),
    "dynamic": (_dynamic, "factor"),
    "yarn": (_yarn, f"factor {_LENGTH} attention_factor mscale mscale_all_dim beta_fast"
        " beta_slow truncate max_position_embeddings"),
    "longrope": (_longrope, f"factor {_LENGTH} attention_factor short_factor"
        " long_factor short_mscale long_mscale"),
    "llama3": (_llama3, f"factor {_LENGTH} low_freq_factor high_freq_factor"),
    "proportional": (lambda c, w: Scaled(w / _assumed(c, "factor", 1, 1)), "factor"),
}  # fmt: skip
