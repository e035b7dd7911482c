"""Biases on the table: f(q_len, k_len) or f(q_pos, k_pos) → (H, Lq, Lk).

ALiBi, T5's buckets, clipped tables, KERPLE and whatever else is added to scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.bias import checks as bias_checks
from pe_lab.doctor.bias import state as bias_state
from pe_lab.doctor.bias import values as bias_values
from pe_lab.doctor.bias.profile import (
    Profile,
    Reading,
    arrange,
    centred,
    deberta_rule,
    parameters,
    profile,
    reading,
    t5_rule,
)
from pe_lab.doctor.guard import Failure, Guard, fresh
from pe_lab.doctor.kind import Adapter, Kind, Patient
from pe_lab.doctor.slopes import ROUNDED, name_slopes
from pe_lab.encodings.alibi import alibi_slopes

_CONVENTION = "f(q_len, k_len) or f(q_pos, k_pos) → (heads, q_len, k_len)"
_SEES_TOKENS = (
    "its bias depends on queries and keys; examine the attention layer that uses it, "
    "as kind 'attention'"
)
_MAYBE_TABLE = (
    "it gives one square that is no function of distance, so that it may be a table of "
    "positions; with num_heads=1 it is taken as a bias"
)
# Lengths that differ from each other and from usual head counts; then small ones, for
# tables with few distances; then squares, for what knows no others.
_SIZES = (((5, 7), (11, 17)), ((2, 3), (1, 2)), ((5, 5), (7, 7)), ((2, 2), (3, 3)))


def _recognise(subject: Any, options: Mapping[str, Any], guard: Guard) -> Adapter | str:
    encoding = callable(getattr(subject, "bias", None))
    if not encoding and not callable(subject):
        return "it cannot be called"
    forms = ["encoding"] if encoding else ["lengths", "positions"]
    why: list[str] = []
    for form in forms:
        for sizes in _SIZES:
            found = _tried(subject, form, sizes, options, guard)
            if isinstance(found, Reading):
                return _checked(subject, found, options, guard)
            why.append(f"{form} {sizes[0]}: {found}")
    return "; ".join((why[0], *why[len(_SIZES) : len(_SIZES) + 1]))


def _tried(
    subject: Any,
    form: str,
    sizes: tuple[tuple[int, int], tuple[int, int]],
    options: Mapping[str, Any],
    guard: Guard,
) -> Reading | str:
    """A reading that fits results for two pairs of lengths, or why there is none."""
    why = ""
    for heads, width in _widths(subject, form, options):
        call = Reading(form, heads=heads, width=width)
        shapes = []
        for q, k in sizes:
            raw = guard.call(call(fresh(subject)), *_asked(form, q, k))
            shapes.append(raw.shape if isinstance(raw, Tensor) else raw)
        wrong = [s for s in shapes if not isinstance(s, torch.Size)]
        if wrong:
            given = wrong[0]
            failed = isinstance(given, Failure)
            why = str(given) if failed else f"it gives {type(given).__name__}"
            continue
        return _labelled(shapes[0], shapes[1], sizes, call)
    return why


def _asked(form: str, q: int, k: int) -> tuple[Any, Any]:
    return (q, k) if form == "lengths" else (torch.arange(k - q, k), torch.arange(k))


def _widths(
    subject: Any, form: str, options: Mapping[str, Any]
) -> list[tuple[int, int]]:
    """Heads and channels of the queries that an encoding may want."""
    if form != "encoding":
        return [(1, 8)]
    told = options.get("num_heads", getattr(subject, "num_heads", None))
    width = options.get("head_dim", getattr(subject, "head_dim", 8))
    counts = [told] if isinstance(told, int) else [4, 8, 12, 2, 1, 3, 6, 16]
    return [(heads, width) for heads in counts]


def _labelled(
    first: torch.Size,
    second: torch.Size,
    sizes: tuple[tuple[int, int], tuple[int, int]],
    call: Reading,
) -> Reading | str:
    """Which axis is which, from how two results differ."""
    refused = f"it gives {tuple(first)} and {tuple(second)}"
    axes, square = _letters(first, second, sizes)
    if axes.count("h") > 1 or "?" in axes or not set("qk") & set(axes):
        return refused
    swapped = 0 <= axes.find("k") < axes.find("q")
    if swapped:
        axes = axes.translate(str.maketrans("qk", "kq"))
    heads = first[axes.index("h")] if "h" in axes else 1
    if call.form != "encoding":
        return Reading(call.form, swapped, axes, square, heads, call.width)
    return refused if swapped else replace(call, axes=axes, square=square)


def _letters(
    first: torch.Size,
    second: torch.Size,
    sizes: tuple[tuple[int, int], tuple[int, int]],
) -> tuple[str, str]:
    """A letter for each axis, and the one length that two of them have, if so."""
    (q, k), (other_q, other_k) = sizes
    if len(first) != len(second):
        return "?", ""
    names = {(q, other_q): "q", (k, other_k): "k", (1, 1): "1"}
    pairs = list(zip(first, second, strict=True))
    letters = [names.get(p, "h" if p[0] == p[1] else "?") for p in pairs]
    square = next((one for one in "qk" if letters.count(one) == 2), "")
    letters = _squared(letters, square)
    return "".join(letters), "both" if q == k else square


def _squared(letters: list[str], one: str) -> list[str]:
    """The first of two equal letters names the queries, the second the keys."""
    places = [i for i, letter in enumerate(letters) if letter == one]
    if len(places) == 2:
        letters[places[0]], letters[places[1]] = "q", "k"
    return letters


def _checked(
    subject: Any, found: Reading, options: Mapping[str, Any], guard: Guard
) -> Adapter | str:
    """The reading, unless the result is a table of positions, or depends on tokens."""
    if found.form == "encoding":
        return found if _blind(subject, found, guard) else _SEES_TOKENS
    if found.heads > 1 or "num_heads" in options:
        return found
    for size in (8, 5, 3):
        few, all_ = (
            arrange(
                guard.call(found(fresh(subject)), *_asked(found.form, q, size)),
                found, q, size,
            )
            for q in (2, size)
        )  # fmt: skip
        if not isinstance(all_, Failure):
            break
    if isinstance(all_, Failure):
        return str(all_)
    # the last rows of a table are not those of a shorter one, a bias's are
    last = isinstance(few, Failure) or _near(centred(few), centred(all_)[:, -2:])
    return found if last and _of_distance(all_) else _MAYBE_TABLE


def _near(a: Tensor, b: Tensor) -> bool:
    shown = a.isfinite() & b.isfinite()
    return bool(((a - b)[shown].abs() <= 1e-2 * b[shown].abs().max()).all())


def _blind(subject: Any, found: Reading, guard: Guard) -> bool:
    """Whether the bias is the same whatever queries and keys hold."""
    ids = torch.arange(5)
    generator = torch.Generator().manual_seed(0)
    shape = (1, found.heads, 5, found.width)
    q, k = (torch.randn(shape, generator=generator) for _ in range(2))
    zero = torch.zeros(shape)
    drawn = guard.call(fresh(subject).bias, q, k, ids, ids)
    empty = guard.call(fresh(subject).bias, zero, zero, ids, ids)
    same = isinstance(drawn, Tensor) and isinstance(empty, Tensor)
    return same and torch.equal(drawn.nan_to_num(), empty.nan_to_num())


def _of_distance(bias: Tensor) -> bool:
    level = centred(bias)  # a mask above the diagonal is not looked at
    size = level.shape[-1]
    spread = float((level.amax() - level.amin()).abs())
    diagonals = [level.diagonal(o, 1, 2) for o in range(1 - size, 1)]
    return spread > 0 and all(
        float((d.amax(1) - d.amin(1)).max()) <= 1e-2 * spread for d in diagonals
    )


def _identify(patient: Patient) -> dict[str, Any]:
    patient.facts["change"] = evaluated
    seen = profile(patient)
    if isinstance(seen, Profile) and _silent(seen) and parameters(patient.subject):
        patient.facts["change"] = drawn
        again = profile(patient)
        seen = again if isinstance(again, Profile) else seen
    patient.facts["profile"] = seen
    how = reading(patient)
    said: dict[str, Any] = {"scheme": "unread"}
    if isinstance(seen, Profile):
        said = _said(patient, seen)
    order = "(k, q)" if how.swapped else "(q, k)"
    axes = {"h": "heads", "q": "queries", "k": "keys", "1": "1"}
    return {
        "scheme": said.pop("scheme"),
        "order": f"{how.form} {order}",
        "axes": ", ".join(axes[a] for a in how.axes),
        **said,
        "parameters": sum(p.numel() for p in parameters(patient.subject)),
    }


def _silent(seen: Profile) -> bool:
    """Whether every number is the same, as in tables that start at 0."""
    shown = seen.near[:, ~seen.hidden]
    return shown.numel() > 0 and bool((shown == shown.flatten()[0]).all())


def evaluated(copy: Any) -> Any:
    """It, without dropout."""
    return copy.eval() if isinstance(copy, nn.Module) else copy


def drawn(copy: Any) -> Any:
    """Its trained tensors drawn from N(0, 1), the same each time."""
    generator = torch.Generator().manual_seed(0)
    for tensor in copy.parameters():
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        tensor.requires_grad_(False).copy_(values)
    return evaluated(copy)


def _said(patient: Patient, seen: Profile) -> dict[str, Any]:
    scheme = seen.scheme
    kind: dict[str, Callable[[], dict[str, Any]]] = {
        "ALiBi": lambda: _alibi(seen),
        "buckets": lambda: _buckets(seen),
        "clipped table": lambda: {"max_distance": scheme["max_distance"]},
    }
    said = kind.get(scheme["scheme"], dict)()
    for name in ("r1", "r2"):
        if name in scheme:
            said[name] = [round(float(r), 4) for r in scheme[name]]
    seen.scheme = {**said, **scheme, "scheme": said.get("scheme", scheme["scheme"])}
    plain = {"scheme": scheme["scheme"], **said, "symmetric": _symmetric(seen)}
    plain["offset"] = "each row has a constant of its own" if seen.absolute else "none"
    if seen.hidden.any():
        plain["offset"] += ", and a causal mask is part of it"
    return plain


def _alibi(seen: Profile) -> dict[str, Any]:
    slopes = seen.scheme["slopes"]
    name = name_slopes(slopes.abs(), tolerance=ROUNDED)
    seen.scheme["named"] = name
    if name.rule != "other" and bool((slopes > 0).all()) and name.severity is None:
        slopes = alibi_slopes(len(slopes))
    return {"slopes": [float(f"{s:.6g}") for s in slopes], "spacing": name.rule}


def _buckets(seen: Profile) -> dict[str, Any]:
    found = max((seen.scheme["starts"], seen.scheme["ahead"] or []), key=len)
    rule = t5_rule(found)
    seen.scheme["rule"] = rule
    if rule is None:
        size = deberta_rule(found)
        if size is None:
            return {"buckets": len(found), "max_distance": found[-1]}
        return {
            "scheme": "DeBERTa's logarithmic buckets",
            "buckets": size[0],
            "max_distance": size[1],
        }
    both = seen.scheme["ahead"] is not None and len(seen.scheme["ahead"]) > 1
    one_sided = len(seen.scheme["starts"]) == 1 or not both
    return {
        "scheme": "T5 buckets, " + ("one direction" if one_sided else "two directions"),
        "buckets": rule.buckets * (1 if one_sided else 2),
        "max_distance": rule.max_distance,
    }


def _symmetric(seen: Profile) -> bool | str:
    if seen.future is None:
        return "masked"
    if seen.toeplitz != "all":
        return False
    n = min(seen.past.shape[1], seen.future.shape[1], 64)
    past, future = seen.past[:, :n], seen.future[:, :n]
    allowed = 1e-2 * max(float(past.abs().max()), float(future.abs().max()), 1e-30)
    return bool(((past - future).abs() <= allowed).all())


KIND = Kind(
    "bias",
    _CONVENTION,
    _recognise,
    _identify,
    (
        bias_checks.check_axes,
        bias_checks.check_finite,
        bias_checks.check_effect,
        bias_checks.check_above,
        bias_state.check_random,
        bias_state.check_history,
        bias_checks.check_decode,
        bias_values.check_centre,
        bias_values.check_direction,
        bias_checks.check_align,
        bias_checks.check_nested,
        bias_values.check_length,
        bias_values.check_precision,
        bias_checks.check_shift,
        bias_values.check_slopes,
        bias_values.check_buckets,
        bias_checks.check_first,
        bias_state.check_expected,
        bias_state.check_cast,
        bias_state.check_batch,
        bias_state.check_state,
    ),
)
