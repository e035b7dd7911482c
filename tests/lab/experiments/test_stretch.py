"""Ways of stretching change what their name says, and tuning changes a copy."""

import math

import numpy as np
import pytest
import torch

from pe_lab import Learned, RoPE, Sinusoidal, inv_freq, scaling
from pe_lab.lab import load
from pe_lab.lab.experiments import EXPERIMENTS, panorama, stretch
from pe_lab.lab.extrapolation import windows
from pe_lab.lab.training import LOCAL, reproducible
from pe_lab.model import Transformer

EXPERIMENT = EXPERIMENTS["stretch"]


def tiny(variant, ways, more=(0,)):
    """A config that trains for seconds, on the text that is always there."""
    config = EXPERIMENT.config(variant, "quick", "topics")
    config["recipe"] |= {"steps": 4, "measure_at": (), "held_out_size": 8}
    config["tuning"] |= {"held_out_size": 4}
    return config | {"tokens": 512, "ways": ways, "more": more}


def model_of(variant):
    config = tiny(variant, ())
    with reproducible(0):
        return panorama.language_model(config, 0, LOCAL)[0], config


@pytest.mark.parametrize("variant", stretch.WAYS)
def test_every_way_is_measured_before_and_after_tuning(variant):
    ways = [way for way in stretch.WAYS[variant] if way != "longrope"]
    with reproducible(0):
        made = EXPERIMENT.measure(tiny(variant, ways[:2], (0, 2)), 0, LOCAL)
    for way in ways[:2]:
        for steps in (0, 2):
            found = made.profiles[f"perplexity/{way}/{steps}"]
            assert found.at == [32, 64, 128, 256]
            assert all(math.isfinite(value) for value in found.values)
        assert (
            made.profiles[f"perplexity/{way}/0"].values
            != made.profiles[f"perplexity/{way}/2"].values
        )


def test_tuning_one_way_leaves_the_model_and_the_other_ways_alone():
    alone, both = (
        EXPERIMENT.measure(tiny("rope", ways, (0, 2)), 0, LOCAL).profiles
        for ways in (("yarn",), ("linear", "yarn"))
        for _ in [torch.manual_seed(0)]
    )
    assert alone["perplexity/yarn/2"] == both["perplexity/yarn/2"]


@pytest.mark.parametrize(
    ("way", "rule"),
    [
        ("plain", lambda w: w),
        ("linear", lambda w: w / 4),
        ("ntk", lambda w: inv_freq(16, base=10000 * 4 ** (16 / 14))),
        ("base-5e5", lambda w: inv_freq(16, base=5e5)),
        ("base-1e6", lambda w: inv_freq(16, base=1e6)),
    ],
)
def test_ways_of_rope_have_the_frequencies_of_their_formula(way, rule):
    model, config = model_of("rope")
    made = stretch.WAYS["rope"][way](model, config)
    assert torch.allclose(made.inv_freq, rule(inv_freq(16)), rtol=1e-12, atol=0)


def test_yarn_keeps_the_pair_that_turns_five_times_and_divides_those_below_one_turn():
    model, config = model_of("rope")
    slowed = {
        way: inv_freq(16) / stretch.WAYS["rope"][way](model, config).inv_freq
        for way in ("by-parts", "yarn", "llama3")
    }
    turns = 32 * inv_freq(16) / math.tau
    for way, found in slowed.items():
        assert found[0] == pytest.approx(1), way
        assert torch.allclose(found[turns < 0.5], torch.tensor(4.0).double()), way
    assert stretch.WAYS["rope"]["yarn"](model, config).gain == scaling.yarn_gain(4)
    assert stretch.WAYS["rope"]["yarn-no-gain"](model, config).gain == 1


@pytest.mark.parametrize("length", [16, 32, 64, 128])
def test_dynamic_is_the_ntk_rule_for_the_length_in_use(length):
    q, k = torch.randn(2, 1, 2, length, 16, dtype=torch.float64)
    ids = torch.arange(length)
    factor = max(1, length / 32)
    rule = RoPE(16, base=10000 * factor ** (16 / 14))
    got = stretch.DynamicRoPE(16, 32).rotate(q, k, ids, ids)
    for mine, want in zip(got, rule.rotate(q, k, ids, ids), strict=True):
        assert torch.allclose(mine, want, rtol=0, atol=1e-12)


