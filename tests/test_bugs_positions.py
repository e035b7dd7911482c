"""Position bugs that were met in public, each with the value that is right.

A test's docstring names a report and says what went wrong there. Learned tables of
OPT and RoBERTa, and ViT-MAE's axes, are in the tests of those schemes.
"""

import math

import pytest
import torch

import pe_lab
from pe_lab import positions


@pytest.fixture
def numbered():
    """A learned table whose row t is [t], so that what is read can be seen."""
    module = pe_lab.Learned(9, 1)
    with torch.no_grad():
        module.weight.copy_(torch.arange(9.0)[:, None])
    return module


def rows_read(module, ids):
    return module.embed(torch.zeros(*ids.shape, 1), ids)[..., 0].tolist()


class TestIds:
    def test_ids_of_real_tokens_do_not_count_padding(self):
        """huggingface/transformers#33095: the default counted pads, 2 3 4 for 0 1 2."""
        mask = torch.tensor([[0, 0, 1, 1, 1]]).bool()
        assert positions.from_mask(mask)[mask].tolist() == [0, 1, 2]

    def test_a_learned_table_shows_padding_in_the_ids_and_rope_does_not(self):
        """Why it stayed unseen there: a constant shift leaves RoPE's scores alone."""
        q, k = torch.randn(2, 1, 1, 3, 8, dtype=torch.float64)
        counted, shifted = torch.arange(3), torch.arange(3) + 2
        a, b = (pe_lab.RoPE(8).rotate(q, k, ids, ids) for ids in (counted, shifted))
        assert torch.allclose(a[0] @ a[1].mT, b[0] @ b[1].mT, rtol=0, atol=1e-13)
        table = pe_lab.Learned(9, 8, std=1.0).table
        assert (table(counted) - table(shifted)).abs().max() > 0.1

    def test_each_row_of_a_ragged_batch_continues_at_its_own_length(self):
        """unslothai/unsloth#3699: one vector for all rows gave 4 and 4 for 2 and 4."""
        _, mask = positions.from_lengths([2, 4], side="left")
        assert positions.cached(mask.sum(-1), 1).tolist() == [[2], [4]]

    def test_ids_are_not_made_from_an_expanded_mask(self):
        """The same report: a mask of queries by keys does not count tokens."""
        expanded = torch.ones(2, 1, 4, 4).tril().bool()
        with pytest.raises(ValueError, match="mask needs shape .batch, length."):
            positions.from_mask(expanded)

    def test_left_padded_tokens_read_the_first_rows(self, numbered):
        """ndif-team/nnsight#672: tokens after two pads read rows 2, 3 for 0, 1."""
        ids, mask = positions.from_lengths([2, 4], side="left")
        rows = rows_read(numbered, ids)
        assert rows[0][2:] == [0, 1]
        assert rows[1] == [0, 1, 2, 3]
        assert mask.int().tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]

    def test_packed_documents_start_again_and_do_not_look_back(self, numbered):
        """huggingface/nanoVLM#201: ids went on counting, and the mask let all see."""
        ids, mask = positions.packed([3, 2])
        assert rows_read(numbered, ids[None]) == [[0, 1, 2, 0, 1]]
        causal = positions.causal(torch.arange(5), torch.arange(5)) & mask
        assert causal.int().tolist() == [
            [1, 0, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [1, 1, 1, 0, 0],
            [0, 0, 0, 1, 0],
            [0, 0, 0, 1, 1],
        ]

    def test_ids_alone_do_not_stop_the_leak_between_documents(self):
        """The same report: it took the mask as well; with both, 10⁻¹² in float64."""
        q, k, v = torch.randn(3, 1, 2, 5, 8, dtype=torch.float64)
        ids, mask = positions.packed([3, 2])
        rope = {"encoding": pe_lab.RoPE(8), "causal": True}
        alone = pe_lab.attention(q[:, :, 3:], k[:, :, 3:], v[:, :, 3:], **rope)
        leaking = pe_lab.attention(q, k, v, q_pos=ids, k_pos=ids, **rope)
        packed = pe_lab.attention(q, k, v, mask=mask, q_pos=ids, k_pos=ids, **rope)
        assert (leaking[:, :, 3:] - alone).abs().max() > 0.01
        assert torch.allclose(packed[:, :, 3:], alone, rtol=0, atol=1e-12)

    def test_axes_come_last_and_are_never_taken_for_text_ids(self):
        """huggingface/transformers#40154: the first of three axes served as ids."""
        module, x = pe_lab.MRoPE(12, (2, 2, 2)), torch.zeros(2, 1, 4, 12)
        axes_first = torch.zeros(3, 2, 4).long()
        for ids in (axes_first, axes_first[0]):
            with pytest.raises(ValueError, match="3 numbers for each token"):
                module.rotate(x, x, ids, ids)
        with pytest.raises(ValueError, match="one id for each token"):
            pe_lab.RoPE(12).rotate(x, x, axes_first, axes_first)

    def test_the_delta_of_one_text_is_not_that_of_the_next(self):
        """huggingface/transformers#44873: a model kept it from an earlier generation."""
        assert positions.mrope([2, (1, 2, 2), 1])[1] == -2
        ids, delta = positions.mrope([4])
        assert (ids[-1].tolist(), delta) == ([3, 3, 3], 0)
        ids, delta = positions.mrope([2, (1, 2, 2), 1])
        assert len(ids) + delta == 5

    def test_decoding_goes_on_where_the_prompt_stopped(self):
        """microsoft/onnxruntime-genai#2354: 0, 10, 11 past tokens for 0, 9, 10."""
        scheme = pe_lab.Sinusoidal(16)
        model = pe_lab.Transformer(11, 16, 2, 1, encoding=scheme).eval()
        cache, seen = None, []
        for new in (9, 1, 1):
            seen.append(0 if cache is None else cache[0].k.shape[2])
            _, cache = model.extend(torch.zeros(1, new).long(), cache)
        assert seen == [0, 9, 10]
        assert cache[0].positions.tolist() == [list(range(11))]
        steps = [positions.cached(past, n).tolist() for past, n in ((0, 9), (9, 1))]
        assert steps == [list(range(9)), [9]]


class TestTables:
    @pytest.mark.parametrize("scheme", [pe_lab.Sinusoidal(4), pe_lab.Learned(9, 4)])
    def test_every_row_of_a_batch_gets_the_code_of_its_tokens(self, scheme):
        """KasperGroesLudvigsen/influenza_transformer#9: it was added along the batch."""
        x = torch.zeros(2, 3, 4)
        out = scheme.embed(x, torch.arange(3))
        code = scheme.embed(x[:1], torch.arange(3))[0]
        assert torch.equal(out, code.expand(2, 3, 4))
        assert (code[0] - code[1]).abs().max() > 0

    def test_an_odd_width_has_three_sines_and_two_cosines(self):
        """gc-os-ai/pyaptamer#526: the cosines of d = 5 did not fit."""
        row = pe_lab.sinusoidal(torch.tensor([1]), 5, dtype=torch.float64)[0]
        w = [10000 ** (-2 * i / 5) for i in range(3)]
        wanted = [f(x) for x in w for f in (math.sin, math.cos)][:5]
        assert row.tolist() == pytest.approx(wanted, abs=1e-15)
        with pytest.raises(ValueError, match="even number, got 5"):
            pe_lab.RoPE(5)

    @pytest.mark.parametrize("scheme", [
        pe_lab.Sinusoidal(8), pe_lab.AxialSinusoidal(8), pe_lab.Learned(9, 8),
    ])  # fmt: skip
    def test_any_batch_after_any_other_is_as_if_it_were_the_first(self, scheme):
        """tatp22/multidim-positional-encoding#2, #33: a batch of one came out wrong."""
        axial = isinstance(scheme, pe_lab.AxialSinusoidal)
        shapes = [(3, 6), (1, 6), (1, 2), (2, 6), (3, 6)]
        outs = []
        for batch, length in shapes:
            ids = positions.grid(2, length // 2) if axial else torch.arange(length)
            outs.append(scheme.embed(torch.zeros(batch, length, 8), ids))
            assert outs[-1].shape == (batch, length, 8)
        assert torch.equal(outs[0], outs[-1])
        assert torch.equal(outs[1][0], outs[0][0])
        outs[0].data.zero_()  # a result is nobody's cache
        assert torch.equal(outs[-1], scheme.embed(torch.zeros(3, 6, 8), ids))

    def test_sine_and_cosine_of_a_pair_share_their_frequency(self):
        """SamLynnEvans/Transformer#25: 0.8415 0.99995 0.0001 1 for d = 4."""
        row = pe_lab.sinusoidal(torch.tensor([1]), 4)[0]
        wanted = [0.8415, 0.5403, 0.0100, 0.99995]
        assert row.tolist() == pytest.approx(wanted, abs=5e-5)
        circle = pe_lab.sinusoidal(50, 64, dtype=torch.float64).unflatten(1, (32, 2))
        assert (circle.square().sum(-1) - 1).abs().max() <= 1e-15

    def test_frequencies_fall_by_one_factor_from_pair_to_pair(self):
        """zju3dv/LoFTR#41: a / b // 2 made a step of −1 for −ln(10⁴)/4 = −2.3026."""
        steps = pe_lab.inv_freq(8).log().diff()
        assert steps.tolist() == pytest.approx([-2.302585] * 3, abs=1e-6)

    @pytest.mark.parametrize("d_model", [4, 5, 64, 512])
    def test_no_two_pairs_share_a_frequency_and_none_is_above_one(self, d_model):
        """Kyubyong/transformer#81: whole-number division, 2 · i // d = 0 for all."""
        frequencies = pe_lab.inv_freq(d_model)
        wanted = [1 / 10000 ** (2 * i / d_model) for i in range((d_model + 1) // 2)]
        assert frequencies.tolist() == pytest.approx(wanted, rel=1e-14)
        assert (frequencies.diff() < 0).all()
        assert frequencies[0] == 1


class TestGrids:
    def test_cells_are_counted_along_their_row_first(self):
        """huggingface/transformers#41380: a square image hides a wrong order."""
        y, x = positions.grid(2, 3).T
        assert x.tolist() == [0, 1, 2, 0, 1, 2]
        assert y.tolist() == [0, 0, 0, 1, 1, 1]

    def test_grid_and_code_are_right_each_and_not_only_together(self):
        """Two swaps can cancel: the code of a cell is that of its row and column."""
        table = pe_lab.axial_sinusoidal(positions.grid(2, 3), 8).view(2, 3, 8)
        plain = pe_lab.sinusoidal(3, 4)
        for row in range(2):
            for column in range(3):
                wanted = torch.cat((plain[row], plain[column]))
                assert torch.allclose(table[row, column], wanted, rtol=0, atol=1e-7)

    def test_a_resampled_grid_keeps_its_rows_and_columns(self):
        """princeton-vl/WAFT#2: swapped sizes were hidden by swapped scales."""
        numbers = positions.grid(2, 3).float()
        new = pe_lab.resample_grid(numbers, (2, 3), (4, 6)).view(4, 6, 2)
        assert torch.equal(new[..., 0], new[:, :1, 0].expand(4, 6))
        assert torch.equal(new[..., 1], new[:1, :, 1].expand(4, 6))
        assert (new.diff(dim=0)[..., 0] > 0).all()
        assert (new.diff(dim=1)[..., 1] > 0).all()

    def test_swapping_the_axes_is_another_code(self):
        """facebookresearch/mae#67: it would no longer fit the stored weights."""
        cells = positions.grid(3, 3)
        swapped = pe_lab.axial_sinusoidal(cells.flip(-1), 8)
        assert torch.equal(swapped, pe_lab.axial_sinusoidal(cells, 8).roll(4, dims=1))
        assert (swapped - pe_lab.axial_sinusoidal(cells, 8)).abs().max() > 0.5
