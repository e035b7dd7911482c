"""Whatever is given to a public function, it works or it says what it needs.

An error that comes out of torch's depths names neither the argument nor the mend. So
every refusal must be raised by pe_lab itself, name the need and show what was given.
"""

import traceback

import pytest
import torch

import pe_lab
from pe_lab import scaling

JUNK = [
    None, True, -1, 0, 1, 3, 2.5, -0.5, float("nan"), float("inf"), "8", [1, 2], {},
    torch.tensor(3), torch.tensor([]), torch.tensor([-3, 2]), torch.tensor([0.5, -1.0]),
    torch.tensor([torch.nan]), torch.tensor([torch.inf, 1]), torch.tensor([True]),
    torch.tensor([1j]), torch.arange(4).bfloat16(), torch.arange(3).half(),
    torch.zeros(0, 4), torch.ones(2, 3), torch.zeros(1, 2, 3).long(), torch.ones(1, 4, 8),
    torch.ones(1, 2, 4, 8), torch.ones(1, 2, 4, 8).long(), torch.ones(2, 2, 4, 8).half(),
    torch.ones(1, 2, 0, 8), torch.ones(1, 2, 4, 7), torch.ones(4, 4).bool(),
    torch.float16, torch.int64, "cpu", object(),
]  # fmt: skip

ids, x = torch.arange(4), torch.randn(1, 4, 8)
heads = torch.randn(1, 2, 4, 8)
table = pe_lab.rope_table(4, pe_lab.inv_freq(8))
slopes = pe_lab.alibi_slopes(2)
mask = torch.ones(1, 4).bool()
cells = pe_lab.positions.grid(2, 2)

