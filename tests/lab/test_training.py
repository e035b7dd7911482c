"""The loop is deterministic, counts only what is asked, and stops on a broken loss."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pe_lab.encodings import ALiBi, Learned, RoPE, Shaw, Sinusoidal, T5Bias
from pe_lab.lab import tasks, training
from pe_lab.lab.data import number_pairs
from pe_lab.lab.tasks import IGNORE, Batch
from pe_lab.lab.training import (
    NotANumberError,
    Recipe,
    held_out_loss,
    loss_of,
    recipe_from,
    reproducible,
    train,
)
from pe_lab.model import Transformer

RECIPE = Recipe(12, 8, 3e-3, warmup=4, measure_at=(0, 6), average=5, held_out_size=20)


def encoder(**options):
    return Transformer(50, 16, 2, 1, kind="encoder", encoding=Sinusoidal(16), **options)


def curves(seed=0, recipe=RECIPE):
    with reproducible(seed):
        return train(encoder(dropout=0.1), tasks.position(16), recipe, seed)


def test_the_same_seed_gives_the_same_losses_to_the_last_bit():
    first = curves()
    torch.rand(7)  # the reader's own generator is of no account
    assert curves() == first
    assert curves(seed=1) != first


def test_the_readers_generator_and_threads_are_left_alone():
    torch.manual_seed(5)
    want, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(5)
    curves()
    assert torch.equal(torch.rand(3), want)
    assert torch.get_num_threads() == threads


def test_curves_have_a_point_where_the_recipe_says():
    got = curves()
    assert got["held_out_loss"].steps == [0, 6, 12]
    assert got["train_loss"].steps == [5, 10, 12]


def test_position_is_learned_with_sinusoids_only():
    recipe = Recipe(150, 32, 3e-3, warmup=10, held_out_size=128)
    task = tasks.position(8)
    losses = []
    for encoding in (None, Sinusoidal(16)):
        with reproducible(0):
            model = Transformer(50, 16, 2, 1, kind="encoder", encoding=encoding)
            losses.append(train(model, task, recipe, 0)["held_out_loss"].values[-1])
    assert losses[0] > math.log(8) - 0.01  # no model can do better, so none did
    assert losses[1] < 0.5 * math.log(8)


def test_training_lowers_nothing_when_the_rate_is_zero():
    got = curves(recipe=Recipe(6, 8, 0.0, measure_at=(0,), held_out_size=20))
    assert got["held_out_loss"].values[0] == got["held_out_loss"].values[-1]


def test_the_rate_rises_to_its_peak_and_falls_to_its_end():
    for schedule in ("linear", "cosine"):
        recipe = Recipe(100, 8, 2.0, warmup=20, schedule=schedule, end=0.1)
        rates = [recipe.rate(step) for step in range(101)]
        assert rates[0] == pytest.approx(0.1)
        assert max(rates) == rates[19] == rates[20] == 2.0
        assert rates[20:] == sorted(rates[20:], reverse=True)
        assert rates[100] == pytest.approx(0.2)
        assert rates[60] == pytest.approx(1.1)  # half way down, both schedules


def test_a_broken_loss_stops_the_training_with_a_sentence():
    model = encoder()
    nn.init.constant_(model.head.bias, math.nan)
    with pytest.raises(NotANumberError, match="loss is nan at step 0 .* smaller learn"):
        train(model, tasks.position(16), RECIPE, 0)


def test_the_loss_counts_only_what_is_asked():
    model, batch = encoder(), tasks.position(16).draw(4, torch.Generator())
    targets = batch.targets.clone()
    targets[:, 3:] = IGNORE
    part = loss_of(model, Batch(batch.inputs, targets))
    logits = model(batch.inputs)[:, :3].log_softmax(dim=-1)
    want = -logits.gather(2, targets[:, :3, None]).mean()
    assert torch.allclose(part, want, atol=1e-6)  # fp32 means of 12 numbers


def test_the_held_out_loss_does_not_depend_on_how_it_is_cut_into_batches():
    model, task = encoder(dropout=0.5), tasks.left_neighbour()
    loss = held_out_loss(model, task, 300)
    assert model.training
    assert held_out_loss(model, task, 300) == loss  # dropout was off
    assert math.isfinite(loss) and loss > 0


@pytest.mark.parametrize("encoding", [None, Sinusoidal(16), RoPE(8)])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_padding_does_not_change_the_loss(encoding, norm):
    data = number_pairs(5_000)
    sizes = (len(data.characters), 16, 2, 1)
    options = {"kind": "encoder-decoder", "source_vocab_size": len(data.words)}
    model = Transformer(*sizes, encoding=encoding, norm=norm, **options)
    pairs = list(data.train[:6])
    tight, wide = (loss_of(model, tasks.number_batch(pairs, data, n)) for n in (0, 40))
    assert abs(tight - wide) < 2e-6  # fp32 sums in another order, loss about 4
    alone = [loss_of(model, tasks.number_batch([pair], data)) for pair in pairs]
    counts = torch.tensor([len(numeral) + 1.0 for _, numeral in pairs])
    mean = (torch.stack(alone) * counts).sum() / counts.sum()
    assert abs(tight - mean) < 2e-6


ENCODINGS = [
    None, Sinusoidal(16), Learned(16, 16), RoPE(8), ALiBi(2), T5Bias(2), Shaw(8, 4)
]  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: type(e).__name__)
def test_training_in_bfloat16_keeps_weights_and_losses_in_float32(
    monkeypatch, encoding
):
    """What runs on CUDA, here in the CPU's autocast: the path, not the device."""
    seen = []
    monkeypatch.setattr(training.F, "cross_entropy", watched(F.cross_entropy, seen))
    losses = {}
    for halved in ((), ("cpu",)):
        monkeypatch.setattr(training, "HALVED", halved)
        torch.manual_seed(0)
        fresh = copy.deepcopy(encoding)
        model = Transformer(50, 16, 2, 1, kind="encoder", encoding=fresh)
        model.head.register_forward_hook(lambda *call: seen.append(call[2].dtype))
        curves = train(model, tasks.position(16), RECIPE, 0)
        losses[halved] = torch.tensor(curves["train_loss"].values)
        assert {p.dtype for p in model.parameters()} == {torch.float32}
    heads, given = seen[::2], seen[1::2]
    assert set(given) == {torch.float32}  # no logarithm of eight bits
    half = [dtype == torch.bfloat16 for dtype in heads]
    assert sum(half) == RECIPE.steps  # its updates, and no held-out loss
    assert not torch.equal(losses[()], losses[("cpu",)])
    # bfloat16 keeps 8 bits: logits of order 1 are off by some 2^-8
    assert (losses[()] - losses[("cpu",)]).abs().max() < 0.05


def watched(function, seen):
    """The function, which notes the dtype of its first argument."""

    def call(first, *rest, **options):
        seen.append(first.dtype)
        return function(first, *rest, **options)

    return call


def test_a_cpu_trains_in_float32():
    assert training.HALVED == ("cuda",)


def test_a_model_is_trained_where_the_session_says():
    """The meta device stands for any other: its batch and its model meet there."""
    session = training.Session(torch.device("meta"))
    with pytest.raises(RuntimeError, match="meta"):  # which has no loss to read
        train(encoder(), tasks.position(16), RECIPE, 0, session)


def test_a_recipe_survives_json():
    stored = {**vars(RECIPE), "measure_at": [0, 6]}
    assert recipe_from(stored) == RECIPE
