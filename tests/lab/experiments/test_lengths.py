"""Short strings to long ones: what is measured is what is said, and comes out again."""

import json

import numpy as np
import pytest
import torch

from pe_lab.encodings import ALiBi, Learned, RoPE, Sinusoidal, T5Bias
from pe_lab.lab import load, strings
from pe_lab.lab.experiments import EXPERIMENTS
from pe_lab.lab.experiments.base import transformer
from pe_lab.lab.experiments.lengths import SCHEMES, encoding_of, shares_at
from pe_lab.lab.results import Curve
from pe_lab.lab.scoring import right_shares
from pe_lab.lab.training import LOCAL, Recipe, reproducible, train
from pe_lab.lab.vocabulary import EOS

EXPERIMENT = EXPERIMENTS["lengths"]


def config_of(variant, size="full"):
    return EXPERIMENT.config(variant, size, "topics")


def test_the_first_steps_of_a_shipped_run_come_out_again():
    stored = load("lengths").of("copy/alibi")[0]
    config = config_of("copy/alibi")
    assert json.loads(json.dumps(config)) == stored.config
    # the warm-up of 50 steps is the same however long the run; 20 are enough
    config["recipe"] |= {"steps": 20, "measure_at": (0,)}
    config |= {"scored": 4}
    with reproducible(0):
        curves, _, profiles = EXPERIMENT.measure(config, 0, LOCAL)
    want = Curve(*(part[:2] for part in vars(stored.curves["train_loss"]).values()))
    assert curves["train_loss"].steps == want.steps
    # other processors round differently: 1e-7 per step grows to some 1e-5 in 20 steps
    np.testing.assert_allclose(curves["train_loss"].values, want.values, rtol=1e-3)
    assert profiles["exact_match"].at == stored.profiles["exact_match"].at


def greedy(model, x, most):
    """What the model writes after BOS x SEP, one token at a time."""
    for _ in range(most):
        token = model(x)[:, -1:].argmax(dim=-1)
        x = torch.cat([x, token], dim=1)
    return x


def test_a_share_of_exact_matches_is_that_of_greedy_search():
    """A model that is half trained: some of its answers are right and some are not."""
    task = strings.copy(3, 3)
    with reproducible(0):
        sizes = {"d_model": 32, "num_heads": 2, "num_layers": 2}
        model = transformer(task, sizes, Sinusoidal(32))
        train(model, task, Recipe(70, 32, 3e-3), 0)
        batch = task.draw(64, torch.Generator().manual_seed(1))
        exact, accuracy = right_shares(model, batch)
        with torch.no_grad():
            written = greedy(model.eval(), batch.inputs[:, :5], 4)[:, 5:]
    right = torch.cat([batch.inputs[:, 1:4], torch.full((64, 1), EOS)], dim=1)
    share = float((written == right).all(dim=1).double().mean())
    assert 0.05 < share < 0.95  # else the test would say nothing
    assert exact == share
    assert accuracy > share


def test_all_models_are_asked_the_same_strings():
    asked = []

    class Asked(torch.nn.Linear):
        def forward(self, ids):
            asked.append(ids)
            return torch.zeros(*ids.shape, len(strings.SYMBOLS))

    for _ in range(2):
        shares_at(Asked(1, 1), config_of("sort/nope"), 10)
    assert torch.equal(*asked) and asked[0].shape == (512, 1 + 10 + 1 + 10)


def test_a_scheme_is_what_its_name_says():
    found = {scheme: encoding_of(config_of(f"copy/{scheme}")) for scheme in SCHEMES}
    assert found.pop("nope") is None
    kinds = {
        "alibi": ALiBi,
        "rope": RoPE,
        "sinusoidal": Sinusoidal,
        "learned": Learned,
        "t5": T5Bias,
    }
    assert {scheme: type(made) for scheme, made in found.items()} == kinds


@pytest.mark.parametrize("size", EXPERIMENT.sizes)
def test_the_learned_table_has_a_row_for_the_longest_test(size):
    """A missing row would end a run with an error, after all of its training."""
    for task in strings.TASKS:
        config = config_of(f"{task}/learned", size)
        longest = config["tested"][-1]
        batch = strings.TASKS[task](longest, longest).draw(1, torch.Generator())
        assert encoding_of(config).max_len >= batch.inputs.shape[1]
        assert config["trained"][1] in config["tested"]
        json.dumps(config)


def test_copies_are_learned_by_all_and_carried_over_by_some():
    """What the book says of the shipped result, for each seed."""
    result = load("lengths")
    for scheme in SCHEMES:
        _, exact = result.profile(f"copy/{scheme}", "exact_match")
        assert exact.shape == (3, 5)
        assert (exact[:, 1] > 0.9).all()  # 8 digits, the longest trained
        assert (exact[:, 4] < 0.01).all()  # 16 digits: nobody
    ten = {s: result.profile(f"copy/{s}", "exact_match")[1][:, 2] for s in SCHEMES}
    assert (np.stack([ten["nope"], ten["alibi"]]) > 0.5).all()
    assert (np.stack([ten[s] for s in ("rope", "sinusoidal", "learned")]) == 0).all()
    close = {s: result.profile(f"copy/{s}", "token_accuracy")[1][:, 2] for s in SCHEMES}
    assert close["t5"].min() > 0.6
    assert max(close[s].max() for s in ("rope", "sinusoidal", "learned")) < 0.45


def test_reversing_and_sorting_are_learned_and_addition_is_not():
    """What the book says of the other tasks, for each seed."""
    result = load("lengths")
    exact = {v: result.profile(v, "exact_match")[1] for v in result.variants}
    for scheme in SCHEMES:
        assert (exact[f"reverse/{scheme}"][:, 1] > 0.85).all()  # 8 digits
        assert (exact[f"sort/{scheme}"][:, 1] > 0.7).all()
        added = exact[f"addition/{scheme}"]
        assert (added[:, 0] < 0.01).all()  # 4 digits: one sum of 512, in one seed
        assert (added[:, 1:] == 0).all()  # from 8 digits on, the longest trained
    ten = {v: values[:, 2] for v, values in exact.items()}
    assert min(ten["reverse/nope"].min(), ten["reverse/alibi"].min()) > 0.4
    assert ten["reverse/t5"].max() < 0.2
    assert (exact["sort/nope"][:, 4] > 0.7).all()  # twice as long
    others = [values[:, 4] for v, values in exact.items() if v != "sort/nope"]
    assert np.max(others) < 0.01
