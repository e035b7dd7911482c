"""Sinusoids on several axes: shares of channels that see their own axis alone."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pe_lab
from pe_lab import positions
from pe_lab.positions import grid
from tests.oracle import exact_sinusoidal

NEAR = 2e-6  # float32 angles below 10 rad: 10 · 2^-24 ≈ 6e-7, a few times over
ORDERS = ["interleaved", "halves"]


def by_hand(places, d_model, order):
    """Every entry from math.sin and math.cos, in float64."""
    axes = len(places[0])
    share = 2 * math.ceil(d_model / (2 * axes))
    rows = []
    for place in places:
        row = []
        for axis, p in enumerate(place):
            width = min(share, d_model - axis * share)
            w = [10000 ** (-2 * (c // 2) / share) for c in range(width)]
            code = [(math.cos if c % 2 else math.sin)(p * w[c]) for c in range(width)]
            row += code if order == "interleaved" else code[::2] + code[1::2]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4), multiple=st.integers(1, 4), cut=st.integers(0, 7), order=st.sampled_from(ORDERS))  # fmt: skip
def test_every_entry_is_the_sine_or_cosine_it_should_be(sizes, multiple, cut, order):
    """Any number of axes, odd widths too; float64 angles below 4 rad: 1e-14."""
    d_model = 2 * len(sizes) * multiple - min(cut, 2 * multiple - 1)
    cells = grid(*sizes)
    ours = pe_lab.axial_sinusoidal(cells, d_model, order=order, dtype=torch.float64)
    wanted = by_hand(cells.tolist(), d_model, order)
    assert ours.shape == wanted.shape
    assert (ours - wanted).abs().max() <= 1e-14


@pytest.mark.parametrize("order", ORDERS)
def test_one_axis_is_the_plain_code(order):
    """Odd width included: the ladder of a single axis is that of `sinusoidal`."""
    for d_model in (1, 4, 5):
        ours = pe_lab.axial_sinusoidal(grid(7), d_model, order=order)
        assert torch.equal(ours, pe_lab.sinusoidal(7, d_model, order=order))


def test_entries_far_out_are_exact_to_their_rounding():
    far = torch.tensor([[10**7, 3], [5, 10**6]])
    ours = pe_lab.axial_sinusoidal(far, 16)
    rows, columns = (exact_sinusoidal(far[:, a].tolist(), 8) for a in (0, 1))
    assert (ours - torch.cat((rows, columns), 1)).abs().max() <= 3.3e-8


@given(h=st.integers(1, 5), w=st.integers(1, 5))
def test_the_row_code_varies_only_with_rows(h, w):
    """Non-square grids too, where a flattening in the wrong order shows."""
    table = pe_lab.axial_sinusoidal(grid(h, w), 8).view(h, w, 8)
    assert torch.equal(table[..., :4], table[:, :1, :4].expand(h, w, 4))
    assert torch.equal(table[..., 4:], table[:1, :, 4:].expand(h, w, 4))
    assert len(table.view(h * w, 8).unique(dim=0)) == h * w


@pytest.mark.parametrize("d_model", [3, 4, 6, 7, 8, 16])
def test_two_axes_equal_positional_encodings_at_widths_of_any_kind(d_model):
    peer = pytest.importorskip("positional_encodings.torch_encodings")
    theirs = peer.PositionalEncoding2D(d_model)(torch.zeros(1, 3, 5, d_model))[0]
    ours = pe_lab.axial_sinusoidal(grid(3, 5), d_model)
    assert (ours - theirs.flatten(0, 1)).abs().max() <= NEAR


@pytest.mark.parametrize("d_model", [5, 6, 10, 11, 12])
def test_three_axes_equal_positional_encodings(d_model):
    peer = pytest.importorskip("positional_encodings.torch_encodings")
    theirs = peer.PositionalEncoding3D(d_model)(torch.zeros(1, 2, 3, 4, d_model))[0]
    ours = pe_lab.axial_sinusoidal(grid(2, 3, 4), d_model)
    assert (ours - theirs.flatten(0, 2)).abs().max() <= NEAR


def test_vit_mae_stores_the_column_first():
    """Its checkpoints hold [column, row]; the row-first table is another one.

    facebookresearch/mae#18: renaming the two is safe, swapping them breaks weights.
    """
    mae = pytest.importorskip("transformers.models.vit_mae.modeling_vit_mae")
    config = pytest.importorskip("transformers").ViTMAEConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, image_size=12, patch_size=4,
    )  # fmt: skip
    embeddings = mae.ViTMAEEmbeddings(config)
    embeddings.initialize_weights()
    theirs = embeddings.position_embeddings[0, 1:]
    cells = grid(3, 3)
    ours = pe_lab.axial_sinusoidal(cells.flip(-1), 16, order="halves")
    assert (ours - theirs).abs().max() <= NEAR
    row_first = pe_lab.axial_sinusoidal(cells, 16, order="halves")
    assert (row_first - theirs).abs().max() > 0.5
    other = mae.build_2d_sinusoidal_position_embedding(3, 5, 16)
    ours = pe_lab.axial_sinusoidal(grid(3, 5), 16, order="halves")
    assert (ours - other).abs().max() <= NEAR


def test_detr_counts_from_one_in_fractions_of_a_turn():
    """Its normalised code is the plain one at places 2π(i + 1)/(n + 10⁻⁶)."""
    detr = pytest.importorskip("transformers.models.detr.modeling_detr")
    module = detr.DetrSinePositionEmbedding(8, normalize=True)
    theirs = module((1, 1, 3, 5), torch.device("cpu"), torch.float32)[0].flatten(1).T
    extent = torch.tensor([3, 5], dtype=torch.float64) + 1e-6
    places = 2 * math.pi * (grid(3, 5) + 1) / extent
    assert (pe_lab.axial_sinusoidal(places, 16) - theirs).abs().max() <= NEAR


def test_scaled_frequencies_are_scaled_places():
    """Position interpolation on every axis: ω/2 at p is ω at p/2."""
    slow = pe_lab.scaling.linear(pe_lab.inv_freq(4), 2)
    ours = pe_lab.axial_sinusoidal(grid(3, 5), 8, inv_freq=slow)
    assert torch.equal(ours, pe_lab.axial_sinusoidal(grid(3, 5) / 2, 8))


class TestModule:
    def test_adds_the_table_at_the_given_places(self):
        x = torch.randn(2, 6, 8)
        ids = torch.stack((grid(2, 3), grid(3, 2)))
        out = pe_lab.AxialSinusoidal(8, order="halves", scale=0.5).embed(x, ids)
        wanted = x + 0.5 * pe_lab.axial_sinusoidal(ids, 8, order="halves")
        assert torch.equal(out, wanted)
        shared = pe_lab.AxialSinusoidal(8).embed(x, grid(2, 3))
        assert torch.equal(shared, x + pe_lab.axial_sinusoidal(grid(2, 3), 8))

    def test_base_frequencies_and_axes_are_used(self):
        x, ids = torch.zeros(1, 6, 12), grid(1, 2, 3)
        module = pe_lab.AxialSinusoidal(12, axes=3, base=100.0)
        table = pe_lab.axial_sinusoidal(ids, 12, base=100.0)
        assert torch.equal(module.embed(x, ids)[0], table)
        slow = pe_lab.inv_freq(4) / 4
        module = pe_lab.AxialSinusoidal(12, axes=3, inv_freq=slow)
        assert torch.equal(module.inv_freq, slow)
        table = pe_lab.axial_sinusoidal(ids / 4, 12)
        assert torch.equal(module.embed(x, ids)[0], table)

    @pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16, torch.float64])
    def test_no_cast_can_round_the_angles_and_the_sum_is_rounded_once(self, cast):
        module = pe_lab.AxialSinusoidal(16).to(cast)
        x, ids = torch.randn(1, 2, 16).to(cast), torch.tensor([[4000, 3], [1, 700]])
        rows, columns = (exact_sinusoidal(ids[:, a].tolist(), 8) for a in (0, 1))
        wanted = x.double() + torch.cat((rows, columns), 1)
        out = module.embed(x, ids)
        assert out.dtype == cast
        # half an ulp of the result, and the float32 table's rounding before it
        slack = torch.finfo(cast).eps / 2 * wanted.abs() + 1e-7 * (
            cast != torch.float64
        )
        assert ((out.double() - wanted).abs() <= slack + 1e-15).all()
        assert not list(module.state_dict())

    def test_a_model_tells_the_cells_of_an_image_apart(self):
        scheme = pe_lab.AxialSinusoidal(16)
        model = pe_lab.Transformer(11, 16, 2, 1, kind="encoder", encoding=scheme)
        tokens, cells = torch.full((1, 6), 3), grid(2, 3)[None]
        out = model.double().eval()(tokens, positions=cells)
        assert torch.pdist(out[0]).min() > 1e-3
        turned = model(tokens.flip(1), positions=cells.flip(1))
        assert torch.allclose(turned.flip(1), out, atol=1e-12)

    def test_compiled_and_built_on_meta_it_is_the_same(self):
        with torch.device("meta"):
            module = pe_lab.AxialSinusoidal(8)
        x, ids = torch.randn(1, 6, 8), grid(2, 3)
        plain = module.embed(x, ids)
        assert torch.equal(plain, pe_lab.AxialSinusoidal(8).embed(x, ids))
        compiled = torch.compile(module.embed, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x, ids), plain)

    def test_empty_grids_pass(self):
        module = pe_lab.AxialSinusoidal(8)
        assert module.embed(torch.zeros(2, 0, 8), grid(0, 3)).shape == (2, 0, 8)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: pe_lab.axial_sinusoidal(grid(2, 3), 2), ValueError, "multiple of 4, such as 4"),
        (lambda: pe_lab.AxialSinusoidal(8, axes=3), ValueError, "multiple of 6, such as 12"),
        (lambda: pe_lab.AxialSinusoidal(8, axes=0), ValueError, "axes needs"),
        (lambda: pe_lab.AxialSinusoidal(8, inv_freq=torch.ones(4)), ValueError, "2 frequencies"),
        (lambda: pe_lab.axial_sinusoidal(6, 8), TypeError, "grid\\(height, width\\)"),
        (lambda: pe_lab.AxialSinusoidal(8).embed(torch.zeros(1, 6, 8), torch.arange(6)), ValueError, "2 numbers for each token"),
        (lambda: pe_lab.AxialSinusoidal(8).embed(torch.zeros(1, 6, 8), grid(2, 2)), ValueError, "\\(6, 2\\)"),
        (lambda: pe_lab.AxialSinusoidal(8).embed(torch.zeros(1, 6, 9), grid(2, 3)), ValueError, "8 channels"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_every_width_has_a_code_or_a_refusal_that_names_one():
    """The width a refusal proposes works."""
    for axes in (2, 3, 4):
        for d_model in range(1, 30):
            cells = positions.grid(*[2] * axes)
            try:
                table = pe_lab.axial_sinusoidal(cells, d_model)
            except ValueError as error:
                proposed = int(str(error).rstrip(".").split()[-1])
                table = pe_lab.axial_sinusoidal(cells, proposed)
            assert len(table.unique(dim=0)) == 2**axes
