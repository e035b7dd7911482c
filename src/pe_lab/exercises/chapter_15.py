"""Exercises of chapter 15, Stretch the context: turns, ramps, caches, configs."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from pe_lab import hf, scaling
from pe_lab.frequencies import inv_freq

from .engine import Exercise, Mistake


def _unseen(head_dim: int, base: float, length: int) -> int:
    """How many pairs do not turn once within so many positions."""
    return int((inv_freq(head_dim, base=base) * length < math.tau).sum())


def _unseen_full(head_dim: int, base: float, length: int) -> int:
    return head_dim // 2 - _unseen(head_dim, base, length)


def _unseen_channels(head_dim: int, base: float, length: int) -> int:
    return 2 * _unseen(head_dim, base, length)


def _unseen_radian(head_dim: int, base: float, length: int) -> int:
    return int((inv_freq(head_dim, base=base) * length < 1).sum())


def _unseen_half(head_dim: int, base: float, length: int) -> int:
    return int((inv_freq(head_dim, base=base) * length < math.pi).sum())


UNSEEN = Exercise(
    id="15-unseen",
    title="Which pairs have not seen a full turn?",
    stars=1,
    reference=_unseen,
    probes=((16, 1e4, 32), (128, 1e4, 4096), (128, 5e5, 8192)),
    praise="These pairs, and no others, meet new angles in longer texts.",
    mistakes=(
        Mistake(
            "the other pairs",
            _unseen_full,
            "This counts the pairs that do turn fully.",
        ),
        Mistake(
            "channels instead of pairs",
            _unseen_channels,
            "A pair has two channels; count it once.",
        ),
        Mistake(
            "one radian is no turn",
            _unseen_radian,
            "ω·L is an angle in radians. A full turn is 2π of them.",
        ),
        Mistake(
            "half a turn",
            _unseen_half,
            "A full turn is 2π radians, not π.",
        ),
    ),
)


def _base(base: float, factor: float, head_dim: int) -> float:
    """b·s^(d/(d − 2))."""
    return float(base * factor ** (head_dim / (head_dim - 2)))


def _base_times(base: float, factor: float, head_dim: int) -> float:
    return base * factor


def _base_inverse(base: float, factor: float, head_dim: int) -> float:
    return float(base * factor ** ((head_dim - 2) / head_dim))


def _base_pairs(base: float, factor: float, head_dim: int) -> float:
    pairs = head_dim // 2
    return float(base * factor ** (pairs / (pairs - 2)))


def _base_power(base: float, factor: float, head_dim: int) -> float:
    return float((base * factor) ** (head_dim / (head_dim - 2)))


BASE = Exercise(
    id="15-base",
    title="A base for the factor",
    stars=1,
    reference=_base,
    probes=((1e4, 4.0, 16), (1e4, 16.0, 128), (5e5, 2.0, 64)),
    praise="The fastest pair does not depend on the base, so it is kept.",
    mistakes=(
        Mistake(
            "just times s",
            _base_times,
            "The slowest pair is b^(−(d−2)/d), a little less than one over the base. "
            "Which power makes up for it?",
        ),
        Mistake(
            "the inverse power",
            _base_inverse,
            "The power is upside down: the slowest pair has the exponent (d−2)/d "
            "already.",
        ),
        Mistake(
            "pairs instead of channels",
            _base_pairs,
            "d is the number of channels of a head, not of pairs.",
        ),
        Mistake(
            "the base is raised, too",
            _base_power,
            "Only s is raised to a power; the old base stays a factor.",
        ),
    ),
)


def _parts(inv_freq: Tensor, factor: float, length: int) -> Tensor:
    """(1 − γ)·ω/s + γ·ω, with γ rising from 1 to 32 turns."""
    kept = ((inv_freq * length / math.tau - 1) / 31).clamp(0, 1)
    return (1 - kept) * inv_freq / factor + kept * inv_freq


def _parts_reversed(inv_freq: Tensor, factor: float, length: int) -> Tensor:
    kept = ((inv_freq * length / math.tau - 1) / 31).clamp(0, 1)
    return kept * inv_freq / factor + (1 - kept) * inv_freq


def _parts_loose(inv_freq: Tensor, factor: float, length: int) -> Tensor:
    kept = (inv_freq * length / math.tau - 1) / 31
    return (1 - kept) * inv_freq / factor + kept * inv_freq


def _parts_radians(inv_freq: Tensor, factor: float, length: int) -> Tensor:
    kept = ((inv_freq * length - 1) / 31).clamp(0, 1)
    return (1 - kept) * inv_freq / factor + kept * inv_freq


def _parts_waves(inv_freq: Tensor, factor: float, length: int) -> Tensor:
    kept = ((inv_freq * length / math.tau - 1) / 31).clamp(0, 1)
    return inv_freq / ((1 - kept) * factor + kept)


def _parts_linear(inv_freq: Tensor, factor: float, length: int) -> Tensor:
    return inv_freq / factor


PARTS = Exercise(
    id="15-parts",
    title="By parts",
    stars=2,
    reference=_parts,
    probes=((inv_freq(16), 4.0, 512), (inv_freq(128), 16.0, 4096)),
    praise="With 4 instead of 32 turns this is Llama 3's rule.",
    mistakes=(
        Mistake(
            "the ramp is reversed",
            _parts_reversed,
            "The fastest pairs are divided here, and the slow ones kept. They are the "
            "ones that have not seen all their angles.",
        ),
        Mistake(
            "the ramp runs on",
            _parts_loose,
            "γ is a share: hold it between 0 and 1.",
        ),
        Mistake(
            "radians for turns",
            _parts_radians,
            "ω·L is in radians; divide by 2π for turns.",
        ),
        Mistake(
            "wavelengths are blended",
            _parts_waves,
            "The blend is of frequencies, ω/s and ω. This one is of wavelengths, and "
            "slows the pairs in between more.",
        ),
        Mistake(
            "all pairs are divided",
            _parts_linear,
            "This is position interpolation. Which pairs need not be slowed?",
        ),
    ),
)

Config = dict[str, Any]


def _config(rope_scaling: Config, longest: int, base: float = 10000.0) -> Config:
    """A Llama config with head_dim 128."""
    return {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "max_position_embeddings": longest,
        "rope_theta": base,
        "rope_scaling": rope_scaling,
    }


_CONFIGS = (
    (_config({"rope_type": "dynamic", "factor": 2.0}, 4096), 32768),
    (_config({"rope_type": "linear", "factor": 4.0}, 16384), 2000),
    (
        _config(
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32768,
            },
            131072,
            1e6,
        ),
        1000,
    ),
)


def _slowest(config: Config, length: int) -> float:
    """ω/ω' of the last pair, for texts of this length."""
    encoding: Any = hf.from_config(config, length=length).encoding
    plain = inv_freq(encoding.rotary_dim, base=encoding.base)
    return float(plain[-1] / encoding.inv_freq[-1])


