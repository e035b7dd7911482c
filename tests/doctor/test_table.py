"""The doctor on tables of positions: bugs named, conventions read, correct code left."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

import pe_lab
from pe_lab.doctor import diagnose, slips
from pe_lab.doctor.code import read
from pe_lab.doctor.confusion import outcomes, rates
from pe_lab.doctor.mutants import healthy, mutants

torch.set_num_threads(1)

MUTANTS, HEALTHY = mutants("table"), healthy("table")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_is_found_and_named(mutant):
    """An alarm, and the first finding names the bug."""
    (outcome,) = outcomes([mutant])
    assert outcome.alarm, outcome
    assert outcome.named, outcome


@pytest.mark.parametrize("patient", HEALTHY, ids=lambda h: h.name)
def test_correct_table_is_left_in_peace(patient):
    report = diagnose(patient.make(), kind="table", **patient.options)
    assert report.severity not in ("wrong", "risky"), report
    for name, value in patient.identity.items():
        assert report.identity[name] == value, report


def test_rates_of_the_whole_catalogue():
    """The targets: 95 % found, 90 % named, no false alarm."""
    found = rates(outcomes([*MUTANTS, *HEALTHY]))
    assert found["detected"] >= 0.95
    assert found["named"] >= 0.9
    assert found["false alarms"] == 0


@settings(deadline=None, max_examples=60)
@given(
    width=st.integers(4, 96),
    order=st.sampled_from(["interleaved", "halves"]),
    base=st.sampled_from([20.0, 1e3, 1e4, 5e5, 1e6]),
    offset=st.integers(0, 40),
    gain=st.sampled_from([0.02, 1.0, 5.0]),
    length=st.integers(16, 300),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_every_sinusoid_is_read_as_it_was_made(
    width, order, base, offset, gain, length, dtype
):
    """Order, gain, offset and every frequency, from numbers alone.

    Tolerance: a slope through L float32 angles, each off by 6e-8, is off by about
    6e-8·√12/L^1.5 rad, which is 3e-9 at L = 16; ten times that for what sums to it.
    """
    ids = torch.arange(length) + offset
    table = gain * pe_lab.sinusoidal(ids, width, order=order, base=base, dtype=dtype)
    code = read(table)
    assert code is not None and code.complete
    assert code.order == order or width < 6  # of two pairs one may stand still
    assert code.gain == pytest.approx(gain, rel=1e-6)
    if code.order == order:
        wanted = pe_lab.inv_freq(width, base=base)[: width // 2]
        assert (code.omega - wanted).abs().max() < 3e-8
        assert code.offset == pytest.approx(offset, abs=0.05)


def test_slow_pairs_are_read_from_all_their_rows():
    """Base 10⁶: the slowest pair turns by 4e-4 rad in 256 rows of float32.

    Tolerance: a line through all rows comes within 1e-8 of each frequency, the first
    and the last row alone within 6e-8.
    """
    code = read(pe_lab.sinusoidal(256, 64, base=1e6))
    wanted = pe_lab.inv_freq(64, base=1e6)
    assert (code.omega / wanted - 1).abs().max() < 3e-8


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
def test_signs_and_sense_of_a_pair_are_told_apart(flip, signs):
    """Eight tables of two channels in two orders, eight readings."""
    pairs = pe_lab.sinusoidal(64, 32).unflatten(1, (-1, 2)) * torch.tensor(signs)
    code = read((pairs.flip(-1) if flip else pairs).flatten(1))
    names = {
        (1, 1): ("", "c"), (-1, 1): ("-s", "c-s"),
        (1, -1): ("-c", "-cs"), (-1, -1): ("-s-c", "-c-s"),
    }  # fmt: skip
    assert code.sense == names[signs][flip]


def test_random_rows_are_not_read():
    """Of 50 random tables none has a pair that turns evenly."""
    source = torch.Generator().manual_seed(0)
    tables = torch.randn(50, 32, 16, generator=source, dtype=torch.float64)
    assert all(read(table) is None for table in tables)


@pytest.mark.parametrize("width", [8, 32, 512])
@pytest.mark.parametrize("name", list(slips._ANGLES))
def test_each_slip_is_named_by_its_rows(name, width):
    """Its own formula gives its own name, or that of one with the same rows."""
    p = torch.arange(12, dtype=torch.float64)[:, None]
    c = torch.arange(width, dtype=torch.float64)
    angles = slips._ANGLES[name](p, c // 2, c, width)
    table = torch.where(c % 2 == 0, angles.sin(), angles.cos())
    found = slips.of_rows(table)
    again = slips._ANGLES[found](p, c // 2, c, width)
    same = torch.where(c % 2 == 0, again.sin(), again.cos())
    # tolerance: that of the search
    assert torch.allclose(same, table, atol=2e-2, equal_nan=True)


def test_right_table_has_no_slip():
    for width in (8, 33, 64, 512):
        assert slips.of_rows(pe_lab.sinusoidal(64, width)) is None
        assert slips.of_base(pe_lab.inv_freq(width), width) is None


def test_a_slip_that_may_be_meant_is_risky_and_can_be_confirmed():
    """Base 100 gives the same numbers as the exponent i/d: nobody can tell."""
    subject = lambda length, width: pe_lab.sinusoidal(length, width, base=100.0)  # noqa: E731
    unsure = diagnose(subject, kind="table")
    assert [f.check for f in unsure.findings][0] == "D-BASE"
    assert unsure.severity == "risky"
    assert diagnose(subject, kind="table", expected={"base": 100}).severity is None
    assert diagnose(subject, kind="table", expected={"base": 1e4}).severity == "wrong"


def test_expectations_are_held_against_the_identity():
    cases = {
        "order": ("halves", "D-LAYOUT"), "base": (5e5, "D-BASE"),
        "offset": (2, "D-OFFSET"), "spacing": ("tensor2tensor", "D-BASE"),
        "scaling": ("linear 4", "D-BASE"), "gain": (0.5, "D-NORM"),
        "scheme": ("learned", "D-ORDER"),
    }  # fmt: skip
    for key, (value, check) in cases.items():
        report = diagnose(pe_lab.sinusoidal, kind="table", expected={key: value})
        assert report.severity == "wrong", (key, report)
        assert report.findings[0].check == check
    wanted = {"order": "interleaved", "base": 10000, "offset": 0, "gain": 1}
    report = diagnose(pe_lab.sinusoidal, kind="table", expected=wanted)
    assert report.severity is None, report


def test_long_tables_are_measured_against_exact_angles():
    """float32 angles are a note, float64 ones nothing, a drift is wrong."""

    def angles(length, width, dtype, drift=1.0):
        w = pe_lab.inv_freq(width).to(dtype)
        a = torch.arange(length, dtype=dtype)[:, None] * w * drift
        return torch.stack((a.sin(), a.cos()), dim=-1).flatten(-2)[:, :width].float()

    by_dtype = {
        dtype: diagnose(lambda n, d, t=dtype: angles(n, d, t), kind="table")
        for dtype in (torch.float32, torch.float64)
    }
    assert [f.check for f in by_dtype[torch.float32].findings] == ["D-LONG"]
    assert by_dtype[torch.float32].severity == "note"
    assert by_dtype[torch.float64].severity is None
    far = diagnose(
        lambda n, d: torch.cat((angles(n, d, torch.float64)[:3000],
                                angles(n, d, torch.float64, 1.001)[3000:])),
        kind="table",
    )  # fmt: skip
    assert far.findings[0].check == "D-LONG"
    assert far.severity == "wrong"


def test_width_written_into_the_exponent_is_seen_at_a_second_width():
    """Right at the width that is looked at first, 32, wrong at every other."""

    def table(length, width):
        w = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / 32)
        return pe_lab.sinusoidal(length, width, inv_freq=w)

    report = diagnose(table, kind="table")
    assert report.findings[0].check == "D-BASE"
    assert "width 48" in report.findings[0].message


@pytest.mark.parametrize(
    "subject",
    [
        lambda n, d: torch.full((n, d), math.nan),
        lambda n, d: torch.full((n, d), math.inf),
        lambda n, d: torch.zeros(n, d) if n == 5 else 1 / 0,
        lambda n, d: pe_lab.sinusoidal(n, d) if n < 9 else None,
        lambda n, d: pe_lab.sinusoidal(n, d) if n != 64 else torch.zeros(3, 3, 3, 3),
        lambda n, d: pe_lab.sinusoidal(n, d)[:, :1].expand(n, d),
        lambda n, d: torch.randn(n, d).to(torch.bfloat16),
        lambda n, d: pe_lab.sinusoidal(n, d).requires_grad_(),
        lambda n, d: torch.zeros(n, 0) if d != 32 else torch.ones(n, d),
    ],
)
def test_hostile_tables_get_a_report(subject):
    """Whatever comes back, the doctor does not fall over it."""
    report = diagnose(subject, kind="table", seconds=10)
    assert report.kind == "table"
    assert str(report)


def test_what_is_no_table_is_refused_with_what_it_gave():
    for subject, words in (
        (lambda n, d: torch.zeros(n, n), "gives shape (5, 5)"),
        (lambda n, d: torch.zeros(n, d).long(), "torch.int64"),
        (lambda n, d: 3, "a table is a tensor"),
        (lambda n: n, "TypeError"),
    ):
        with pytest.raises(ValueError, match="of a kind") as caught:
            diagnose(subject, kind="table")
        assert words in str(caught.value)


def test_tables_are_recognised_without_their_kind():
    assert diagnose(pe_lab.sinusoidal).kind == "table"
    assert diagnose(lambda n, d: pe_lab.sinusoidal(n, d)[None]).kind == "table"


def test_examination_is_short():
    """A budget of 2 s; the tenth of that is what it takes."""
    assert diagnose(pe_lab.sinusoidal, kind="table").seconds < 2
