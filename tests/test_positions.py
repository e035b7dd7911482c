"""Position ids: what is accepted, what is refused, and how ids are made."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pe_lab import positions
from pe_lab.positions import as_positions, pairwise_offsets, table_rows


def test_a_count_means_zero_to_n_minus_one():
    assert as_positions(4).tolist() == [0, 1, 2, 3]
    assert as_positions(0).shape == (0,)
    assert as_positions(torch.tensor(3)).tolist() == 3  # a tensor means itself


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_whole_positions_of_any_integer_dtype_count_in_int64(dtype):
    ids = as_positions(torch.tensor([0, 100], dtype=dtype))
    assert ids.dtype == torch.int64
    assert ids.tolist() == [0, 100]


@pytest.mark.parametrize(
    ("given_positions", "error", "words"),
    [
        (-1, ValueError, "at least 0, got -1"),
        (3.5, TypeError, "3.5"),
        (float("nan"), TypeError, "nan"),
        (True, TypeError, "True"),
        ("10", TypeError, "'10'"),
        (None, TypeError, "None"),
        ([0, 1], TypeError, "[0, 1]"),
        (torch.tensor([0.0, torch.nan]), ValueError, "nan"),
        (torch.tensor([torch.inf]), ValueError, "inf"),
        (torch.arange(4, dtype=torch.bfloat16), TypeError, "bfloat16 only to 256"),
        (torch.arange(4, dtype=torch.float16), TypeError, "float16 to 2048"),
        (torch.tensor([True]), TypeError, "from_mask"),
        (torch.tensor([1j]), TypeError, "complex"),
    ],
)
def test_what_is_no_position_is_refused(given_positions, error, words):
    with pytest.raises(error) as caught:
        as_positions(given_positions)
    assert words in str(caught.value)
    assert "need" in str(caught.value)


def test_rows_of_a_table_are_whole_and_in_range():
    ids = torch.tensor([[0, 7]])
    assert table_rows(ids, 8) is ids
    with pytest.raises(IndexError, match="position 8 has no row in a table of 8 rows"):
        table_rows(torch.tensor([8]), 8)
    with pytest.raises(IndexError, match="position -1 has no row"):
        table_rows(torch.tensor([-1, 3]), 8)
    with pytest.raises(TypeError, match="whole positions"):
        table_rows(torch.tensor([0.5]), 8)
    assert table_rows(torch.empty(0, dtype=torch.long), 8).shape == (0,)


@pytest.mark.parametrize(
    ("mask", "ids"),
    [
        ([[0, 0, 1, 1, 1]], [[0, 0, 0, 1, 2]]),
        ([[1, 1, 0, 0]], [[0, 1, 1, 1]]),
        ([[0, 1, 1, 1], [0, 0, 0, 1]], [[0, 0, 1, 2], [0, 0, 0, 0]]),
        ([[0, 0]], [[0, 0]]),
    ],
)
def test_ids_from_a_mask_count_real_tokens(mask, ids):
    assert positions.from_mask(torch.tensor(mask)).tolist() == ids
    assert positions.from_mask(torch.tensor(mask).bool()).tolist() == ids


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1))
def test_real_tokens_get_the_ids_of_the_row_without_padding(rows):
    mask = torch.tensor(rows)
    for row, ids in zip(mask, positions.from_mask(mask), strict=True):
        assert ids[row].tolist() == list(range(int(row.sum())))
        assert (ids >= 0).all()


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    more=st.integers(0, 2),
    left=st.booleans(),
)
def test_ids_from_lengths_are_those_of_each_row_alone(lengths, more, left):
    side, size = ("left" if left else "right"), max(lengths) + more
    for given_lengths in (lengths, torch.tensor(lengths, dtype=torch.int32)):
        ids, mask = positions.from_lengths(given_lengths, length=size, side=side)
        assert ids.shape == mask.shape == (len(lengths), size)
        for row, seen, n in zip(ids, mask, lengths, strict=True):
            real = slice(size - n, size) if left else slice(0, n)
            assert row[real].tolist() == list(range(n))
            assert seen.nonzero().flatten().tolist() == list(range(size))[real]
            assert (row >= 0).all()
    assert positions.from_lengths(lengths)[0].shape[1] == max(lengths)


def test_rows_without_a_batch_are_empty():
    ids, mask = positions.from_lengths([])
    assert ids.shape == mask.shape == (0, 0)


@pytest.mark.parametrize(
    ("lengths", "settings", "error", "words"),
    [
        ([1, 4], {"length": 3}, ValueError, "at least 4, got 3. The longest row has 4"),
        ([1, -1], {}, ValueError, "at least 0, got -1"),
        (torch.tensor([1, -1]), {}, ValueError, "counts of at least 0, got -1"),
        (torch.tensor([1.5]), {}, TypeError, "mask.sum"),
        (3, {}, TypeError, "list of whole numbers"),
        ([1], {"side": "both"}, ValueError, "'right' or 'left'"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths, settings, error, words):
    with pytest.raises(error, match=words):
        positions.from_lengths(lengths, **settings)


@given(length=st.integers(0, 40), world_size=st.integers(1, 9))
def test_contiguous_shares_make_the_sequence_and_differ_by_one(length, world_size):
    shares = [positions.contiguous(length, r, world_size) for r in range(world_size)]
    assert torch.cat(shares).tolist() == list(range(length))
    counts = [len(share) for share in shares]
    assert counts == sorted(counts, reverse=True)
    assert max(counts) - min(counts) <= 1


def test_shares_of_no_process_are_refused():
    for bad in ((8, 2, 2), (8, -1, 2), (8, 0, 0), (-1, 0, 2)):
        with pytest.raises(ValueError, match="needs"):
            positions.contiguous(*bad)


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        (torch.ones(2, 3), TypeError),
        ([[1, 1]], TypeError),
        (torch.ones(3, dtype=torch.bool), ValueError),
        (torch.ones(1, 1, 3, 3, dtype=torch.bool), ValueError),
        (torch.tensor([[2, 1]]), ValueError),
    ],
)
def test_masks_that_are_not_padding_masks_are_refused(mask, error):
    with pytest.raises(error, match="mask needs"):
        positions.from_mask(mask)


def test_packed_documents_restart_and_do_not_see_each_other():
    ids, mask = positions.packed([3, 2])
    assert ids.tolist() == [0, 1, 2, 0, 1]
    assert mask.int().tolist() == [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 0, 1, 1],
        [0, 0, 0, 1, 1],
    ]
    assert positions.packed([])[0].shape == (0,)
    assert positions.packed(torch.tensor([2]))[0].tolist() == [0, 1]
    for bad in ([0], [-1], [1.5]):
        with pytest.raises((TypeError, ValueError), match="lengths needs"):
            positions.packed(bad)


def test_causal_by_ids_and_offsets():
    q_pos, k_pos = torch.tensor([2, 0]), torch.tensor([0, 1, 2])
    assert positions.causal(q_pos, k_pos).int().tolist() == [[1, 1, 1], [1, 0, 0]]
    offsets = pairwise_offsets(q_pos, k_pos)
    assert offsets.shape == (1, 1, 2, 3)
    assert offsets[0, 0].tolist() == [[2, 1, 0], [0, -1, -2]]
    assert pairwise_offsets(q_pos.expand(4, 2), k_pos).shape == (4, 1, 2, 3)
    batched = positions.causal(q_pos.expand(4, 2), k_pos.expand(4, 3))
    assert batched.shape == (4, 1, 2, 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_offsets_of_small_integers_do_not_wrap(dtype):
    """In uint8, 0 − 1 is 255 and a causal mask would show every later token."""
    ids = torch.tensor([0, 1, 100], dtype=dtype)
    assert pairwise_offsets(ids, ids)[0, 0].tolist() == [
        [0, -1, -100],
        [1, 0, -99],
        [100, 99, 0],
    ]
    assert positions.causal(ids, ids).int().tolist() == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
    ]


@pytest.mark.parametrize("bad", [torch.arange(3).bfloat16(), torch.tensor([torch.nan])])
def test_offsets_of_what_is_no_position_are_refused(bad):
    with pytest.raises((TypeError, ValueError), match="positions need"):
        pairwise_offsets(bad, bad)
