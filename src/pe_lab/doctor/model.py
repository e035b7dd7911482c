"""Models over token ids: (B, L) to logits (B, L, V), with mask, positions, cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_lab.doctor import sequence
from pe_lab.doctor.guard import Guard
from pe_lab.doctor.kind import Adapter, Kind
from pe_lab.doctor.sequence.checks import CHECKS, identify


def recognise(subject: Any, options: Mapping[str, Any], guard: Guard) -> Adapter | str:
    """How to call it, or why it is no such thing."""
    return sequence.recognise("model", subject, options, guard)


KIND = Kind(
    "model",
    "f(ids: B×L [, mask][, positions][, cache]) → logits (B, L, vocabulary)",
    recognise,
    identify,
    CHECKS,
)
