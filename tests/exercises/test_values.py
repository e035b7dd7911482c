"""Whatever a reader hands in is read as numbers or text, copied, or refused by name."""

from collections import namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pe_lab.exercises.values import (
    Number,
    Unreadable,
    blank,
    leaves,
    number,
    same,
)

PAIR = namedtuple("PAIR", ["cos", "sin"])
TABLE = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]

ARRAYS = {
    "nested list": TABLE,
    "tuple of lists": tuple(TABLE),
    "list of tensors": [torch.tensor(row) for row in TABLE],
    "list of arrays": [np.array(row) for row in TABLE],
    "list of lists of 0-d tensors": [[torch.tensor(x) for x in row] for row in TABLE],
    "array": np.array(TABLE),
    "Fortran array": np.asfortranarray(TABLE),
    "reversed array": np.array(TABLE)[::-1][::-1],
    "object array": np.array(TABLE, dtype=object),
    "float16 array": np.array(TABLE, dtype=np.float16),
    "big-endian array": np.array(TABLE, dtype=">f8"),
    "tensor": torch.tensor(TABLE),
    "bfloat16 tensor": torch.tensor(TABLE).bfloat16(),
    "int tensor": torch.tensor(TABLE).int(),
    "tensor with gradient": torch.tensor(TABLE, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.tensor(TABLE)),
    "transposed view": torch.tensor(TABLE).T.contiguous().T,
    "sparse tensor": torch.tensor(TABLE).to_sparse(),
    "complex without imaginary part": torch.tensor(TABLE) + 0j,
    "list of ranges": [range(1, 4), range(4, 7)],
}


@pytest.mark.parametrize("raw", ARRAYS.values(), ids=ARRAYS.keys())
def test_reads_every_kind_of_array_as_float64(raw):
    read = number(raw)
    assert read.values.dtype == torch.float64
    assert read.values.device.type == "cpu"
    assert read.values.tolist() == TABLE


SCALARS = [2.5, np.float32(2.5), torch.tensor(2.5), Fraction(5, 2), Decimal("2.5")]


@pytest.mark.parametrize("raw", SCALARS, ids=lambda raw: type(raw).__name__)
def test_reads_every_kind_of_number(raw):
    read = number(raw)
    assert read.shape == ()
    assert read.values.item() == 2.5


@pytest.mark.parametrize(
    ("raw", "dtype"),
    [
        (True, "bool"),
        (3, "int64"),
        (2.5, "float64"),
        ([1, 2], "int64"),
        (np.zeros(2, np.float16), "float16"),
        (torch.zeros(2, dtype=torch.bfloat16), "bfloat16"),
    ],
)
def test_remembers_the_dtype(raw, dtype):
    assert number(raw).dtype == dtype


def test_copies():
    for raw in (torch.zeros(3, dtype=torch.float64), np.zeros(3)):
        number(raw).values.fill_(7)
        assert not raw.any()


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("text", "wrong type"),
        (b"bytes", "wrong type"),
        ({1.0}, "wrong type"),
        ((x for x in TABLE), "wrong type"),
        (iter(TABLE), "wrong type"),
        (print, "wrong type"),
        (int, "wrong type"),
        (object(), "wrong type"),
        (np.array(["a"]), "wrong type"),
        (np.array("2020-01-01", dtype="datetime64[D]"), "wrong type"),
        (torch.zeros(2, device="meta"), "wrong type"),
        ([1.0, "a"], "wrong type"),
        ([[1.0], [1.0, 2.0]], "wrong shape"),
        (torch.zeros(1).expand(10**6, 10**6), "wrong shape"),
        (np.broadcast_to(0.0, (10**6, 10**6)), "wrong shape"),
    ],
)
def test_refuses_what_is_no_array(raw, kind):
    with pytest.raises(Unreadable) as refusal:
        number(raw)
    assert refusal.value.kind == kind
    assert refusal.value.message.endswith(".")


def test_refuses_a_list_that_contains_itself():
    endless: list = [1.0]
    endless.append(endless)
    with pytest.raises(Unreadable, match="nest"):
        number(endless)


def test_does_not_consume_a_generator():
    generator = (x for x in TABLE)
    with pytest.raises(Unreadable, match="list"):
        number(generator)
    assert next(generator) == TABLE[0]


