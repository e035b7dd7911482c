"""A probe is the ridge solution, is judged on other rows, and leaves the model alone."""

import pytest
import torch

import pe_lab
from pe_lab.lab import probes


def rows(count, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator, dtype=torch.float64)


# ── ridge ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("penalty", [1e-6, 0.1, 10.0])
def test_ridge_is_least_squares_with_rows_for_the_penalty(penalty):
    """Oracle: lstsq on [x̃; √(nλs) I] against [ỹ; 0], another formula and algorithm."""
    x, y = rows(50, 6) * torch.arange(1, 7) + 3, rows(50, 1, seed=1)[:, 0]
    centred, size = x - x.mean(0), (x - x.mean(0)).square().mean()
    extra = (50 * penalty * size) ** 0.5 * torch.eye(6).double()
    wanted = torch.linalg.lstsq(
        torch.cat((centred, extra)),
        torch.cat((y - y.mean(), torch.zeros(6).double()))[:, None],
    ).solution[:, 0]
    # condition numbers of some 36 in float64
    assert torch.allclose(probes.ridge(x, y, penalty).weight, wanted, atol=1e-12)


def test_a_linear_function_is_found():
    x, w = rows(40, 5), torch.tensor([1.0, -2.0, 0.0, 3.0, 0.5]).double()
    probe = probes.ridge(x, x @ w + 7, penalty=1e-12)
    new = rows(10, 5, seed=2)
    # the penalty moves w by some 1e-12 of its size
    assert torch.allclose(probe(new), new @ w + 7, rtol=0, atol=1e-10)


def test_the_unit_of_the_rows_does_not_matter():
    x, y, new = rows(40, 5), rows(40, 1, seed=1)[:, 0], rows(10, 5, seed=2)
    one, other = probes.ridge(x, y, 0.3), probes.ridge(1000 * x, y, 0.3)
    assert torch.allclose(one(new), other(1000 * new), rtol=1e-12)


def test_rows_that_are_all_alike_give_the_mean():
    y = torch.tensor([1.0, 2.0, 6.0])
    assert probes.ridge(torch.ones(3, 2), y)(torch.ones(1, 2)).item() == 3.0


@pytest.mark.parametrize(
    ("x", "y", "penalty", "words"),
    [
        (torch.ones(2, 3, 4), torch.ones(2), 1.0, "x needs 2 axes"),
        (torch.ones(3, 4), torch.ones(2), 1.0, "3 rows of 4 and 2 targets"),
        (torch.ones(0, 4), torch.ones(0), 1.0, "0 rows of 4"),
        (torch.ones(3, 4), torch.ones(3), 0.0, "penalty needs a positive number"),
        (torch.ones(3, 4), torch.ones(3), float("nan"), "penalty needs a finite"),
    ],
)
def test_ridge_says_what_it_needs(x, y, penalty, words):
    with pytest.raises(ValueError, match=words):
        probes.ridge(x, y, penalty)


# ── R² ───────────────────────────────────────────────────────────────────────────


def test_r_squared_is_the_squared_correlation_of_a_least_squares_fit():
    x, y = rows(60, 3), rows(60, 1, seed=1)[:, 0]
    guess = probes.ridge(x, y, 1e-12)(x)
    correlation = torch.corrcoef(torch.stack((guess, y)))[0, 1].item()
    assert probes.r_squared(guess, y) == pytest.approx(correlation**2, abs=1e-10)


def test_a_guess_worse_than_the_mean_is_below_zero():
    y = torch.tensor([1.0, 2.0, 3.0])
    assert probes.r_squared(y.flip(0), y) == -3.0  # residuals −2, 0, 2: 1 − 8/2


def test_r_squared_says_what_it_needs():
    with pytest.raises(ValueError, match="a guess for every target"):
        probes.r_squared(torch.ones(2), torch.ones(3))
    with pytest.raises(ValueError, match="targets that differ"):
        probes.r_squared(torch.ones(3), torch.ones(3))


# ── places ───────────────────────────────────────────────────────────────────────


def test_noise_tells_no_place_unless_tested_on_the_windows_it_was_fitted_on():
    noise = rows(2 * 4 * 32, 48).reshape(2, 4, 32, 48)  # 128 rows, 48 channels
    leaked, _ = probes.read_places(noise[0], noise[0])
    honest, _ = probes.read_places(noise[0], noise[1])
    # expected: 48/128 = 0.375 in the fit, and about −48/(128 − 49) outside
    assert leaked > 0.2
    assert honest < 0


def test_places_are_read_from_where_they_are_written():
    states = rows(40 * 16, 8).reshape(40, 16, 8)
    states[..., 3] += torch.arange(16)
    share, read = probes.read_places(states[:20], states[20:])
    # noise of variance 1 in a channel whose places have variance 255/12
    assert share == pytest.approx(1 - 1 / (1 + 255 / 12), abs=0.02)
    assert (read.diff() > 0).all()


def test_windows_have_to_fit_together():
    with pytest.raises(ValueError, match="windows of one length and width"):
        probes.read_places(torch.ones(2, 3, 4), torch.ones(2, 5, 4))


# ── states of a model ────────────────────────────────────────────────────────────


@pytest.fixture
def model():
    torch.manual_seed(0)
    encoding = pe_lab.Sinusoidal(16)
    return pe_lab.Transformer(9, 16, 2, 3, encoding=encoding, dropout=0.5).double()


def test_states_are_those_of_the_forward_pass(model):
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    states = probes.hidden_states(model, ids)
    assert len(states) == 4
    entered = model.embed(ids) + pe_lab.sinusoidal(4, 16, dtype=torch.float64)
    assert torch.equal(states[0], entered)
    wanted = model.eval().hidden(ids)
    assert torch.equal(model.stack.norm(states[-1]), wanted)
    assert not torch.equal(states[1], states[2])


def test_the_model_is_left_as_it_was(model):
    ids = torch.tensor([[1, 2, 3]])
    probes.hidden_states(model, ids)
    assert model.training
    assert not any(part._forward_hooks for part in model.modules())
    with pytest.raises(IndexError):
        probes.hidden_states(model, torch.tensor([[99]]))
    with pytest.raises(IndexError):
        probes.outputs_of(model, [model.head], torch.tensor([[99]]))
    assert model.training
    assert not any(part._forward_hooks for part in model.modules())


def test_outputs_come_in_the_order_of_the_calls(model):
    ids = torch.tensor([[1, 2, 3]])
    last, first = model.head, model.stack.layers[0]
    found = probes.outputs_of(model, [last, first], ids)
    assert torch.equal(found[1], model.eval()(ids))
    assert torch.equal(found[0], probes.hidden_states(model, ids)[1])
