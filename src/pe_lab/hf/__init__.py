"""Hugging Face configs, read: the encoding that a config.json means, and the doubts.

Two tables say what families of models do where their configs do not; the rest reads
keys, old names and new. Nothing is downloaded, no code of a checkpoint is run, and
transformers is not imported. What its code computes was checked in release 5.24.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pe_lab import refuse, scaling
from pe_lab.encodings.alibi import ALiBi, alibi_slopes
from pe_lab.encodings.axial import MRoPE
from pe_lab.encodings.base import NoPE, PositionalEncoding
from pe_lab.encodings.learned import Learned
from pe_lab.encodings.rope import RoPE
from pe_lab.encodings.shaw import Shaw
from pe_lab.encodings.sinusoidal import Sinusoidal
from pe_lab.encodings.t5 import T5Bias
from pe_lab.encodings.transformer_xl import TransformerXL
from pe_lab.frequencies import inv_freq as make_inv_freq


@dataclass(frozen=True)
class Family:
    """What the models of one `model_type` do where their config does not say.

    Args:
        scheme: "rope", "learned", "sinusoidal", "alibi", "t5", "xl", "vit" or "none".
        base, partial, head_dim: of rotations, if the config has no such key. partial
            None: the family's code turns whole heads, whatever the config says.
        layout: of the pairs, as for `pe_lab.apply_rope`.
        mla: turned are the qk_rope_head_dim channels that are split off each head.
        mscale: mscale_all_dim also corrects the softmax scale.
        full_every: (key, default, remainder): layer i sees everything if
            i mod n = remainder mod n, and only a window otherwise.
        local: (key, default) of the base in the layers that see a window.
        nope: layers without position: "listed" by no_rope_layers, "full" for those
            that see everything, "hybrid" for the same where there is a window.
        sections, woven: of M-RoPE; woven takes the axes in turn, pair by pair.
        offset: row of position 0 in a table; -1 stands for pad_token_id + 1.
        spacing, order: of sinusoids.

    Example:
        >>> pe_lab.hf.FAMILIES["glm"].layout, pe_lab.hf.FAMILIES["opt"].offset
        ('interleaved', 2)
    """

    scheme: str = "rope"
    base: float = 10000.0
    partial: float | None = None
    head_dim: int | None = None
    layout: str = "half"
    mla: bool = False
    mscale: bool = False
    full_every: tuple[str, int, int] | None = None
    local: tuple[str, float] | None = None
    nope: str = ""
    sections: tuple[int, ...] = ()
    woven: bool = False
    offset: int = 0
    spacing: str = "paper"
    order: str = "interleaved"


_MLA = Family(mla=True, mscale=True, layout="interleaved")
_GEMMA3 = Family(
    base=1e6,
    head_dim=256,
    full_every=("sliding_window_pattern", 6, -1),
    local=("rope_local_base_freq", 1e4),
)
_MODERNBERT = Family(
    base=1.6e5,
    full_every=("global_attn_every_n_layers", 3, 0),
    local=("local_rope_theta", 1e4),
)
_QWEN3_VL = Family(base=5e5, head_dim=128, sections=(24, 20, 20), woven=True)
_INTERLEAVED = "interleaved"
_PERIOD = "sliding_window_pattern"
_FAIRSEQ = Family("sinusoidal", spacing="tensor2tensor", order="halves")

# Each row: model types, and what they do. Another type is one more word, another
# habit one more row. Types are also found with _text or _text_model behind them.
_ROWS: tuple[tuple[str, Family], ...] = (
    # rotations of whole heads, half paired with half
    ("llama mistral ministral qwen2 qwen2_moe qwen3_moe olmo olmo2 olmoe", Family()),
    ("granite granitemoe starcoder2 dbrx arcee eurobert", Family()),
    ("falcon RefinedWeb RefinedWebModel", Family()),
    ("qwen3 seed_oss", Family(head_dim=128)),
    ("gemma gemma2", Family(head_dim=256)),
    ("mixtral phimoe", Family(base=1e6)),
    ("ministral3", Family(base=1e6, head_dim=128)),
    ("bitnet mllama", Family(base=5e5)),
    ("apertus", Family(base=1.2e7)),
    ("gpt_oss", Family(base=1.5e5, head_dim=64)),
    ("nomic_bert", Family(base=1000.0)),
    # rotations of the first channels of each head
    ("gpt_neox stablelm", Family(partial=0.25)),
    ("phi persimmon nemotron recurrent_gemma bamba glm4_moe", Family(partial=0.5)),
    ("phi3 gpt_neox_japanese", Family(partial=1.0)),
    ("qwen3_next", Family(partial=0.25, head_dim=256)),
    ("minimax_m2", Family(partial=1.0, base=5e6, head_dim=128)),
    # neighbours paired
    ("cohere", Family(base=5e5, layout=_INTERLEAVED)),
    ("ernie4_5", Family(base=5e5, head_dim=128, layout=_INTERLEAVED)),
    ("helium", Family(base=1e5, head_dim=128, layout=_INTERLEAVED)),
    ("roformer", Family(layout=_INTERLEAVED)),
    ("gptj codegen", Family(partial=1.0, layout=_INTERLEAVED)),
    ("glm glm4", Family(partial=0.5, head_dim=128, layout=_INTERLEAVED)),
    ("chatglm", Family(partial=0.5, layout=_INTERLEAVED)),
    # rotations beside a latent
    ("deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 youtu", _MLA),
    ("longcat_flash", replace(_MLA, base=1e7)),
    ("minicpm3", replace(_MLA, layout="half")),
    # layers that differ
    ("gemma3 gemma3n", _GEMMA3),
    ("modernbert modernbert-decoder", _MODERNBERT),
    ("olmo3", Family(base=5e5, full_every=(_PERIOD, 4, -1))),
    ("smollm3", Family(base=2e6, nope="listed")),
    ("llama4", Family(base=5e5, head_dim=128, layout=_INTERLEAVED, nope="listed")),
    ("cohere2", Family(layout=_INTERLEAVED, full_every=(_PERIOD, 4, -1), nope="full")),
    ("exaone4", Family(full_every=(_PERIOD, 4, -1), nope="hybrid")),
    # three axes
    ("qwen2_vl qwen2_5_vl", Family(base=1e6, sections=(16, 24, 24))),
    ("qwen3_vl qwen3_vl_moe", _QWEN3_VL),
    # biases
    ("bloom mpt", Family("alibi")),
    ("t5 mt5 umt5 switch_transformers", Family("t5")),
    ("xlnet transfo-xl", Family("xl")),
    # tables
    ("bert albert electra distilbert big_bird xlm clip", Family("learned")),
    ("gpt2 gpt_bigcode gpt_neo openai-gpt", Family("learned")),
    ("opt bart mbart plbart mvp biogpt", Family("learned", offset=2)),
    ("roberta xlm-roberta xlm-roberta-xl camembert", Family("learned", offset=-1)),
    ("roberta-prelayernorm longformer mpnet ibert", Family("learned", offset=-1)),
    ("data2vec-text esm", Family("learned", offset=-1)),
    ("vit", Family("vit")),
    # sinusoids
    ("marian pegasus", Family("sinusoidal", order="halves")),
    ("ctrl", Family("sinusoidal", order="halves")),
    ("whisper", _FAIRSEQ),
    ("xglm", replace(_FAIRSEQ, offset=2)),
    ("m2m_100 speech_to_text", replace(_FAIRSEQ, offset=-1)),
    # nothing
    ("jamba", Family("none")),
)
FAMILIES = {name: family for names, family in _ROWS for name in names.split()}

# Names of one thing, the first that is present counts.
NAMES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim", "emb_dim", "n_embed"),
    "table_width": ("embedding_size", "hidden_size", "n_embd", "d_model", "dim"),
    "num_heads": (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "encoder_attention_heads",
    ),
    "num_layers": (
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        "encoder_layers",
    ),
    "max_length": (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
    ),
    "head_dim": ("head_dim", "d_head", "d_kv", "kv_channels"),
    "rope_theta": ("rope_theta", "rotary_emb_base", "global_rope_theta"),
    "partial": ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"),
    "interleaved": ("rope_interleave", "rotary_emb_interleaved"),
    "pad": ("pad_token_id", "pad_index"),
    "text": ("text_config", "llm_config", "language_config"),
}

# What transformers assumes where a config of these types has no rope parameters.
_APERTUS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 8.0}
_LONG = "original_max_position_embeddings"
ASSUMED: dict[str, dict[str, Any]] = {
    "apertus": {"rope_type": "llama3", _LONG: 8192, **_APERTUS},
    "gpt_oss": {"rope_type": "yarn", "factor": 32.0, "truncate": False, _LONG: 4096},
    "ministral3": {
        "rope_type": "yarn",
        "factor": 16.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
        _LONG: 16384,
    },
}

ROPE_TYPES = {"su": "longrope", "mrope": "default"}  # retired names

# Keys that change attention by position in a way no encoding here expresses.
REMARKS: dict[str, str] = {
    "use_logn_attn": "queries of long texts grow with the logarithm of their position",
    "use_dynamic_ntk": "the base grows with the text beyond seq_length",
    "rotary_value": "values are turned too",
    "attn_temperature_tuning": "queries of layers that do not turn are multiplied by "
    "1 + attn_scale · ln(1 + ⌊(p + 1)/floor_scale⌋)",
    "llama_4_scaling_beta": "queries are multiplied by "
    "1 + beta · ln(1 + ⌊p/original_max_position_embeddings⌋)",
    "scale_embedding": "tokens are multiplied by √d_model before positions are added",
}


@dataclass(frozen=True)
class Reading:
    """What a config means.

    Args:
        encoding: computes what the model computes; of the layer asked for, or of most.
        notes: sentences: all that was assumed, derived, contradictory or ignored.
        model_type: the family that was read.
        per_layer: one encoding for each layer; empty if the number is not known.
        softmax_scale_factor: what the scheme asks 1/√head_dim to be multiplied by.

    Example:
        >>> config = {"model_type": "t5", "num_heads": 2, "d_kv": 16}
        >>> pe_lab.hf.from_config(config).softmax_scale_factor
        4.0
    """

    encoding: PositionalEncoding
    notes: tuple[str, ...] = ()
    model_type: str = ""
    per_layer: tuple[PositionalEncoding, ...] = ()
    softmax_scale_factor: float = 1.0


def from_config(
    config: Any,
    *,
    layer: int | None = None,
    length: int | None = None,
    part: str | None = None,
) -> Reading:
    """Read the positional encoding out of a Hugging Face config.

    Args:
        config: a dict, the path of a config.json or of its folder, or an object with
            `to_dict()` or with the keys as attributes.
        layer: which layer's encoding is wanted, counted from 0.
        length: how long texts will be, for the rules that change with it ("dynamic"
            and "longrope"). Decide once: cached keys of one rule do not fit the other.
        part: "encoder" or "decoder", of models that have both.

    Returns:
        a `Reading`: the encoding, and what had to be assumed to get it.

    Raises:
        TypeError, ValueError: for what is no config, values that make no encoding, or
            keys from which no scheme can be told; the sentence lists what was sought.
    Convention: where a config contradicts itself, what transformers computes is read,
        and a note says so. Tables and biases come untrained: copy a checkpoint's.
    Source: the configs and the modelling code of transformers 5.24.

    Example:
        >>> config = {"model_type": "phi", "hidden_size": 64, "num_attention_heads": 4}
        >>> reading = pe_lab.hf.from_config(config)
        >>> reading.encoding
        RoPE(16, base=10000, layout='half', rotary_dim=8)
        >>> reading.notes[0]
        'head_dim is not given: 64 / 4 = 16.'
    """
    if part is not None:
        refuse.one_of("part", part, ("encoder", "decoder"))
    if length is not None:
        refuse.whole("length", length)
    keys = _Keys(_load(config))
    keys = keys.text()
    family = _family(keys)
    for name, remark in REMARKS.items():
        if keys.get(name) or _settings(keys).get(name):
            keys.note(f"{name}: {remark}; the encoding does not.")
    read = _SCHEMES[_scheme(keys, family)]
    layers, factor = read(keys, family, _Wish(length, part))
    return Reading(
        _chosen(keys, layers, layer),
        tuple(dict.fromkeys(keys.notes)),
        keys.model_type,
        tuple(layers) if keys.get("num_layers") is not None else (),
        factor,
    )


# ------------------------------------------------------------------ keys and values


@dataclass(frozen=True)
class _Wish:
    length: int | None
    part: str | None


@dataclass
class _Keys:
    """A config's keys under any of their names, and the notes made on the way."""

    values: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    model_type: str = ""

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def name(self, thing: str) -> str:
        """The first of the thing's names that has a value, or its own."""
        names = NAMES.get(thing, (thing,))
        return next((n for n in names if self.values.get(n) is not None), names[0])

    def get(self, thing: str) -> Any:
        return self.values.get(self.name(thing))

    def whole(self, thing: str, least: int = 1, most: int = 2**24) -> int | None:
        name, value = self.name(thing), self.get(thing)
        return None if value is None else _whole(name, value, least, most)

    def need(self, thing: str, least: int = 1, most: int = 2**24) -> int:
        value = self.whole(thing, least, most)
        if value is None:
            names = " or ".join(NAMES.get(thing, (thing,)))
            raise ValueError(f"config needs {names}; none is there.")
        return value

    def flag(self, thing: str) -> bool:
        value = self.get(thing)
        return False if value is None else refuse.flag(self.name(thing), value)

    def text(self) -> _Keys:
        """The keys of the language model, which a multimodal config has inside."""
        inner = self.get("text")
        outer = _word("model_type", self.values.get("model_type") or "")
        if inner is None:
            return _Keys(self.values, self.notes, outer)
        inside = _mapping(self.name("text"), inner)
        named = _word("model_type", inside.get("model_type") or outer)
        self.note(f"Read from {self.name('text')}, the language model's part.")
        for key in ("rope_theta", "rope_scaling", "rope_parameters"):
            if self.values.get(key) not in (None, inside.get(key)):
                self.note(f"{key} beside {self.name('text')} is ignored.")
        return _Keys(inside, self.notes, named)


