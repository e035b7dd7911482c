"""Let the doctor name a mistake that no exercise foresees.

An answer that is a table, a rotation, slopes … can be looked at as `pe_lab.diagnose`
looks at anybody's code. It is asked last: after the mistakes that the exercise knows,
and before the signs, factors and shifts of `compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .compare import Finding

ALARMS = ("wrong", "risky")


def _as_it_is(answer: Any) -> Any:
    return answer


@dataclass(frozen=True, eq=False)
class Examined:
    """As what the doctor looks at an answer.

    Args:
        kind: "table", "add", "rope", "bias" or "slopes"; see `pe_lab.diagnose`.
        adapt: from the answer, a function, to something that is called as that kind.
        options: what `diagnose` is told besides, such as sizes and `expected`.
        seconds: of wall time, at most.

    Example:
        >>> table = lambda length, width: pe_lab.sinusoidal(length, width, base=100.0)
        >>> paper = {"expected": {"base": 1e4}}
        >>> pe_lab.exercises.Examined("table", options=paper).finding(table).kind
        'D-BASE of the doctor'
    """

    kind: str
    adapt: Callable[[Any], Any] = _as_it_is
    options: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 3.0

    def finding(self, answer: Any) -> Finding | None:
        """The doctor's first alarm.

        Args:
            answer: the reader's function.

        Returns:
            the kind and the message; None without an alarm, or where it cannot look.
        """
        from pe_lab.doctor import diagnose  # it is large, and seldom needed

        try:
            report = diagnose(
                self.adapt(answer),
                kind=self.kind,
                seconds=self.seconds,
                **self.options,
            )
        except (TypeError, ValueError):  # it is not of this kind at all
            return None
        alarms = [f for f in report.findings if f.severity in ALARMS]
        if not alarms:
            return None
        first = alarms[0]
        return Finding(f"{first.check} of the doctor", first.message)
