"""A learned table has the rows it has: reading another one is an error."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pe_lab

sizes = st.integers(1, 6)


def test_reads_the_row_of_each_id():
    module = pe_lab.Learned(6, 2)
    with torch.no_grad():
        module.weight.copy_(torch.arange(6.0)[:, None].expand(6, 2))
    x, ids = torch.zeros(2, 3, 2), torch.tensor([[0, 1, 2], [0, 0, 5]])
    assert module.embed(x, ids)[..., 0].tolist() == [[0, 1, 2], [0, 0, 5]]
    assert module.table(2).tolist() == [[0, 0], [1, 1]]


def test_only_rows_that_were_read_get_gradients():
    module = pe_lab.Learned(6, 2)
    module.embed(torch.zeros(1, 2, 2), torch.tensor([1, 4])).sum().backward()
    assert module.weight.grad.abs().sum(1).tolist() == [0, 2, 0, 0, 2, 0]


def test_initialisation_and_dtype():
    pe_lab.seed(0)
    weight = pe_lab.Learned(400, 400, std=0.5).weight
    assert weight.std().item() == pytest.approx(0.5, rel=0.02)
    out = pe_lab.Learned(4, 2).embed(torch.zeros(1, 4, 2).bfloat16(), torch.arange(4))
    assert out.dtype == torch.bfloat16


def test_the_first_draw_of_a_seed_is_the_table():
    """Results that were stored with a seed depend on it."""
    pe_lab.seed(3)
    weight = pe_lab.Learned(5, 4).weight
    pe_lab.seed(3)
    assert torch.equal(weight, torch.empty(5, 4).normal_(std=0.02))


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        (torch.tensor([0, 6]), IndexError, "position 6 has no row in a table of 6"),
        (torch.tensor([0, -1]), IndexError, "position -1 has no row"),
        (torch.tensor([0.0, 1.0]), TypeError, "whole positions"),
        (torch.tensor([0, 1, 2]), ValueError, "one id for each token"),
    ],
)
def test_other_rows_are_refused(ids, error, words):
    with pytest.raises(error, match=words):
        pe_lab.Learned(6, 4).embed(torch.zeros(1, 2, 4), ids)


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="max_len needs"):
        pe_lab.Learned(0, 4)
    with pytest.raises(TypeError, match="d_model needs"):
        pe_lab.Learned(4, 4.0)
    with pytest.raises(ValueError, match="4 channels"):
        pe_lab.Learned(6, 4).embed(torch.zeros(1, 2, 3), torch.arange(2))


class TestFamilies:
    def test_rows_below_position_zero_are_reserved(self):
        """512 positions and padding_idx 1: the 514 rows of a released RoBERTa."""
        assert pe_lab.Learned(512, 4, offset=2).weight.shape == (514, 4)
        module = with_rows(torch.arange(6.0)[:, None], offset=2)
        assert module.max_len == 4
        rows = module.table(torch.tensor([-2, -1, 0, 3]))
        assert rows.flatten().tolist() == [0, 1, 2, 5]
        assert module.table(2).flatten().tolist() == [2, 3]
        assert "offset=2" in repr(module)

    @pytest.mark.parametrize("bad", [4, -3])
    def test_positions_beyond_both_ends_are_refused(self, bad):
        """Row 4 exists, position 4 does not."""
        module = pe_lab.Learned(4, 2, offset=2)
        words = f"position {bad} has no row in a table of 6 rows .positions -2 … 3."
        with pytest.raises(IndexError, match=words):
            module.table(torch.tensor([0, bad]))

    def test_opt_reads_two_rows_further(self):
        """huggingface/transformers#20761: rows 2, 3, 4 for three tokens."""
        opt = pytest.importorskip("transformers.models.opt.modeling_opt")
        theirs = opt.OPTLearnedPositionalEmbedding(8, 4)
        ours = with_rows(theirs.weight.detach(), offset=2)
        for row in ([1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 0]):
            mask = torch.tensor([row])
            ids = pe_lab.positions.from_mask(mask).masked_fill(mask == 0, -1)
            assert torch.equal(ours.table(ids), theirs(mask))
        plain = with_rows(torch.arange(10.0)[:, None], offset=2)
        assert plain.table(3).flatten().tolist() == [2, 3, 4]

    def test_roberta_counts_from_its_padding_row(self):
        """huggingface/transformers#10736: tokens 0 5 6 2 and two pads."""
        roberta = pytest.importorskip("transformers.models.roberta.modeling_roberta")
        tokens = torch.tensor([[0, 5, 6, 2, 1, 1]])
        make = roberta.RobertaEmbeddings.create_position_ids_from_input_ids
        rows = make(tokens, padding_idx=1)
        assert rows.tolist() == [[2, 3, 4, 5, 1, 1]]
        table = torch.randn(8, 4)
        ours = with_rows(table, offset=2)
        mask = tokens != 1
        ids = pe_lab.positions.from_mask(mask).masked_fill(~mask, -1)
        assert torch.equal(ours.table(ids), table[rows])

    def test_packed_documents_start_at_the_family_s_first_row(self):
        """huggingface/sentence-transformers#3879: restarting at row 0 reads reserved rows."""
        ours = with_rows(torch.arange(9.0)[:, None], offset=2)
        ids, _ = pe_lab.positions.packed([3, 2])
        assert ours.table(ids).flatten().tolist() == [2, 3, 4, 2, 3]


