"""What is known of a model before its scheme is read: family, rope parameters, size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .families import FAMILIES, Family
from .keys import Keys, load, mapping, names, word

# Keys that only models that rotate have.
_SIGNS = (
    "base", "rope_parameters", "rope_scaling", "partial", "qk_rope_head_dim",
    "rotary_dim",
)  # fmt: skip

# Keys that change attention by position in a way no encoding here expresses.
REMARKS = {
    "use_logn_attn": "queries of long texts grow with the logarithm of their position",
    "use_dynamic_ntk": "the base grows with the text beyond seq_length",
    "rotary_value": "values are turned too",
    "attn_temperature_tuning": "queries of layers that do not turn are multiplied by "
    "1 + attn_scale · ln(1 + ⌊(p + 1)/floor_scale⌋)",
    "llama_4_scaling_beta": "queries are multiplied by "
    "1 + beta · ln(1 + ⌊p/original_max_position_embeddings⌋)",
    "scale_embedding": "tokens are multiplied by √d_model before positions are added",
}


@dataclass
class Config(Keys):
    """The keys of a language model, what is known of its family, and what was asked."""

    model_type: str
    family: Family
    rope: Keys
    length: int | None
    part: str | None

    def with_rope(self, parameters: dict[str, Any]) -> Config:
        """The same with the rope parameters of one kind of layer."""
        return replace(self, rope=Keys(parameters, self.notes))

    @property
    def num_layers(self) -> int | None:
        """How many layers there are, None if the config does not say."""
        return self.whole("num_layers", 0, 2**12)

    def head_dim(self) -> int:
        """Channels of a head, the family's or derived if they are not given."""
        given, family = self.whole("head_dim", 1, 2**16), self.family.head_dim
        if given is not None:
            return given
        if family is not None and "head_dim" not in self.values:
            told = f"head_dim is not given: {family} is the family's."
            self.note(told, "assumed", key="head_dim")
            return family
        return self.derived_head_dim()

    def derived_head_dim(self) -> int:
        """hidden_size / num_attention_heads."""
        hidden, heads = self.need("hidden_size"), self.need("num_heads")
        if hidden < heads:
            raise ValueError(
                f"hidden_size needs at least num_attention_heads = {heads}, got "
                f"{hidden}."
            )
        dim, rest = divmod(hidden, heads)
        exact = "rounds down to" if rest else "="
        told = f"head_dim is not given: {hidden} / {heads} {exact} {dim}."
        self.note(told, "derived", "risky" if rest else "note", "head_dim")
        rope_type = self.rope.get("rope_type") or self.rope.get("type")
        if "head_dim" in self.values and rope_type in ("yarn", "dynamic", "longrope"):
            told = f"head_dim null makes transformers 5.24 fail with {rope_type!r}."
            self.note(told, "contradiction", "wrong", "head_dim")
        return dim


class UnknownModel(ValueError):
    """Nothing in the config tells its scheme: it is of no known family."""


def read(config: Any, length: int | None, part: str | None) -> Config:
    """Load a config, find its family, and note what no encoding expresses."""
    keys, model_type = _language_model(Keys(load(config), []))
    family = _family(keys, model_type)
    rope = _rope(keys, family)
    for name, remark in REMARKS.items():
        if keys.get(name) or rope.get(name):
            told = f"{name}: {remark}; the encoding does not."
            keys.note(told, "not expressed", key=name)
    return Config(keys.values, keys.notes, model_type, family, rope, length, part)


def _language_model(keys: Keys) -> tuple[Keys, str]:
    """The keys and the type of the text model, which a multimodal config has inside."""
    model_type = word("model_type", keys.get("model_type") or "")
    if keys.get("text") is None:
        return keys, model_type
    text, inside = keys.name("text"), keys.block("text")
    model_type = word("model_type", inside.get("model_type") or model_type)
    keys.note(f"Read from {text}, the language model's part.")
    for key in ("rope_theta", "rope_scaling", "rope_parameters"):
        if keys.get(key) not in (None, inside.get(key)):
            told = f"{key} beside {text} is ignored."
            keys.note(told, "contradiction", "risky", key)
    return inside, model_type


def _family(keys: Keys, model_type: str) -> Family:
    """The family by its name, or the rule of Llama for unknown ones that rotate."""
    for name in (model_type, model_type.removesuffix("_model").removesuffix("_text")):
        if name in FAMILIES:
            return FAMILIES[name]
    unknown = f"model_type {model_type!r:.80} is not known here: read"
    found = [sign for sign in _SIGNS if keys.get(sign) is not None]
    if found:
        keys.note(
            f"{unknown} by Llama's rule (halves paired) because of "
            f"{', '.join(map(keys.name, found))}. Compare with the model's code.",
            "assumed",
            key="model_type",
        )
        mla = "qk_rope_head_dim" in found
        return Family(partial=1.0, choice=True, mla=mla, mscale=mla)
    if keys.flag("alibi"):
        keys.note(f"{unknown} as ALiBi.", "assumed", key="model_type")
        return Family("alibi")
    sought = ", ".join(name for sign in _SIGNS for name in names(sign))
    raise UnknownModel(
        f"config needs a known model_type, got {model_type!r:.80}, or a key that tells "
        f"the scheme; none of these is there: {sought}, alibi."
    )


def _rope(keys: Keys, family: Family) -> Keys:
    """rope_parameters under its new or its old name."""
    new, old = keys.get("rope_parameters"), keys.get("rope_scaling")
    if new and old and new != old:
        told = "rope_parameters is ignored: rope_scaling is there too and differs."
        keys.note(told, "contradiction", "risky", "rope_parameters")
    if not (old or new) and family.rope:
        told = f"No rope parameters: the family's are assumed, {family.rope}."
        keys.note(told, "assumed", key="rope_parameters")
        return Keys(family.rope, keys.notes)
    name = "rope_scaling" if old else "rope_parameters"
    return Keys(mapping(name, old or new or {}), keys.notes)