def _load(config: Any) -> dict[str, Any]:
    if isinstance(config, str | PathLike):
        return _parse(Path(config))
    return _mapping("config", config)


def _parse(path: Path) -> dict[str, Any]:
    try:
        path = path / "config.json" if path.is_dir() else path
        return _mapping("config", json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"config needs a dict, or the path of a config.json; {str(path)!r:.200} "
            f"cannot be read: {error!s:.200}. Nothing is downloaded here; fetch the "
            "file first."
        ) from None


def _mapping(name: str, value: Any) -> dict[str, Any]:
    """The value as a dict, if it is one or an object that holds keys."""
    if callable(getattr(value, "to_dict", None)) and not isinstance(value, type):
        value = value.to_dict()
    elif not isinstance(value, Mapping) and hasattr(value, "__dict__"):
        value = {} if isinstance(value, type | Tensor) else vars(value)
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise TypeError(
            f"{name} needs a dict of keys, or an object that holds them, got "
            f"{value!r:.80}."
        )
    return dict(value)


def _whole(name: str, value: Any, least: int = 1, most: int = 2**24) -> int:
    number = refuse.whole(name, value, least)
    if number > most:
        raise ValueError(
            f"{name} needs a whole number of at most {most}, got {number}."
        )
    return number


def _number(name: str, value: Any, least: float = -1e30, most: float = 1e30) -> float:
    if isinstance(value, int) and abs(value) > 2**62:
        raise ValueError(f"{name} needs a number, got one of {len(str(value))} digits.")
    return refuse.number(name, value, least, most)


