"""Each kind of mistake is named when it is made on a real table, and only then."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from pe_lab.exercises.compare import CHECKS, Finding, Pair, diagnose
from pe_lab.exercises.values import number

TOLERANCE = 1e-6  # some roundings of float32, far below the least mistake made here


def table(rows: int = 6, width: int = 8) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) the cosine, in float64."""
    positions = torch.arange(rows, dtype=torch.float64)[:, None]
    angles = positions * 10000 ** (-torch.arange(0, width, 2).double() / width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def found(got: object, want: object, call: str = "", **sizes: int) -> Finding:
    """What is said about one answer."""
    values = number(want).values
    sizes = sizes or {f"axis {n}": size for n, size in enumerate(values.shape)}
    return diagnose([Pair(number(got), values, TOLERANCE, call, sizes)])


def pair(got: object, want: object) -> Pair:
    """One answer beside what is wanted."""
    right = number(want)
    boolean = right.dtype == "bool"
    return Pair(number(got), right.values, TOLERANCE, boolean=boolean)


def halves(rows: int = 6, width: int = 8) -> Tensor:
    """The same table with all sines first."""
    return torch.cat([table(rows, width)[:, ::2], table(rows, width)[:, 1::2]], -1)


def one_more() -> Tensor:
    """The table from position 1 on."""
    return table(7)[1:]


def half_wrong() -> Tensor:
    """The first row right, the others from another base."""
    return torch.cat([table()[:1], (table()[1:] * 1.7).sin()])


MISTAKES = {
    "transposed": lambda t: t.T,
    "right numbers, wrong shape": lambda t: t[None],
    "too few rows": lambda t: t[:4],
    "too many rows": lambda t: table(9),
    "too few columns": lambda t: t[:, :6],
    "too many columns": lambda t: torch.cat([t, t], -1),
    "wrong shape": lambda t: torch.zeros(3, 5),
    "wrong type": lambda t: t > 0.5,
    "not finite": lambda t: t / 0,
    "too low precision": lambda t: t.bfloat16(),
    "rounded too soon": lambda t: t.round(decimals=3),
    "nearly right": lambda t: t + 1e-4 * torch.linspace(0, 1, 48).reshape(6, 8),
    "whole numbers": lambda t: t.long(),
    "all zeros": lambda t: t * 0,
    "wrong sign": lambda t: -t,
    "off by a factor": lambda t: 2 * t,
    "shifted by one": lambda t: one_more(),
    "reversed": lambda t: t.flip(0),
    "channel order": lambda t: halves(),
    "some signs": lambda t: t.abs(),
    "a constant added": lambda t: t + 1,
    "right only at position 0": lambda t: half_wrong(),
    "wrong value": lambda t: t.exp(),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_names_the_mistake(kind):
    finding = found(MISTAKES[kind](table()), table())
    assert finding.kind == kind
    assert finding.message.endswith((".", "?"))


def test_every_check_is_the_first_to_speak_for_some_mistake():
    cube = torch.arange(24.0).reshape(2, 3, 4)
    samples = [[(make(table()), table())] for make in MISTAKES.values()]
    samples += [
        [(cube.permute(1, 0, 2), cube)],
        [(3.0, [3.0, 3.0])],
        [([False, True], [True, False])],
        [(7, 6)],
        [(2.0, 2.0), (2.0, 5.0), (2.0, 7.5)],
    ]
    first = set()
    for sample in samples:
        pairs = [pair(got, want) for got, want in sample]
        first.add(next((check for check in CHECKS if check(pairs)), None))
    assert first - {None} == set(CHECKS)


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0)])
def test_axes_exchanged(order):
    want = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    finding = found(want.permute(order), want)
    if order == (0, 2, 1):
        assert finding.kind == "transposed"
    else:
        assert finding.kind == "axes exchanged"


def test_not_repeated():
    assert found(3.0, [3.0, 3.0]).kind == "right numbers, not repeated"
    assert found(table()[:1], table()[:1].expand(4, 8)).kind != "wrong value"


FACTORS = {
    "2": 2.0,
    "1/2": 0.5,
    "−2": -2.0,
    "2π": 2 * math.pi,
    "π/180": math.pi / 180,
    "√d_model": math.sqrt(512),
    "1/√d_model": 1 / math.sqrt(512),
    "d_model": 512.0,
    "1/d_model": 1 / 512,
    "√(d_model/2)": 16.0,
    "√num_heads": math.sqrt(12),
    "−√d_model": -math.sqrt(512),
}


@pytest.mark.parametrize("name", FACTORS)
def test_names_the_factor(name):
    finding = found(FACTORS[name] * table(), table(), d_model=512, num_heads=12)
    assert finding.kind == "off by a factor"
    assert f"times {name} " in finding.message.replace(".", " ")


def test_a_factor_that_follows_the_width_is_named_once():
    pairs = [
        Pair(number(table(6, d) / math.sqrt(d)), table(6, d), 1e-6, "f", {"d": d})
        for d in (8, 16, 32)
    ]
    assert "1/√d" in diagnose(pairs).message


def test_a_factor_without_a_name_is_a_number():
    assert "times 3.7." in found(3.7 * table(), table()).message


