"""What the models of one type do where their config does not say: a table.

Checked against the modelling code of transformers 5.24.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Family:
    """What the models of one `model_type` do where their config does not say.

    Args:
        scheme: "rope", "learned", "sinusoidal", "alibi", "t5", "xl", "vit" or "none".
        base, head_dim: of rotations, if the config has no such key.
        partial: share of the channels that turns, if the config has no such key; None
            if the family's code turns whole heads, whatever the config says.
        rope: what transformers assumes if the config has no rope parameters.
        layout: of the pairs, as for `pe_lab.apply_rope`.
        choice: whether rope_interleave in the config chooses the layout.
        mla: turned are the qk_rope_head_dim channels that are split off each head.
        mscale: mscale_all_dim also corrects the softmax scale.
        full_every: (key, default, remainder): layer i sees everything if
            i mod n = remainder mod n, and only a window otherwise.
        local: (key, default) of the base in the layers that see a window.
        nope: layers without position: "listed" by no_rope_layers, "full" for those
            that see everything, "hybrid" for the same where there is a window.
        sections: of M-RoPE, pairs for each axis.
        woven: whether M-RoPE takes the axes in turn, pair by pair.
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
    rope: dict[str, Any] = field(default_factory=dict)
    layout: str = "half"
    choice: bool = False
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


_INTERLEAVED = "interleaved"
_PERIOD = "sliding_window_pattern"
_LENGTH = "original_max_position_embeddings"
_APERTUS = {
    "rope_type": "llama3", _LENGTH: 8192, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "factor": 8.0,
}  # fmt: skip
_GPT_OSS = {"rope_type": "yarn", "factor": 32.0, "truncate": False, _LENGTH: 4096}
_MINISTRAL3 = {
    "rope_type": "yarn", "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1, _LENGTH: 16384,
}  # fmt: skip
_MLA = Family(mla=True, mscale=True, layout=_INTERLEAVED, choice=True)
_GEMMA3 = Family(
    base=1e6,
    head_dim=256,
    full_every=(_PERIOD, 6, -1),
    local=("rope_local_base_freq", 1e4),
)
_MODERNBERT = Family(
    base=1.6e5,
    full_every=("global_attn_every_n_layers", 3, 0),
    local=("local_rope_theta", 1e4),
)
_QWEN3_VL = Family(base=5e5, head_dim=128, sections=(24, 20, 20), woven=True)
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
    ("ministral3", Family(base=1e6, head_dim=128, rope=_MINISTRAL3)),
    ("bitnet mllama", Family(base=5e5)),
    ("apertus", Family(base=1.2e7, rope=_APERTUS)),
    ("gpt_oss", Family(base=1.5e5, head_dim=64, rope=_GPT_OSS)),
    ("nomic_bert", Family(base=1000.0, choice=True)),
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
