"""How often the doctor is right: every mutant and every healthy patient, examined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pe_lab.doctor import Report, diagnose
from pe_lab.doctor.mutants import Healthy, Mutant, healthy, mutants

ALARMS = ("wrong", "risky")


@dataclass(frozen=True)
class Outcome:
    """What came of one patient.

    Args:
        name, kind: of the patient.
        sick: whether it has a bug.
        alarm: whether a finding was wrong or risky.
        first: the check of the first finding, "" without any.
        named: whether that is a right name of the bug.

    Example:
        >>> ours = ("ours", "rope", False, False, "", False)
        >>> pe_lab.doctor.confusion.Outcome(*ours).sick
        False
    """

    name: str
    kind: str
    sick: bool
    alarm: bool
    first: str
    named: bool


def outcomes(patients: Iterable[Mutant | Healthy] | None = None) -> Iterator[Outcome]:
    """Examine patients one after the other.

    Args:
        patients: mutants and healthy ones, by default the whole catalogue.

    Yields:
        an `Outcome` for each.

    Example:
        >>> patients = pe_lab.doctor.mutants.mutants("slopes")[:1]
        >>> [outcome.alarm for outcome in pe_lab.doctor.confusion.outcomes(patients)]
        [True]
    """
    everyone: Iterable[Mutant | Healthy] = patients or ()
    if patients is None:
        everyone = (*mutants(), *healthy())
    for patient in everyone:
        report = diagnose(patient.make(), kind=patient.kind, **patient.options)
        yield judged(patient, report)


def judged(patient: Mutant | Healthy, report: Report) -> Outcome:
    """What a report comes to for a patient whose health is known.

    Args:
        patient: a mutant or a healthy one.
        report: of `pe_lab.diagnose` on it.

    Returns:
        an `Outcome`.

    Example:
        >>> patient = pe_lab.doctor.mutants.healthy("slopes")[0]
        >>> report = pe_lab.diagnose(patient.make(), kind="slopes", **patient.options)
        >>> pe_lab.doctor.confusion.judged(patient, report).alarm
        False
    """
    alarm = report.severity in ALARMS
    first = report.findings[0].check if report.findings else ""
    sick = isinstance(patient, Mutant)
    named = isinstance(patient, Mutant) and alarm and first in patient.checks
    return Outcome(patient.name, patient.kind, sick, alarm, first, named)


def rates(results: Iterable[Outcome]) -> dict[str, float]:
    """How often the doctor was right.

    Args:
        results: what came of the patients.

    Returns:
        "detected" and "named", shares of the mutants, and "false alarms", of the
        healthy; 0 where there was none.

    Example:
        >>> from pe_lab.doctor.confusion import Outcome, rates
        >>> rates([Outcome("a mutant", "rope", True, True, "D-BASE", True)])
        {'detected': 1.0, 'named': 1.0, 'false alarms': 0.0}
    """
    results = list(results)
    sick = [r for r in results if r.sick]
    well = [r for r in results if not r.sick]
    return {
        "detected": sum(r.alarm for r in sick) / max(1, len(sick)),
        "named": sum(r.named for r in sick) / max(1, len(sick)),
        "false alarms": sum(r.alarm for r in well) / max(1, len(well)),
    }
