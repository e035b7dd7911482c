"""The panorama: schemes are made for their lengths, and a shipped run comes out again."""

import math

import numpy as np
import pytest
import torch

from pe_lab.lab import load
from pe_lab.lab.experiments import EXPERIMENTS, panorama
from pe_lab.lab.results import Curve
from pe_lab.lab.training import LOCAL, reproducible

EXPERIMENT = EXPERIMENTS["panorama"]


def tiny(variant, steps=20):
    """A config that trains for seconds, on the text that is always there."""
    config = EXPERIMENT.config(variant, "quick", "topics")
    config["recipe"] |= {"steps": steps, "measure_at": (), "held_out_size": 8}
    return config | {"tokens": 512, "lengths": (32, 64)}


def measured(variant, **changes):
    with reproducible(0):
        return EXPERIMENT.measure(tiny(variant) | changes, 0, LOCAL)


@pytest.mark.parametrize("variant", EXPERIMENT.variants)
def test_every_variant_is_measured_at_every_length_and_place(variant):
    made = measured(variant)
    ways = {name.split("/")[1] for name in made.profiles if "/" in name}
    assert ways == {"plain", "window", *panorama.WAYS_OUT.get(variant, {})}
    for way in ways:
        lengths, places = (made.profiles[f"{m}/{way}"] for m in ("perplexity", "loss"))
        assert lengths.at == [32, 64]
        assert places.at == list(range(64))
        # the loss at all places and the perplexity are of the same windows
        assert math.log(lengths.values[-1]) == pytest.approx(
            sum(places.values) / 64, abs=1e-4
        )
    # within the trained length, a way out has nothing to change
    inside = {made.profiles[f"perplexity/{way}"].values[0] for way in ways}
    assert max(inside) - min(inside) < 1e-4 * max(inside)


def test_only_the_trained_rows_of_a_table_have_moved():
    config = tiny("learned", steps=5)
    config["recipe"]["weight_decay"] = 0.0
    with reproducible(0):
        model, _ = panorama.language_model(config, 0, LOCAL)
    with reproducible(0):
        start = panorama.transformer(
            panorama.tasks.next_character(panorama.load_text("topics"), 32),
            config["sizes"],
            panorama.encoding_of(config),
        )
    moved = (model.encoding.weight != start.encoding.weight).any(dim=1)
    assert moved.tolist() == [True] * 32 + [False] * 32


def test_ways_out_read_the_rows_that_their_name_says():
    table = panorama.SCHEMES["learned"](8, 2, 4, 12)
    ids = torch.arange(8)
    _, clamp = panorama.WAYS_OUT["learned"]["clamp"](table, 4, 8)
    _, wrap = panorama.WAYS_OUT["learned"]["wrap"](table, 4, 8)
    assert clamp(ids).tolist() == [0, 1, 2, 3, 3, 3, 3, 3]
    assert wrap(ids).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    wide, same = panorama.WAYS_OUT["learned"]["resample"](table, 4, 7)
    assert same(ids) is ids
    assert torch.allclose(wide.weight[::2], table.weight[:4], atol=1e-6)
    assert torch.allclose(
        wide.weight[1], (table.weight[0] + table.weight[1]) / 2, atol=1e-6
    )
    _, squeeze = panorama.WAYS_OUT["sinusoidal"]["interpolate"](None, 4, 8)
    assert squeeze(ids).tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]


def test_every_wave_of_base_5_turns_fully_within_the_trained_length():
    short = panorama.SCHEMES["rope-base5"](64, 4, 32, 256).inv_freq
    long = panorama.SCHEMES["rope"](64, 4, 32, 256).inv_freq
    assert (math.tau / short < 32).all()
    assert int((math.tau / long < 32).sum()) == 2


def test_the_first_steps_of_a_shipped_run_come_out_again():
    stored = load("panorama").of("alibi")[0]
    if stored.config["data"] != panorama.load_text("auto").fingerprint:
        pytest.skip("the King James text is not fetched: `pe-lab fetch` brings it")
    config = EXPERIMENT.config("alibi", "full", "auto")
    config["recipe"] |= {"steps": 20, "measure_at": (0,)}
    config |= {"lengths": (32, 64), "tokens": 512}
    with reproducible(0):
        made = EXPERIMENT.measure(config, 0, LOCAL)
    want = Curve(*(part[:2] for part in vars(stored.curves["train_loss"]).values()))
    assert made.curves["train_loss"].steps == want.steps
    # other processors round differently: 1e-7 per step grows to some 1e-5 in 20 steps
    np.testing.assert_allclose(made.curves["train_loss"].values, want.values, rtol=1e-3)


def test_shipped_runs_say_what_the_chapter_says():
    result = load("panorama")

    def growth(variant, way="plain"):  # perplexity at 256 over that at 32, each seed
        _, values = result.profile(variant, f"perplexity/{way}")
        return values[:, -1] / values[:, 0]

    for variant in ("sinusoidal", "learned", "rope"):
        assert (growth(variant) > 2).all()
    for variant in ("alibi", "shaw"):
        assert (growth(variant) < 1.05).all()
    assert (growth("rope", "window") < 1.0).all()
    assert (growth("rope-base5") < growth("rope")).all()


def test_the_gpu_recipe_is_a_larger_model_and_runs():
    config = EXPERIMENT.config("rope", "gpu", "topics")
    assert config["lengths"] == (128, 256, 512, 1024, 2048)
    assert config["recipe"]["steps"] == 3000
    config["recipe"] |= {"steps": 1, "batch_size": 1, "measure_at": ()}
    config["recipe"] |= {"held_out_size": 1}
    config |= {"lengths": (128, 256), "tokens": 256}
    with reproducible(0):
        made = EXPERIMENT.measure(config, 0, LOCAL)
    assert made.final["parameters"] > 4_000_000
    assert made.profiles["perplexity/plain"].at == [128, 256]
