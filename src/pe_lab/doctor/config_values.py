"""The values of a config: bases, factors, lists, widths, tables that cannot be meant.

They are looked at before the config is read, so that what makes it unreadable is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

from pe_lab.doctor.config_identity import blocks
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.hf import Reading
from pe_lab.hf.config import Config
from pe_lab.hf.rotary import rope_type
from pe_lab.hf.schemes import scheme

_LENGTH = "original_max_position_embeddings"
# Which check a note is of, by the key that it is about; D-CONFIG for all others.
CHECKS = {
    "rope_theta": "D-BASE", "rope_ratio": "D-BASE", "rope_local_base_freq": "D-BASE",
    "local_rope_theta": "D-BASE", "partial_rotary_factor": "D-DIM", "head_dim": "D-DIM",
    "mrope_section": "D-DIM", "qk_rope_head_dim": "D-DIM", "pad_token_id": "D-LEN",
    "rope_interleave": "D-LAYOUT", "rotary_emb_interleaved": "D-LAYOUT",
    "max_position_embeddings": "D-LEN",
}  # fmt: skip
_CHAPTERS = {
    "rope": "05 Rotate by k",
    "learned": "03 Compute the tables by hand",
    "sinusoidal": "03 Compute the tables by hand",
}
USUAL = 10000.0  # the base of the first sinusoids, and of whatever forgot to read one
# Texts beyond this length are not trained at the base 10000 without any scaling.
_LONG = 32768


class Problems:
    """Findings of one check, with its id and chapter filled in."""

    def __init__(self, patient: Patient, check: str) -> None:
        self.patient, self.check = patient, check
        self.found: list[Verdict] = []

    def add(
        self, severity: str, message: str, remedy: str, value: float | None = None
    ) -> None:
        """One more; what is wrong explains that the config cannot be read."""
        place = chapter(self.patient)
        finding = Finding(
            self.check, severity, message, value, remedy=remedy, chapter=place
        )
        self.found.append(finding)
        if severity == "wrong":
            self.patient.facts.setdefault("cause", self.check)

    def or_passed(self, message: str) -> list[Verdict]:
        """The findings, or that there are none."""
        return self.found or [Passed(self.check, message)]


def chapter(patient: Patient) -> str:
    """Where the book explains the scheme of this config."""
    keys = patient.facts["keys"]
    usual = keys.family.scheme if isinstance(keys, Config) else ""
    return _CHAPTERS.get(usual, "06 Score position against position")


def _turning(patient: Patient) -> Config | None:
    """The keys, if they are of a model that rotates."""
    keys = patient.facts["keys"]
    rotates = isinstance(keys, Config) and keys.family.scheme == "rope"
    return keys if rotates and not keys.values.get("alibi") else None


def _is_number(value: Any) -> bool:
    plain = isinstance(value, Real) and not isinstance(value, bool)
    return plain and not (isinstance(value, int) and abs(value) > 2**62)


def _tried(function: Callable[[Config], Any], keys: Config) -> Any:
    """What the reader makes of the keys, unheard; None if it refuses them."""
    try:
        return function(_silent(keys))
    except (TypeError, ValueError):
        return None


def check_base(patient: Patient) -> list[Verdict]:
    """Every base is a number above 1, and not another family's by accident."""
    keys = _turning(patient)
    if keys is None:
        return [NotApplicable("D-BASE", "it does not rotate, or cannot be read")]
    problems = Problems(patient, "D-BASE")
    for name, value in _bases(keys):
        if not _is_number(value) or not 1 < value < math.inf:
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
    longest, rule = keys.get("max_length"), _tried(rope_type, keys)
    long = _is_number(longest) and longest > _LONG and rule == "default"
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
    keys = _turning(patient)
    if keys is None:
        return [NotApplicable("D-CONFIG", "it does not rotate, or cannot be read")]
    problems = Problems(patient, "D-CONFIG")
    for block in blocks(keys).values():
        factor = block.rope.get("factor")
        rule = block.rope.get("rope_type") or block.rope.get("type") or "default"
        if factor is None:
            continue
        if not _is_number(factor) or not 1 <= factor < math.inf:
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


