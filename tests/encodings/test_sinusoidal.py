"""Sinusoids, their rotation matrix and their kernel: the book's first theorems."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pe_lab
from tests.oracle import exact_sinusoidal

even_widths = st.integers(1, 40).map(lambda pairs: 2 * pairs)
offsets = st.integers(-1000, 1000)


@pytest.mark.parametrize("d_model", [1, 2, 5, 8, 31, 512])
@pytest.mark.parametrize("order", ["interleaved", "halves"])
def test_both_orders_and_odd_widths_match_sixty_digits(d_model, order):
    places = [0, 1, 5, 63, 100_000, 10**7]
    exact = exact_sinusoidal(places, d_model)
    if order == "halves":
        exact = torch.cat((exact[:, 0::2], exact[:, 1::2]), dim=1)
    ours = pe_lab.sinusoidal(torch.tensor(places), d_model, order=order)
    assert ours.shape == (6, d_model)
    assert ours.dtype == torch.float32
    assert (ours - exact).abs().max() <= 3.3e-8


def test_both_orders_of_a_public_bug_report():
    """D = 4 at position 1; the two orders of one vector, as a port mixed them up."""
    one = torch.tensor([1])
    interleaved = pe_lab.sinusoidal(one, 4)[0]
    halves = pe_lab.sinusoidal(one, 4, order="halves")[0]
    assert interleaved.tolist() == pytest.approx(
        [0.8415, 0.5403, 0.0100, 0.99995], abs=5e-5
    )
    assert halves.tolist() == pytest.approx([0.8415, 0.0100, 0.5403, 0.99995], abs=5e-5)


def test_odd_width_has_one_more_sine_than_cosines():
    first = pe_lab.sinusoidal(torch.tensor([0]), 5, order="halves")[0]
    assert first.tolist() == [0, 0, 0, 1, 1]


def test_position_zero_is_not_zero():
    assert pe_lab.sinusoidal(1, 6)[0].tolist() == [0, 1, 0, 1, 0, 1]


@given(d_model=even_widths, p=st.integers(-(10**6), 10**6))
def test_norm_is_the_root_of_half_the_width(d_model, p):
    """|PE(p)|² = Σ sin² + cos² = d/2; each float32 entry is off by 3.3e-8 at most."""
    row = pe_lab.sinusoidal(torch.tensor([p]), d_model)[0].double()
    assert row.norm().item() == pytest.approx(math.sqrt(d_model / 2), rel=1e-7)


@given(d_model=even_widths, p=offsets, k=offsets, order=st.sampled_from(["interleaved", "halves"]))  # fmt: skip
def test_the_matrix_moves_every_position_by_k(d_model, p, k, order):
    """PE(p+k) = M_k PE(p): float64 angles up to 2000 rad, so 1e-12."""
    table = pe_lab.sinusoidal(
        torch.tensor([p, p + k]), d_model, order=order, dtype=torch.float64
    )
    moved = pe_lab.rotation_matrix(k, d_model, order=order) @ table[0]
    assert (moved - table[1]).abs().max() <= 1e-12


@given(d_model=even_widths, j=offsets, k=offsets)
def test_matrices_form_a_group_of_rotations(d_model, j, k):
    m_j, m_k = (pe_lab.rotation_matrix(t, d_model) for t in (j, k))
    both = pe_lab.rotation_matrix(j + k, d_model)
    eye = torch.eye(d_model, dtype=torch.float64)
    assert (m_j @ m_k - both).abs().max() <= 1e-12
    assert (m_k @ m_k.T - eye).abs().max() <= 1e-14
    assert (m_k.T - pe_lab.rotation_matrix(-k, d_model)).abs().max() <= 1e-14
    assert torch.linalg.det(m_k).item() == pytest.approx(1, abs=1e-12)


def test_one_block_written_out():
    """Rows act on (sin, cos): [[cos k, sin k], [−sin k, cos k]]."""
    matrix = pe_lab.rotation_matrix(1, 2)
    c, s = math.cos(1), math.sin(1)
    assert matrix.flatten().tolist() == pytest.approx([c, s, -s, c], abs=1e-15)


def test_matrices_of_many_offsets_and_dtypes():
    many = pe_lab.rotation_matrix(torch.tensor([[0, 1], [2, 3]]), 4)
    assert many.shape == (2, 2, 4, 4)
    assert torch.equal(many[1, 0], pe_lab.rotation_matrix(2, 4))
    assert pe_lab.rotation_matrix(0.5, 4, dtype=torch.float32).dtype == torch.float32
    half = pe_lab.rotation_matrix(0.5, 4)
    assert (half @ half - pe_lab.rotation_matrix(1, 4)).abs().max() <= 1e-15


@given(d_model=even_widths, k=offsets, p=offsets)
def test_the_kernel_is_the_inner_product_at_any_place(d_model, k, p):
    table = pe_lab.sinusoidal(torch.tensor([p, p + k]), d_model, dtype=torch.float64)
    kernel = pe_lab.position_kernel(k, d_model)
    assert (table[0] @ table[1] - kernel).abs().item() <= 1e-11
    assert kernel <= d_model / 2
    assert pe_lab.position_kernel(-k, d_model) == kernel


def test_the_six_token_scores_of_the_book():
    row = pe_lab.score_matrix(7, 8)[0]
    expected = [4.000, 3.535, 2.564, 1.965, 2.267, 3.160, 3.784]
    assert row.tolist() == pytest.approx(expected, abs=5e-4)
    kernel = pe_lab.position_kernel(torch.arange(7), 8)
    assert torch.allclose(row, kernel, rtol=0, atol=1e-12)


def test_scores_are_constant_along_diagonals():
    scores = pe_lab.score_matrix(20, 16)
    assert torch.allclose(scores[1:, 1:], scores[:-1, :-1], rtol=0, atol=1e-12)
    assert torch.allclose(scores, scores.T, rtol=0, atol=1e-14)
    assert pe_lab.score_matrix(0, 8).shape == (0, 0)
    scattered = pe_lab.score_matrix(torch.tensor([5, 2]), 8)[0, 1]
    assert scattered.item() == pytest.approx(scores_at(3, 8), abs=1e-12)


def scores_at(offset, d_model):
    return pe_lab.position_kernel(offset, d_model).item()


@pytest.mark.parametrize("call", [pe_lab.rotation_matrix, pe_lab.position_kernel, pe_lab.score_matrix])  # fmt: skip
def test_what_needs_pairs_refuses_odd_widths(call):
    with pytest.raises(ValueError, match="even number, got 7.*even width"):
        call(1, 7)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        call(1, 0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pe_lab.sinusoidal(4, 0), ValueError, "d_model needs"),
        (lambda: pe_lab.sinusoidal(4, 8.0), TypeError, "d_model needs"),
        (lambda: pe_lab.sinusoidal(-1, 8), ValueError, "got -1"),
        (lambda: pe_lab.sinusoidal(1.5, 8), TypeError, "1.5"),
        (lambda: pe_lab.sinusoidal(torch.tensor([torch.nan]), 8), ValueError, "nan"),
        (lambda: pe_lab.sinusoidal(4, 8, base=-1), ValueError, "base needs"),
        (lambda: pe_lab.sinusoidal(4, 8, order="half"), ValueError, "'interleaved' or 'halves'"),
        (lambda: pe_lab.sinusoidal(4, 8, dtype=torch.int64), TypeError, "dtype needs"),
        (lambda: pe_lab.sinusoidal(4, 8, inv_freq=torch.ones(3)), ValueError, "4 frequencies"),
        (lambda: pe_lab.rotation_matrix(float("nan"), 4), ValueError, "nan"),
        (lambda: pe_lab.rotation_matrix("1", 4), TypeError, "offset needs"),
        (lambda: pe_lab.rotation_matrix(True, 4), TypeError, "offset needs"),
        (lambda: pe_lab.score_matrix(torch.zeros(2, 3).long(), 4), ValueError, "one axis"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


@given(factor=st.floats(1, 64), p=st.integers(0, 10**5), order=st.sampled_from(["interleaved", "halves"]))  # fmt: skip
def test_interpolated_frequencies_are_interpolated_positions(factor, p, order):
    """ω/s at p is ω at p/s: float64 angles up to 10⁵ rad, so 1e-10."""
    slow = pe_lab.scaling.linear(pe_lab.inv_freq(8), factor)
    place = torch.tensor([p], dtype=torch.float64)
    wide = {"order": order, "dtype": torch.float64}
    scaled = pe_lab.sinusoidal(place, 8, inv_freq=slow, **wide)
    interpolated = pe_lab.sinusoidal(place / factor, 8, **wide)
    assert (scaled - interpolated).abs().max() <= 1e-10


@pytest.mark.parametrize("rule", [
    lambda w: pe_lab.scaling.ntk(w, 4),
    lambda w: pe_lab.scaling.dynamic_ntk(w, 4, length=64, original_length=16),
    lambda w: pe_lab.scaling.yarn(w, 4, original_length=64),
    lambda w: pe_lab.scaling.llama3(w, 4, original_length=64),
    lambda w: pe_lab.scaling.longrope(w, [1.0] * 16, [4.0] * 16, length=65, original_length=64),
])  # fmt: skip
def test_every_scaling_rule_applies_to_sinusoids(rule):
    """Each pair is a sine and cosine of the rule's own frequency; float32, so 1e-7."""
    frequencies = rule(pe_lab.inv_freq(32))
    module = pe_lab.Sinusoidal(32, inv_freq=frequencies)
    table = module.embed(torch.zeros(1, 1, 32), torch.tensor([50]))[0, 0]
    pairs = zip(table[::2].tolist(), table[1::2].tolist(), frequencies, strict=True)
    for sine, cosine, w in pairs:
        assert sine == pytest.approx(math.sin(50 * w), abs=1e-7)
        assert cosine == pytest.approx(math.cos(50 * w), abs=1e-7)
    assert (frequencies < pe_lab.inv_freq(32)).any()