def _word(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} needs a word, got {value!r:.80}.")
    return value


# ---------------------------------------------------------------- family and layers

_SIGNS = (
    "rope_theta",
    "rope_parameters",
    "rope_scaling",
    "partial",
    "qk_rope_head_dim",
    "rotary_dim",
)


def _family(keys: _Keys) -> Family:
    """The family by its name, or the rule of Llama for unknown ones that rotate."""
    name = keys.model_type
    for short in (name, name.removesuffix("_model").removesuffix("_text")):
        if short in FAMILIES:
            return FAMILIES[short]
    found = [sign for sign in _SIGNS if keys.get(sign) is not None]
    if found:
        seen = ", ".join(keys.name(sign) for sign in found)
        keys.note(
            f"model_type {name!r:.80} is not known here: read by Llama's rule (halves "
            f"paired) because of {seen}. Compare with the model's code."
        )
        mla = "qk_rope_head_dim" in found
        return Family(partial=1.0, mla=mla, mscale=mla)
    if keys.flag("alibi"):
        keys.note(f"model_type {name!r:.80} is not known here: read as ALiBi.")
        return Family("alibi")
    sought = ", ".join(n for sign in _SIGNS for n in NAMES.get(sign, (sign,)))
    raise ValueError(
        f"config needs a known model_type, got {name!r:.80}, or a key that tells the "
        f"scheme; none of these is there: {sought}, alibi."
    )


def _scheme(keys: _Keys, family: Family) -> str:
    """The family's scheme, unless a switch in the config chooses another."""
    if family.scheme == "rope" and keys.flag("alibi"):
        return "alibi"
    kind = keys.get("position_embedding_type")
    if kind is None or family.scheme not in ("learned", "rope"):
        return family.scheme
    if _word("position_embedding_type", kind) in ("rotary", "rope"):
        return "rope"
    if kind in ("relative_key", "relative_key_query"):
        return "shaw"
    return "none" if kind == "nope" else family.scheme


