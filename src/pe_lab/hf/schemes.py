"""One small function for each scheme but rotations: a config → its encoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pe_lab.encodings.alibi import ALiBi, alibi_slopes
from pe_lab.encodings.base import NoPE, PositionalEncoding
from pe_lab.encodings.learned import Learned
from pe_lab.encodings.shaw import Shaw
from pe_lab.encodings.sinusoidal import Sinusoidal
from pe_lab.encodings.t5 import T5Bias
from pe_lab.encodings.transformer_xl import TransformerXL
from pe_lab.frequencies import inv_freq

from .config import Config
from .families import FAMILIES
from .keys import word

MOST_NUMBERS = 2**28  # of one table: 1 GiB, ten times the largest in use

_FALCON = ("falcon", "RefinedWeb", "RefinedWebModel")
# What position_embedding_type makes of models with a table or with rotations.
_SWITCH = {
    "rotary": "rope",
    "rope": "rope",
    "rope_gptj": "rope",  # Cohere's, whose families turn neighbouring channels anyway
    "relative_key": "shaw",
    "relative_key_query": "shaw",
    "nope": "none",
}


def scheme(config: Config) -> str:
    """The family's scheme, unless a switch in the config chooses another."""
    usual = config.family.scheme
    if usual == "rope" and config.flag("alibi"):
        if config.model_type in _FALCON or config.model_type not in FAMILIES:
            return "alibi"
        told = "alibi is ignored: code of this family does not read it."
        config.note(told, "ignored", "wrong", "alibi")
    kind = config.get("position_embedding_type")
    if kind is None or usual not in ("learned", "rope"):
        return usual
    if word("position_embedding_type", kind) in _SWITCH:
        return _SWITCH[kind]
    if kind not in ("absolute", "learned_absolute"):  # BERT's default, which stays
        told = f"position_embedding_type {kind!r:.40} is ignored: {usual} is read."
        config.note(told, "ignored", "risky", "position_embedding_type")
    return usual


def t5(config: Config) -> tuple[list[PositionalEncoding], float]:
    """One bias for all layers, or one for each in UMT5; scores are not divided."""
    part = _part(config)
    count = config.num_layers or 1
    if part == "decoder":
        count = config.whole("num_decoder_layers", 0, 2**12) or count
    head_dim = config.head_dim()
    bias = partial(
        T5Bias,
        config.need("num_heads", 1, 2**12),
        bidirectional=part == "encoder",
        num_buckets=config.whole("relative_attention_num_buckets", 2, 2**12) or 32,
        max_distance=config.whole("relative_attention_max_distance", 2, 2**16) or 128,
    )
    config.note(f"T5 does not divide scores: softmax_scale_factor is √{head_dim}.")
    if config.model_type == "umt5":
        config.note("Every layer has a bias of its own.")
        return [bias() for _ in range(count)], head_dim**0.5
    config.note(
        "One bias, kept in the first layer, is shared by all layers of a stack."
    )
    return [bias()] * count, head_dim**0.5


def _part(config: Config) -> str:
    """The stack asked for; the encoder, with a note, if nothing was said."""
    if config.part is not None:
        return config.part
    if config.get("is_decoder") is True and config.get("is_encoder_decoder") is False:
        return "decoder"
    told = "The encoder is read; part='decoder' reads the other stack."
    config.note(told, "assumed", key="is_decoder")
    return "encoder"


def _alibi(config: Config) -> PositionalEncoding:
    heads = config.need("num_heads", 1, 2**12)
    slopes = alibi_slopes(heads)
    if config.model_type == "mpt":
        slopes = slopes ** (_steepest(config) / 8)
    if config.model_type in _FALCON:
        head_dim = config.derived_head_dim()
        config.note(
            f"Falcon adds the bias before it divides by √{head_dim}: the slopes are "
            "divided too. transformers rounds m_h·n to bfloat16; the encoding does not."
        )
        slopes = slopes / head_dim**0.5
    return ALiBi(heads, slopes=slopes)


def _steepest(config: Config) -> float:
    """MPT's b = alibi_bias_max in 2^(−b·h/H); 8 gives the paper's slopes."""
    inner = config.block("attn_config")
    if inner.get("alibi") is False:
        told = "attn_config.alibi is false: transformers adds ALiBi all the same."
        config.note(told, "ignored", "wrong", "alibi")
    if config.get("learned_pos_emb"):
        told = "learned_pos_emb is ignored: transformers builds no table for MPT."
        config.note(told, "ignored", key="learned_pos_emb")
    if inner.get("rope"):
        told = "attn_config.rope is ignored: transformers does not rotate in MPT."
        config.note(told, "ignored", "wrong", "rope")
    return inner.number("alibi_bias_max", 1e-6, 1e3) or 8.0