def test_an_imaginary_part_is_not_lost():
    assert not same(number(1 + 2j), number(1.0), 1e-6)
    assert same(number(1 + 2j), number(1 + 2j), 1e-6)


def test_an_empty_list_has_no_numbers():
    assert number([]).shape == (0,)


def test_blank_is_what_a_stub_leaves():
    assert all(map(blank, [None, ..., NotImplemented, [1, ...], (None, 2)]))
    assert not any(map(blank, [0, 0.0, [], "", False, torch.zeros(2), [0, 0]]))


def test_several_arrays_are_parts():
    read = leaves((torch.zeros(2), torch.ones(3)))
    assert list(read) == ["part 1", "part 2"]
    assert list(leaves({"cos": 1.0, "sin": [2.0]})) == ["cos", "sin"]
    assert list(leaves([1.0, 2.0])) == [""]


@pytest.mark.parametrize(
    "raw",
    [
        (torch.zeros(2), torch.ones(2)),
        [np.zeros(2), np.ones(2)],
        PAIR(torch.zeros(2), torch.ones(2)),
        torch.tensor([[0.0, 0.0], [1.0, 1.0]]),
        ([0, 0], [1, 1]),
    ],
    ids=["tuple", "list", "namedtuple", "tensor", "tuple of lists"],
)
def test_parts_are_read_like_those_of_the_reference(raw):
    want = leaves((torch.zeros(2), torch.ones(2)))
    got = leaves(raw, want)
    assert all(same(got[name], want[name], 1e-6) for name in want)


@pytest.mark.parametrize("raw", [torch.zeros(3, 2), (torch.zeros(2),), 1.0, "ab"])
def test_another_number_of_parts_is_refused(raw):
    with pytest.raises(Unreadable) as refusal:
        leaves(raw, leaves((torch.zeros(2), torch.ones(2))))
    assert refusal.value.kind == "wrong parts"


def test_parts_by_name_need_the_right_names():
    want = leaves({"cos": 1.0, "sin": 2.0})
    assert same(leaves((1.0, 2.0), want)["sin"], want["sin"], 1e-6)
    with pytest.raises(Unreadable, match="cos, sin"):
        leaves({"cos": 1.0, "tan": 2.0}, want)
    with pytest.raises(Unreadable, match="2 values where one"):
        leaves({"cos": 1.0, "tan": 2.0}, leaves(1.0))


def test_text_ignores_case_and_spaces():
    want = leaves("Query position")[""]
    assert same(leaves("  query   POSITION ")[""], want, 0.0)
    assert not same(leaves("key position")[""], want, 0.0)


def test_text_and_numbers_do_not_mix():
    with pytest.raises(Unreadable, match="A text is needed"):
        leaves(3, leaves("three"))
    with pytest.raises(Unreadable, match="A number is needed"):
        leaves("3", leaves(3))


def test_sets_ignore_order():
    want = leaves({1, 2, 3})
    for raw in ({3, 2, 1}, [3, 1, 2], torch.tensor([2, 1, 3]), range(1, 4)):
        assert same(leaves(raw, want)[""], want[""], 0.0)
    with pytest.raises(Unreadable, match="A set is needed"):
        leaves(3, want)


def test_true_is_no_number_but_one_is_true():
    assert not same(number(True), number(1.0), 1e-6)
    assert same(number(1), number(True), 1e-6)
    assert same(number(np.True_), number(True), 1e-6)


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_equal_numbers_are_the_same_at_any_tolerance(x):
    assert same(number(x), number(x), 0.0)


@given(st.floats(-1e6, 1e6), st.floats(0.01, 0.99))
def test_tolerance_is_absolute_near_zero_and_relative_far_from_it(want, part):
    # Rounding of the sum itself is 1e-16 |want|, far below 1 % of the tolerance.
    step = 1e-6 * (1 + abs(want))
    assert same(number(want + part * step), number(want), 1e-6)
    assert not same(number(want + (1.02 + part) * step), number(want), 1e-6)


def test_numbers_of_another_shape_differ():
    assert not same(number([1.0]), number(1.0), 1e-6)
    assert isinstance(number([1.0]), Number)
