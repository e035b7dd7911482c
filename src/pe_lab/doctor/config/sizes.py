"""The sizes in a config: widths, lengths, rows of tables, and numbers nobody reads."""

from __future__ import annotations

from pe_lab.doctor.config.tools import (
    LENGTH,
    Problems,
    blocks,
    chapter,
    head_dim,
    is_number,
    lists,
    share_of,
    tried,
    turning,
)
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.hf import FAMILIES, Reading
from pe_lab.hf.config import Config
from pe_lab.hf.keys import NAMES
from pe_lab.hf.schemes import scheme

# Numbers about rotations that the reader knows, under all their names.
_READ = {name for names in NAMES.values() for name in names.split()} | {
    "rotary_dim", "rope_ratio", "rope_local_base_freq", "rope_scaling",
    "rope_parameters",
}  # fmt: skip


def check_width(patient: Patient) -> list[Verdict]:
    """The channels that turn are an even number of those that a head has."""
    keys = turning(patient)
    if keys is None:
        return [NotApplicable("D-DIM", "it does not rotate, or cannot be read")]
    problems = Problems(patient, "D-DIM")
    _look_at_width(problems, keys)
    told = _sections(keys, head_dim(keys), share_of(keys))
    if told is not None and not problems.found:
        problems.add("wrong", *told)
    return problems.or_passed("an even number of a head's channels turns")


def _look_at_width(problems: Problems, keys: Config) -> None:
    dim, share = head_dim(keys), share_of(keys)
    channels = keys.get("rotary_dim")
    if share is not None and not 0 <= share <= 1:
        problems.add(
            "wrong",
            f"{keys.name('partial')} is {share:g}, and a share of channels is between "
            "0 and 1.",
            "Write rotary width / head_dim.",
            share,
        )
    elif dim is not None and is_number(channels) and channels > dim:
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


def _sections(
    keys: Config, dim: int | None, share: float | None
) -> tuple[str, str] | None:
    """What is wrong with M-RoPE's sections: together they are all pairs that turn."""
    given = keys.rope.get("mrope_section")
    listed = isinstance(given, list | tuple) and all(map(is_number, given))
    if not listed or dim is None or share is None:
        return None
    pairs, total = int(dim * share) // 2, sum(given)
    if total == pairs:
        return None
    return (
        f"mrope_section {list(given)} is {total:g} pairs, and {pairs} pairs turn.",
        "Write how many pairs each axis turns, all together the pairs of a head.",
    )


def check_lengths(patient: Patient) -> list[Verdict]:
    """Texts are not shorter than they were in training; layers are all listed."""
    keys = turning(patient)
    if keys is None:
        return [NotApplicable("D-CONFIG", "it does not rotate, or cannot be read")]
    problems = Problems(patient, "D-CONFIG")
    for block in blocks(keys).values():
        _look_at_lengths(problems, keys, block)
    kinds, count = keys.get("layer_types"), keys.get("num_layers")
    if isinstance(kinds, list | tuple) and count not in (None, len(kinds)):
        problems.add(
            "risky",
            f"layer_types names {len(kinds)} layers, and there are {count}.",
            "Name every layer.",
        )
    return problems.or_passed("lengths grow, and every layer is named")


def _look_at_lengths(problems: Problems, keys: Config, block: Config) -> None:
    longest = keys.get("max_length")
    trained = keys.get(LENGTH) or block.rope.get(LENGTH)
    if longest is not None and not is_number(longest):
        problems.add(
            "wrong",
            f"{keys.name('max_length')} is {longest!r:.40}, which is no number.",
            "Write it as a whole number, without quotes.",
        )
    if is_number(trained) and is_number(longest) and longest < trained:
        problems.add(
            "risky",
            f"{keys.name('max_length')} {longest} is below the trained length "
            f"{trained}: code that divides the two shrinks, instead of extending.",
            f"Write the extended length, or delete the rule for up to {trained}.",
        )
    elif trained == longest and trained is not None and _differ(block):
        problems.add(
            "risky",
            f"The trained length {trained} is that of the longest texts, so that "
            "long_factor, which differs from short_factor, is never used.",
            f"Write in {LENGTH} the length before the extension.",
        )


def _differ(block: Config) -> bool:
    """Whether LongRoPE's lists are two."""
    found = dict(lists(block))
    return len(found) == 2 and found["short_factor"] != found["long_factor"]


def check_names(patient: Patient) -> list[Verdict]:
    """No number stands under a name of rotations that nobody reads."""
    keys = turning(patient)
    if keys is None:
        return [NotApplicable("D-CONFIG", "it does not rotate, or cannot be read")]
    problems = Problems(patient, "D-CONFIG")
    harmless = {1, *filter(is_number, keys.rope.values.values())}  # said there too
    for name, value in keys.values.items():
        about = name.startswith(("rope", "rotary")) and name not in _READ
        if about and is_number(value):
            known = keys.model_type in FAMILIES and value not in harmless
            problems.add(
                "risky" if known else "note",
                f"{name} {value:g} is read by nobody: the keys of rotations are "
                "rope_theta, partial_rotary_factor and the rope parameters.",
                "Write it under one of these names, or delete it.",
            )
    return problems.or_passed("every number about rotations is read")


def check_table(patient: Patient) -> list[Verdict]:
    """A learned table has a row for each token, and those that padding takes away."""
    keys = patient.facts["keys"]
    if not isinstance(keys, Config) or tried(scheme, keys) != "learned":
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
    """fairseq's families: ids begin after pad_token_id, and the table is no longer."""
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


CHECKS = (check_width, check_lengths, check_names, check_table, check_reach)
