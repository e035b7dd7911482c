"""The rules of a rotation in a config: bases, factors, lists that cannot be meant."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pe_lab.doctor.config.tools import (
    LENGTH,
    Problems,
    blocks,
    head_dim,
    is_number,
    lists,
    share_of,
    tried,
    turning,
)
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import NotApplicable, Verdict
from pe_lab.hf.config import Config
from pe_lab.hf.rotary import rope_type

USUAL = 10000.0  # the base of the first sinusoids, and of whatever forgot to read one
# Texts beyond this length are not trained at the base 10000 without any scaling.
_LONG = 32768
# Turns over the trained length from which on a pair is scaled, and is kept.
_RAMPS = (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast"))


def check_base(patient: Patient) -> list[Verdict]:
    """Every base is a number above 1, and not another family's by accident."""
    keys = turning(patient)
    if keys is None:
        return [NotApplicable("D-BASE", "it does not rotate, or cannot be read")]
    problems = Problems(patient, "D-BASE")
    for name, value in _bases(keys):
        if not is_number(value) or not 1 < value < math.inf:
            problems.add(
                "wrong",
                f"{name} is {value!r:.40}; a base is a finite number above 1, so that "
                "wavelengths grow from pair to pair.",
                "Write the base that the weights were trained with; the family's is "
                f"{keys.family.base:g}.",
            )
        elif value < 1000:
            problems.add(
                "differs",
                f"{name} {value:g} gives no wavelength above {math.tau * value:.0f} "
                "positions, which is short for text.",
                "Leave it, if the weights were trained so.",
                float(value),
            )
    if not problems.found:
        _compare_bases(keys, problems)
    return problems.or_passed("every base is a number above 1")


def _bases(keys: Config) -> Iterator[tuple[str, Any]]:
    """All bases that are given, by the names of their keys."""
    given: list[tuple[str, Any]] = [(keys.name("base"), keys.get("base"))]
    for kind, block in blocks(keys).items():
        name = f"{kind}.rope_theta" if kind else "rope_theta"
        given.append((name, block.rope.get("rope_theta")))
    if keys.family.local:
        local = keys.family.local[0]
        given.append((local, keys.values.get(local)))
    yield from ((name, value) for name, value in given if value is not None)


def _compare_bases(keys: Config, problems: Problems) -> None:
    given, usual = dict(_bases(keys)), keys.family.base
    local = "sliding_attention.rope_theta"
    if local not in given and keys.family.local:
        local = keys.family.local[0]
    whole = given.get("full_attention.rope_theta", given.get(keys.name("base"), usual))
    if given.get(local, 0) > whole:
        problems.add(
            "risky",
            f"{local} {given[local]:g} is above the base {whole:g} of the layers that "
            "see everything: the two look exchanged.",
            "Give the layers that see a window the smaller base.",
        )
    elif whole == USUAL and usual > USUAL and given:
        problems.add(
            "differs",
            f"The base is {whole:g}, and {usual:g} is the family's: {whole:g} is what "
            "code falls back to that looked for the key in the wrong place.",
            "Compare it with the config that came with the weights.",
        )
    elif not given and usual == USUAL and keys.get("rope_ratio") is None:
        _assumed_base(keys, problems)


def _assumed_base(keys: Config, problems: Problems) -> None:
    """No base at all: right for old models with short texts only."""
    longest, rule = keys.get("max_length"), tried(rope_type, keys)
    long = is_number(longest) and longest > _LONG and rule == "default"
    if long or rule == "llama3":
        why = f"texts of {longest} tokens" if long else "the rule 'llama3'"
        problems.add(
            "risky",
            f"rope_theta is not given, and {USUAL:g} is assumed, which no model with "
            f"{why} was trained with.",
            "Copy rope_theta from the config that came with the weights.",
        )


def check_factor(patient: Patient) -> list[Verdict]:
    """Factors extend: they are numbers of at least 1."""
    keys = turning(patient)
    if keys is None:
        return [NotApplicable("D-CONFIG", "it does not rotate, or cannot be read")]
    problems = Problems(patient, "D-CONFIG")
    for block in blocks(keys).values():
        factor = block.rope.get("factor")
        rule = block.rope.get("rope_type") or block.rope.get("type") or "default"
        if factor is None:
            continue
        if not is_number(factor) or not 1 <= factor < math.inf:
            problems.add(
                "wrong",
                f"factor of {rule!r} is {factor!r:.40}. It is the new length over the "
                f"trained one, at least 1{_consequence(rule, factor)}.",
                "Write how much longer texts get; for no extension, delete the rule.",
            )
        elif factor == 1 and rule != "default":
            problems.add(
                "note",
                f"factor 1 makes the rule {rule!r} change nothing.",
                "Write the factor that is meant, or delete the rule.",
            )
    return problems.or_passed("every factor is at least 1")