class TestModule:
    def test_adds_the_table_at_the_given_positions(self):
        x = torch.randn(2, 5, 6)
        ids = torch.tensor([[0, 1, 2, 3, 4], [7, 7, 0, 9, 2]])
        out = pe_lab.Sinusoidal(6).embed(x, ids)
        assert torch.equal(out, x + pe_lab.sinusoidal(ids, 6))

    def test_scale_base_order_and_frequencies_are_used(self):
        x, ids = torch.zeros(1, 4, 6), torch.arange(4)
        slow = pe_lab.inv_freq(6) / 4
        module = pe_lab.Sinusoidal(6, order="halves", inv_freq=slow, scale=0.5)
        table = pe_lab.sinusoidal(ids / 4, 6, order="halves")
        assert torch.allclose(module.embed(x, ids)[0], 0.5 * table, atol=1e-7)
        other = pe_lab.Sinusoidal(6, base=100.0).embed(x, ids)[0]
        assert torch.equal(other, pe_lab.sinusoidal(4, 6, base=100.0))

    @pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16, torch.float64])
    def test_no_cast_can_round_the_angles(self, cast):
        """bfloat16 frequencies would be off by radians at position 4000."""
        module = pe_lab.Sinusoidal(16, inv_freq=pe_lab.inv_freq(16)).to(cast)
        x, ids = torch.zeros(1, 1, 16), torch.tensor([4000])
        exact = exact_sinusoidal([4000], 16)
        assert (module.embed(x, ids)[0] - exact).abs().max() <= 3.3e-8
        assert not list(module.state_dict())

    def test_half_precision_is_added_wide_and_rounded_once(self):
        x, ids = torch.randn(1, 300, 16).bfloat16(), torch.arange(300)
        out = pe_lab.Sinusoidal(16).embed(x, ids)
        exact = x.double() + exact_sinusoidal(list(range(300)), 16)
        assert out.dtype == torch.bfloat16
        assert torch.equal(out, exact.float().bfloat16())

    @pytest.mark.parametrize(
        ("x", "ids", "error", "words"),
        [
            (torch.zeros(1, 4, 8), torch.arange(4), ValueError, "6 channels"),
            (torch.zeros(4, 6), torch.arange(4), ValueError, "3 axes"),
            (torch.zeros(1, 4, 6).long(), torch.arange(4), TypeError, "floating-point"),
            (torch.zeros(1, 4, 6), torch.arange(5), ValueError, "one id for each token"),
            (torch.zeros(2, 4, 6), torch.zeros(3, 4).long(), ValueError, "one id"),
            (torch.zeros(1, 4, 6), 4, TypeError, "tensor of position ids"),
            (torch.zeros(1, 1, 6), torch.tensor([torch.nan]), ValueError, "finite"),
        ],
    )  # fmt: skip
    def test_embeddings_that_do_not_fit_are_refused(self, x, ids, error, words):
        with pytest.raises(error, match=words):
            pe_lab.Sinusoidal(6).embed(x, ids)

    def test_empty_sequences_and_batches_pass(self):
        module = pe_lab.Sinusoidal(6)
        assert module.embed(torch.zeros(2, 0, 6), torch.arange(0)).shape == (2, 0, 6)
        assert module.embed(torch.zeros(0, 3, 6), torch.arange(3)).shape == (0, 3, 6)


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.float64, int, float])
def test_offsets_of_any_real_type(kind):
    kernel = pe_lab.position_kernel(kind(3), 8)
    assert torch.equal(kernel, pe_lab.position_kernel(torch.tensor(3), 8))
