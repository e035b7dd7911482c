"""The doctor names what an exercise does not foresee, and nothing that it does."""

import math

import pytest
import torch

import pe_lab
from pe_lab.exercises import Examined, Exercise, judge


def entry(width=lambda d: d, base=10000.0, start=0):
    """An entry of a table that is wrong in one way."""

    def function(position, channel, d_model):
        wave = math.cos if channel % 2 else math.sin
        exponent = 2 * (channel // 2) / width(d_model)
        return wave((position + start) / base**exponent)

    return function


def joined(factor=1.0, **options):
    """√d · words + a table that is wrong in one way."""

    def function(words):
        length, width = words.shape
        table = pe_lab.sinusoidal(length, width, dtype=words.dtype, **options)
        return factor * math.sqrt(width) * words + table

    return function


UNFORESEEN = [
    ("03-entry", entry(width=lambda d: d - 1), "D-BASE"),
    ("03-entry", entry(base=1000.0), "D-BASE"),
    ("03-entry", entry(start=1), "D-OFFSET"),
    ("07-join", joined(order="halves"), "D-LAYOUT"),
    ("07-join", joined(base=500.0), "D-BASE"),
    ("07-join", joined(factor=32**0.5), "D-SCALE"),
    (
        "03-accurate",
        lambda p, d: pe_lab.sinusoidal(p.clamp(max=511), d, dtype=torch.float64),
        "D-LEN",
    ),
]


@pytest.mark.parametrize(("exercise_id", "answer", "check"), UNFORESEEN)
def test_a_mistake_that_nobody_foresaw_is_named(exercise_id, answer, check):
    verdict = pe_lab.check(exercise_id, answer)
    assert verdict.passed is False
    assert verdict.kind == f"{check} of the doctor"
    assert len(verdict.message.split()) > 4


@pytest.mark.parametrize("exercise_id", ["03-entry", "03-accurate", "07-join"])
def test_right_answers_and_foreseen_mistakes_are_not_examined(exercise_id, monkeypatch):
    def never(self, answer):
        raise AssertionError("the doctor was asked")

    monkeypatch.setattr(Examined, "finding", never)
    exercise = pe_lab.exercises.find(exercise_id)
    assert judge(exercise, exercise.reference)
    for mistake in exercise.mistakes:
        assert judge(exercise, mistake.wrong).kind == mistake.kind


def test_what_the_doctor_finds_healthy_is_left_to_the_other_checks():
    tables = Exercise(
        "99-table",
        "A table",
        1,
        lambda length, d_model: pe_lab.sinusoidal(length, d_model),
        probes=((5, 8),),
        examined=Examined("table"),
    )
    healthy = judge(tables, lambda n, d: pe_lab.sinusoidal(n, d, order="halves"))
    assert healthy.passed is False
    assert "doctor" not in healthy.kind
    assert judge(tables, lambda n, d: torch.zeros(n, d)).kind == "D-ORDER of the doctor"


def test_what_is_of_another_kind_is_left_to_the_other_checks():
    numbers = Exercise(
        "99-n", "N", 1, lambda x: 2 * x, probes=((1,), (2,)), examined=Examined("rope")
    )
    assert judge(numbers, lambda x: -2 * x).kind == "wrong sign"


def test_a_value_cannot_be_examined():
    with pytest.raises(ValueError, match="only a function"):
        Exercise("99-v", "V", 1, 1.0, examined=Examined("table"))