class TestResize:
    def test_keeps_rows_and_draws_the_others(self):
        old = pe_lab.Learned(3, 400, offset=1, std=0.5)
        before = old.weight.detach().clone()
        new = old.resize(40, generator=torch.Generator().manual_seed(0))
        assert (new.max_len, new.offset, new.std) == (40, 1, 0.5)
        assert torch.equal(new.weight[:4], before)
        # 14,800 draws: the deviation's own error is 0.5/√29600 = 0.003
        assert new.weight[4:].std().item() == pytest.approx(0.5, abs=0.012)
        with torch.no_grad():
            new.weight.zero_()
        assert torch.equal(old.weight, before)

    def test_a_generator_repeats_the_draw_and_leaves_the_common_one_alone(self):
        old, state = pe_lab.Learned(3, 4), torch.get_rng_state()
        a, b = (old.resize(5, generator=torch.Generator().manual_seed(7)) for _ in "ab")
        assert torch.equal(a.weight, b.weight)
        assert torch.equal(torch.get_rng_state(), state)
        assert not torch.equal(old.resize(5).weight[3:], a.weight[3:])

    def test_fewer_positions_cut_the_last_rows_off(self):
        old = pe_lab.Learned(5, 4, offset=2)
        new = old.resize(3)
        assert torch.equal(new.weight, old.weight[:5])
        with pytest.raises(IndexError, match="position 3 has no row"):
            new.table(4)

    def test_dtype_training_mode_and_frozen_tables_are_kept(self):
        old = pe_lab.Learned(5, 4).half().eval()
        old.weight.requires_grad_(False)
        new = old.resize(7)
        assert new.weight.dtype == torch.float16
        assert not (new.training or new.weight.requires_grad)
        with torch.device("meta"):
            assert pe_lab.Learned(5, 4).resize(7).weight.shape == (7, 4)


class TestResampleRows:
    @given(n=sizes, more=st.integers(1, 20), extra=st.integers(0, 2))
    def test_equals_numpy_along_every_channel(self, n, more, extra):
        """np.interp at i·(n − 1)/(N − 1); float64, weights to 1e-15 of rows up to 5."""
        table = torch.randn(extra + n, 3, dtype=torch.float64)
        ours = pe_lab.resample_rows(table, extra + more, extra=extra)
        places = np.arange(more) * (n - 1) / max(more - 1, 1)
        wanted = np.stack(
            [np.interp(places, np.arange(n), c) for c in table[extra:].T.numpy()]
        )
        assert torch.equal(ours[:extra], table[:extra])
        assert np.abs(ours[extra:].T.numpy() - wanted).max() <= 1e-13

    def test_first_and_last_rows_and_an_unchanged_length_are_exact(self):
        """float32 rows, whatever the step between them."""
        table = torch.randn(512, 8)
        assert torch.equal(pe_lab.resample_rows(table, 512), table)
        for rows in (2, 7, 513, 1000):
            new = pe_lab.resample_rows(table, rows)
            assert torch.equal(new[[0, -1]], table[[0, -1]])
        assert torch.equal(pe_lab.resample_rows(table, 1023)[::2], table)

    def test_half_precision_is_rounded_once(self):
        table = torch.randn(9, 4, dtype=torch.float64).bfloat16()
        new = pe_lab.resample_rows(table, 14)
        wide = pe_lab.resample_rows(table.double(), 14)
        assert torch.equal(new, wide.bfloat16())

    def test_of_a_module_keeps_the_reserved_rows_and_the_original(self):
        old = pe_lab.Learned(5, 4, offset=2)
        before = old.weight.detach().clone()
        new = old.resample(9, extra=1)
        assert (new.max_len, new.weight.shape) == (9, (11, 4))
        assert torch.equal(new.weight[:3], before[:3])
        wanted = pe_lab.resample_rows(before[3:], 8)
        assert torch.equal(new.weight[3:], wanted)
        assert torch.equal(old.weight, before)
        assert new.weight.is_leaf and new.weight.requires_grad


def cubic(distance):
    """Keys' kernel with a = −¾ at a distance in cells."""
    a, x = -0.75, abs(distance)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


