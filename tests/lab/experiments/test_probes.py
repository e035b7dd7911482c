"""Probes: windows that do not meet, and models that count or cannot."""

import json

import pytest
import torch

from pe_lab.lab import load
from pe_lab.lab.experiments import EXPERIMENTS, probes
from pe_lab.lab.experiments.base import transformer
from pe_lab.lab.probes import hidden_states
from pe_lab.lab.tasks import left_neighbour, position
from pe_lab.lab.text import cache_folder, character_vocabulary, load_text
from pe_lab.lab.training import reproducible


def test_windows_cut_the_text_and_share_no_character():
    text = load_text("topics")
    rows = probes.held_out_windows(text, 64, 100)
    ids = character_vocabulary(text).encode(text.held_out[:6400])
    assert rows.flatten().tolist() == ids


def test_shuffling_moves_characters_within_their_window_only():
    rows = torch.arange(600).reshape(100, 6)
    mixed = probes.shuffled(rows)
    assert torch.equal(mixed.sort(dim=1).values, rows)
    assert torch.equal(mixed, probes.shuffled(rows))
    places = mixed % 6  # where the token at each place comes from
    # 100 draws of a uniform place: mean 2.5, standard deviation 1.7/10
    assert (places.double().mean(dim=0) - 2.5).abs().max() < 0.7


@pytest.fixture(scope="module")
def found():
    """What is read from untrained models that read random tokens."""
    rows = torch.randint(50, (256, 32), generator=torch.Generator().manual_seed(0))
    kinds = {"causal": left_neighbour(32), "both-ways": position(32)}
    shares = {}
    for variant in probes.VARIANTS:
        kind, scheme = variant.split("/")
        torch.manual_seed(0)
        task = kinds[kind]
        model = transformer(task, probes.SIZES, probes.SCHEMES[scheme]())
        model.kind = "decoder" if kind == "causal" else "encoder"
        shares[variant] = probes.look(model, rows, 1e-3, "untrained")
    return shares


def layers(found, variant, reader="squares"):
    return found[variant][f"r2/{reader}/text/untrained"].values


def test_without_a_mask_nothing_is_read(found):
    """4096 rows, 128 features: about −128/4096 for nothing, with a spread like it."""
    assert all(-0.1 < share < 0.02 for share in layers(found, "both-ways/none"))


def test_a_causal_model_without_position_counts_from_the_first_layer_on(found):
    embedded, *later = layers(found, "causal/none")
    assert -0.1 < embedded < 0.02
    assert min(later) > 0.2  # 0.29 to 0.39 with this seed


def test_a_variance_is_seen_by_squares_better_than_by_a_weighted_sum(found):
    linear = layers(found, "causal/none", "linear")
    assert layers(found, "causal/none")[1] > linear[1] + 0.1


def test_sinusoids_are_there_from_the_start_and_rotations_are_not(found):
    assert layers(found, "causal/sinusoidal", "linear")[0] > 0.9
    assert layers(found, "causal/rope")[0] < 0.02


def test_the_variance_of_the_first_mixture_falls_only_behind_a_mask(found):
    causal, both = (
        found[v]["variance/untrained"].values for v in ("causal/none", "both-ways/none")
    )
    assert causal[0] > 3 * causal[31]
    assert max(both) < 1.5 * min(both)


def test_a_quick_run_needs_no_text_but_the_standard_librarys():
    experiment = EXPERIMENTS["probes"]
    for variant in experiment.quick_variants:
        config = experiment.config(variant, "quick", "topics")
        assert config["text"] == "topics"
        text = load_text("topics")
        assert 2 * config["windows"] * config["length"] < len(text.held_out)


# ── what is shipped ──────────────────────────────────────────────────────────────


def test_the_first_look_of_a_shipped_run_comes_out_again():
    """Before training, the numbers depend on the initial weights and the text only."""
    if not (cache_folder() / "kjv.txt").exists():
        pytest.skip("the King James text is not fetched: another text was probed")
    stored = load("probes").of("causal/none")[0]
    config = EXPERIMENTS["probes"].config("causal/none", "full", "kjv")
    assert json.loads(json.dumps(config)) == stored.config
    text = load_text("kjv")
    rows = probes.held_out_windows(text, config["length"], 2 * config["windows"])
    with reproducible(0):
        task = probes.TASKS["causal"](text, config["length"])
        model = transformer(task, config["sizes"], probes.SCHEMES["none"]())
    shares, _ = probes.probed(hidden_states(model, rows), config["penalty"])
    wanted = stored.profiles["r2/linear/text/untrained"].values
    # states in float32, a well-conditioned fit of 32 768 rows in float64
    assert shares == pytest.approx(wanted, rel=0, abs=2e-4)


def test_shipped_runs_show_a_counter_behind_the_mask_and_none_without():
    result = load("probes")
    for name in ("text", "shuffled"):
        for when in ("untrained", "trained"):
            metric = f"r2/squares/{name}/{when}"
            causal = result.profile("causal/none", metric)[1]
            both = result.profile("both-ways/none", metric)[1]
            assert (causal[:, 1:] > 0.2).all() and (abs(both) < 0.01).all()
