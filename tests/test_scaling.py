"""Scaling rules against transformers' own, and their defining properties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pe_lab
from pe_lab import scaling

W = pe_lab.inv_freq(64)


def hugging_face(rule, seq_len=None, dim=64, base=10000.0, **parameters):
    """inv_freq and gain of transformers for a rule and a rotary width."""
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    config = pytest.importorskip("transformers").LlamaConfig(
        hidden_size=dim * 4, num_attention_heads=4,
        max_position_embeddings=parameters.pop("max_position_embeddings", 8192),
        rope_parameters={"rope_type": rule, "rope_theta": base} | parameters,
    )  # fmt: skip
    return rope.ROPE_INIT_FUNCTIONS[rule](config, "cpu", seq_len=seq_len)


def close(ours, theirs):
    """float32 frequencies of theirs: 1e-6 relative covers power and division."""
    assert torch.allclose(ours, theirs.double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("base", [1e4, 5e5])
@pytest.mark.parametrize("dim", [32, 64, 128])
def test_rules_equal_transformers(dim, base):
    w = pe_lab.inv_freq(dim, base=base)
    common = {"factor": 8.0, "original_max_position_embeddings": 2048, "dim": dim, "base": base}  # fmt: skip
    close(
        scaling.linear(w, 8), hugging_face("linear", factor=8.0, dim=dim, base=base)[0]
    )
    for length in (100, 8192, 30_000):
        theirs, _ = hugging_face(
            "dynamic", factor=2.0, seq_len=length, dim=dim, base=base
        )
        close(scaling.dynamic_ntk(w, 2, length=length, original_length=8192), theirs)
    theirs, _ = hugging_face(
        "llama3", low_freq_factor=1.0, high_freq_factor=4.0, **common
    )
    close(scaling.llama3(w, 8, original_length=2048), theirs)
    for truncate in (True, False):
        theirs, gain = hugging_face("yarn", truncate=truncate, **common)
        close(scaling.yarn(w, 8, original_length=2048, truncate=truncate), theirs)
    assert scaling.yarn_gain(8) == pytest.approx(gain)


def test_longrope_equals_transformers_on_both_sides_of_the_switch():
    short, long = (torch.linspace(1, top, 32).tolist() for top in (1.5, 40))
    for length, factors in ((2048, short), (2049, long)):
        theirs, gain = hugging_face(
            "longrope", short_factor=short, long_factor=long, factor=4.0,
            original_max_position_embeddings=2048, seq_len=length,
        )  # fmt: skip
        ours = scaling.longrope(W, short, long, length=length, original_length=2048)
        close(ours, theirs)
        assert torch.allclose(ours, W / torch.tensor(factors, dtype=torch.float64))
    assert scaling.longrope_gain(4, original_length=2048) == pytest.approx(gain)


def test_values_of_public_bug_reports():
    """Dynamic NTK bases at L = 16, 32, 64; Llama-3 pairs kept, blended and divided."""
    for length, base in ((16, 1e4), (32, 31_082), (64, 74_535)):
        w = scaling.dynamic_ntk(W, 2, length=length, original_length=16)
        assert w[1].item() == pytest.approx(base ** (-2 / 64), rel=1e-6)
    for dim, counts in ((128, (29, 6, 29)), (64, (15, 3, 14))):
        w = pe_lab.inv_freq(dim, base=5e5)
        ratio = w / scaling.llama3(w, 8, original_length=8192)
        kept, divided = (ratio < 1 + 1e-9).sum(), (ratio > 8 - 1e-9).sum()
        assert (kept, dim // 2 - kept - divided, divided) == counts


def test_deepseek_puts_the_gain_into_the_softmax_scale():
    """factor 40: the gain cancels for equal numbers; its square is 1.874 and 1.590."""
    assert scaling.yarn_gain(40, mscale=1, mscale_all_dim=1) == 1
    assert scaling.yarn_gain(40, mscale=1) ** 2 == pytest.approx(1.874, abs=5e-4)
    assert scaling.yarn_gain(40, mscale=0.707) ** 2 == pytest.approx(1.590, abs=5e-4)
    assert scaling.yarn_gain(4) == pytest.approx(1.1386, abs=5e-5)


RULES = {
    "linear": lambda w, s: scaling.linear(w, s),
    "ntk": lambda w, s: scaling.ntk(w, s),
    "dynamic_ntk": lambda w, s: scaling.dynamic_ntk(w, s, length=4096, original_length=4096),
    "by parts": lambda w, s: scaling.ntk_by_parts(w, s, original_length=4096),
    "llama3": lambda w, s: scaling.llama3(w, s, original_length=4096),
    "yarn": lambda w, s: scaling.yarn(w, s, original_length=4096),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@given(pairs=st.integers(2, 64), factor=st.floats(1, 100), base=st.sampled_from([100.0, 1e4, 1e8]))  # fmt: skip
def test_every_rule_slows_pairs_by_one_to_factor_and_keeps_their_order(
    rule, pairs, factor, base
):
    w = pe_lab.inv_freq(2 * pairs, base=base)
    scaled = RULES[rule](w, factor)
    assert (scaled <= w * (1 + 1e-12)).all()
    assert (scaled >= w / factor * (1 - 1e-12)).all()
    assert (scaled.diff() < 0).all()
    assert torch.allclose(RULES[rule](w, 1.0), w, rtol=1e-12)


def test_ntk_is_a_larger_base():
    base = 10000 * 4 ** (64 / 62)
    assert torch.allclose(scaling.ntk(W, 4), pe_lab.inv_freq(64, base=base), rtol=1e-12)


def test_dynamic_ntk_never_shrinks_the_base():
    """A served length below the trained one once gave a negative base."""
    for length in (1, 512, 1024, 2048):
        w = scaling.dynamic_ntk(W, 2, length=length, original_length=2048)
        assert torch.equal(w, W)


def test_scaled_sinusoids_are_sinusoids_at_fractional_positions():
    ids = torch.arange(64)
    a = pe_lab.sinusoidal(ids, 64, inv_freq=scaling.linear(W, 4))
    b = pe_lab.sinusoidal(ids / 4, 64)
    assert torch.allclose(a, b, atol=1e-7)


def test_as_many_slow_turns_as_fast_ones_make_a_step():
    """Llama 4 Scout's 1.0 and 1.0: below one turn divided, from there on kept."""
    ratio = scaling.llama3(W, 16, original_length=8192, high_freq_factor=1.0) / W
    kept = W * 8192 / (2 * torch.pi) >= 1
    assert 0 < kept.sum() < len(W)
    assert torch.equal(ratio, torch.where(kept, 1.0, 1 / 16).to(W))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: scaling.linear(W, 0.5), ValueError, "factor needs"),
        (lambda: scaling.linear(W, float("nan")), ValueError, "factor needs"),
        (lambda: scaling.linear([1.0], 2), TypeError, "inv_freq needs"),
        (lambda: scaling.ntk(W[:1], 2), ValueError, "at least 2 frequencies"),
        (lambda: scaling.dynamic_ntk(W, 2, length=0, original_length=16), ValueError, "length needs"),
        (lambda: scaling.llama3(W, 8, original_length=0), ValueError, "original_length needs"),
        (lambda: scaling.llama3(W, 8, original_length=8, low_freq_factor=5.0), ValueError, "fewer slow turns"),
        (lambda: scaling.yarn(W, 8, original_length=8, beta_fast=0.5), ValueError, "fewer slow turns"),
        (lambda: scaling.yarn(torch.ones(4), 8, original_length=8), ValueError, "fall from pair to pair"),
        (lambda: scaling.longrope(W, [1.0], [1.0], length=1, original_length=2), ValueError, "32 positive factors"),
        (lambda: scaling.longrope(W, "short", [1.0], length=1, original_length=2), TypeError, "short_factor needs"),
        (lambda: scaling.longrope_gain(2, original_length=1), ValueError, "original_length needs"),
        (lambda: scaling.yarn_gain(2, mscale=None), TypeError, "mscale needs"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_yarn_divides_every_pair_if_none_makes_a_turn():
    """Six positions are less than one turn of the fastest pair; transformers keeps all."""
    w = scaling.yarn(W, 4, original_length=6, truncate=False)
    assert torch.equal(w, W / 4)


def test_longrope_factors_are_not_rounded():
    """A list of factors is float64, whatever the default dtype: 1e-16 relative."""
    factors = [1 + i / 7 for i in range(32)]
    torch.set_default_dtype(torch.bfloat16)
    try:
        w = scaling.longrope(W, factors, factors, length=1, original_length=2)
    finally:
        torch.set_default_dtype(torch.float32)
    for ours, given_one, factor in zip(w.tolist(), W.tolist(), factors, strict=True):
        assert ours == pytest.approx(given_one / factor, rel=1e-15)
