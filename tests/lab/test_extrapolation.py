"""Losses belong to their places, windows do not overlap, and looking changes nothing."""

import math

import pytest
import torch
import torch.nn.functional as F

from pe_lab import ALiBi, Learned, NoPE, RoPE, Shaw, Sinusoidal, T5Bias
from pe_lab.lab.extrapolation import (
    attention_weights,
    gaze,
    last_token_loss,
    nearest,
    position_losses,
    windows,
)
from pe_lab.model import Transformer

ENCODINGS = {
    "none": NoPE(),
    "sinusoidal": Sinusoidal(16),
    "learned": Learned(24, 16),
    "rope": RoPE(8),
    "alibi": ALiBi(2),
    "t5": T5Bias(2),
    "shaw": Shaw(8, 4),
}


def decoder(encoding=None, seed=0, **options):
    torch.manual_seed(seed)
    return Transformer(11, 16, 2, 2, encoding=encoding, **options).double()


def text(length=400):
    return torch.randint(11, (length,), generator=torch.Generator().manual_seed(1))


def test_windows_cover_the_text_once_and_end_with_what_follows():
    rows = windows(torch.arange(100), 8, 90)
    assert rows.shape == (11, 9)
    assert rows[:, :-1].flatten().tolist() == list(range(88))
    assert torch.equal(rows[:-1, -1], rows[1:, 0])


@pytest.mark.parametrize(
    ("size", "length", "tokens"), [(10, 8, 7), (10, 4, 12), (8, 8, 8)]
)
def test_windows_that_the_text_cannot_fill_are_refused(size, length, tokens):
    with pytest.raises(ValueError, match="needs tokens from length"):
        windows(torch.arange(size), length, tokens)


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_loss_at_a_place_is_that_of_the_token_after_it(name):
    model, rows = decoder(ENCODINGS[name]), windows(text(), 12, 120)
    want = torch.zeros(12, dtype=torch.float64)
    for row in rows:  # one text at a time, probabilities written out
        chances = model(row[None, :-1])[0].softmax(dim=-1)
        want -= chances[torch.arange(12), row[1:]].log() / len(rows)
    got = position_losses(model, rows, batch_tokens=30)
    # the loss is taken in float32, as in training: 24 bits of numbers near ln 11
    assert torch.allclose(got, want, rtol=0, atol=2e-6)
    assert torch.allclose(position_losses(model, rows), got, rtol=0, atol=2e-6)


def test_dropout_is_off_while_measuring_and_on_again_afterwards():
    model, rows = decoder(dropout=0.5), windows(text(), 12, 120)
    assert torch.equal(position_losses(model, rows), position_losses(model, rows))
    assert model.training


def test_a_window_as_long_as_the_text_changes_nothing_and_a_shorter_one_does():
    model, rows = decoder(RoPE(8)), windows(text(), 12, 120)
    plain = position_losses(model, rows)
    assert torch.allclose(position_losses(model, rows, window=12), plain, atol=1e-6)
    near = position_losses(model, rows, window=3)
    assert torch.allclose(near[:3], plain[:3], atol=1e-6)
    assert (near[3:] - plain[3:]).abs().min() > 1e-4


def test_one_layer_with_a_window_reads_the_window_only():
    model = Transformer(11, 16, 2, 1, encoding=RoPE(8)).double()
    ids = text(20)[None]
    mask = nearest(20, 4)
    other = ids.clone()
    other[:, :16] = (other[:, :16] + 1) % 11
    seen, changed = (model(x, mask=mask)[:, -1] for x in (ids, other))
    # RoPE turns the same four tokens by the same angles
    assert torch.equal(seen, changed)


def test_places_are_what_the_model_is_given():
    model, rows = decoder(Sinusoidal(16)), windows(text(), 12, 120)
    wrapped = position_losses(model, rows, places=lambda ids: ids % 4)
    by_hand = [
        F.cross_entropy(
            model(rows[:, :-1], positions=torch.arange(12) % 4)[:, p], rows[:, p + 1]
        )
        for p in range(12)
    ]
    assert torch.allclose(wrapped, torch.stack(by_hand), atol=1e-6)


def test_the_last_token_is_predicted_from_just_so_many_before_it():
    model, ids = decoder(RoPE(8)), text(60)
    rows = torch.stack([ids[i : i + 6] for i in range(0, 50, 11)])
    want = F.cross_entropy(model(rows[:, :-1])[:, -1], rows[:, -1])
    # (60 − 5) // 5 = 11 tokens from one to the next
    assert last_token_loss(model, ids, 5, 5) == pytest.approx(want.item(), abs=1e-6)
    with pytest.raises(ValueError, match="length \\+ count = 65 ids or more, got 60"):
        last_token_loss(model, ids, 5, 60)


@pytest.mark.parametrize("name", ENCODINGS)
def test_weights_are_those_that_the_layer_used(name):
    model, ids = decoder(ENCODINGS[name]), text(18).reshape(2, 9)
    seen = attention_weights(model, ids)
    assert len(seen) == 2
    layer = model.stack.layers[0]
    kept = {}
    handle = layer.attend.register_forward_hook(lambda m, i, o: kept.update(o=o))
    model(ids)
    handle.remove()
    x = layer.norms[0](model.encoding.embed(model.embed(ids), torch.arange(9)))
    v = layer.attend.w_v(x).unflatten(-1, (2, -1)).transpose(1, 2)
    read = model.encoding.read(seen[0], torch.arange(9), torch.arange(9))
    out = seen[0] @ v + (0 if read is None else read)
    assert torch.allclose(layer.attend.w_o(out.transpose(1, 2).flatten(2)), kept["o"])
    assert torch.allclose(seen[0].sum(dim=-1), torch.ones(2, 2, 9).double())
    assert seen[0].triu(1).abs().max() == 0


def test_a_gaze_that_is_known():
    even = decoder()
    for layer in even.stack.layers:  # no query, no preference: all tokens alike
        torch.nn.init.zeros_(layer.attend.w_q.weight)
    seen = gaze(even, text(40).reshape(2, 20), queries=1, near=5)
    assert seen.recent == pytest.approx(5 / 20)
    assert seen.distance == pytest.approx(19 / 2)
    assert seen.entropy == pytest.approx(math.log(20))


def test_hooks_are_gone_after_looking():
    model = decoder()
    attention_weights(model, text(9)[None])
    assert not any(part._forward_pre_hooks for part in model.modules())
