"""What a stored run looks like: checked when it is written and when it is read."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from .results import Curve, Profile, Run

Series = dict[str, type[Curve] | type[Profile]]
SERIES: Series = {"curves": Curve, "profiles": Profile}
MAPPINGS = ("config", "curves", "final", "provenance", "profiles")
WORDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}
OPTIONAL = ("provenance", "profiles")  # older files have no profiles


def run_from(content: Any) -> Run:
    """A run from its JSON form.

    Raises:
        ValueError: the first thing that is wrong with it, as the end of a sentence that
            begins with a file's name.
    """
    _is("run", content, dict)
    known = [field.name for field in fields(Run)]
    for name in known:
        if name not in content and name not in OPTIONAL:
            raise ValueError(f"lacks the entry {name!r} of a run")
    for name in content:
        if name not in known:
            raise ValueError(f"has an entry {name!r} that no run has")
    _is("variant", content["variant"], str)
    _is("seed", content["seed"], int)
    for name in MAPPINGS:
        _is(name, content.get(name, {}), dict)
    for name in ("config", "provenance"):
        _finite(name, content.get(name, {}))
    for metric, value in content["final"].items():
        _number(f"final {metric}", value)
    made = {
        name: {metric: _series(metric, value, kind) for metric, value in given.items()}
        for name, kind in SERIES.items()
        for given in [content.get(name, {})]
    }
    return Run(**{**content, **made})


def _series(metric: str, value: Any, kind: type[Any]) -> Any:
    """A curve or a profile: as many values as places, all of them numbers."""
    places, values = (field.name for field in fields(kind))
    _is(metric, value, dict)
    if value.keys() != {places, values}:
        raise ValueError(f"has {metric} without {places} and {values}")
    for name, check in ((places, _whole), (values, _number)):
        _is(f"{name} of {metric}", value[name], list)
        for entry in value[name]:
            check(f"{name} of {metric}", entry)
    if len(value[places]) != len(value[values]):
        raise ValueError(
            f"has {len(value[places])} {places} and {len(value[values])} values "
            f"of {metric}"
        )
    return kind(**value)


def _is(name: str, value: Any, kind: type) -> None:
    """Refuse another type; True is no int."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"has {value!r:.60} as {name}, where {WORDS[kind]} is needed")


def _whole(name: str, value: Any) -> None:
    """Refuse what is no whole number."""
    _is(name, value, int)


def _number(name: str, value: Any) -> None:
    """Refuse what is no finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"has {value!r:.60} as {name}, where a number is needed")
    if not math.isfinite(value):
        raise ValueError(f"has {value} as {name}, where a finite number is needed")


def _finite(name: str, value: Any) -> None:
    """Refuse infinity and nan wherever they are: JSON has no word for them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _finite(f"{name} {key}", inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _finite(name, inner)
    elif isinstance(value, float):
        _number(name, value)
