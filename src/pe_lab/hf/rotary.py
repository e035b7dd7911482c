"""One rotation: which channels turn, how they are paired, at which frequencies."""

from __future__ import annotations

from pe_lab import refuse
from pe_lab.encodings.axial import MRoPE
from pe_lab.encodings.base import NoPE, PositionalEncoding
from pe_lab.encodings.rope import RoPE
from pe_lab.frequencies import inv_freq

from .config import Config
from .families import FAMILIES
from .keys import word
from .rules import RULES, scaled

_RETIRED = {"su": "longrope", "mrope": "default"}  # names of rope types


def rotation(config: Config, kind: str) -> tuple[PositionalEncoding, float]:
    """The encoding of layers of one kind, and its factor on the softmax scale."""
    head_dim, name = _head_dim(config), rope_type(config)
    proportional = name == "proportional"
    dim = _dim(config, head_dim, proportional)
    if dim == 0:
        told = "No channel turns: no position (NoPE)."
        config.note(told, "derived", "risky", "partial_rotary_factor")
        return NoPE(), 1.0
    base = _ratio(config) * _base(config, kind)
    plain = inv_freq(dim, base=base, device="cpu")
    if proportional:  # the whole head's ladder, slow pairs stopped
        plain = inv_freq(head_dim, base=base, device="cpu")
        plain[dim // 2 :] = 0
    rule, layout = scaled(name, config, plain), _layout(config)
    usual = name == "default" and layout == "half" and dim == head_dim
    if sections := _sections(config, len(plain), usual):
        return MRoPE(head_dim, sections, base=base), rule.softmax
    rope = RoPE(
        head_dim,
        base=base,
        layout=layout,
        rotary_dim=2 * len(plain),  # odd widths are rounded up
        scaling=lambda _: rule.inv_freq,
        gain=rule.gain,
    )
    return rope, rule.softmax


def _head_dim(config: Config) -> int:
    """Channels of the part of a head that can turn."""
    if not config.family.mla or config.get("qk_rope_head_dim") is None:
        return config.head_dim()
    dim = config.need("qk_rope_head_dim", 0, 2**16)
    config.note(
        f"The encoding is for the {dim} channels of qk_rope_head_dim, which are split "
        "off each head; the others have no position.",
        key="qk_rope_head_dim",
    )
    return dim


def rope_type(config: Config) -> str:
    """The rule of scaling, by the name that is in use."""
    new, old = config.rope.get("rope_type"), config.rope.get("type")
    if None not in (new, old) and new != old:
        told = f"type {old!r:.40} is ignored: rope_type is {new!r:.40}."
        same = _RETIRED.get(str(old), old) == _RETIRED.get(str(new), new)
        sort, severity = ("legacy", "note") if same else ("contradiction", "risky")
        config.note(told, sort, severity, "rope_type")
    elif new is None and old is not None:
        told = "The key 'type' is the old name of rope_type."
        config.note(told, "legacy", key="rope_type")
    name = word("rope_type", new or old or "default")
    if config.model_type == "phi3" and name == "yarn":
        told = "rope_type 'yarn' of phi3 means 'longrope'."
        config.note(told, "legacy", key="rope_type")
        return "longrope"
    if name in _RETIRED:
        told = f"rope_type {name!r} is a retired name: {_RETIRED[name]!r}."
        config.note(told, "legacy", key="rope_type")
    return refuse.one_of("rope_type", _RETIRED.get(name, name), tuple(RULES))


def _base(config: Config, kind: str) -> float:
    inside, outside = config.rope.get("rope_theta"), config.get("base")
    ignored = None not in (inside, outside) and inside != outside
    if ignored and kind != "sliding_attention":
        config.note(
            f"{config.name('base')} {outside!r:.40} is ignored: the rope parameters "
            f"say {inside!r:.40}.",
            "contradiction",
            "risky",
            "rope_theta",
        )
    base = config.number("base") if inside is None else config.rope.number("rope_theta")
    if base is None:
        base = config.family.base
        told = f"rope_theta is not given: {base:g} is the family's."
        config.note(told, "assumed", key="rope_theta")
    return base


def _ratio(config: Config) -> float:
    """What the base is multiplied by."""
    ratio = config.number("rope_ratio", 1e-9, 1e9)
    if ratio is None or ratio == 1:
        return 1.0
    if config.model_type in FAMILIES and config.model_type != "chatglm":
        told = f"rope_ratio {ratio:g} is ignored: code of this family does not read it."
        config.note(told, "ignored", "wrong", "rope_ratio")
        return 1.0
    config.note(
        f"rope_ratio {ratio:g} multiplies the base, as in ChatGLM3 and GLM-4; ChatGLM2 "
        "divided positions by it.",
        key="rope_ratio",
    )
    return ratio


def _layout(config: Config) -> str:
    usual = config.family.layout == "interleaved"
    interleaved = config.flag("interleaved", usual)
    if interleaved != usual and not config.family.choice:
        name, layout = config.name("interleaved"), config.family.layout
        told = f"{name} {interleaved} is ignored: code of this family has {layout!r}."
        config.note(told, "ignored", "wrong", name)
        return layout
    if not interleaved:
        return "half"
    if config.family.mla:
        config.note(
            "Interleaved pairs: transformers also moves the turned channels of q and k "
            "apart, which no score shows.",
            key="rope_interleave",
        )
    return "interleaved"


def _dim(config: Config, head_dim: int, proportional: bool) -> int:
    """How many channels turn."""
    share = _share(config, head_dim, proportional)
    dim = int(head_dim * share)
    if dim > head_dim:
        raise ValueError(
            f"partial_rotary_factor needs at most 1, got {share:g}: there are only "
            f"{head_dim} channels."
        )
    if dim and proportional:
        pairs = (head_dim + 1) // 2
        told = f"{dim // 2} of {pairs} pairs turn; the others stand still."
        config.note(told, key="partial_rotary_factor")
    elif 0 < dim < head_dim:
        told = f"The first {dim + dim % 2} of {head_dim} channels turn."
        severity = "risky" if dim % 2 else "note"
        config.note(told, "derived", severity, "partial_rotary_factor")
    return dim


def _share(config: Config, head_dim: int, proportional: bool) -> float:
    """The share of channels that turn: as given, if the family's code reads that."""
    given, usual = _given_share(config, head_dim), config.family.partial
    if proportional:
        return 1.0 if given is None else given
    if config.family.mla:
        return 1.0
    if usual is None:
        if given not in (None, 1):
            config.note(
                f"partial_rotary_factor {given:g} is ignored: code of this family "
                "turns whole heads (with a scaled rope_type it fails instead).",
                "ignored",
                "wrong",
                "partial_rotary_factor",
            )
        return 1.0
    if given is None and usual != 1:
        told = f"partial_rotary_factor is not given: {usual} is the family's."
        config.note(told, "assumed", key="partial_rotary_factor")
    return usual if given is None else given


def _given_share(config: Config, head_dim: int) -> float | None:
    """The first of the keys that say which share of channels turns."""
    sources = [
        ("partial_rotary_factor", config.rope.number("partial_rotary_factor", 0)),
        (config.name("partial"), config.number("partial", 0)),
    ]
    channels = config.whole("rotary_dim", 0, 2**16)
    if channels is not None:
        # a little more, so that the product with head_dim is not a little less
        sources += [("rotary_dim", channels / max(head_dim, 1) * (1 + 2**-52))]
    given = [(name, share) for name, share in sources if share is not None]
    if len({round(share, 9) for _, share in given}) > 1:
        shares = ", ".join(f"{name} {share:g}" for name, share in given)
        config.note(
            f"The share of channels that turn is given twice: {shares}; the first is "
            "read.",
            "contradiction",
            "risky",
            "partial_rotary_factor",
        )
    return given[0][1] if given else None


def _sections(config: Config, pairs: int, usual: bool) -> tuple[int, ...]:
    """The sections of M-RoPE, if an encoding can express them."""
    given, sections = config.rope.get("mrope_section"), config.family.sections
    if given is None and not sections:
        return ()
    if given is None:
        told = f"mrope_section is not given: {sections} is the family's."
        config.note(told, "assumed", key="mrope_section")
    else:
        listed = refuse.listed("mrope_section", given, "pairs, one per axis")
        sections = tuple(refuse.whole("mrope_section", n, 0) for n in listed)
    woven = config.rope.values.get("mrope_interleaved", config.family.woven)
    if woven or not usual or sum(sections) != pairs:
        config.note(
            f"M-RoPE with sections {sections} that is woven, scaled, partial or "
            "interleaved is not expressed: the encoding is right for text, whose ids "
            "are the same on all axes, and not for images.",
            "not expressed",
            "wrong" if given is not None and sum(sections) != pairs else "note",
            "mrope_section",
        )
        return ()
    told = "Ids have three numbers; pe_lab.positions.mrope makes them."
    config.note(told, key="mrope_section")
    return sections