def test_sinusoids_are_read_at_a_quarter_of_the_position():
    model, config = model_of("sinusoidal")
    made = stretch.WAYS["sinusoidal"]["linear"](model, config)
    zeros, ids = torch.zeros(1, 9, 64), torch.arange(9)
    assert torch.allclose(
        made.embed(zeros, ids), Sinusoidal(64).embed(zeros, ids.double() / 4), atol=1e-6
    )


def test_a_resampled_table_is_the_trained_rows_four_times_as_long():
    model, config = model_of("learned")
    made = stretch.WAYS["learned"]["resample"](model, config)
    assert isinstance(made, Learned) and made.weight is not model.encoding.weight
    trained = model.encoding.weight[:32]
    assert torch.equal(made.weight[0], trained[0])
    assert torch.allclose(made.weight[127:], trained[31].expand(129, -1), atol=1e-6)
    # row i is read at place i·31/127
    place = 64 * 31 / 127
    low = int(place)
    want = trained[low] + (place - low) * (trained[low + 1] - trained[low])
    assert torch.allclose(made.weight[64], want, atol=1e-6)


def test_the_search_finds_the_best_factors_that_do_not_fall():
    asked = []

    def loss(factors):
        asked.append(factors)
        return sum((f - w) ** 2 for f, w in zip(factors, [1, 2, 2, 4], strict=True))

    assert stretch.search(loss, 4) == [1, 2, 2, 4]
    assert all(factors == sorted(factors) for factors in asked)
    assert all(1 <= f <= 4 for factors in asked for f in factors)


def test_searched_factors_lower_the_loss_on_the_text_they_were_searched_on():
    model, config = model_of("rope")
    made = stretch.searched(model, config)
    assert isinstance(made, RoPE) and made.gain > 1
    ids = panorama.held_out_ids(panorama.load_text("topics"))
    assert windows(ids, 128, 512).shape == (4, 129)
    slowed = inv_freq(16) / made.inv_freq
    assert torch.equal(slowed, slowed.sort().values)
    assert slowed.min() >= 1 and slowed.max() <= 4 + 1e-9


def test_a_model_that_is_stretched_keeps_its_own_encoding():
    model, config = model_of("rope")
    own = model.encoding
    for way in ("plain", "yarn", "dynamic", "longrope"):
        stretch.WAYS["rope"][way](model, config)
    assert model.encoding is own and isinstance(model, Transformer)


def test_shipped_runs_say_what_the_chapter_says():
    result = load("stretch")

    def at(way, steps, length):
        places, values = result.profile("rope", f"perplexity/{way}/{steps}")
        return values[:, places.tolist().index(length)]

    # tuned for 100 steps at four times the length, each seed
    assert (at("yarn", 100, 128) < at("linear", 100, 128)).all()
    assert (at("yarn", 0, 128) < at("plain", 0, 128)).all()
    # what it costs where nothing was missing
    assert (at("linear", 0, 32) > 2 * at("plain", 0, 32)).all()


def test_the_first_steps_of_a_shipped_run_come_out_again():
    stored = load("stretch").of("rope")[0]
    if stored.config["data"] != panorama.load_text("auto").fingerprint:
        pytest.skip("the King James text is not fetched: `pe-lab fetch` brings it")
    config = EXPERIMENT.config("rope", "full", "auto")
    config["recipe"] |= {"steps": 20, "measure_at": (0,)}
    config |= {"tokens": 512, "ways": [], "more": []}
    with reproducible(0):
        made = EXPERIMENT.measure(config, 0, LOCAL)
    want = stored.curves["train_loss"].values[:2]
    # other processors round differently: 1e-7 per step grows to some 1e-5 in 20 steps
    np.testing.assert_allclose(made.curves["train_loss"].values, want, rtol=1e-3)
