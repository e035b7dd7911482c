"""The doctor's kind for rotations of queries and keys (Su et al. 2021, RoFormer)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure, Guard, fresh
from pe_lab.doctor.kind import Adapter, Kind, Patient
from pe_lab.doctor.rope import checks as rope_checks
from pe_lab.doctor.rope import ladder as rope_ladder
from pe_lab.doctor.rope import memory as rope_memory
from pe_lab.doctor.rope import pairs as rope_pairs
from pe_lab.doctor.rope import range as rope_range
from pe_lab.doctor.rope import types as rope_types
from pe_lab.doctor.rope.ladder import ladder
from pe_lab.doctor.rope.pairs import layout_of, shown
from pe_lab.doctor.rope.survey import Survey, random_heads, survey

_WIDTHS = (64, 32, 16, 128, 8, 96, 80, 48, 256, 4)
_FORMS = ("rotate", "x", "qk")
_IDS = ("row", "rows", "2 axes", "3 axes")


class Turn:
    """The kind's one call: (x, positions) → turned x, (q, positions, k) → (q, k).

    Args:
        subject: a copy of the subject.
        form: "x" is called as f(x, ids), "qk" as f(q, k, ids), "rotate" by that name.
        ids: "row" is given as (L,), "rows" as (B, L), "2 axes" as (L, 2) …
    """

    def __init__(self, subject: Any, form: str, ids: str) -> None:
        self.subject, self.form, self.ids = subject, form, ids

    def __call__(self, x: Tensor, positions: Tensor, k: Tensor | None = None) -> Any:
        """As the class says."""
        ids = self._as_ids(positions, x.shape[0])
        if self.form == "x":
            turned = self.subject(x, ids)
            return turned if k is None else (turned, self.subject(k, ids))
        both = (x, x.clone() if k is None else k)
        if self.form == "rotate":
            q, keys = self.subject.rotate(*both, ids, ids)
        else:
            q, keys = self.subject(*both, ids)
        return q if k is None else (q, keys)

    def _as_ids(self, positions: Tensor, batch: int) -> Tensor:
        if self.ids == "row":
            return positions
        if self.ids == "rows":
            plain = positions.dim() == 1
            return positions.expand(batch, -1).contiguous() if plain else positions
        axes = int(self.ids[0])
        if positions.dim() == 2 and positions.shape[1] == axes:
            return positions  # places, one number on each axis
        return positions.unsqueeze(-1).repeat(*[1] * positions.dim(), axes)


@dataclass(frozen=True)
class TurnAdapter:
    """Makes the kind's call from a copy of the subject; see `Turn`.

    Args:
        form, ids: as for `Turn`.
        head_dim: a width that the subject takes.
        square: whether it only takes as many heads as tokens.
    """

    form: str
    ids: str
    head_dim: int
    square: bool = False

    def __call__(self, subject: Any) -> Turn:
        """The call on this copy."""
        return Turn(subject, self.form, self.ids)


def recognise(subject: Any, options: Mapping[str, Any], guard: Guard) -> Adapter | str:
    """How the subject is called, tried on small inputs; or why it turns nothing."""
    why = ""
    for adapter in _attempts(subject, options):
        fault, final = _fault(adapter, subject, guard)
        if not fault:
            return adapter
        why = fault if final or not why else why
    return why or "it is not callable"


def _attempts(subject: Any, options: Mapping[str, Any]) -> Iterator[TurnAdapter]:
    widths = (options["head_dim"],) if "head_dim" in options else _WIDTHS
    calls = {"rotate": getattr(subject, "rotate", None), "x": subject, "qk": subject}
    forms = [form for form, call in calls.items() if callable(call)]
    for square, form, width, ids in product((False, True), forms, widths, _IDS):
        yield TurnAdapter(form, ids, width, square)


_FACTORS = (
    "it multiplies x by what it is given as positions, so it takes factors or angles, "
    "not positions; make them of positions in a lambda"
)


def _fault(adapter: TurnAdapter, subject: Any, guard: Guard) -> tuple[str, bool]:
    """Why this is no turn of x, and whether the call itself worked; "" if it is one.

    Batch row 0 is random, row 1 has but token 3, row 2 nothing: a rotation keeps
    tokens apart, and zeros zero.
    """
    heads = 5 if adapter.square else 2
    x = torch.zeros(3, heads, 5, adapter.head_dim)
    x[0] = random_heads(1, heads, 5, adapter.head_dim)[0]
    x[1, :, 3] = x[0, :, 3]
    ids = torch.arange(1, 6)
    out = guard.call(adapter(fresh(subject)), x, ids)
    if isinstance(out, Failure):
        return str(out), False
    if not isinstance(out, Tensor) or out.shape != x.shape:
        given = tuple(getattr(out, "shape", ())) or type(out).__name__
        return f"it gives {given} for x of shape {tuple(x.shape)}", False
    others = [0, 1, 2, 4]
    if bool((out[2] != 0).any()) or bool((out[1][:, others] != 0).any()):
        return "it gives something for tokens that are zero", True
    if torch.equal(out.to(x), x):
        return "it gives x back as it was", True
    twice = guard.call(adapter(fresh(subject)), x, 2 * ids)
    if isinstance(twice, Tensor) and torch.equal(twice, 2 * out):
        return _FACTORS, True
    return "", True


def identify(patient: Patient) -> dict[str, Any]:
    """What it is: layout, width, frequencies and gain, from basis vectors turned."""
    found = survey(patient)
    if not found.pairs:
        return {"scheme": "unknown", "layout": "unknown"}
    named, (layout, width) = ladder(patient), layout_of(found)
    axes = getattr(patient.adapt, "ids", "row")[0]
    facts: dict[str, Any] = {"scheme": _scheme(found, named, axes), "layout": layout}
    if axes.isdigit():
        facts["axes"] = int(axes)
    facts |= {"rotary_dim": width, "pairs": shown(found.pairs)}
    if not math.isnan(named["base"]):
        facts["base"] = named["base"]
    facts |= {"spacing": named["spacing"], "scaling": named["scaling"]}
    if found.steady:
        facts["gain"] = round(float(found.gain.mean()), 6)
    return facts


def _scheme(found: Survey, named: dict[str, Any], axes: str) -> str:
    if axes.isdigit():
        return "axial RoPE" if named["parts"] > 1 else "M-RoPE"
    return "RoPE" if found.steady else "xPos"


KIND = Kind(
    name="rope",
    convention="f(x: B×H×L×D, positions) → turned x, or f(q, k, positions) → (q, k)",
    recognise=recognise,
    identify=identify,
    checks=(
        rope_checks.check_shape,
        rope_checks.check_order,
        rope_checks.check_sides,
        rope_pairs.check_layout,
        rope_pairs.check_norm,
        rope_ladder.check_dim,
        rope_ladder.check_base,
        rope_checks.check_shift,
        rope_checks.check_start,
        rope_memory.check_decoding,
        rope_memory.check_history,
        rope_memory.check_length,
        rope_range.check_ids,
        rope_range.check_grid,
        rope_memory.check_batch,
        rope_range.check_far,
        rope_types.check_dtype,
        rope_types.check_state,
    ),
)