def _slowest_written(config: Config, length: int) -> float:
    return float(config["rope_scaling"]["factor"])


def _slowest_no_length(config: Config, length: int) -> float:
    encoding: Any = hf.from_config(config).encoding
    plain = inv_freq(encoding.rotary_dim, base=encoding.base)
    return float(plain[-1] / encoding.inv_freq[-1])


def _slowest_needed(config: Config, length: int) -> float:
    rope = config["rope_scaling"]
    longest = config["max_position_embeddings"]
    trained = rope.get("original_max_position_embeddings", longest)
    return max(1.0, length / trained)


def _slowest_upside(config: Config, length: int) -> float:
    return 1 / _slowest(config, length)


def _slowest_fastest(config: Config, length: int) -> float:
    encoding: Any = hf.from_config(config, length=length).encoding
    return float(1 / encoding.inv_freq[0])


CONFIG = Exercise(
    id="15-config",
    title="What does this config do at that length?",
    stars=2,
    reference=_slowest,
    probes=_CONFIGS,
    praise="Linear and YaRN slow short texts as much as long ones; only dynamic asks "
    "how long the text is.",
    mistakes=(
        Mistake(
            "the factor as written",
            _slowest_written,
            "Right for rules that do not look at the length. Dynamic NTK does: its "
            "factor is s·L/L₀ − (s − 1).",
        ),
        Mistake(
            "the length was not given",
            _slowest_no_length,
            "from_config takes length=…; without it, dynamic NTK is read as for short "
            "texts.",
        ),
        Mistake(
            "what would be needed",
            _slowest_needed,
            "This is L/L₀, the stretch that the text needs. The config says what it "
            "gets.",
        ),
        Mistake(
            "upside down",
            _slowest_upside,
            "The slow-down is old frequency over new, at least 1.",
        ),
        Mistake(
            "the fastest pair",
            _slowest_fastest,
            "The slowest pair is the last one.",
        ),
    ),
)


def _drift(
    inv_freq: Tensor, n: int, then: int, now: int, factor: float, original: int
) -> Tensor:
    """|n·(ω(then) − ω(now))| under dynamic NTK."""
    old, new = (
        scaling.dynamic_ntk(inv_freq, factor, length=length, original_length=original)
        for length in (then, now)
    )
    return (n * (old - new)).abs()


