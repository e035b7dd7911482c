"""What the checks of layers and models share: runs on copies, and what came of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.guard import Failure, fresh
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import NotApplicable, Verdict
from pe_lab.doctor.sequence import Plan, Sequence, loud, modules_of
from pe_lab.doctor.sequence.decoding import decode, how

_LARGE = 5_000_000  # parameters from which on a copy for each call costs too much


class Unable(Exception):
    """A run that a check needs did not work."""


@dataclass
class Bench:
    """Runs of a patient, each on its own copy, so that no call can spoil the next.

    Args:
        patient: whose subject it is.
        plan: how it is called.
        prototype: a copy with weights large enough to see differences by.
        facts: what the checks found out for each other.
    """

    patient: Patient
    plan: Plan
    prototype: Any
    facts: dict[str, Any] = field(default_factory=dict)

    def sequence(self) -> Sequence:
        """A copy with no memory."""
        large = self.facts.setdefault("large", parameters(self.prototype) > _LARGE)
        return Sequence(self.prototype if large else fresh(self.prototype), self.plan)

    def attempt(self, x: Tensor, *asked: Tensor | None) -> Any:
        """(B, L, channels), or a Failure; asked is mask, positions, documents."""
        return self.patient.guard.call(self.sequence(), x, *asked)

    def run(self, x: Tensor, *asked: Tensor | None) -> Tensor:
        """(B, L, channels).

        Raises:
            Unable: if the subject does not.
        """
        return self.given(self.attempt(x, *asked))

    def decode(self, x: Tensor, sizes: list[int], *asked: Tensor | None) -> Tensor:
        """The outputs of x fed in pieces."""
        return self.given(
            self.patient.guard.call(decode, self.sequence(), x, sizes, *asked)
        )

    def given(self, result: Any) -> Tensor:
        """The result, if it is one."""
        if isinstance(result, Failure):
            raise Unable(str(result))
        assert isinstance(result, Tensor)
        return result

    def x(self, rows: int = 1, length: int | None = None, seed: int = 0) -> Tensor:
        """Random input; of the usual length if none is given."""
        return self.plan.inputs(rows, length or self.plan.length, seed)

    def steps(self, rows: int, length: int | None = None) -> Tensor:
        """Positions (B, L) as they are by default."""
        count = torch.arange(length or self.plan.length)
        return (self.plan.first + count).expand(rows, -1)

    def places(self, mask: Tensor) -> Tensor:
        """Positions that count the real tokens of each row."""
        return self.plan.first + (mask.long().cumsum(-1) - 1).clamp_min(0)

    @property
    def decodes(self) -> bool:
        """Whether it can be fed in pieces."""
        return how(self.prototype, self.plan) is not None

    @property
    def tolerance(self) -> float:
        """Relative to the size of outputs.

        A few hundred roundings of 6e-8, in an order that may differ between runs, stay
        below 1e-4; 16 bits round at 4e-3.
        """
        wide = self.sequence().dtype in (torch.float32, torch.float64)
        return 1e-4 if wide else 0.1

    def expected(self, name: str) -> Any:
        """What the caller says that the identity should be, or None."""
        return (self.patient.options.get("expected") or {}).get(name)


def bench(patient: Patient) -> Bench:
    """The patient's bench, made on first use."""
    if "bench" not in patient.facts:
        plan = patient.renewed().plan  # type: ignore[attr-defined]
        copy = fresh(patient.subject)
        prototype = copy if copy is patient.subject else loud(copy)
        patient.facts["bench"] = Bench(patient, plan, prototype)
    found = patient.facts["bench"]
    assert isinstance(found, Bench)
    return found


def parameters(subject: Any) -> int:
    """How many numbers it learns."""
    every: list[nn.Module] = modules_of(subject)
    return sum(p.numel() for p in {p for m in every for p in m.parameters()})


Examine = Callable[[Bench], "Verdict | list[Verdict]"]


def check(
    name: str, *, after: tuple[str, ...] = ()
) -> Callable[[Examine], Callable[[Patient], Verdict | list[Verdict]]]:
    """A check of a bench as one of a patient.

    Args:
        name: its id.
        after: ids of causes that explain whatever this check would find.
    """

    def decorate(examine: Examine) -> Callable[[Patient], Verdict | list[Verdict]]:
        @wraps(examine)
        def checked(patient: Patient) -> Verdict | list[Verdict]:
            here = bench(patient)
            cause = here.facts.get("cause")
            if cause in ("D-MODE", "D-BATCH", *after):
                return NotApplicable(name, f"explained by {cause}")
            try:
                verdicts = examine(here)
            except Unable as error:
                return NotApplicable(name, str(error))
            _remember(here, verdicts if isinstance(verdicts, list) else [verdicts])
            return verdicts

        return checked

    return decorate


def _remember(here: Bench, verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        if getattr(verdict, "severity", "") == "wrong":
            here.facts.setdefault("cause", verdict.check)