def _kinds(keys: _Keys, family: Family) -> list[str]:
    """The kind of each layer's attention; empty if their number is not known."""
    given = keys.get("layer_types")
    if given is not None:
        names = refuse.listed("layer_types", given, "words, one per layer")
        return [_word("layer_types", name) for name in names]
    count = keys.whole("num_layers", 0, 2**12)
    if count is None or family.full_every is None:
        return ["full_attention"] * (count or 0)
    key, every, remainder = family.full_every
    pattern = keys.values.get(key, every)
    if isinstance(pattern, str):
        full = [pattern[i % len(pattern)] == "G" for i in range(count) if pattern]
    else:
        every = _whole(key, pattern, 0) if pattern is not None else 0
        full = [not every or i % every == remainder % every for i in range(count)]
    return ["full_attention" if f else "sliding_attention" for f in full]


def _without(keys: _Keys, family: Family, kinds: list[str]) -> set[int]:
    """The layers that have no position at all."""
    listed = keys.get("no_rope_layers")
    if family.nope in ("full", "hybrid"):
        window = family.nope == "full" or keys.get("sliding_window") is not None
        return {i for i, k in enumerate(kinds) if window and k == "full_attention"}
    if listed is None and family.nope != "listed":
        return set()
    turned = refuse.listed("no_rope_layers", listed or [], "0s and 1s")
    if turned and len(turned) < len(kinds):
        raise ValueError(
            f"no_rope_layers needs one number per layer, {len(kinds)}, got "
            f"{len(turned)}."
        )
    if turned:
        return {i for i in range(len(kinds)) if not turned[i]}
    every = keys.whole("no_rope_layer_interval") or 4
    return {i for i in range(len(kinds)) if (i + 1) % every == 0}


def _chosen(
    keys: _Keys, layers: list[PositionalEncoding], layer: int | None
) -> PositionalEncoding:
    """The layer asked for, or the encoding that most layers have."""
    if layer is not None:
        number = refuse.whole("layer", layer, 0)
        if len(layers) == 1 and keys.get("num_layers") is None:
            return layers[0]
        if number >= len(layers):
            raise ValueError(f"layer needs one of 0 … {len(layers) - 1}, got {number}.")
        return layers[number]
    (common, count), *others = Counter(map(id, layers)).most_common()
    if others:
        keys.note(
            f"Layers differ: encoding is that of {count} of {len(layers)} layers; "
            "per_layer has them all."
        )
    return next(e for e in layers if id(e) == common)


# ------------------------------------------------------------------------- rotations


def _settings(keys: _Keys) -> dict[str, Any]:
    """rope_parameters under its new or its old name."""
    new, old = keys.get("rope_parameters"), keys.get("rope_scaling")
    if new and old and new != old:
        keys.note("rope_parameters is ignored: rope_scaling is there too and differs.")
    if not (old or new) and keys.model_type in ASSUMED:
        assumed = ASSUMED[keys.model_type]
        keys.note(f"No rope parameters: the family's are assumed, {assumed}.")
        return assumed
    return _mapping("rope_scaling" if old else "rope_parameters", old or new or {})


def _rope_layers(
    keys: _Keys, family: Family, wish: _Wish
) -> tuple[list[PositionalEncoding], float]:
    """One encoding for each layer that rotates as others do not."""
    kinds = _kinds(keys, family) or ["full_attention"]
    settings = _settings(keys)
    nope = _without(keys, family, kinds)
    nothing = NoPE()
    made: dict[str, tuple[PositionalEncoding, float]] = {}
    alike: dict[str, tuple[PositionalEncoding, float]] = {"None": (nothing, 1.0)}
    for kind in dict.fromkeys(k for i, k in enumerate(kinds) if i not in nope):
        own = _of_kind(keys, family, settings, kind)
        if own is not None and repr(own) not in alike:
            alike[repr(own)] = _Rotation(keys, family, own, kind, wish).build()
        made[kind] = alike[repr(own)]
    if nope:
        keys.note(f"{len(nope)} of {len(kinds)} layers have no position (NoPE).")
    if "sliding_attention" in kinds and keys.get("sliding_window") is not None:
        keys.note(
            "Layers of kind sliding_attention see a window: that is a mask's task."
        )
    encodings = [
        nothing if i in nope else made[kind][0] for i, kind in enumerate(kinds)
    ]
    return encodings, max((factor for _, factor in made.values()), default=1.0)


def _of_kind(
    keys: _Keys, family: Family, settings: dict[str, Any], kind: str
) -> dict[str, Any] | None:
    """The rope parameters of one kind of layer, None for layers without position."""
    if "attention" not in kind or "linear" in kind:
        keys.note(f"Layers of kind {kind!r:.80} have no attention scores to encode.")
        return None
    if any(isinstance(value, Mapping) for value in settings.values()):
        own = settings.get(kind)
        if own is None:
            keys.note(f"rope_parameters has nothing for {kind!r:.80}: no rotation.")
            return None
        own = _mapping(f"rope_parameters[{kind!r:.80}]", own)
        if own.get("truncate") is not None and "truncate" not in settings:
            keys.note(
                "truncate inside a kind of layer is ignored: transformers looks for it "
                "one level up."
            )
            own = own | {"truncate": True}
        return own
    if family.local is not None and kind == "sliding_attention":
        key, default = family.local
        base = keys.values.get(key)
        shared = settings if key == "local_rope_theta" else {}
        return shared | {"rope_theta": default if base is None else base}
    return settings