def cubic_matrix(n, more):
    """(N, n): what each old cell gives to each new one; the border is repeated."""
    weights = torch.zeros(more, n, dtype=torch.float64)
    for i in range(more):
        place = (i + 0.5) * n / more - 0.5
        for cell in range(math.floor(place) - 1, math.floor(place) + 3):
            weights[i, min(max(cell, 0), n - 1)] += cubic(place - cell)
    return weights


class TestResampleGrid:
    @given(h=sizes, w=sizes, new_h=sizes, new_w=sizes, extra=st.integers(0, 2))
    def test_equals_the_cubic_kernel_written_out(self, h, w, new_h, new_w, extra):
        """Rows by columns of weights, in float64; square and non-square grids."""
        table = torch.randn(extra + h * w, 2, dtype=torch.float64)
        ours = pe_lab.resample_grid(table, (h, w), (new_h, new_w), extra=extra)
        image = table[extra:].view(h, w, 2)
        wanted = torch.einsum(
            "ih,jw,hwc->ijc", cubic_matrix(h, new_h), cubic_matrix(w, new_w), image
        )
        assert torch.equal(ours[:extra], table[:extra])
        assert (ours[extra:].view(new_h, new_w, 2) - wanted).abs().max() <= 1e-12

    @pytest.mark.parametrize("family", ["vit", "dinov2"])
    def test_equals_transformers_on_another_resolution(self, family):
        """Their arithmetic is float32: 16 products of numbers up to 4, 1e-5."""
        transformers = pytest.importorskip("transformers")
        name = {"vit": "ViT", "dinov2": "Dinov2"}[family]
        config = getattr(transformers, f"{name}Config")(
            hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4,
        )  # fmt: skip
        module = getattr(transformers, f"{name}Model")(config).embeddings
        with torch.no_grad():
            module.position_embeddings.normal_()
        theirs = module.interpolate_pos_encoding(torch.zeros(1, 1 + 5 * 7, 8), 20, 28)
        table = module.position_embeddings[0]
        ours = pe_lab.resample_grid(table, (4, 4), (5, 7), extra=1)
        assert (ours - theirs[0]).abs().max() <= 1e-5

    def test_an_unchanged_grid_is_the_same_table_and_axes_are_not_swapped(self):
        table = torch.randn(1 + 6, 3)
        assert torch.equal(pe_lab.resample_grid(table, (2, 3), (2, 3), extra=1), table)
        rows = pe_lab.positions.grid(2, 3).float()
        new = pe_lab.resample_grid(rows, (2, 3), (4, 3)).view(4, 3, 2)
        assert torch.equal(new[..., 1], torch.arange(3.0).expand(4, 3))
        assert torch.equal(new[..., 0], new[:, :1, 0].expand(4, 3))

    def test_of_a_module_and_its_gradient(self):
        old = pe_lab.Learned(5, 4, offset=1)
        new = old.resample_grid((2, 2), (3, 2), extra=1)
        assert (new.max_len, new.weight.shape) == (7, (8, 4))
        assert torch.equal(new.weight[:2], old.weight[:2])
        table = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda t: pe_lab.resample_grid(t, (2, 2), (3, 2)), table
        )
        assert torch.autograd.gradcheck(lambda t: pe_lab.resample_rows(t, 7), table)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda t: pe_lab.resample_rows(t, 1, extra=1), ValueError, "at least 2, got 1. 1 rows are extra"),
        (lambda t: pe_lab.resample_rows(t, 9, extra=7), ValueError, "more rows than extra = 7"),
        (lambda t: pe_lab.resample_rows(t[0], 9), ValueError, "2 axes"),
        (lambda t: pe_lab.resample_rows(t.long(), 9), TypeError, "floating-point"),
        (lambda t: pe_lab.resample_grid(t, (2, 3), (4, 4)), ValueError, "0 \\+ 2·3 rows .* got 7"),
        (lambda t: pe_lab.resample_grid(t, (2, 3), (4,), extra=1), ValueError, "two numbers"),
        (lambda t: pe_lab.resample_grid(t, (2, 3), 4, extra=1), TypeError, "two numbers"),
        (lambda t: pe_lab.resample_grid(t, (2, 3), (0, 4), extra=1), ValueError, "new needs"),
        (lambda t: pe_lab.Learned(4, 2).resize(0), ValueError, "max_len needs"),
        (lambda t: pe_lab.Learned(4, 2).resize(5, generator=3), TypeError, "torch.Generator"),
        (lambda t: pe_lab.Learned(4, 2, offset=-1), ValueError, "offset needs"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_made_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call(torch.randn(7, 4))


def with_rows(table, offset):
    module = pe_lab.Learned(len(table) - offset, table.shape[1], offset=offset)
    with torch.no_grad():
        module.weight.copy_(table)
    return module
