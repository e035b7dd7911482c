"""Tables and lists say what was measured, of whom, how often, and nothing else."""

import json

import pytest

from pe_lab.lab import Profile, Result, Run, load, report, table
from pe_lab.lab.experiments import EXPERIMENTS
from tests.lab.test_results import RESULT


def test_the_table_has_a_row_for_each_variant():
    lines = table(RESULT).splitlines()
    assert lines[0].split() == ["variant", "seeds", "score"]
    assert lines[1].split() == ["b", "2", "0.6", "±", "0.14"]
    assert lines[2].split() == ["a", "1", "0"]


def test_what_a_variant_was_not_measured_on_is_a_dash():
    runs = Run("a", 0, {}, {}, {"bleu": 1.0}), Run("b", 0, {}, {}, {"loss": 2.0})
    lines = table(Result("toy", "full", runs)).splitlines()
    assert [line.split() for line in lines] == [
        ["variant", "seeds", "bleu", "loss"], ["a", "1", "1", "–"], ["b", "1", "–", "2"]
    ]  # fmt: skip


def of_places(**places):
    runs = [
        Run(variant, 0, {}, {}, {}, {}, {"loss": Profile(at, [float(x) for x in at])})
        for variant, at in places.items()
    ]
    return Result("toy", "full", tuple(runs))


def test_a_profile_is_a_table_with_a_column_for_each_place():
    lines = table(RESULT, profile="short").splitlines()
    assert [line.split() for line in lines] == [
        ["variant", "seeds", "4", "8"], ["b", "2", "1.5", "±", "0.71", "4", "±", "1.4"]
    ]  # fmt: skip


def test_places_stand_in_order_whoever_was_measured_there():
    lines = table(of_places(a=[64], b=[8, 64])).splitlines()
    assert lines[0].split() == ["variant", "seeds"]  # no final values
    lines = table(of_places(a=[64], b=[8, 64]), profile="loss").splitlines()
    assert [line.split() for line in lines] == [
        ["variant", "seeds", "8", "64"], ["a", "1", "–", "64"], ["b", "1", "8", "64"]
    ]  # fmt: skip


def test_of_many_places_a_table_shows_some_or_those_asked_for():
    many = of_places(a=list(range(256)))
    head = table(many, profile="loss").splitlines()[0].split()[2:]
    assert (len(head), head[0], head[-1]) == (8, "0", "255")
    assert table(many, profile="loss", at=[7]).splitlines()[1].split() == [
        "a",
        "1",
        "7",
    ]
    with pytest.raises(ValueError, match="loss was not measured at 256, only at 0, 1"):
        table(many, profile="loss", at=[256])
    with pytest.raises(ValueError, match="toy has no profile 'bleu'; it has: loss"):
        table(many, profile="bleu")


def test_the_list_has_a_line_for_each_shipped_result():
    head, *lines = report.listing().splitlines()
    assert head.startswith("name") and "CPU seconds" in head
    for line in lines:
        name = line.split()[0]
        assert line.endswith(EXPERIMENTS[name].question)
        assert f" {load(name).cpu_seconds:.0f} " in line
        assert "quick, full" in line


def test_a_summary_says_how_many_of_the_planned_runs_are_there():
    whole = load("sqrt-d")
    assert "27 of 27 planned runs" in report.summary(whole)
    part = Result("sqrt-d", "full", whole.runs[:4])
    assert "4 of 27 planned runs" in report.summary(part)
    quick = Result("sqrt-d", "quick", whole.runs[:1])
    assert "1 of 3 planned runs" in report.summary(quick)
    assert "\n3 runs\n" in report.summary(RESULT)  # nobody knows its plan


def test_a_summary_lists_what_else_was_measured():
    lines = report.summary(RESULT).splitlines()
    assert lines[-2:] == ["curves: loss", "profiles: short, other"]


def test_programs_get_every_value():
    found = json.loads(json.dumps(report.as_dict(RESULT)))
    assert found["final"] == {"b": {"score": [0.7, 0.5]}, "a": {"score": [0.0]}}
    assert found["seeds"] == {"b": [0, 1], "a": [0]}
    assert (found["experiment"], found["size"], found["runs"]) == ("toy", "full", 3)
    found = report.as_dict(RESULT, "short")
    assert found["short"] == {"b": {"4": [1.0, 2.0], "8": [5.0, 3.0]}}
