"""Attention layers: embeddings (B, L, d) to the same, with mask, positions, cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_lab.doctor import sequence
from pe_lab.doctor.guard import Guard
from pe_lab.doctor.kind import Adapter, Kind
from pe_lab.doctor.sequence.checks import CHECKS, identify


def recognise(subject: Any, options: Mapping[str, Any], guard: Guard) -> Adapter | str:
    """How to call it, or why it is no such thing."""
    return sequence.recognise("attention", subject, options, guard)


KIND = Kind(
    "attention",
    "f(embeddings: B×L×d [, mask][, positions][, cache]) → (B, L, d)",
    recognise,
    identify,
    CHECKS,
)
