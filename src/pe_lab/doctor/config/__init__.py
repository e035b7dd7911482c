"""Hugging Face configs on the table: read by `pe_lab.hf`, and nothing of them is run.

What the reader had to assume or leave out it says in notes; each becomes a finding. The
values themselves are looked at in `config_rules` and `config_sizes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from torch import nn

from pe_lab.doctor.config import rules as config_rules
from pe_lab.doctor.config import sizes as config_sizes
from pe_lab.doctor.config.identity import identity_of, text
from pe_lab.doctor.config.tools import NAMES_OF_CHECKS, chapter
from pe_lab.doctor.guard import Failure, Guard
from pe_lab.doctor.kind import Adapter, Kind, Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.hf import Note, Reading, from_config
from pe_lab.hf.config import Config, UnknownModel, read
from pe_lab.hf.keys import load

_REMEDIES = {
    "assumed": "Write {key} into the config.",
    "legacy": "Write {key} by its name of today.",
    "ignored": "Correct the name of {key}, delete it, or run code that reads it.",
    "contradiction": "Keep what the weights were trained with, and delete the other.",
}
# What a check is called that finds an expectation disappointed.
_EXPECTED = {
    "base": "D-BASE", "scaling": "D-BASE", "layout": "D-LAYOUT", "order": "D-LAYOUT",
    "rotary_dim": "D-DIM", "head_dim": "D-DIM", "width": "D-DIM",
    "offset": "D-LEN", "max_len": "D-LEN", "slopes": "D-BIAS", "buckets": "D-BIAS",
}  # fmt: skip


def recognise(subject: Any, options: Mapping[str, Any], guard: Guard) -> Adapter | str:
    """Whether it is a dict, a path or an object of which a scheme can be told."""
    paths = isinstance(subject, str | PathLike)
    if callable(subject) or isinstance(subject, nn.Module | type):
        return "it is called, and a config is not"
    if not (paths or isinstance(subject, Mapping) or hasattr(subject, "__dict__")):
        return f"{type(subject).__name__} holds no keys"
    for step in (load, lambda config: read(config, None, None)):
        failure = guard.call(step, subject)
        unknown = isinstance(getattr(failure, "error", None), UnknownModel)
        if isinstance(failure, Failure) and (step is load or unknown):
            return str(failure.error)
    return _adapt(options)


def _adapt(options: Mapping[str, Any]) -> Adapter:
    def adapt(config: Any) -> Callable[..., Any]:
        def call(**asked: Any) -> Reading:
            return from_config(config, length=options.get("max_len"), **asked)

        return call

    return adapt


def identify(patient: Patient) -> dict[str, Any]:
    """What the config says that the model is."""
    keys = patient.guard.call(read, patient.subject, None, None)
    reading = patient.call()
    patient.facts |= {"keys": keys, "reading": reading}
    identity = {"scheme": "not read"}
    if isinstance(keys, Config) and isinstance(reading, Reading):
        identity = identity_of(keys, reading)
    patient.facts["identity"] = identity
    return identity


def check_readable(patient: Patient) -> Verdict:
    """The keys make an encoding."""
    reading = patient.facts["reading"]
    if isinstance(reading, Reading):
        return Passed("D-CONFIG", "the keys make an encoding")
    if "cause" in patient.facts:
        return NotApplicable("D-CONFIG", f"explained by {patient.facts['cause']}")
    return Finding(
        "D-CONFIG",
        "wrong",
        f"No encoding can be made of it: {reading.error}",
        remedy="Mend that key; what is needed stands in the sentence.",
        chapter=chapter(patient),
    )


def check_notes(patient: Patient) -> list[Verdict]:
    """What was assumed, derived, contradictory or ignored while it was read."""
    reading = patient.facts["reading"]
    if not isinstance(reading, Reading):
        return [NotApplicable("D-CONFIG", "it could not be read")]
    found: list[Verdict] = [_finding(note, patient) for note in reading.notes]
    if all(note.severity == "note" for note in reading.notes):
        found.append(Passed("D-CONFIG", "no key contradicts another, or goes unread"))
    return found


def _finding(note: Note, patient: Patient) -> Finding:
    remedy = _REMEDIES.get(note.sort, "") if note.key else ""
    return Finding(
        NAMES_OF_CHECKS.get(note.key, "D-CONFIG"),
        note.severity,
        str(note),
        remedy=remedy.format(key=note.key),
        chapter=chapter(patient),
    )


def check_expected(patient: Patient) -> list[Verdict]:
    """It is what the caller expects it to be."""
    wanted = dict(patient.options.get("expected") or {})
    identity = patient.facts["identity"]
    if not wanted or identity["scheme"] == "not read":
        return [NotApplicable("D-CONFIG", "nothing was expected, or nothing read")]
    found: list[Verdict] = [
        Finding(
            _EXPECTED.get(name, "D-CONFIG"),
            "wrong",
            f"{name} is {text(identity.get(name, 'not there'))}, where {text(value)} "
            "is expected.",
            remedy=f"Write the keys that make {name} {text(value)}.",
            chapter=chapter(patient),
        )
        for name, value in wanted.items()
        if not _agree(identity.get(name), value)
    ]
    return found or [Passed("D-CONFIG", "it is what was expected")]


def _agree(got: Any, wanted: Any) -> bool:
    numbers = [isinstance(v, int | float) for v in (got, wanted)]
    if all(numbers):
        return math.isclose(got, wanted, rel_tol=1e-6)
    return str(got).lower() == str(wanted).lower()


KIND = Kind(
    name="config",
    convention="a Hugging Face config: dict, path of config.json or its folder, object",
    recognise=recognise,
    identify=identify,
    checks=(
        *config_rules.CHECKS,
        *config_sizes.CHECKS,
        check_readable,
        check_notes,
        check_expected,
    ),
)
