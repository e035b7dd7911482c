"""Tables of cosines and sines: exact at any position, the same however asked for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pe_lab
from pe_lab.tables import unit_circle
from tests.oracle import exact_sinusoidal

# half an ulp of float32 below 1 is 2^-25 = 2.98e-8; the rest is float64 angle error at 1e7
FP32 = 3.3e-8
FAR = [0, 1, 2, 999, 4096, 65_537, 10**5, 10**6 - 1, 10**6, 5 * 10**6, 10**7]


@pytest.mark.parametrize("base", [100.0, 1e4, 5e5, 1e8])
@pytest.mark.parametrize("dim", [2, 64, 128])
def test_float32_tables_are_correctly_rounded_up_to_ten_million(dim, base):
    exact = exact_sinusoidal(FAR, dim, base)
    cos, sin = pe_lab.rope_table(torch.tensor(FAR), pe_lab.inv_freq(dim, base=base))
    assert (sin - exact[:, 0::2]).abs().max() <= FP32
    assert (cos - exact[:, 1::2]).abs().max() <= FP32


@settings(max_examples=25, deadline=None)
@given(start=st.integers(-(10**7), 10**7), count=st.integers(256, 2000))
def test_runs_of_positions_are_as_exact_as_scattered_ones(start, count):
    """Angle addition (a run) against direct evaluation (the same run, shuffled)."""
    run = torch.arange(start, start + count)
    order = torch.randperm(count)
    inv_freq = pe_lab.inv_freq(64)
    added = unit_circle(run, inv_freq)[order]
    direct = unit_circle(run[order], inv_freq, dtype=torch.float64)
    assert (added - direct).abs().max() <= FP32


def test_a_run_far_away_is_exact():
    """The oracle itself on the fast path, at its far end."""
    run = torch.arange(10**7 - 300, 10**7 + 1)
    exact = exact_sinusoidal(run[::50].tolist(), 64)
    ours = pe_lab.sinusoidal(run, 64)[::50]
    assert (ours - exact).abs().max() <= FP32


@pytest.mark.parametrize(
    ("dtype", "ulp"), [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)]
)
def test_half_precision_is_rounded_once(dtype, ulp):
    """Half an ulp below 1, plus 1e-7 for what lies between two half-precision numbers."""
    exact = exact_sinusoidal(FAR, 64)
    ours = pe_lab.sinusoidal(torch.tensor(FAR), 64, dtype=dtype)
    assert ours.dtype == dtype
    assert (ours.double() - exact).abs().max() <= ulp / 2 + 1e-7
    assert (pe_lab.sinusoidal(5000, 64, dtype=dtype)[4096] == ours[4]).all()


def test_float64_tables_keep_float64():
    """Error at 1e7: one rounding of ω and one of p·ω, each 1e7 · 1.1e-16 · a few."""
    exact = exact_sinusoidal(FAR, 64)
    ours = pe_lab.sinusoidal(torch.tensor(FAR), 64, dtype=torch.float64)
    assert (ours - exact).abs().max() <= 5e-9
    assert (ours[:5] - exact[:5]).abs().max() <= 1e-12


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 257, 1000])
@pytest.mark.parametrize("pairs", [1, 3, 64])
def test_a_count_and_its_tensor_mean_the_same(count, pairs):
    """float32 results may differ where float64 ones straddle a rounding boundary."""
    inv_freq = pe_lab.inv_freq(2 * pairs)
    for sine_first in (False, True):
        a = unit_circle(count, inv_freq, sine_first=sine_first)
        b = unit_circle(torch.arange(count), inv_freq, sine_first=sine_first)
        c = unit_circle(torch.arange(count).float(), inv_freq, sine_first=sine_first)
        assert a.shape == b.shape == c.shape == (count, pairs, 2)
        assert torch.allclose(a, b, rtol=0, atol=6e-8)
        assert torch.allclose(a, c, rtol=0, atol=6e-8)


def test_any_shape_of_positions():
    ids = torch.randint(-50, 50, (2, 3, 4))
    cos, sin = pe_lab.rope_table(ids, pe_lab.inv_freq(6))
    assert cos.shape == sin.shape == (2, 3, 4, 3)
    assert torch.allclose(cos**2 + sin**2, torch.ones(()), atol=2e-7)


def test_nothing_is_remembered_between_calls():
    """Same input, same bits, whatever was asked for in between."""
    inv_freq = pe_lab.inv_freq(64)
    first = unit_circle(300, inv_freq)
    unit_circle(5000, inv_freq, dtype=torch.bfloat16)
    first_again = unit_circle(300, inv_freq)
    assert torch.equal(first, first_again)
    first_again += 1
    assert torch.equal(first, unit_circle(300, inv_freq))


def test_default_dtype_and_autocast_change_nothing():
    inv_freq = pe_lab.inv_freq(64)
    plain = unit_circle(300, inv_freq)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(pe_lab.inv_freq(64), inv_freq)
        assert torch.equal(unit_circle(300, inv_freq), plain)
        assert torch.equal(unit_circle(300, pe_lab.inv_freq(64)), plain)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(unit_circle(300, inv_freq), plain)


def test_meta_device_builds_shapes_only():
    table = pe_lab.sinusoidal(300, 64, device="meta")
    assert table.is_meta
    assert table.shape == (300, 64)
    assert pe_lab.sinusoidal(torch.arange(9, device="meta"), 5).shape == (9, 5)


def test_inference_mode_leaves_nothing_behind():
    with torch.inference_mode():
        pe_lab.sinusoidal(300, 64)
    x = torch.zeros(1, 300, 64, requires_grad=True)
    pe_lab.Sinusoidal(64).embed(x, torch.arange(300)).sum().backward()
    assert x.grad is not None


def test_compiled_without_graph_breaks_and_with_any_length():
    inv_freq = pe_lab.inv_freq(16)

    def rows(ids):
        return torch.cat(pe_lab.rope_table(ids, inv_freq), dim=-1)

    compiled = torch.compile(rows, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (5, 300):
        ids = torch.arange(length)
        assert torch.allclose(compiled(ids), rows(ids), rtol=0, atol=6e-8)


def test_gradient_reaches_real_positions():
    """d/dp (sin pω, cos pω) = ω (cos pω, −sin pω), by finite differences."""
    positions = torch.tensor([0.3, 2.0, 5.5], dtype=torch.float64, requires_grad=True)

    def table(p):
        return pe_lab.sinusoidal(p, 6, dtype=torch.float64)

    assert torch.autograd.gradcheck(table, positions)


@pytest.mark.parametrize(
    "dtype", [torch.long, torch.bool, torch.complex64, None, "float32"]
)
def test_results_need_a_floating_dtype(dtype):
    with pytest.raises(TypeError, match="dtype needs one of float64"):
        pe_lab.rope_table(4, pe_lab.inv_freq(4), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.uint16])
def test_ids_that_wrap_around_are_no_run(dtype):
    """In uint8, 0 follows 255 by 1: 300 such ids are not the positions 0 … 299."""
    ids = torch.arange(300).to(dtype)
    inv_freq = pe_lab.inv_freq(8)
    expected = unit_circle(ids.long(), inv_freq)
    assert torch.equal(unit_circle(ids, inv_freq), expected)


@pytest.mark.parametrize("ids", [4, torch.arange(300)], ids=["count", "run"])
def test_gradient_reaches_frequencies(ids):
    """d/dω Σ_p sin pω + cos pω = Σ_p p (cos pω − sin pω); float32 sums up to 300²."""
    w = pe_lab.inv_freq(6).requires_grad_()
    (gradient,) = torch.autograd.grad(unit_circle(ids, w).sum(), w)
    p = torch.arange(ids) if isinstance(ids, int) else ids
    angles = p[:, None] * w.detach()
    expected = (p[:, None] * (angles.cos() - angles.sin())).sum(0)
    assert torch.allclose(gradient, expected, rtol=1e-6, atol=1e-3)


def test_the_table_is_where_the_positions_are_whatever_the_default_device():
    ids = torch.arange(300)
    with torch.device("meta"):
        assert pe_lab.sinusoidal(ids, 8).device == ids.device
        assert pe_lab.sinusoidal(300, 8).is_meta


def test_exported_with_a_count_that_stays_open():
    """Traced at 5 rows, run at 9: the count is a symbol and not the number 5."""

    class Rows(torch.nn.Module):
        def forward(self, x):
            return x + pe_lab.sinusoidal(x.shape[0], 8)

    length = torch.export.Dim("length", min=2, max=4096)
    program = torch.export.export(
        Rows(), (torch.zeros(5, 8),), dynamic_shapes=({0: length},), strict=False
    )
    table = program.module()(torch.zeros(9, 8))
    assert torch.allclose(table, pe_lab.sinusoidal(9, 8), rtol=0, atol=6e-8)