def _consequence(rule: str, factor: Any) -> str:
    if not _is_number(factor) or rule != "dynamic":
        return ""
    doubled = factor + 1  # f·L/M − (f − 1) at L = 2M
    if doubled > 0:
        return "; the base shrinks where it should grow"
    return f"; at twice the trained length the base is times a power of {doubled:g}"


def check_lists(patient: Patient) -> list[Verdict]:
    """LongRoPE's lists have a factor for each pair, the long ones the larger."""
    keys = _turning(patient)
    given = [] if keys is None else list(_lists(keys))
    if keys is None or not given:
        return [NotApplicable("D-CONFIG", "there are no lists of factors")]
    problems, pairs = Problems(patient, "D-CONFIG"), _pairs(keys)
    missing = {"short_factor", "long_factor"} - {name for name, _ in given}
    for name in sorted(missing if _tried(rope_type, keys) == "longrope" else ()):
        problems.add(
            "wrong",
            f"{name} is missing, and LongRoPE reads one list up to the trained length "
            "and the other beyond.",
            f"Copy {name} from the config that came with the weights.",
        )
    for name, factors in given:
        if not isinstance(factors, list | tuple) or not all(map(_is_number, factors)):
            problems.add(
                "wrong", f"{name} is no list of numbers.", "Write one per pair."
            )
        elif pairs is not None and len(factors) != pairs:
            problems.add(
                "wrong",
                f"{name} has {len(factors)} factors for the {pairs} pairs that turn.",
                "Write one factor for each pair, the fastest first.",
                float(len(factors)),
            )
        elif min(factors) <= 0:
            problems.add(
                "wrong",
                f"{name} holds {min(factors):g}; frequencies are divided by factors.",
                "Factors are above 0, and mostly at least 1.",
            )
    found = dict(given)
    if not problems.found and len(found) == 2:
        short, long = (sum(found[name]) for name in ("short_factor", "long_factor"))
        if short > long:
            problems.add(
                "risky",
                "short_factor slows down more than long_factor: they look exchanged.",
                "Give long texts the larger factors.",
            )
    return problems.or_passed("there is a factor for each pair")


def _lists(keys: Config) -> Iterator[tuple[str, Any]]:
    for block in blocks(keys).values():
        for name in ("short_factor", "long_factor"):
            if block.rope.get(name) is not None:
                yield name, block.rope.get(name)


def _pairs(keys: Config) -> int | None:
    """How many pairs turn, as far as plain keys say it."""
    dim, share = _head_dim(keys), _share(keys)
    if dim is None or share is None or not 0 < share <= 1:
        return None
    return (int(dim * share) + 1) // 2


def _head_dim(keys: Config) -> int | None:
    if keys.family.mla and keys.get("qk_rope_head_dim") is not None:
        dim = keys.get("qk_rope_head_dim")
        return dim if isinstance(dim, int) else None
    dim = _tried(Config.head_dim, keys)
    return dim if isinstance(dim, int) else None


def _silent(keys: Config) -> Config:
    """The same keys, of which no note reaches anybody."""
    return Config(
        keys.values, [], keys.model_type, keys.family, keys.rope, keys.length, keys.part
    )


def _share(keys: Config) -> float | None:
    """The share of channels that is asked for, whoever reads it."""
    asked = [block.rope.get("partial_rotary_factor") for block in blocks(keys).values()]
    if keys.family.partial is None or keys.family.mla:
        return 1.0
    for value in (*asked, keys.get("partial"), keys.family.partial):
        if value is not None:
            return float(value) if _is_number(value) else None
    return None