def test_one_number_is_off_by_a_factor_only_if_the_factor_has_a_name():
    assert found(6.0, 3.0).kind == "off by a factor"
    assert found(6.6, 3.0).kind == "wrong value"
    assert found(4.5, 3.0).kind == "wrong value"


@given(st.floats(-50, 50).filter(lambda c: abs(c) > 0.05 and not 0.98 < c < 1.02))
def test_any_factor_is_recognised(factor):
    kind = found(factor * table(), table(), d_model=512).kind
    assert kind == ("wrong sign" if math.isclose(factor, -1, rel_tol=1e-4) else kind)
    assert kind in ("off by a factor", "wrong sign", "too low precision")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_names_the_dtype(dtype):
    # float32 loses its digits only in large angles: 1e5 positions.
    positions = torch.arange(99_990, 100_000)
    want = torch.cos(positions.double() * 0.1)
    got = torch.cos(positions.float() * 0.1)
    got = got if dtype == torch.float32 else want.to(dtype)
    finding = found(got, want)
    assert finding.kind == "too low precision"
    assert str(dtype).removeprefix("torch.") in finding.message


@pytest.mark.parametrize("decimals", [2, 3, 4, 5])
def test_counts_the_decimals_of_a_rounded_answer(decimals):
    finding = found(table().round(decimals=decimals).tolist(), table())
    assert finding.kind == "rounded too soon"
    assert f"to {decimals} decimals" in finding.message


@pytest.mark.parametrize("cut", [torch.trunc, torch.round, torch.floor])
def test_whole_numbers_in_every_rounding(cut):
    want = torch.tensor([0.4, 1.7, -2.6, 9.5], dtype=torch.float64)
    assert found(cut(want).long(), want).kind == "whole numbers"


@pytest.mark.parametrize(("got", "word"), [([1, 3, 8], "large"), ([-1, 1, 6], "small")])
def test_off_by_one(got, word):
    finding = found(got, [0, 2, 7])
    assert finding.kind == "off by one"
    assert word in finding.message
    assert found([0.5, 1.5], [-0.5, 0.5]).kind != "off by one"


def test_shows_as_many_digits_as_tell_the_numbers_apart():
    pairs = [
        Pair(number(got), number(want).values, 1e-9, "f()")
        for got, want in ((1.118034, 1.118033), (9.0, 2.0))
    ]
    assert "1.118034 where 1.118033 is right" in diagnose(pairs).message


def test_precision_is_named_where_some_inputs_come_out_exactly():
    exact = Pair(number(1e-17), number(0.0).values, TOLERANCE)
    coarse = Pair(number(torch.tensor(0.1).half()), number(0.1).values, TOLERANCE)
    assert diagnose([exact, coarse]).kind == "too low precision"


def test_zeros_are_no_rounding_of_small_numbers():
    assert found([0.0, 0.0], [0.01, 0.02]).kind == "all zeros"


def test_shifted_either_way_and_on_the_last_axes():
    later, earlier = table(7)[1:], torch.cat([table()[-1:], table()[:-1]])
    assert "after" in found(later, table()).message
    assert "before" in found(earlier, table()).message
    batch = torch.stack([table(), table().square()])
    shifted = torch.stack([one_more(), one_more().square()])
    assert found(shifted, batch).kind == "shifted by one"


ORDERS = {
    "exchanged within": table()[:, [1, 0, 3, 2, 5, 4, 7, 6]],
    "two halves": torch.cat([table()[:, 4:], table()[:, :4]], -1),
    "come in halves": halves(),
}


@pytest.mark.parametrize("name", ORDERS)
def test_names_the_channel_order(name):
    finding = found(ORDERS[name], table())
    assert finding.kind == "channel order"
    assert name in finding.message


def test_pairs_where_halves_are_needed():
    assert "come in pairs" in found(table(), halves()).message


def test_right_only_for_the_first_input():
    good, bad = table(), table().exp()
    pairs = [
        Pair(number(answer), table(), TOLERANCE, f"f({n})")
        for n, answer in enumerate([good, bad, bad])
    ]
    finding = diagnose(pairs)
    assert finding.kind == "right only for the first input"
    assert "f(0)" in finding.message


def test_shows_what_is_right_for_a_call_but_not_for_a_value():
    got = table()
    got[2, 3] = 9.0
    for call, shown in (("f(6)", True), ("", False)):
        message = found(got, table(), call).message
        assert "one of 48 entries" in message
        assert "[2, 3]: 9" in message
        assert ("-0.4161" in message or f"{table()[2, 3]:.4g}" in message) is shown


@given(st.integers(0, 47), st.floats(-100, 100))
def test_says_something_true_about_any_single_wrong_entry(place, value):
    got = table().flatten()
    assume(abs(got[place].item() - value) > 0.02)
    got[place] = value
    finding = found(got.reshape(6, 8), table())
    # Row 0 right and the rest not is impossible here; so is every uniform change.
    assert finding.kind in ("wrong value", "some signs")
    assert "one of 48 entries is wrong" in finding.message


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=6))
def test_never_fails_on_any_numbers(values):
    assert isinstance(found(values, [0.5] * len(values)), Finding)
    assert isinstance(found(values, table()), Finding)
    assert isinstance(found([values], [[0.0] * len(values)]), Finding)
    assert isinstance(found(values, [math.inf] * len(values)), Finding)
