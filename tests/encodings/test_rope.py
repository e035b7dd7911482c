"""RoPE: what is turned, by how much, and that only offsets are seen afterwards."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pe_lab
from pe_lab.encodings import rotation

LAYOUTS = ["half", "interleaved"]


def turn(x, positions, layout, base=10000.0):
    table = pe_lab.rope_table(positions, pe_lab.inv_freq(x.shape[-1], base=base), dtype=x.dtype)  # fmt: skip
    return pe_lab.apply_rope(x, *table, layout=layout)


def by_matrix(x, positions, layout, base=10000.0):
    """Each pair times a 2×2 rotation, in float64: the definition, written out."""
    x, dim = x.double(), x.shape[-1]
    out = torch.empty_like(x)
    for i in range(dim // 2):
        a, b = (i, i + dim // 2) if layout == "half" else (2 * i, 2 * i + 1)
        for t, p in enumerate(positions.tolist()):
            angle = p * base ** (-2 * i / dim)
            c, s = math.cos(angle), math.sin(angle)
            out[..., t, a] = x[..., t, a] * c - x[..., t, b] * s
            out[..., t, b] = x[..., t, b] * c + x[..., t, a] * s
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [2, 6, 64])
def test_equals_the_rotation_matrices(layout, dim):
    x = torch.randn(2, 3, 5, dim, dtype=torch.float64)
    ids = torch.tensor([0, 1, 7, 100, 3000])
    assert torch.allclose(turn(x, ids, layout), by_matrix(x, ids, layout), atol=1e-11)
    near = turn(x.float(), ids, layout).double()
    # one rounding of the table, two products, one sum: under 4 roundings of |x| ≤ 5
    assert (near - by_matrix(x, ids, layout)).abs().max() <= 4 * 5 * 2**-24


def test_one_vector_in_both_layouts():
    """Q = [1, 0, 0, 0] at position 1: the fingerprint of the two layouts."""
    q, ids = torch.tensor([1.0, 0, 0, 0])[None, None, None], torch.tensor([1])
    half, interleaved = (turn(q, ids, layout).flatten().tolist() for layout in LAYOUTS)
    assert half == pytest.approx([0.5403, 0, 0.8415, 0], abs=5e-5)
    assert interleaved == pytest.approx([0.5403, 0.8415, 0, 0], abs=5e-5)


def test_a_cached_step_is_turned_by_its_own_position():
    """[1, 0] at position 3: a cache that forgets the offset leaves it unturned."""
    x = torch.tensor([1.0, 0.0])[None, None, None]
    out = turn(x, torch.tensor([3]), "half").flatten()
    assert out.tolist() == pytest.approx([-0.98999, 0.14112], abs=5e-6)


@settings(max_examples=40)
@given(
    layout=st.sampled_from(LAYOUTS), pairs=st.integers(1, 32), t=st.integers(0, 10**6),
    m=st.integers(0, 500), n=st.integers(0, 500),
)  # fmt: skip
def test_scores_see_offsets_only(layout, pairs, t, m, n):
    """|s(m+t, n+t) − s(m, n)| ≤ 1e-6 |q||k| in float32, at any t up to a million."""
    rope = pe_lab.RoPE(2 * pairs, layout=layout)
    generator = torch.Generator().manual_seed(m * 501 + n)
    q, k = torch.randn(2, 1, 1, 1, 2 * pairs, generator=generator)
    near = score(rope, q, k, m, n)
    far = score(rope, q, k, m + t, n + t)
    assert abs(near - far) <= 1e-6 * (q.norm() * k.norm()).item()


def score(rope, q, k, m, n):
    q, k = rope.rotate(q, k, torch.tensor([m]), torch.tensor([n]))
    return (q.double() * k.double()).sum().item()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_channels_past_the_rotary_width_do_not_move(layout):
    """Head 8, rotary 4: frequencies 1 and 0.01 on the first four channels."""
    rope = pe_lab.RoPE(8, rotary_dim=4, layout=layout)
    x, ids = torch.randn(1, 2, 6, 8), torch.arange(6)
    out, _ = rope.rotate(x, x, ids, ids)
    assert torch.equal(out[..., 4:], x[..., 4:])
    first, _ = pe_lab.RoPE(4, layout=layout).rotate(x[..., :4], x[..., :4], ids, ids)
    assert torch.equal(out[..., :4], first)
    assert rope.inv_freq.tolist() == pytest.approx([1, 0.01])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(layout, dtype):
    """The float32 result, rounded: within half an ulp and one float32 rounding."""
    x, ids = torch.randn(1, 2, 300, 16).to(dtype), torch.arange(10**5, 10**5 + 300)
    rope = pe_lab.RoPE(16, layout=layout)
    ours, _ = rope.rotate(x, x, ids, ids)
    exact, _ = rope.rotate(x.double(), x.double(), ids, ids)
    ulp = torch.finfo(dtype).eps * torch.maximum(exact.abs(), torch.tensor(2.0**-10))
    assert ours.dtype == dtype
    assert ((ours.double() - exact).abs() <= 0.5 * ulp + 1e-6).all()


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_casting_the_module_changes_nothing(cast):
    x, ids = torch.randn(1, 2, 4, 16), torch.tensor([0, 1, 5000, 10**6])
    plain, moved = pe_lab.RoPE(16), pe_lab.RoPE(16).to(cast)
    assert torch.equal(plain.rotate(x, x, ids, ids)[0], moved.rotate(x, x, ids, ids)[0])
    assert not list(plain.state_dict())


def test_rows_have_their_own_positions_and_ignore_each_other():
    rope = pe_lab.RoPE(8)
    x = torch.randn(3, 2, 5, 8)
    ids = torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2], [90, 91, 92, 93, 94]])
    together, _ = rope.rotate(x, x, ids, ids)
    for b in range(3):
        alone, _ = rope.rotate(x[b : b + 1], x[b : b + 1], ids[b], ids[b])
        assert torch.equal(together[b : b + 1], alone)


def test_scaling_and_gain_are_used():
    x, ids = torch.randn(1, 1, 9, 8), torch.arange(9)
    plain = pe_lab.RoPE(8).rotate(x, x, ids / 4, ids / 4)[0]
    scaled = pe_lab.RoPE(8, scaling=lambda w: pe_lab.scaling.linear(w, 4), gain=1.5)
    assert torch.allclose(scaled.rotate(x, x, ids, ids)[0], 1.5 * plain, atol=1e-6)


def test_gradients_in_both_layouts():
    x = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    for layout in LAYOUTS:
        assert torch.autograd.gradcheck(
            lambda y, w=layout: turn(y, torch.arange(3), w), x
        )


LARGE = [  # B, H, L, D: over several blocks, odd sizes, one token, one head
    (1, 2, 4200, 128), (3, 5, 700, 64), (64, 9, 37, 16), (300, 32, 1, 128),
    (1, 1, 5000, 16), (2, 70000, 1, 16),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_and_formula_agree_to_the_bit(layout, dtype):
    """Every product and sum is rounded for itself, so how x is cut cannot be seen."""
    for shape in LARGE:
        batch, heads, length, dim = shape
        x = torch.randn(batch, length, heads, dim).to(dtype).transpose(1, 2)
        wide = torch.promote_types(dtype, torch.float32)
        ids = torch.randint(10**6, (batch, length))
        table = pe_lab.rope_table(ids, pe_lab.inv_freq(dim), dtype=wide)
        ours = pe_lab.apply_rope(x, *table, layout=layout)
        cos, sin = (t[:, None] for t in table)
        assert torch.equal(ours, rotation.by_formula(x, cos, sin, layout))
        assert torch.equal(ours, rotation.in_blocks(x, cos, sin, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_of_any_stride_are_turned(layout):
    """Queries cut out of one projection, an odd head beside them, a flipped axis."""
    table = pe_lab.rope_table(600, pe_lab.inv_freq(32))
    wide = torch.randn(2, 8, 600, 67)
    for view in (wide[..., 3:35], wide[..., ::2][..., :32], wide.mT.contiguous().mT[..., :32]):
        ours = pe_lab.apply_rope(view, *table, layout=layout)
        assert torch.equal(ours, pe_lab.apply_rope(view.clone(), *table, layout=layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_is_the_opposite_rotation_and_keeps_only_the_table(layout):
    """R_mᵀ = R_{−m}: nothing of x's size waits for the backward pass."""
    x = torch.randn(2, 8, 300, 64, requires_grad=True)
    cos, sin = pe_lab.rope_table(300, pe_lab.inv_freq(64))
    kept = []

    def keep(saved):
        kept.append(saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        out = pe_lab.apply_rope(x, cos, sin, layout=layout)
    assert sum(kept) == cos.numel() + sin.numel()
    slope = torch.randn_like(out)
    (grad,) = torch.autograd.grad(out, x, slope)
    assert torch.equal(grad, pe_lab.apply_rope(slope, cos, -sin, layout=layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_kind_of_derivative_goes_through_the_blocks(layout, monkeypatch):
    """Reverse, forward and second derivatives, and batches of functions (vmap)."""
    monkeypatch.setattr(rotation, "_SMALL", 0)
    x = torch.randn(1, 2, 3, 16, dtype=torch.float64, requires_grad=True)
    table = pe_lab.rope_table(3, pe_lab.inv_freq(16), dtype=torch.float64)

    def run(y):
        return pe_lab.apply_rope(y, *table, layout=layout)

    assert torch.autograd.gradcheck(run, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(run, x)
    many = torch.stack((x, 2 * x)).detach()
    assert torch.allclose(torch.vmap(run)(many)[1], 2 * run(x), atol=1e-12)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_table_serves_all_heads_of_an_input_of_many_blocks(layout, dtype):
    """(L, pairs) and (1, L, pairs) are one table; 2²¹ numbers are several blocks."""
    x = torch.randn(1, 4, 4096, 128, dtype=torch.float64).to(dtype)
    cos, sin = pe_lab.rope_table(4096, pe_lab.inv_freq(128))
    shared = pe_lab.apply_rope(x, cos, sin, layout=layout)
    assert torch.equal(
        shared, pe_lab.apply_rope(x, cos[None], sin[None], layout=layout)
    )
    head = pe_lab.apply_rope(x[:, 3:, -5:], cos[-5:], sin[-5:], layout=layout)
    assert torch.equal(shared[:, 3:, -5:], head)


def test_learned_frequencies_get_gradients():
    """A table that was made with grad is differentiated, in large inputs too."""
    omega = pe_lab.inv_freq(16).requires_grad_()
    x = torch.randn(1, 8, 300, 16, dtype=torch.float64)
    table = pe_lab.rope_table(300, omega, dtype=torch.float64)
    loss = (pe_lab.apply_rope(x, *table, layout="half") ** 3).sum()
    (grad,) = torch.autograd.grad(loss, omega)
    assert grad.abs().min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_of_decoding_is_the_row_of_the_whole(layout, dtype):
    """Few tokens take a shorter way; to two roundings of numbers below 8."""
    rope = pe_lab.RoPE(16, layout=layout, gain=1.1)
    q, k = torch.randn(2, 3, 900, 16).to(dtype), torch.randn(2, 1, 900, 16).to(dtype)
    ids = torch.stack((torch.arange(900), torch.arange(10**6, 10**6 + 900)))
    whole = rope.rotate(q, k, ids, ids.clone())
    step_ids = ids[:, 500:501]
    step = rope.rotate(q[:, :, 500:501], k[:, :, 500:501], step_ids, step_ids)
    for full, row in zip(whole, step, strict=True):
        assert row.dtype == dtype
        gap = (full[:, :, 500:501].double() - row.double()).abs().max()
        assert gap <= 2 * 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiles_in_one_graph(layout):
    rope = pe_lab.RoPE(8, layout=layout)

    def run(x, ids):
        return rope.rotate(x, x, ids, ids)[0]

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (3, 9):
        x, ids = torch.randn(2, 2, length, 8), torch.arange(length)
        assert torch.allclose(compiled(x, ids), run(x, ids), atol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pe_lab.RoPE(7), ValueError, "even number, got 7"),
        (lambda: pe_lab.RoPE(8, rotary_dim=3), ValueError, "even number, got 3"),
        (lambda: pe_lab.RoPE(8, rotary_dim=10), ValueError, "at most head_dim = 8"),
        (lambda: pe_lab.RoPE(8, layout="neox"), ValueError, "'half' or 'interleaved'"),
        (lambda: pe_lab.RoPE(8, base=0), ValueError, "base needs"),
        (lambda: pe_lab.RoPE(8, scaling=lambda w: w[:3]), ValueError, "4 frequencies"),
        (lambda: pe_lab.RoPE(8, scaling="yarn"), TypeError, "scaling needs"),
        (lambda: turn(torch.zeros(1, 2, 5, 8), torch.arange(4), "half"), ValueError, "(5, pairs)"),
        (lambda: turn(torch.zeros(1, 5, 8), torch.arange(5), "half"), ValueError, "4 axes"),
        (lambda: turn(torch.zeros(1, 2, 5, 8), torch.arange(5), "neox"), ValueError, "layout needs"),
        (lambda: rotate(torch.zeros(1, 2, 5, 6), torch.arange(5)), ValueError, "head_dim = 8"),
        (lambda: rotate(torch.zeros(1, 2, 5, 8).long(), torch.arange(5)), TypeError, "floating-point"),
        (lambda: rotate(torch.zeros(1, 5, 2, 8), torch.arange(5)), ValueError, "one id for each"),
        (lambda: pe_lab.apply_rope(torch.zeros(1, 1, 2, 4), 1.0, 0.0, layout="half"), TypeError, "rope_table"),
        (lambda: pe_lab.apply_rope(torch.zeros(1, 1, 2, 4), torch.ones(2, 2), torch.ones(2, 1), layout="half"), ValueError, "same number of pairs, got 2 and 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def rotate(x, ids):
    return pe_lab.RoPE(8).rotate(x, x, ids, ids)


def test_empty_and_single():
    assert rotate(torch.zeros(2, 1, 0, 8), torch.arange(0))[0].shape == (2, 1, 0, 8)
    assert rotate(torch.zeros(0, 1, 3, 8), torch.arange(3))[0].shape == (0, 1, 3, 8)


class TestConvertLayout:
    """Weights trained for one layout, used with the other."""

    @pytest.mark.parametrize("kv_heads", [4, 2, 1])
    def test_scores_stay_if_both_projections_are_converted(self, kv_heads):
        """Grouped keys too; to 1e-12 in float64, and off by a lot if one is missing."""
        x, ids = torch.randn(6, 32, dtype=torch.float64), torch.arange(6)
        w_q = torch.randn(32, 32, dtype=torch.float64)
        w_k = torch.randn(8 * kv_heads, 32, dtype=torch.float64)

        def scores(w_q, w_k, layout):
            q = (x @ w_q.T).view(1, 6, 4, 8).transpose(1, 2)
            k = (x @ w_k.T).view(1, 6, kv_heads, 8).transpose(1, 2)
            k = k.repeat_interleave(4 // kv_heads, dim=1)
            q, k = pe_lab.RoPE(8, layout=layout).rotate(q, k, ids, ids)
            return q @ k.mT

        change = {"frm": "interleaved", "to": "half"}
        other_q = pe_lab.convert_layout(w_q, 4, **change)
        other_k = pe_lab.convert_layout(w_k, 4, num_kv_heads=kv_heads, **change)
        before = scores(w_q, w_k, "interleaved")
        assert torch.allclose(scores(other_q, other_k, "half"), before, atol=1e-10)
        assert (scores(other_q, w_k, "half") - before).abs().max() > 1

    def test_round_trips_and_moves_biases(self):
        weight, bias = torch.randn(24, 5), torch.arange(8.0)
        there = pe_lab.convert_layout(weight, 3, frm="half", to="interleaved")
        assert not torch.equal(there, weight)
        back = pe_lab.convert_layout(there, 3, frm="interleaved", to="half")
        assert torch.equal(back, weight)
        moved = pe_lab.convert_layout(bias, 2, frm="interleaved", to="half")
        assert moved.tolist() == [0, 2, 1, 3, 4, 6, 5, 7]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"frm": "neox"}, "frm needs"),
            ({"to": "gptj"}, "to needs"),
            ({"num_heads": 5}, "5 heads of an even width"),
            ({"num_heads": 0}, "num_heads needs"),
            ({"num_kv_heads": 3}, "divisor of num_heads"),
            ({"weight": torch.zeros(())}, "heads of an even width"),
            ({"weight": [1.0]}, "heads of an even width"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, arguments, words):
        good = {
            "weight": torch.zeros(16, 3),
            "num_heads": 2,
            "frm": "half",
            "to": "half",
        }
        with pytest.raises(ValueError, match=words):
            pe_lab.convert_layout(**good | arguments)