def _drift_query(
    inv_freq: Tensor, n: int, then: int, now: int, factor: float, original: int
) -> Tensor:
    return _drift(inv_freq, now, then, now, factor, original)


def _drift_offset(
    inv_freq: Tensor, n: int, then: int, now: int, factor: float, original: int
) -> Tensor:
    return _drift(inv_freq, now - n, then, now, factor, original)


def _drift_plain(
    inv_freq: Tensor, n: int, then: int, now: int, factor: float, original: int
) -> Tensor:
    return _drift(inv_freq, n, original, now, factor, original)


def _drift_frequency(
    inv_freq: Tensor, n: int, then: int, now: int, factor: float, original: int
) -> Tensor:
    return _drift(inv_freq, 1, then, now, factor, original)


DRIFT = Exercise(
    id="15-drift",
    title="A stored key under dynamic NTK",
    stars=2,
    reference=_drift,
    probes=(
        (inv_freq(16), 30, 40, 128, 2.0, 32),
        (inv_freq(64), 1000, 5000, 8192, 2.0, 4096),
    ),
    praise="The fastest pair has no error. The others may be off by many radians.",
    mistakes=(
        Mistake(
            "the position of the query",
            _drift_query,
            "The stored vector is the key, at position n.",
        ),
        Mistake(
            "the offset",
            _drift_offset,
            "A key is turned by its own position, not by its distance to the query.",
        ),
        Mistake(
            "stored without any factor",
            _drift_plain,
            "When the key was stored, the text had `then` tokens already.",
        ),
        Mistake(
            "frequencies, not angles",
            _drift_frequency,
            "This is the difference of the frequencies. The angle is n times that.",
        ),
    ),
)


def _repair(
    inv_freq: Tensor, factor: float, original_length: int
) -> tuple[Tensor, float]:
    """Frequencies by parts, and the gain on q and k each."""
    gain = 0.1 * math.log(factor) + 1
    return _parts(inv_freq, factor, original_length), gain


def _repair_neither(
    inv_freq: Tensor, factor: float, original_length: int
) -> tuple[Tensor, float]:
    waves, gain = _repair(inv_freq, factor, original_length)
    return _parts_reversed(inv_freq, factor, original_length), gain**2


def _repair_gain_only(
    inv_freq: Tensor, factor: float, original_length: int
) -> tuple[Tensor, float]:
    _, gain = _repair(inv_freq, factor, original_length)
    return _parts_reversed(inv_freq, factor, original_length), gain


def _repair_ramp_only(
    inv_freq: Tensor, factor: float, original_length: int
) -> tuple[Tensor, float]:
    waves, gain = _repair(inv_freq, factor, original_length)
    return waves, gain**2


def _repair_no_gain(
    inv_freq: Tensor, factor: float, original_length: int
) -> tuple[Tensor, float]:
    return _parts(inv_freq, factor, original_length), 1.0


def _repair_root(
    inv_freq: Tensor, factor: float, original_length: int
) -> tuple[Tensor, float]:
    waves, gain = _repair(inv_freq, factor, original_length)
    return waves, math.sqrt(gain)


def _repair_inverse(
    inv_freq: Tensor, factor: float, original_length: int
) -> tuple[Tensor, float]:
    waves, gain = _repair(inv_freq, factor, original_length)
    return waves, 1 / gain


REPAIR = Exercise(
    id="15-repair",
    title="Two bugs in a YaRN",
    stars=3,
    reference=_repair,
    probes=((inv_freq(16), 4.0, 512), (inv_freq(128), 16.0, 4096)),
    praise="At factor 1 even the broken one was right: no test of short texts sees it.",
    mistakes=(
        Mistake(
            "both bugs are still there",
            _repair_neither,
            "Print the slow-down of the first and the last pair, and the factor that "
            "scores get.",
        ),
        Mistake(
            "the ramp is still reversed",
            _repair_gain_only,
            "The gain is right. Which pairs are divided, the fast or the slow ones?",
        ),
        Mistake(
            "scores get the gain four times",
            _repair_ramp_only,
            "The frequencies are right. The gain is for q and for k, and a score has "
            "one of each.",
        ),
        Mistake(
            "no gain",
            _repair_no_gain,
            "The frequencies are right; that is NTK by parts. YaRN sharpens the "
            "attention, too.",
        ),
        Mistake(
            "the root of the gain",
            _repair_root,
            "1/t is the square of 0.1·ln s + 1, so q and k have the number itself.",
        ),
        Mistake(
            "the gain flattens",
            _repair_inverse,
            "This makes scores smaller. The temperature is below 1.",
        ),
    ),
)

EXERCISES = (UNSEEN, BASE, PARTS, DRIFT, CONFIG, REPAIR)