def _xl(config: Config) -> PositionalEncoding:
    heads, head_dim = config.need("num_heads", 1, 2**12), config.head_dim()
    width = config.need("hidden_size", 1, 2**16)
    if heads * head_dim != width:
        raise ValueError(
            f"d_model needs to be n_head · d_head = {heads * head_dim}, got {width}: "
            "TransformerXL's sinusoid is as wide as its heads together."
        )
    _refuse_huge("d_model", width, width)
    clamp = config.whole("clamp_len", -1) or 0
    if clamp > 0:
        told = f"clamp_len {clamp}: offsets beyond it count as it; not expressed."
        config.note(told, "not expressed", key="clamp_len")
    if config.model_type == "xlnet":
        told = "XLNet's term for segments is no matter of position; it is left out."
        config.note(told, "not expressed")
    config.note(
        "Checkpoints may hold u, v and W per layer or shared: copy them yourself."
    )
    return TransformerXL(heads, head_dim)


def _learned(config: Config) -> PositionalEncoding:
    if config.get("sinusoidal_pos_embds") or config.get("sinusoidal_embeddings"):
        config.note("The table is filled with sinusoids: it is read as those.")
        return Sinusoidal(config.need("table_width", 1, 2**16))
    rows = config.need("max_length", 1, 2**28)
    width, offset = config.need("table_width", 1, 2**16), config.family.offset
    if offset < 0:
        offset = _after_pad(config)
        if rows <= offset:
            raise ValueError(
                f"{config.name('max_length')} needs more than the {offset} rows that "
                f"positions are counted from, got {rows}."
            )
        rows -= offset
    if offset:
        config.note(
            f"Position 0 is row {offset}: {rows} positions, {rows + offset} rows.",
            key="max_position_embeddings",
        )
    return _table(rows, width, offset)


def _after_pad(config: Config) -> int:
    """pad_token_id + 1, where positions begin in fairseq's families."""
    pad = config.whole("pad", 0)
    if pad is None:
        told = "pad_token_id is not given: 1 is the family's."
        config.note(told, "assumed", key="pad_token_id")
        pad = 1
    config.note(
        f"Positions count from pad_token_id + 1 = {pad + 1}. transformers leaves "
        "padding out of the count; give the encoding ids from 0 on.",
        key="pad_token_id",
    )
    return pad + 1


def _vit(config: Config) -> PositionalEncoding:
    patches = config.need("image_size") // config.need("patch_size")
    width = config.need("hidden_size", 1, 2**16)
    config.note("Position 0 is [CLS]; patches follow in raster order, row by row.")
    return _table(patches**2 + 1, width)


def _sinusoidal(config: Config) -> PositionalEncoding:
    width, begin = config.need("hidden_size", 1, 2**16), config.family.offset
    if config.model_type == "whisper" and _part(config) == "decoder":
        return _table(config.need("max_target_positions", 1, 2**28), width)
    if begin < 0:
        begin = _after_pad(config)
    if begin:
        config.note(
            f"The model counts from {begin}: give the encoding positions + {begin}."
        )
    frequencies = inv_freq(width, spacing=config.family.spacing, device="cpu")
    return Sinusoidal(width, order=config.family.order, inv_freq=frequencies)


def _shaw(config: Config) -> PositionalEncoding:
    head_dim, longest = config.head_dim(), config.need("max_length", 2, 2**28)
    _refuse_huge("max_position_embeddings", 2 * longest - 1, head_dim)
    config.note(
        "Row Δ + max_distance here is row −Δ + max_distance of distance_embedding: "
        "flip the checkpoint's table. transformers 5 reads this key no more.",
        "ignored",
        "risky",
        "position_embedding_type",
    )
    if config.get("position_embedding_type") == "relative_key_query":
        told = "The keys' product with the distances is not expressed."
        config.note(told, "not expressed", key="position_embedding_type")
    return Shaw(head_dim, longest - 1, values=False)


def _none(config: Config) -> PositionalEncoding:
    config.note("The model has no positional encoding.")
    return NoPE()


def _table(rows: int, width: int, offset: int = 0) -> Learned:
    _refuse_huge("max_position_embeddings", rows + offset, width)
    return Learned(rows, width, offset=offset)


def _refuse_huge(name: str, rows: int, width: int) -> None:
    if rows * width > MOST_NUMBERS:
        raise ValueError(
            f"{name} needs a table of at most {MOST_NUMBERS} numbers, got {rows} rows "
            f"of {width}."
        )


# The schemes that are the same in all layers.
SCHEMES: dict[str, Callable[[Config], PositionalEncoding]] = {
    "alibi": _alibi,
    "xl": _xl,
    "learned": _learned,
    "vit": _vit,
    "sinusoidal": _sinusoidal,
    "shaw": _shaw,
    "none": _none,
}
