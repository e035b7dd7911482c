"""The doctor's patients: correct encodings with one bug each, and without any.

Each kind has a file with `MUTANTS` and `HEALTHY`. A mutant is the smallest code that
has the bug, written as people write it; `pe_lab.doctor.confusion` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from pe_lab import refuse

KINDS = ("table", "add", "rope", "bias", "slopes", "attention", "model", "config")


@dataclass(frozen=True)
class Mutant:
    """Something with one bug.

    Args:
        name: what is wrong with it, in a few words.
        kind: as what `pe_lab.diagnose` examines it.
        make: a fresh one.
        checks: the ids that name this bug rightly, when they come first.
        source: a public report, "repository#number", or "" for a systematic mutation.
        smallest: the smallest input on which it fails, and its right value, in words.
        options: what `diagnose` is told besides, such as sizes and `expected`.

    Example:
        >>> patient = pe_lab.doctor.mutants.mutants("slopes")[0]
        >>> report = pe_lab.diagnose(patient.make(), kind="slopes", **patient.options)
        >>> report.findings[0].check in patient.checks
        True
    """

    name: str
    kind: str
    make: Callable[[], Any]
    checks: tuple[str, ...]
    source: str = ""
    smallest: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Healthy:
    """Something correct, of a convention that is not everybody's: no false alarm.

    Args:
        name: what it is.
        kind, make, options: as for `Mutant`.
        identity: what the doctor must say that it is; other entries are free.

    Example:
        >>> patient = pe_lab.doctor.mutants.healthy("config")[0]
        >>> patient.name, patient.identity["base"]
        ('Llama 2 7B', 10000.0)
    """

    name: str
    kind: str
    make: Callable[[], Any]
    identity: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def mutants(kind: str | None = None) -> tuple[Mutant, ...]:
    """Subjects with one bug each.

    Args:
        kind: as for `pe_lab.diagnose`; without it those of all kinds.

    Returns:
        a tuple of `Mutant`.

    Raises:
        ValueError: for a kind that there is not.

    Example:
        >>> len(pe_lab.doctor.mutants.mutants("config")) > 70
        True
    """
    return tuple(m for name in _chosen(kind) for m in _file(name).MUTANTS)


def healthy(kind: str | None = None) -> tuple[Healthy, ...]:
    """Subjects without a bug, many of an unusual convention.

    Args, Raises: as for `mutants`.

    Returns:
        a tuple of `Healthy`.

    Example:
        >>> {patient.kind for patient in pe_lab.doctor.mutants.healthy("slopes")}
        {'slopes'}
    """
    return tuple(h for name in _chosen(kind) for h in _file(name).HEALTHY)


def _chosen(kind: str | None) -> tuple[str, ...]:
    return KINDS if kind is None else (refuse.one_of("kind", kind, KINDS),)


def _file(name: str) -> Any:
    return import_module(f"pe_lab.doctor.mutants.{name}")
