"""What all checks of a config need: a list of findings, and keys that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any

from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, Passed, Verdict
from pe_lab.hf.config import Config

LENGTH = "original_max_position_embeddings"
# Which check a note is of, by the key that it is about; D-CONFIG for all others.
NAMES_OF_CHECKS = {
    "rope_theta": "D-BASE", "rope_ratio": "D-BASE", "rope_local_base_freq": "D-BASE",
    "local_rope_theta": "D-BASE", "partial_rotary_factor": "D-DIM", "head_dim": "D-DIM",
    "mrope_section": "D-DIM", "qk_rope_head_dim": "D-DIM", "pad_token_id": "D-LEN",
    "rope_interleave": "D-LAYOUT", "rotary_emb_interleaved": "D-LAYOUT",
    "max_position_embeddings": "D-LEN",
}  # fmt: skip
_CHAPTERS = {
    "rope": "05 Rotate by k",
    "learned": "03 Compute the tables by hand",
    "sinusoidal": "03 Compute the tables by hand",
}


def blocks(config: Config) -> dict[str, Config]:
    """The rope parameters by kind of layer, under "" if all have the same."""
    values = config.rope.values
    nested = {k: v for k, v in values.items() if isinstance(v, Mapping)}
    if not nested:
        return {"": config}
    return {kind: config.with_rope(dict(block)) for kind, block in nested.items()}


class Problems:
    """Findings of one check, with its id and chapter filled in."""

    def __init__(self, patient: Patient, check: str) -> None:
        self.patient, self.check = patient, check
        self.found: list[Verdict] = []

    def add(
        self, severity: str, message: str, remedy: str, value: float | None = None
    ) -> None:
        """One more; what is wrong explains that the config cannot be read."""
        place = chapter(self.patient)
        finding = Finding(
            self.check, severity, message, value, remedy=remedy, chapter=place
        )
        self.found.append(finding)
        if severity == "wrong":
            self.patient.facts.setdefault("cause", self.check)

    def or_passed(self, message: str) -> list[Verdict]:
        """The findings, or that there are none."""
        return self.found or [Passed(self.check, message)]


def chapter(patient: Patient) -> str:
    """Where the book explains the scheme of this config."""
    keys = patient.facts["keys"]
    usual = keys.family.scheme if isinstance(keys, Config) else ""
    return _CHAPTERS.get(usual, "06 Score position against position")


def turning(patient: Patient) -> Config | None:
    """The keys, if they are of a model that rotates."""
    keys = patient.facts["keys"]
    rotates = isinstance(keys, Config) and keys.family.scheme == "rope"
    return keys if rotates and not keys.values.get("alibi") else None


def is_number(value: Any) -> bool:
    """Whether it is a real number of a size that a float can have."""
    plain = isinstance(value, Real) and not isinstance(value, bool)
    return plain and not (isinstance(value, int) and abs(value) > 2**62)


def tried(function: Callable[[Config], Any], keys: Config) -> Any:
    """What the reader makes of the keys, unheard; None if it refuses them."""
    try:
        return function(_silent(keys))
    except (TypeError, ValueError):
        return None


def _silent(keys: Config) -> Config:
    """The same keys, of which no note reaches anybody."""
    return Config(
        keys.values, [], keys.model_type, keys.family, keys.rope, keys.length, keys.part
    )


def lists(keys: Config) -> Iterator[tuple[str, Any]]:
    """LongRoPE's lists of factors, by name."""
    for block in blocks(keys).values():
        for name in ("short_factor", "long_factor"):
            if block.rope.get(name) is not None:
                yield name, block.rope.get(name)


def head_dim(keys: Config) -> int | None:
    """Channels of the part of a head that can turn, if they can be told."""
    if keys.family.mla and keys.get("qk_rope_head_dim") is not None:
        dim = keys.get("qk_rope_head_dim")
        return dim if isinstance(dim, int) else None
    dim = tried(Config.head_dim, keys)
    return dim if isinstance(dim, int) else None


def share_of(keys: Config) -> float | None:
    """The share of channels that is asked for, whoever reads it."""
    asked = [block.rope.get("partial_rotary_factor") for block in blocks(keys).values()]
    if keys.family.partial is None or keys.family.mla:
        return 1.0
    for value in (*asked, keys.get("partial"), keys.family.partial):
        if value is not None:
            return float(value) if is_number(value) else None
    return None