# name -> (callable, good arguments by name)
CALLS = {
    "inv_freq": (pe_lab.inv_freq, {"dim": 8, "base": 1e4, "spacing": "paper"}),
    "sinusoidal": (pe_lab.sinusoidal, {"positions": 4, "d_model": 8, "base": 1e4, "order": "halves", "inv_freq": pe_lab.inv_freq(8), "dtype": torch.float32}),
    "rotation_matrix": (pe_lab.rotation_matrix, {"offset": 1, "d_model": 8, "base": 1e4, "order": "halves", "dtype": torch.float64}),
    "position_kernel": (pe_lab.position_kernel, {"offset": 1, "d_model": 8, "base": 1e4}),
    "score_matrix": (pe_lab.score_matrix, {"positions": 4, "d_model": 8, "base": 1e4}),
    "rope_table": (pe_lab.rope_table, {"positions": 4, "inv_freq": pe_lab.inv_freq(8), "dtype": torch.float32}),
    "apply_rope": (pe_lab.apply_rope, {"x": heads, "cos": table[0], "sin": table[1], "layout": "half"}),
    "alibi_slopes": (pe_lab.alibi_slopes, {"num_heads": 4}),
    "hf_compat.inv_freq": (pe_lab.hf_compat.inv_freq, {"dim": 8, "base": 1e4}),
    "hf_compat.linear": (pe_lab.hf_compat.linear, {"dim": 8, "factor": 2.0, "base": 1e4}),
    "hf_compat.dynamic_ntk": (pe_lab.hf_compat.dynamic_ntk, {"dim": 8, "factor": 2.0, "length": 9, "original_length": 4, "base": 1e4}),
    "hf_compat.llama3": (pe_lab.hf_compat.llama3, {"dim": 8, "factor": 2.0, "original_length": 4, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "base": 1e4}),
    "hf_compat.yarn": (pe_lab.hf_compat.yarn, {"dim": 8, "factor": 2.0, "original_length": 4, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True, "base": 1e4}),
    "hf_compat.longrope": (pe_lab.hf_compat.longrope, {"dim": 8, "factors": [1.0, 2.0, 3.0, 4.0], "base": 1e4}),
    "hf_compat.table": (pe_lab.hf_compat.table, {"positions": ids, "inv_freq": pe_lab.inv_freq(8), "gain": 1.0, "dtype": torch.float32}),
    "alibi_bias": (pe_lab.alibi_bias, {"q_pos": ids, "k_pos": ids, "slopes": slopes, "symmetric": False}),
    "alibi_channels": (pe_lab.alibi_channels, {"q_pos": ids, "k_pos": ids, "slopes": slopes, "dtype": torch.float32}),
    "flex.score_mod": (pe_lab.flex.score_mod, {"encoding": pe_lab.ALiBi(2), "q_pos": ids, "k_pos": ids}),
    "attention": (pe_lab.attention, {"q": heads, "k": heads, "v": heads, "mask": None, "encoding": None, "q_pos": None, "k_pos": None, "scale": None, "dropout": 0.0}),
    "attention with RoPE": (pe_lab.attention, {"q": heads, "k": heads, "v": heads, "mask": mask, "encoding": pe_lab.RoPE(8), "q_pos": ids, "k_pos": ids}),
    "Sinusoidal": (pe_lab.Sinusoidal, {"d_model": 8, "base": 1e4, "order": "halves", "inv_freq": None, "scale": 1.0}),
    "Sinusoidal.embed": (pe_lab.Sinusoidal(8).embed, {"x": x, "positions": ids}),
    "axial_sinusoidal": (pe_lab.axial_sinusoidal, {"positions": cells, "d_model": 8, "base": 1e4, "order": "halves", "inv_freq": pe_lab.inv_freq(4), "dtype": torch.float32}),
    "AxialSinusoidal": (pe_lab.AxialSinusoidal, {"d_model": 8, "axes": 2, "base": 1e4, "order": "halves", "inv_freq": None, "scale": 1.0}),
    "AxialSinusoidal.embed": (pe_lab.AxialSinusoidal(8).embed, {"x": x, "positions": cells}),
    "resample_rows": (pe_lab.resample_rows, {"table": torch.randn(5, 2), "rows": 9, "extra": 1}),
    "resample_grid": (pe_lab.resample_grid, {"table": torch.randn(5, 2), "old": (2, 2), "new": (3, 2), "extra": 1}),
    "Learned": (pe_lab.Learned, {"max_len": 4, "d_model": 8, "offset": 2, "std": 0.02}),
    "Learned.resize": (pe_lab.Learned(4, 8, offset=2).resize, {"max_len": 6, "generator": torch.Generator()}),
    "Learned.resample": (pe_lab.Learned(4, 8).resample, {"max_len": 6, "extra": 1}),
    "Learned.resample_grid": (pe_lab.Learned(5, 8).resample_grid, {"old": (2, 2), "new": (3, 2), "extra": 1}),
    "Learned.embed": (pe_lab.Learned(4, 8).embed, {"x": x, "positions": ids}),
    "RoPE": (pe_lab.RoPE, {"head_dim": 8, "base": 1e4, "layout": "half", "rotary_dim": 4, "scaling": None, "gain": 1.0, "compat": None}),
    "RoPE.rotate": (pe_lab.RoPE(8).rotate, {"q": heads, "k": heads, "q_pos": ids, "k_pos": ids}),
    "ALiBi": (pe_lab.ALiBi, {"num_heads": 2, "symmetric": False, "slopes": [0.5, 0.25]}),
    "ALiBi.bias": (pe_lab.ALiBi(2).bias, {"q": heads, "k": heads, "q_pos": ids, "k_pos": ids}),
    "MultiHeadAttention": (pe_lab.MultiHeadAttention, {"d_model": 8, "num_heads": 2, "dropout": 0.0}),
    "MultiHeadAttention()": (pe_lab.MultiHeadAttention(8, 2), {"x": x, "source": None, "mask": None}),
    "Transformer": (pe_lab.Transformer, {"vocab_size": 5, "d_model": 8, "num_heads": 2, "num_layers": 1, "kind": "encoder", "encoding": None, "d_ff": 8, "norm": "pre", "dropout": 0.0, "embedding_std": 1.0, "embedding_scale": 1.0}),
    "Transformer()": (pe_lab.Transformer(5, 8, 2, 1), {"ids": ids[None], "positions": ids, "mask": mask, "source": None}),
    "from_mask": (pe_lab.positions.from_mask, {"mask": mask}),
    "from_lengths": (pe_lab.positions.from_lengths, {"lengths": [1, 2], "length": 3, "side": "left"}),
    "as_positions": (pe_lab.positions.as_positions, {"positions": 4}),
    "table_rows": (pe_lab.positions.table_rows, {"positions": ids, "rows": 9, "offset": 2}),
    "pairwise_offsets": (pe_lab.positions.pairwise_offsets, {"q_pos": ids, "k_pos": ids}),
    "packed": (pe_lab.positions.packed, {"lengths": [1, 2]}),
    "causal": (pe_lab.positions.causal, {"q_pos": ids, "k_pos": ids}),
    "cached": (pe_lab.positions.cached, {"past": 2, "new": 1}),
    "mrope": (pe_lab.positions.mrope, {"segments": [2, (1, 2, 2)]}),
    "contiguous": (pe_lab.positions.contiguous, {"length": 8, "rank": 0, "world_size": 3}),
    "zigzag": (pe_lab.positions.zigzag, {"length": 8, "rank": 0, "world_size": 2}),
    "convert_layout": (pe_lab.convert_layout, {"weight": torch.randn(16, 4), "num_heads": 2, "num_kv_heads": None, "frm": "half", "to": "interleaved"}),
    "XPos": (pe_lab.XPos, {"head_dim": 8, "base": 1e4, "layout": "half", "scale_base": 512.0, "centre": 0.0}),
    "AxialRoPE": (pe_lab.AxialRoPE, {"head_dim": 8, "axes": 2, "base": 1e4, "layout": "half"}),
    "AxialRoPE.rotate": (pe_lab.AxialRoPE(8).rotate, {"q": heads, "k": heads, "q_pos": cells, "k_pos": cells}),
    "MRoPE": (pe_lab.MRoPE, {"head_dim": 8, "sections": (2, 2), "base": 1e4}),
    "MRoPE.rotate": (pe_lab.MRoPE(8, (2, 2)).rotate, {"q": heads, "k": heads, "q_pos": cells, "k_pos": cells}),
    "Shaw": (pe_lab.Shaw, {"head_dim": 8, "max_distance": 2, "values": True}),
    "T5Bias": (pe_lab.T5Bias, {"num_heads": 2, "bidirectional": False, "num_buckets": 32, "max_distance": 128}),
    "t5_bucket": (pe_lab.t5_bucket, {"relative_position": ids, "bidirectional": True, "num_buckets": 32, "max_distance": 128}),
    "TransformerXL": (pe_lab.TransformerXL, {"num_heads": 2, "head_dim": 8, "base": 1e4}),
    "TUPE": (pe_lab.TUPE, {"max_len": 9, "d_model": 16, "num_heads": 2, "reset_cls": True}),
    "Kerple": (pe_lab.Kerple, {"num_heads": 2, "kind": "log"}),
    "Fire": (pe_lab.Fire, {"num_heads": 2, "width": 4, "c": 0.1, "threshold": 5.0}),
    "linear": (scaling.linear, {"inv_freq": pe_lab.inv_freq(8), "factor": 2.0}),
    "dynamic_ntk": (scaling.dynamic_ntk, {"inv_freq": pe_lab.inv_freq(8), "factor": 2.0, "length": 9, "original_length": 4}),
    "llama3": (scaling.llama3, {"inv_freq": pe_lab.inv_freq(8), "factor": 2.0, "original_length": 4, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    "yarn": (scaling.yarn, {"inv_freq": pe_lab.inv_freq(8), "factor": 2.0, "original_length": 64, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}),
    "yarn_gain": (scaling.yarn_gain, {"factor": 2.0, "mscale": 1.0, "mscale_all_dim": 0.0}),
    "longrope": (scaling.longrope, {"inv_freq": pe_lab.inv_freq(8), "short_factor": [1.0] * 4, "long_factor": [1.0] * 4, "length": 3, "original_length": 4}),
    "longrope_gain": (scaling.longrope_gain, {"factor": 2.0, "original_length": 4}),
    "extend": (pe_lab.Transformer(5, 8, 2, 1).extend, {"ids": ids[None], "cache": None, "positions": ids[None], "mask": mask}),
    "encoder-decoder": (pe_lab.Transformer(5, 8, 2, 1, kind="encoder-decoder"), {"ids": ids[None], "source": ids[None], "source_positions": ids, "source_mask": mask}),
    "factorization_order": (pe_lab.factorization_order, {"length": 4, "generator": None, "mask": mask}),
    "stream_masks": (pe_lab.stream_masks, {"order": ids, "predict": 2, "joint_context": False, "memory": 0, "mask": mask}),
    "two_stream_attention": (pe_lab.two_stream_attention, {"attend": pe_lab.MultiHeadAttention(8, 2), "h": x, "g": x, "masks": pe_lab.stream_masks(ids), "targets": ids, "encoding": None, "positions": ids, "memory": None}),
    "TwoStreamTransformer": (pe_lab.TwoStreamTransformer, {"vocab_size": 5, "d_model": 8, "num_heads": 2, "num_layers": 1, "encoding": None, "d_ff": 8, "norm": "post", "dropout": 0.0}),
    "streams": (pe_lab.TwoStreamTransformer(5, 8, 2, 1).streams, {"ids": ids[None], "order": ids, "predict": 2, "joint_context": True, "positions": ids, "mask": mask, "memory": None}),
    "diagnose": (pe_lab.diagnose, {"subject": pe_lab.alibi_slopes, "kind": "slopes", "seconds": 5.0}),
    "hf.Note": (pe_lab.hf.Note, {"text": "a note", "sort": "ignored", "severity": "risky", "key": "factor"}),
    "hf.from_config": (pe_lab.hf.from_config, {"config": {"model_type": "llama", "head_dim": 8, "rope_theta": 1e4, "num_hidden_layers": 2}, "layer": 1, "length": 9, "part": "encoder"}),
    "desiderata": (pe_lab.desiderata, {"encoding": pe_lab.NoPE(), "d_model": 32, "num_heads": 2}),
    "seed": (pe_lab.seed, {"value": 1}),
    "exercises.case": (pe_lab.exercises.case, {"number": 3}),
    "exercises.score": (pe_lab.exercises.score, {"answers": {1: "ladder", 2: None}}),
    "lab.probes.ridge": (pe_lab.lab.probes.ridge, {"x": torch.randn(9, 3), "y": torch.randn(9), "penalty": 1e-3}),
    "lab.probes.r_squared": (pe_lab.lab.probes.r_squared, {"guess": torch.zeros(3), "y": torch.tensor([1.0, 2.0, 3.0])}),
    "lab.probes.read_places": (pe_lab.lab.probes.read_places, {"fit": torch.randn(2, 4, 3), "test": torch.randn(2, 4, 3), "penalty": 1e-3}),
    "lab.strings.copy": (pe_lab.lab.strings.copy, {"shortest": 1, "longest": 3}),
    "lab.strings.reverse": (pe_lab.lab.strings.reverse, {"shortest": 1, "longest": 3}),
    "lab.strings.sort": (pe_lab.lab.strings.sort, {"shortest": 1, "longest": 3}),
    "lab.strings.addition": (pe_lab.lab.strings.addition, {"shortest": 1, "longest": 3, "units_first": False}),
    "permutation_error": (pe_lab.properties.permutation_error, {"f": torch.nn.Identity(), "x": x, "permutation": ids}),
}  # fmt: skip

for scheme in (pe_lab.XPos(8), pe_lab.Shaw(8, 2), pe_lab.T5Bias(2), pe_lab.TransformerXL(2, 8), pe_lab.TUPE(9, 16, 2), pe_lab.Kerple(2), pe_lab.Fire(2)):  # fmt: skip
    door = scheme.rotate if isinstance(scheme, pe_lab.RoPE) else scheme.bias
    arguments = {"q": heads, "k": heads, "q_pos": ids, "k_pos": ids}
    CALLS[f"{type(scheme).__name__}.{door.__name__}"] = (door, arguments)


@pytest.mark.parametrize("name", CALLS)
def test_good_arguments_pass(name):
    call, arguments = CALLS[name]
    call(**arguments)


def refused_by_pe_lab(error: BaseException) -> bool:
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    words = str(error)
    return (
        isinstance(error, TypeError | ValueError | IndexError)
        and "pe_lab" in last
        and any(need in words for need in ("need", "has no row", "reads no source"))
    )


@pytest.mark.parametrize("name", CALLS)
def test_junk_is_understood_or_refused_in_words(name):
    """Every argument in turn is replaced by every piece of junk."""
    call, good = CALLS[name]
    speechless = []
    for victim in good:
        for junk in JUNK:
            try:
                call(**good | {victim: junk})
            except Exception as error:
                if not refused_by_pe_lab(error):
                    kind = type(error).__name__
                    speechless.append(f"{victim}={junk!r:.60}: {kind}: {error!s:.90}")
    assert not speechless, "\n".join(speechless)