def check_width(patient: Patient) -> list[Verdict]:
    """The channels that turn are an even number of those that a head has."""
    keys = _turning(patient)
    if keys is None:
        return [NotApplicable("D-DIM", "it does not rotate, or cannot be read")]
    problems, dim = Problems(patient, "D-DIM"), _head_dim(keys)
    share, channels = _share(keys), keys.get("rotary_dim")
    if share is not None and not 0 <= share <= 1:
        problems.add(
            "wrong",
            f"{keys.name('partial')} is {share:g}, and a share of channels is between "
            "0 and 1.",
            "Write rotary width / head_dim.",
            share,
        )
    elif dim is not None and _is_number(channels) and channels > dim:
        problems.add(
            "wrong",
            f"rotary_dim {channels} is more than the {dim} channels of a head.",
            "rotary_dim counts channels of one head, not of the model.",
            float(channels),
        )
    elif dim is not None and dim % 2 and share == 1 and channels is None:
        problems.add(
            "wrong",
            f"A head has {dim} channels, an odd number, and channels turn in pairs.",
            "Choose hidden_size and num_attention_heads so that head_dim is even.",
            float(dim),
        )
    return problems.or_passed("an even number of a head's channels turns")


def check_table(patient: Patient) -> list[Verdict]:
    """A learned table has a row for each token, and those that padding takes away."""
    keys = patient.facts["keys"]
    if not isinstance(keys, Config) or _tried(scheme, keys) != "learned":
        return [NotApplicable("D-LEN", "there is no table of positions")]
    problems, rows, offset = Problems(patient, "D-LEN"), keys.get("max_length"), 0
    if not isinstance(rows, int) or isinstance(rows, bool):
        return [NotApplicable("D-LEN", "the number of rows is not given")]
    name = keys.name("max_length")
    if keys.family.offset < 0:
        pad = keys.get("pad")
        offset = (pad if isinstance(pad, int) else 1) + 1
        _reserved(problems, name, rows, offset)
    elif keys.family.offset and _is_power(rows - keys.family.offset):
        offset = keys.family.offset
        problems.add(
            "risky",
            f"{name} {rows} looks as if it had the {offset} rows in it that this "
            f"family's code adds itself: its table gets {rows + offset}.",
            f"Write {rows - offset}, the number of positions.",
            float(rows),
        )
    return problems.or_passed("the table has a row for each position")


def _reserved(problems: Problems, name: str, rows: int, offset: int) -> None:
    """fairseq's families: ids begin after pad_token_id, in a table no longer for it."""
    left = rows - offset
    if left <= 0 or left < rows // 2:
        problems.add(
            "wrong" if left <= 0 else "risky",
            f"Positions begin at pad_token_id + 1 = {offset}, so of {name} {rows} rows "
            f"{max(left, 0)} are left for tokens.",
            "Move the padding token to a small id, or enlarge the table.",
            float(max(left, 0)),
        )
    elif _is_power(rows) and rows >= 16:
        problems.add(
            "risky",
            f"{name} {rows} holds {left} tokens, because positions begin at "
            f"pad_token_id + 1 = {offset}; {rows} tokens need {rows + offset} rows.",
            f"Write {rows + offset}, or cut texts at {left} tokens.",
            float(left),
        )


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def check_reach(patient: Patient) -> Verdict:
    """Texts as long as the caller said fit."""
    keys, wanted = patient.facts["keys"], patient.options.get("max_len")
    reading = patient.facts["reading"]
    if wanted is None or not isinstance(reading, Reading):
        return NotApplicable("D-LEN", "no max_len was given, or nothing read")
    learned = getattr(reading.encoding, "max_len", None)
    reach = learned or keys.get("max_length")
    if reach is None or wanted <= reach:
        return Passed("D-LEN", "texts of max_len fit", float(wanted), reach)
    return Finding(
        "D-LEN",
        "wrong" if learned else "risky",
        f"Texts of {wanted} tokens do not fit: the config says {reach}.",
        float(wanted),
        float(reach),
        "Cut the texts, enlarge the table, or extend by a rule and train on.",
        chapter(patient),
    )


CHECKED: tuple[Callable[[Patient], Any], ...] = (
    check_base,
    check_factor,
    check_width,
    check_lists,
    check_table,
    check_reach,
)
