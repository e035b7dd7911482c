"""Decoding token by token, by whatever cache a subject has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.sequence import Plan, Sequence, in_mode

# (sequence, piece, state, mask of all tokens so far, positions of the piece)
Step = Callable[
    [Sequence, Tensor, Any, Tensor | None, Tensor | None, int], tuple[Tensor, Any]
]


def how(subject: Any, plan: Plan) -> Step | None:
    """The way in which this subject is fed piece after piece, or None."""
    if plan.step is not None:
        return _by_caller
    extend = getattr(subject, "extend", None)
    if callable(extend) and "cache" in inspect.signature(extend).parameters:
        return _by_extending
    if plan.cache:
        return _by_cache
    return _by_start if plan.offset == "start_pos" else None


def decode(
    sequence: Sequence,
    x: Tensor,
    sizes: list[int],
    mask: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """The outputs of x fed in pieces, one after the other; mask is (B, L)."""
    step = how(sequence.subject, sequence.plan)
    if step is None:
        raise TypeError("it has no cache that is known here; give step=")
    state, start, out = None, 0, []
    with in_mode(sequence.modules, training=False):
        for size in sizes:
            end = start + size
            seen = None if mask is None else mask[:, :end]
            places = None if positions is None else positions[:, start:end]
            rows, state = step(sequence, x[:, start:end], state, seen, places, start)
            out.append(rows)
            start = end
    return torch.cat(out, 1)


def _by_caller(
    sequence: Sequence,
    piece: Tensor,
    state: Any,
    mask: Tensor | None,
    positions: Tensor | None,
    start: int,
) -> tuple[Tensor, Any]:
    if mask is not None or positions is not None:
        raise TypeError("step takes no mask")
    assert sequence.plan.step is not None
    out, state = sequence.plan.step(sequence.subject, piece, state)
    return sequence.output(out), state


def _by_extending(
    sequence: Sequence,
    piece: Tensor,
    state: Any,
    mask: Tensor | None,
    positions: Tensor | None,
    start: int,
) -> tuple[Tensor, Any]:
    given: dict[str, Any] = {}
    if mask is not None:
        given["mask"] = mask[:, start:]
    if positions is not None:
        given["positions"] = positions
    result = sequence.subject.extend(piece, state, **given)
    return sequence.output(result), result[1]


def _by_cache(
    sequence: Sequence,
    piece: Tensor,
    state: Any,
    mask: Tensor | None,
    positions: Tensor | None,
    start: int,
) -> tuple[Tensor, Any]:
    plan = sequence.plan
    given = plan.arguments(piece, {"positions": positions})
    if mask is not None:
        given |= plan.arguments(piece, {"mask": mask})
    if "use_cache" in plan.names:
        given["use_cache"] = True
    if plan.offset:
        given[plan.offset] = start
    result = sequence.raw(piece, {**given, plan.cache: state})
    after = _state(result, plan.cache)
    if after is None and state is None:  # it may fill what it is handed
        after = []
        result = sequence.raw(piece, {**given, plan.cache: after})
    if after is None or (isinstance(after, list) and not after):
        raise TypeError("it gives no cache back")
    return sequence.output(result), after


def _state(result: Any, name: str) -> Any:
    for key in (name, "past_key_values", "cache"):
        if isinstance(result, Mapping) and key in result:
            return result[key]
        if not isinstance(result, tuple) and hasattr(result, key):
            return getattr(result, key)
    plain = isinstance(result, tuple) and len(result) > 1
    return result[1] if plain else None


def _by_start(
    sequence: Sequence,
    piece: Tensor,
    state: Any,
    mask: Tensor | None,
    positions: Tensor | None,
    start: int,
) -> tuple[Tensor, Any]:
    if mask is not None or positions is not None:
        raise TypeError("it takes no mask while decoding")
    return sequence.ask(piece, {sequence.plan.offset: start}), None
