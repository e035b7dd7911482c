"""Kinds of subjects: how each is recognised, called, identified and checked.

A kind is one module with a `KIND`. Its checks are functions of a `Patient`; they come
in the order in which a cause comes before its effects, and the first one that is wrong
names the bug.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pe_lab.doctor.guard import Guard, fresh
from pe_lab.doctor.report import Verdict

# From a copy of the subject to the call that all checks of its kind use.
Adapter = Callable[[Any], Callable[..., Any]]
Check = Callable[["Patient"], "Verdict | list[Verdict]"]


@dataclass
class Patient:
    """A subject on the table: copies of it are called, never itself.

    Args:
        name: for the report.
        subject: what the caller gave.
        adapt: makes the kind's one call from a copy of the subject.
        guard: in which every call happens.
        options: sizes and expectations that the caller gave, by name.
        facts: what was found out so far, by checks and by `identify`.
    """

    name: str
    subject: Any
    adapt: Adapter
    guard: Guard
    options: Mapping[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._call = self.renewed()

    def call(self, *args: Any, **options: Any) -> Any:
        """The kind's call, on one copy with its memory: a result or a Failure."""
        return self.guard.call(self._call, *args, **options)

    def renewed(self, change: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
        """The kind's call on a new copy, such as `change` (a cast, a mode) makes it.

        Call it through `guard.call`.
        """
        copy = fresh(self.subject)
        return self.adapt(copy if change is None else change(copy))


@dataclass(frozen=True)
class Kind:
    """A kind of subject.

    Args:
        name: "table", "add", "rope", "bias", "slopes", "attention", "model", "config".
        convention: how the subject is called, in words, for error messages.
        recognise: from (subject, options, guard) to its adapter, or to a sentence that
            says why it is none of this kind.
        identify: what the patient is, from the outside in.
        checks: causes before effects.
    """

    name: str
    convention: str
    recognise: Callable[[Any, Mapping[str, Any], Guard], Adapter | str]
    identify: Callable[[Patient], dict[str, Any]]
    checks: tuple[Check, ...]
