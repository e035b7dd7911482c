"""Ladders of frequencies are called by the names under which they were made."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pe_lab
from pe_lab import scaling
from pe_lab.doctor.waves import FIT, name_ladder

DIMS = st.sampled_from([16, 32, 64, 80, 128, 256])
BASES = st.sampled_from([1e4, 1e5, 5e5, 1e6, 5e6])
FACTORS = st.sampled_from([2, 2.5, 4, 8, 16, 40])
LENGTHS = st.sampled_from([2048, 4096, 8192, 32768])


@given(DIMS, BASES, st.sampled_from(["paper", "tensor2tensor"]))
def test_plain_ladders(dim, base, spacing):
    """In float32, as models make them."""
    w = pe_lab.inv_freq(dim, base=base, spacing=spacing).float()
    named = name_ladder(w, dim=dim)
    assert named["scaling"] == "none", named
    assert named["spacing"] == spacing
    assert named["base"] == pytest.approx(base, rel=1e-9)
    assert named["error"] < FIT


@given(DIMS, BASES, FACTORS)
def test_scaled_by_one_number(dim, base, factor):
    """Chen et al. 2023, and the base of the NTK-aware proposal, for the usual bases."""
    w = pe_lab.inv_freq(dim, base=base)
    named = name_ladder(scaling.linear(w, factor), dim=dim)
    assert (named["base"], named["scaling"]) == (base, f"linear {factor:g}")
    if base in (1e4, 5e5, 1e6) and factor > 2.5 and dim > 16:
        named = name_ladder(scaling.ntk(w, factor), dim=dim)
        assert (named["base"], named["scaling"]) == (base, f"ntk {factor:g}")


@given(DIMS, BASES, FACTORS, LENGTHS, st.sampled_from(["llama3", "yarn"]))
def test_scaled_in_parts(dim, base, factor, length, rule):
    """Whatever the name, the ladder named is the ladder given; with room, by its name."""
    w = pe_lab.inv_freq(dim, base=base)
    scaled = getattr(scaling, rule)(w, factor, original_length=length)
    named = name_ladder(scaled, dim=dim)
    assert float((named["ladder"] / scaled - 1).abs().max()) <= 10 * FIT
    if dim >= 64 and factor > 2 and bool((scaled < w * 0.999).any()):
        assert (named["base"], named["scaling"]) == (base, f"{rule} {factor:g}")


def test_the_two_shapes_of_ramp_with_other_turns():
    """Turns and lengths that no config has: the rule and the factor are still seen."""
    w = pe_lab.inv_freq(128)
    yarn = scaling.yarn(w, 16, original_length=10000, beta_fast=16, beta_slow=2)
    parts = scaling.ntk_by_parts(w, 4, original_length=3000, slow_turns=2, fast_turns=9)
    assert name_ladder(yarn, dim=128)["scaling"] == "yarn 16"
    assert name_ladder(parts, dim=128)["scaling"] == "by parts 4"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_frequencies_are_seen(dtype):
    named = name_ladder(pe_lab.inv_freq(64).to(dtype), dim=64)
    assert named["rounded"] == str(dtype).removeprefix("torch.")
    assert named["base"] == 1e4


def test_a_factor_for_every_pair_and_a_step():
    w = pe_lab.inv_freq(32)
    assert name_ladder(w / torch.linspace(1, 9, 16), dim=32)["scaling"] == "longrope"
    step = torch.where(w < 0.01, w / 8, w)
    assert name_ladder(step, dim=32)["scaling"] == "step 8"


@pytest.mark.parametrize(
    "w",
    [
        torch.zeros(4),
        -torch.ones(4),
        torch.tensor([1.0, math.nan]),
        torch.ones(0),
        torch.ones(2, 2),
        torch.tensor([1.0, 0.3, 0.9, 0.1, 0.7]),
    ],
)
def test_what_is_no_ladder_is_unknown(w):
    """Zeros, negatives, NaN, nothing, a table, a jumble: a name, never an exception."""
    assert name_ladder(w, dim=8)["scaling"] == "unknown"


def test_falcons_base_is_not_rounded():
    """rope_theta 1000042 of Falcon 3 is told from a million."""
    named = name_ladder(pe_lab.inv_freq(256, base=1000042.0).float(), dim=256)
    assert named["base"] == pytest.approx(1000042, rel=1e-6)


def test_a_single_pair_leaves_the_base_open():
    assert math.isnan(name_ladder(torch.ones(1), dim=2)["base"])
    assert name_ladder(torch.full((1,), 0.25), dim=2)["scaling"] == "linear 4"