def check_ramp(patient: Patient) -> list[Verdict]:
    """Slow pairs make fewer turns than fast ones; an implied factor does something."""
    keys = turning(patient)
    if keys is None:
        return [NotApplicable("D-CONFIG", "it does not rotate, or cannot be read")]
    problems = Problems(patient, "D-CONFIG")
    for block in blocks(keys).values():
        for slow, fast in _RAMPS:
            _look_at_ramp(problems, block, slow, fast)
        _look_at_implied_factor(problems, keys, block)
    return problems.or_passed("pairs are scaled from the slow ones on")


def _look_at_ramp(problems: Problems, block: Config, slow: str, fast: str) -> None:
    low, high = block.rope.get(slow), block.rope.get(fast)
    if is_number(low) and is_number(high) and low > high:
        problems.add(
            "wrong",
            f"{slow} {low:g} is above {fast} {high:g}: slow pairs, which are scaled, "
            "turn fewer times over the trained length than fast ones, which are kept. "
            "The two look exchanged.",
            f"Write the smaller number as {slow}.",
        )


def _look_at_implied_factor(problems: Problems, keys: Config, block: Config) -> None:
    longest, trained = keys.get("max_length"), block.rope.get(LENGTH)
    trained = keys.get(LENGTH) if trained is None else trained
    rule = block.rope.get("rope_type") or block.rope.get("type")
    if rule == "yarn" and block.rope.get("factor") is None and longest == trained:
        problems.add(
            "risky",
            f"The rule 'yarn' has no factor, and {keys.name('max_length')} over "
            f"{LENGTH} gives 1: nothing is extended.",
            "Write factor, how much longer texts get; or delete the rule.",
        )


def _consequence(rule: str, factor: Any) -> str:
    if not is_number(factor) or rule != "dynamic":
        return ""
    doubled = factor + 1  # f·L/M − (f − 1) at L = 2M
    if doubled > 0:
        return "; the base shrinks where it should grow"
    return f"; at twice the trained length the base is times a power of {doubled:g}"


def check_mscale(patient: Patient) -> list[Verdict]:
    """DeepSeek's pair of numbers is not negative."""
    keys = turning(patient)
    given = [
        (name, block.rope.get(name))
        for block in ([] if keys is None else blocks(keys).values())
        for name in ("mscale", "mscale_all_dim")
    ]
    if not any(is_number(value) for _, value in given):
        return [NotApplicable("D-CONFIG", "there is no mscale")]
    problems = Problems(patient, "D-CONFIG")
    for name, value in given:
        if is_number(value) and value < 0:
            problems.add(
                "wrong",
                f"{name} {value:g} makes scores smaller with every extension.",
                "Numbers of released models are from 0 to 1.",
                float(value),
            )
    return problems.or_passed("mscale is not negative")


def check_lists(patient: Patient) -> list[Verdict]:
    """LongRoPE's lists have a factor for each pair, the long ones the larger."""
    keys = turning(patient)
    given = {} if keys is None else dict(lists(keys))
    if keys is None or not given:
        return [NotApplicable("D-CONFIG", "there are no lists of factors")]
    problems, pairs = Problems(patient, "D-CONFIG"), _pairs(keys)
    missing = {"short_factor", "long_factor"} - given.keys()
    for name in sorted(missing if tried(rope_type, keys) == "longrope" else ()):
        problems.add(
            "wrong",
            f"{name} is missing, and LongRoPE reads one list up to the trained length "
            "and the other beyond.",
            f"Copy {name} from the config that came with the weights.",
        )
    for name, factors in given.items():
        _look_at_list(problems, name, factors, pairs)
    ordered = problems.found or len(given) < 2
    if not ordered and sum(given["short_factor"]) > sum(given["long_factor"]):
        problems.add(
            "risky",
            "short_factor slows down more than long_factor: they look exchanged.",
            "Give long texts the larger factors.",
        )
    return problems.or_passed("there is a factor for each pair")


def _look_at_list(
    problems: Problems, name: str, factors: Any, pairs: int | None
) -> None:
    if not isinstance(factors, list | tuple) or not all(map(is_number, factors)):
        problems.add("wrong", f"{name} is no list of numbers.", "Write one per pair.")
    elif not factors or len(factors) != (pairs or len(factors)):
        problems.add(
            "wrong",
            f"{name} has {len(factors)} factors for the {pairs or 'many'} pairs that "
            "turn.",
            "Write one factor for each pair, the fastest first.",
            float(len(factors)),
        )
    elif min(factors) <= 0:
        problems.add(
            "wrong",
            f"{name} holds {min(factors):g}; frequencies are divided by factors.",
            "Factors are above 0, and mostly at least 1.",
        )


def _pairs(keys: Config) -> int | None:
    """How many pairs turn, as far as plain keys say it."""
    dim, share = head_dim(keys), share_of(keys)
    if dim is None or share is None or not 0 < share <= 1:
        return None
    return (int(dim * share) + 1) // 2


CHECKS = (check_base, check_factor, check_ramp, check_mscale, check_lists)