@dataclass
class _Rotation:
    """One kind of layer's rotation, from its rope parameters."""

    keys: _Keys
    family: Family
    own: dict[str, Any]
    kind: str
    wish: _Wish

    def build(self) -> tuple[PositionalEncoding, float]:
        head_dim = self.head_dim()
        rope_type = self.rope_type()
        dim = self.dim(head_dim, rope_type)
        if dim == 0:
            self.keys.note("No channel turns: no position (NoPE).")
            return NoPE(), 1.0
        base = self.base()
        plain = make_inv_freq(dim, base=base, device="cpu")
        rule, gain, factor = _RULES[rope_type](self, plain)
        layout = self.layout()
        sections = self.sections((dim + 1) // 2, rope_type)
        if sections and dim == head_dim:
            return MRoPE(head_dim, sections, base=base), factor
        usual = rope_type == "default" and dim % 2 == 0
        rope = RoPE(
            head_dim,
            base=base,
            layout=layout,
            rotary_dim=2 * len(rule),  # odd widths are rounded up
            scaling=None if usual else lambda _: rule,
            gain=gain,
        )
        return rope, factor

    def head_dim(self) -> int:
        """Channels of the part of a head that can turn."""
        keys = self.keys
        if self.family.mla and keys.get("qk_rope_head_dim") is not None:
            dim = keys.need("qk_rope_head_dim", 0, 2**16)
            keys.note(
                f"The encoding is for the {dim} channels of qk_rope_head_dim, which "
                "are split off each head; the others have no position."
            )
            return dim
        given = keys.whole("head_dim", 1, 2**16)
        if given is not None:
            return given
        if self.family.head_dim and "head_dim" not in keys.values:
            keys.note(f"head_dim is not given: {self.family.head_dim} is the family's.")
            return self.family.head_dim
        return _derived_head_dim(keys)

    def rope_type(self) -> str:
        own, keys = self.own, self.keys
        new, old = own.get("rope_type"), own.get("type")
        if new is not None and old is not None and new != old:
            keys.note(f"type {old!r:.40} is ignored: rope_type is {new!r:.40}.")
        elif new is None and old is not None:
            keys.note("The key 'type' is the old name of rope_type.")
        name = _word("rope_type", new or old or "default")
        if keys.model_type == "phi3" and name == "yarn":
            keys.note("rope_type 'yarn' of phi3 means 'longrope'.")
            name = "longrope"
        if name in ROPE_TYPES:
            keys.note(f"rope_type {name!r} is a retired name: {ROPE_TYPES[name]!r}.")
            name = ROPE_TYPES[name]
        return refuse.one_of("rope_type", name, tuple(_RULES))

    def base(self) -> float:
        keys, own = self.keys, self.own.get("rope_theta")
        outside = keys.get("rope_theta")
        if own is not None:
            if outside not in (None, own) and self.kind != "sliding_attention":
                keys.note(
                    f"{keys.name('rope_theta')} {outside!r:.40} is ignored: the rope "
                    f"parameters say {own!r:.40}."
                )
            base = _number("rope_theta", own)
        elif outside is not None:
            base = _number(keys.name("rope_theta"), outside)
        else:
            base = self.family.base
            keys.note(f"rope_theta is not given: {base:g} is the family's.")
        ratio = keys.get("rope_ratio")
        if ratio is not None and ratio != 1:
            keys.note(
                f"rope_ratio {ratio!r:.40} multiplies the base, as in ChatGLM3 and "
                "GLM-4; ChatGLM2 divided positions by it."
            )
            base *= _number("rope_ratio", ratio, 1e-9, 1e9)
        return base

    def layout(self) -> str:
        given = self.keys.get("interleaved")
        if given is None:
            layout = self.family.layout
        else:
            name = self.keys.name("interleaved")
            layout = "interleaved" if refuse.flag(name, given) else "half"
        if layout == "interleaved" and self.family.mla:
            self.keys.note(
                "Interleaved pairs: transformers also moves the turned channels of q "
                "and k apart, which no score shows."
            )
        return layout

    def dim(self, head_dim: int, rope_type: str) -> int:
        """Channels that the ladder of frequencies is made for."""
        share = self.share(head_dim)
        if share is None:
            share = 1.0 if self.family.partial is None else self.family.partial
            if share != 1 and not self.family.mla:
                self.keys.note(
                    f"partial_rotary_factor is not given: {share} is the family's."
                )
        elif self.family.mla:
            return head_dim
        elif self.family.partial is None and share != 1 and rope_type != "proportional":
            self.keys.note(
                f"partial_rotary_factor {share:g} is ignored: code of this family "
                "turns whole heads (with a scaled rope_type it fails instead)."
            )
            share = 1.0
        dim = int(head_dim * share)
        if dim > head_dim:
            raise ValueError(
                f"partial_rotary_factor needs at most 1, got {share:g}: there are only "
                f"{head_dim} channels."
            )
        if 0 < dim < head_dim and rope_type != "proportional":
            self.keys.note(f"The first {dim + dim % 2} of {head_dim} channels turn.")
        return dim

    def share(self, head_dim: int) -> float | None:
        """The given share of channels that turn, under any of its names."""
        keys = self.keys
        inside = self.own.get("partial_rotary_factor")
        outside, channels = keys.get("partial"), keys.whole("rotary_dim", 0, 2**16)
        given: dict[str, float] = {}
        if inside is not None:
            given["partial_rotary_factor"] = _number("partial_rotary_factor", inside, 0)
        if outside is not None:
            name = keys.name("partial")
            given.setdefault(name, _number(name, outside, 0))
        if channels is not None:
            # a little more, so that the product with head_dim is not a little less
            exact = channels / head_dim if head_dim else 0.0
            given["rotary_dim"] = math.nextafter(exact, math.inf) if exact else 0.0
        if len({round(share, 9) for share in given.values()}) > 1:
            keys.note(
                "The share of channels that turn is given twice: "
                + ", ".join(f"{name} {share:g}" for name, share in given.items())
                + "; the first is read."
            )
        return next(iter(given.values()), None)

    def sections(self, pairs: int, rope_type: str) -> tuple[int, ...]:
        """The sections of M-RoPE, if an encoding can express them."""
        given = self.own.get("mrope_section")
        if given is None and not self.family.sections:
            return ()
        found = self.family.sections
        if given is None:
            self.keys.note(f"mrope_section is not given: {found} is the family's.")
        else:
            listed = refuse.listed("mrope_section", given, "pairs, one per axis")
            found = tuple(_whole("mrope_section", n, 0, 2**16) for n in listed)
        woven = self.own.get("mrope_interleaved", self.family.woven)
        partial = pairs != sum(found)
        if woven or partial or rope_type != "default" or self.layout() != "half":
            self.keys.note(
                f"M-RoPE with sections {found} that is woven, scaled, partial or "
                "interleaved is not expressed: the encoding is right for text, whose "
                "ids are the same on all axes, and not for images."
            )
            return ()
        self.keys.note("Ids have three numbers; pe_lab.positions.mrope makes them.")
        return found

    def number(self, name: str, default: float, least: float = -1e30) -> float:
        """A number of the rope parameters, or its default with a note."""
        value = self.own.get(name)
        if value is None:
            self.keys.note(f"{name} is not given: {default:g} is assumed.")
            return default
        return _number(name, value, least)

    def factor(self, implied: float | None = None) -> float:
        """By how much contexts grow; it must not contradict the two lengths."""
        value = self.own.get("factor")
        rope_type = self.own.get("rope_type") or self.own.get("type")
        if value is not None:
            factor = _number("factor", value)
            if implied is not None and not math.isclose(implied, factor, rel_tol=1e-6):
                self.keys.note(
                    f"factor {factor:g} contradicts max_position_embeddings / "
                    f"original_max_position_embeddings = {implied:g}; factor counts."
                )
            return factor
        if implied is None:
            raise ValueError(
                f"rope_type {rope_type!r:.40} needs factor; it is missing."
            )
        self.keys.note(
            f"factor is not given: max_position_embeddings / "
            f"original_max_position_embeddings = {implied:g}."
        )
        return implied

    def original(self) -> int:
        """The trained length, wherever it is written."""
        name = "original_max_position_embeddings"
        inside, outside = self.own.get(name), self.keys.get(name)
        if inside is not None and outside is not None and inside != outside:
            self.keys.note(
                f"{name} {inside!r:.40} of the rope parameters is ignored: beside them "
                f"stands {outside!r:.40}."
            )
        value = inside if outside is None else outside
        if value is not None:
            return _whole(name, value, 1, 2**40)
        length = self.keys.need("max_length", 1, 2**40)
        self.keys.note(
            f"{name} is not given: max_position_embeddings {length} is assumed, which "
            "may already be the extended length."
        )
        return length

    def implied(self, original: int) -> float | None:
        """max_position_embeddings over the trained length."""
        longest = self.keys.whole("max_length", 1, 2**40)
        return None if longest is None else longest / original

    def ignore(self, *used: str) -> None:
        """Note the rope parameters that the rule has no use for."""
        common = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
        common |= {"mrope_section", "mrope_interleaved", *REMARKS, *used}
        unused = sorted(set(self.own) - common)
        if unused:
            self.keys.note(f"Ignored in the rope parameters: {', '.join(unused)}.")


def _derived_head_dim(keys: _Keys) -> int:
    hidden, heads = keys.need("hidden_size"), keys.need("num_heads")
    if hidden < heads:
        raise ValueError(
            f"hidden_size needs at least num_attention_heads = {heads}, got {hidden}."
        )
    exact = "=" if hidden % heads == 0 else "rounds down to"
    keys.note(f"head_dim is not given: {hidden} / {heads} {exact} {hidden // heads}.")
    settings = _settings(keys)
    kind = settings.get("rope_type") or settings.get("type")
    if "head_dim" in keys.values and kind in ("yarn", "dynamic", "longrope"):
        keys.note(f"head_dim null makes transformers 5.24 fail with {kind!r}.")
    return hidden // heads


# The rules: (rotation, plain frequencies) → (frequencies, gain, softmax scale factor).
_Rule = tuple[Tensor, float, float]


def _default(r: _Rotation, plain: Tensor) -> _Rule:
    r.ignore()
    return plain, 1.0, 1.0


def _linear(r: _Rotation, plain: Tensor) -> _Rule:
    r.ignore("factor")
    return scaling.linear(plain, r.factor()), 1.0, 1.0


def _dynamic(r: _Rotation, plain: Tensor) -> _Rule:
    r.ignore("factor")
    factor, original = r.factor(), r.keys.need("max_length", 1, 2**40)
    if r.wish.length is None:
        r.keys.note(
            f"'dynamic' without length: as for texts of up to {original} tokens. "
            "Beyond, frequencies change with length, and keys cached at one do not fit "
            "another; transformers lets them depend on earlier calls."
        )
    length = max(r.wish.length or original, original)
    frequencies = scaling.dynamic_ntk(
        plain, factor, length=length, original_length=original
    )
    return frequencies, 1.0, 1.0


def _yarn(r: _Rotation, plain: Tensor) -> _Rule:
    r.ignore(
        "factor", "original_max_position_embeddings", "attention_factor", "mscale",
        "mscale_all_dim", "beta_fast", "beta_slow", "truncate",
        "max_position_embeddings",
    )  # fmt: skip
    original = r.original()
    factor = r.factor(r.implied(original))
    truncate = r.own.get("truncate")
    frequencies = scaling.yarn(
        plain,
        factor,
        original_length=original,
        beta_fast=_number("beta_fast", r.own.get("beta_fast") or 32.0),
        beta_slow=_number("beta_slow", r.own.get("beta_slow") or 1.0),
        truncate=True if truncate is None else refuse.flag("truncate", truncate),
    )
    return frequencies, *_yarn_gains(r, factor)


def _yarn_gains(r: _Rotation, factor: float) -> tuple[float, float]:
    """The gain on cos and sin, and DeepSeek's factor on the softmax scale."""
    mscale = _number("mscale", r.own.get("mscale") or 0.0, -1e6, 1e6)
    all_dim = _number("mscale_all_dim", r.own.get("mscale_all_dim") or 0.0, -1e6, 1e6)
    if bool(mscale) != bool(all_dim):
        r.keys.note("mscale and mscale_all_dim set the gain only together: one is 0.")
    pair = (mscale, all_dim) if mscale and all_dim else (1.0, 0.0)
    implied = scaling.yarn_gain(factor, mscale=pair[0], mscale_all_dim=pair[1])
    softmax = scaling.yarn_gain(factor, mscale=all_dim) ** 2 if all_dim else 1.0
    if all_dim and r.family.mscale:
        r.keys.note(f"mscale_all_dim {all_dim:g}: softmax scale × {softmax:.6g}.")
    elif all_dim:
        r.keys.note(
            f"mscale_all_dim {all_dim:g}: DeepSeek's code would multiply the softmax "
            f"scale by {softmax:.6g}, this family's does not."
        )
        softmax = 1.0
    return _explicit(r, implied), softmax


def _explicit(r: _Rotation, implied: float) -> float:
    """attention_factor, or what the other numbers imply."""
    given = r.own.get("attention_factor")
    if given is None:
        r.keys.note(f"attention_factor is not given: {implied:.6g} is implied.")
        return implied
    gain = _number("attention_factor", given, 0, 1e6)
    if not math.isclose(gain, implied, rel_tol=1e-6):
        r.keys.note(
            f"attention_factor {gain:.6g} is given and counts; {implied:.6g} would be "
            "implied."
        )
    return gain


def _longrope(r: _Rotation, plain: Tensor) -> _Rule:
    r.ignore(
        "factor", "original_max_position_embeddings", "attention_factor",
        "short_factor", "long_factor", "short_mscale", "long_mscale",
    )  # fmt: skip
    original = r.original()
    factor = r.factor(r.implied(original))
    if r.wish.length is None:
        r.keys.note(
            f"'longrope' without length: short_factor is read, right for up to "
            f"{original} tokens. transformers switches by the longest row of a batch, "
            "and keys cached on one side do not fit the other."
        )
    length = r.wish.length or 1
    lists = [r.own.get(name) or [] for name in ("short_factor", "long_factor")]
    frequencies = scaling.longrope(
        plain, *lists, length=length, original_length=original
    )
    return frequencies, _longrope_gain(r, factor, original, length > original), 1.0


def _longrope_gain(r: _Rotation, factor: float, original: int, beyond: bool) -> float:
    """What the lengths imply, unless a gain is given; Phi-MoE gives two."""
    name = "long_mscale" if beyond else "short_mscale"
    if r.own.get(name) is not None:
        gain = _number(name, r.own[name], 0, 1e6)
        r.keys.note(f"{name} {gain:g} is the gain, in place of attention_factor.")
        return gain
    if factor <= 1:
        return _explicit(r, 1.0)
    return _explicit(r, scaling.longrope_gain(factor, original_length=original))


def _llama3(r: _Rotation, plain: Tensor) -> _Rule:
    r.ignore(
        "factor", "original_max_position_embeddings", "low_freq_factor",
        "high_freq_factor",
    )  # fmt: skip
    frequencies = scaling.llama3(
        plain,
        r.factor(),
        original_length=r.original(),
        low_freq_factor=r.number("low_freq_factor", 1.0, 0),
        high_freq_factor=r.number("high_freq_factor", 4.0, 0),
    )
    return frequencies, 1.0, 1.0


def _proportional(r: _Rotation, plain: Tensor) -> _Rule:
    """ω of the whole head's ladder, the slow pairs stopped."""
    r.ignore("factor")
    head_dim = r.head_dim()
    share = r.share(head_dim)
    turning = int((1.0 if share is None else share) * head_dim // 2)
    whole = make_inv_freq(head_dim, base=r.base(), device="cpu")
    moving = torch.arange(whole.shape[0]) < turning
    factor = r.number("factor", 1.0, 1.0)
    r.keys.note(f"{turning} of {whole.shape[0]} pairs turn; the others stand still.")
    return torch.where(moving, whole / factor, 0.0), 1.0, 1.0


_RULES: dict[str, Callable[[_Rotation, Tensor], _Rule]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


# ------------------------------------------------------------- biases, tables, others

_Layers = tuple[list[PositionalEncoding], float]
MOST_NUMBERS = 2**28  # of one table: 1 GiB, ten times the largest in use


def _same(keys: _Keys, encoding: PositionalEncoding, factor: float = 1.0) -> _Layers:
    """One encoding for all layers."""
    return [encoding] * max(keys.whole("num_layers", 0, 2**12) or 1, 1), factor


def _alibi(keys: _Keys, family: Family, wish: _Wish) -> _Layers:
    heads = keys.need("num_heads", 1, 2**12)
    if keys.model_type == "mpt":
        return _same(keys, ALiBi(heads, slopes=_mpt_slopes(keys, heads)))
    if keys.model_type in ("falcon", "RefinedWeb", "RefinedWebModel"):
        head_dim = _derived_head_dim(keys)
        keys.note(
            f"Falcon adds the bias before it divides by √{head_dim}: the slopes are "
            "divided too. transformers rounds m_h·n to bfloat16; the encoding does not."
        )
        return _same(keys, ALiBi(heads, slopes=alibi_slopes(heads) / head_dim**0.5))
    return _same(keys, ALiBi(heads))


def _mpt_slopes(keys: _Keys, heads: int) -> Tensor:
    """2^(−b·h/H) for MPT's b = alibi_bias_max; 8 gives the paper's slopes."""
    given = keys.get("attn_config")
    inner = {} if given is None else _mapping("attn_config", given)
    if inner.get("alibi") is False:
        keys.note("attn_config.alibi is false: transformers adds ALiBi all the same.")
    if keys.get("learned_pos_emb"):
        keys.note("learned_pos_emb is ignored: transformers builds no table for MPT.")
    if inner.get("rope"):
        keys.note("attn_config.rope is ignored: transformers does not rotate in MPT.")
    steepest = inner.get("alibi_bias_max")
    most = 8.0 if steepest is None else _number("alibi_bias_max", steepest, 1e-6, 1e3)
    return alibi_slopes(heads) ** (most / 8)


def _t5(keys: _Keys, family: Family, wish: _Wish) -> _Layers:
    part = _part(keys, wish)
    count = keys.whole("num_layers", 0, 2**12) or 1
    if part == "decoder":
        count = keys.whole("num_decoder_layers", 0, 2**12) or count
    head_dim = keys.whole("head_dim", 1, 2**16) or _derived_head_dim(keys)

    def bias() -> PositionalEncoding:
        return T5Bias(
            keys.need("num_heads", 1, 2**12),
            bidirectional=part == "encoder",
            num_buckets=keys.whole("relative_attention_num_buckets", 2, 2**12) or 32,
            max_distance=keys.whole("relative_attention_max_distance", 2, 2**16) or 128,
        )

    keys.note(f"T5 does not divide scores: softmax_scale_factor is √{head_dim}.")
    if keys.model_type == "umt5":
        keys.note("Every layer has a bias of its own.")
        return [bias() for _ in range(max(count, 1))], head_dim**0.5
    keys.note("One bias, kept in the first layer, is shared by all layers of a stack.")
    return [bias()] * max(count, 1), head_dim**0.5


def _part(keys: _Keys, wish: _Wish) -> str:
    """The stack asked for; the encoder, with a note, if nothing was said."""
    if wish.part is not None:
        return wish.part
    if keys.get("is_decoder") is True and keys.get("is_encoder_decoder") is False:
        return "decoder"
    keys.note("The encoder is read; part='decoder' reads the other stack.")
    return "encoder"


def _xl(keys: _Keys, family: Family, wish: _Wish) -> _Layers:
    heads = keys.need("num_heads", 1, 2**12)
    head_dim = keys.whole("head_dim", 1, 2**16) or _derived_head_dim(keys)
    width = keys.need("hidden_size", 1, 2**16)
    if heads * head_dim != width:
        raise ValueError(
            f"d_model needs to be n_head · d_head = {heads * head_dim}, got {width}: "
            "TransformerXL's sinusoid is as wide as its heads together."
        )
    _refuse_huge("d_model", heads * head_dim, width)
    clamp = keys.whole("clamp_len", -1)
    if clamp is not None and clamp > 0:
        keys.note(f"clamp_len {clamp}: offsets beyond it count as it; not expressed.")
    if keys.model_type == "xlnet":
        keys.note("XLNet's term for segments is no matter of position; it is left out.")
    keys.note(
        "Checkpoints may hold u, v and W per layer or shared: copy them yourself."
    )
    return _same(keys, TransformerXL(heads, head_dim))


def _learned(keys: _Keys, family: Family, wish: _Wish) -> _Layers:
    if keys.get("sinusoidal_pos_embds") or keys.get("sinusoidal_embeddings"):
        keys.note("The table is filled with sinusoids: it is read as those.")
        return _same(keys, Sinusoidal(keys.need("table_width", 1, 2**16)))
    rows, width = keys.need("max_length", 1, 2**28), keys.need("table_width", 1, 2**16)
    offset = family.offset
    if offset < 0:
        offset = _after_pad(keys)
        rows -= offset
        if rows < 1:
            raise ValueError(
                f"{keys.name('max_length')} needs more than the {offset} rows that "
                f"positions are counted from, got {rows + offset}."
            )
    if offset:
        keys.note(
            f"Position 0 is row {offset}: {rows} positions, {rows + offset} rows."
        )
    return _same(keys, _table(rows, width, offset))


def _table(rows: int, width: int, offset: int = 0) -> Learned:
    _refuse_huge("max_position_embeddings", rows + offset, width)
    return Learned(rows, width, offset=offset)


def _refuse_huge(name: str, rows: int, width: int) -> None:
    if rows * width > MOST_NUMBERS:
        raise ValueError(
            f"{name} needs a table of at most {MOST_NUMBERS} numbers, got {rows} rows "
            f"of {width}."
        )


def _after_pad(keys: _Keys) -> int:
    """pad_token_id + 1, where positions begin in fairseq's families."""
    pad = keys.whole("pad", 0)
    if pad is None:
        keys.note("pad_token_id is not given: 1 is the family's.")
        pad = 1
    keys.note(
        f"Positions count from pad_token_id + 1 = {pad + 1}. transformers leaves "
        "padding out of the count; give the encoding ids from 0 on."
    )
    return pad + 1


def _vit(keys: _Keys, family: Family, wish: _Wish) -> _Layers:
    size, patch = keys.need("image_size"), keys.need("patch_size")
    rows, width = (size // patch) ** 2 + 1, keys.need("hidden_size", 1, 2**16)
    keys.note("Position 0 is [CLS]; patches follow in raster order, row by row.")
    return _same(keys, _table(rows, width))


def _sinusoidal(keys: _Keys, family: Family, wish: _Wish) -> _Layers:
    width = keys.need("hidden_size", 1, 2**16)
    if keys.model_type == "whisper" and _part(keys, wish) == "decoder":
        return _same(keys, _table(keys.need("max_target_positions", 1, 2**28), width))
    if family.offset:
        begin = family.offset if family.offset > 0 else _after_pad(keys)
        keys.note(
            f"The model counts from {begin}: give the encoding positions + {begin}."
        )
    frequencies = make_inv_freq(width, spacing=family.spacing, device="cpu")
    return _same(keys, Sinusoidal(width, order=family.order, inv_freq=frequencies))


def _shaw(keys: _Keys, family: Family, wish: _Wish) -> _Layers:
    head_dim = keys.whole("head_dim", 1, 2**16) or _derived_head_dim(keys)
    longest = keys.need("max_length", 2, 2**28)
    _refuse_huge("max_position_embeddings", 2 * longest - 1, head_dim)
    keys.note(
        "Row Δ + max_distance here is row −Δ + max_distance of distance_embedding: "
        "flip the checkpoint's table. transformers 5 reads this key no more."
    )
    if keys.get("position_embedding_type") == "relative_key_query":
        keys.note("The keys' product with the distances is not expressed.")
    return _same(keys, Shaw(head_dim, longest - 1, values=False))


def _none(keys: _Keys, family: Family, wish: _Wish) -> _Layers:
    keys.note("The model has no positional encoding.")
    return _same(keys, NoPE())


_SCHEMES: dict[str, Callable[[_Keys, Family, _Wish], _Layers]] = {
    "rope": _rope_layers,
    "alibi": _alibi,
    "t5": _t5,
    "xl": _xl,
    "learned": _learned,
    "vit": _vit,
    "sinusoidal": _sinusoidal,
    "shaw": _shaw,
    "none": _none,
}
