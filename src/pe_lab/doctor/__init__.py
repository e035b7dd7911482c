"""Find the bug in an encoding by looking at it from outside.

`diagnose(subject)` calls a table, a module, a rotation, a bias, an attention layer or a
model as a black box, says what it is, what is wrong with it, how it knows, how big the
effect is, and how to mend it. A config is read, and nothing of it is run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from types import ModuleType
from typing import Any

from pe_lab import refuse
from pe_lab.doctor.guard import Exhausted, Failure, Guard
from pe_lab.doctor.kind import Adapter, Check, Kind, Patient
from pe_lab.doctor.report import (
    SEVERITIES,
    Finding,
    NotApplicable,
    Passed,
    Report,
    Verdict,
)

__all__ = [  # in the order of the API page
    "diagnose",
    "Report",
    "Finding",
    "Passed",
    "NotApplicable",
    "SEVERITIES",
    "confusion",
    "mutants",
]

# The id under which a check is told that could not be made.
STUMBLED = "D-ERROR"
# In the order in which they are tried; what fits two kinds is the first.
_KINDS = ("config", "slopes", "bias", "table", "rope", "add", "attention", "model")


def diagnose(
    subject: Any, *, kind: str | None = None, seconds: float = 20.0, **options: Any
) -> Report:
    """What a positional encoding is, and what is wrong with it.

    By kind, a subject is called as

    - "table": f(length, d_model) → (L, d)
    - "add": module(x: B×L×d) → x + encoding
    - "rope": f(x: B×H×L×D, positions) → turned x, or f(q, k, positions) → (q, k)
    - "bias": f(q_len, k_len) or f(q_pos, k_pos) → (H, Lq, Lk)
    - "slopes": f(num_heads) → (H,)
    - "attention": f(embeddings: B×L×d) → (B, L, d)
    - "model": f(ids: B×L) → logits (B, L, vocabulary)
    - "config": not at all; a dict, a path or an object of Hugging Face is read

    Another convention is adapted in a line, such as
    ``lambda x, p: mine(x.transpose(1, 2), p).transpose(1, 2)``.

    Args:
        subject: what to look at. It is never called itself, only copies of it; if it
            cannot be copied, its mode, the default dtype and the random state are
            restored.
        kind: one of these words; without it the subject is tried as each.
        seconds: of wall time, at most, for the whole examination.
        options: sizes, where they cannot be guessed (d_model, head_dim, num_heads,
            max_len, vocab_size, axes=(rows, columns)), and `expected`, a dict of what
            the identity should be, such as ``{"base": 5e5, "layout": "interleaved"}``;
            `compile=True` also exports rotations and sums with an open length.

    Returns:
        a `Report`, in which the first finding names the bug.

    Raises:
        TypeError, ValueError: if the subject is of no kind, saying how each was tried
            and what came of it.

    Example:
        >>> def slopes(heads):
        ...     return [2.0 ** (-8 * h / heads) for h in range(1, heads + 1)]
        >>> report = pe_lab.diagnose(slopes)
        >>> report.kind, report.severity, report.findings[0].check
        ('slopes', 'risky', 'D-BIAS')
    """
    seconds = refuse.number("seconds", seconds, 0.1)
    guard, start = Guard(seconds), time.monotonic()
    chosen, adapt = _recognise(subject, kind, options, guard)
    patient = Patient(_name(subject), subject, adapt, guard, options)
    verdicts: list[Verdict] = []
    identity: Mapping[str, Any] = {}
    try:
        identity = _identity(chosen, patient, verdicts)
        for check in chosen.checks:
            verdicts += _made(check, patient)
    except Exhausted:
        verdicts.append(_out_of_time(seconds))
    verdicts += _left_as_it_was(guard)
    spent = time.monotonic() - start
    return Report(patient.name, chosen.name, identity, tuple(verdicts), spent)


def _recognise(
    subject: Any, kind: str | None, options: Mapping[str, Any], guard: Guard
) -> tuple[Kind, Adapter]:
    names = _KINDS if kind is None else (refuse.one_of("kind", kind, _KINDS),)
    tried = {}
    for name in names:
        candidate = load(name)
        adapt = _adapter(candidate, subject, options, guard)
        if not isinstance(adapt, str):
            return candidate, adapt
        tried[name] = f"{candidate.convention}: {adapt}"
    lines = "\n".join(f"  {name}: {why}" for name, why in tried.items())
    raise ValueError(
        f"subject needs to be of a kind that can be examined, got {_name(subject)}. "
        f"Tried:\n{lines}\nAdapt the call by a lambda, and name the kind and sizes, "
        "such as d_model=64, or axes=(rows, columns) of a grid."
    )


def _adapter(
    kind: Kind, subject: Any, options: Mapping[str, Any], guard: Guard
) -> Adapter | str:
    """How the kind calls the subject, or why not; also if that made it stumble."""
    try:
        return kind.recognise(subject, options, guard)
    except Exhausted:
        return "no time was left to try"
    except Exception as error:  # over what a strange subject gave
        return str(Failure(error))


def _identity(kind: Kind, patient: Patient, verdicts: list[Verdict]) -> dict[str, Any]:
    try:
        return kind.identify(patient)
    except Exhausted:
        raise
    except Exception as error:
        verdicts.append(
            NotApplicable(STUMBLED, f"it was not identified: {error!r:.200}")
        )
        return {}


def _made(check: Check, patient: Patient) -> list[Verdict]:
    """What a check found; that it stumbled is told, and the others are still made."""
    try:
        found = check(patient)
    except Exhausted:
        raise
    except Exception as error:
        return [
            NotApplicable(STUMBLED, f"{check.__name__} was not made: {error!r:.200}")
        ]
    return found if isinstance(found, list) else [found]


def load(name: str) -> Kind:
    """The kind of this name."""
    return import_module(f"pe_lab.doctor.{name}").KIND


def _name(subject: Any) -> str:
    if isinstance(subject, Mapping):
        return str(subject.get("model_type", "a dict"))
    if isinstance(subject, str | PathLike):
        return str(subject)
    try:
        plain = getattr(subject, "__name__", None)
    except Exception:  # a name that is computed
        plain = None
    return plain if isinstance(plain, str) else type(subject).__name__


def _out_of_time(seconds: float) -> Finding:
    return Finding(
        "D-TIME",
        "note",
        f"The examination ended after its {seconds:g} s, before all checks were done.",
        remedy="Give more seconds, or smaller sizes.",
    )


def _left_as_it_was(guard: Guard) -> list[Verdict]:
    if guard.mutated is None:
        return [Passed("D-INPUT", "inputs are left as they were")]
    return [
        Finding(
            "D-INPUT",
            "risky",
            f"The subject changes what it is given: {guard.mutated}.",
            remedy="Write into a new tensor; callers may still need the old one.",
            chapter="03 Compute the tables by hand",
        )
    ]


def __getattr__(name: str) -> ModuleType:
    if name in ("confusion", "mutants"):
        return import_module(f"pe_lab.doctor.{name}")
    raise AttributeError(f"pe_lab.doctor has no name {name!r}.")
