"""The blind cases tell nothing by themselves, and can be told apart by measuring."""

import copy

import pytest

import pe_lab
from pe_lab.exercises import cases
from pe_lab.exercises.chapter_18 import CASES

# What the doctor finds first, and the word that it stands for.
CHECKS = {
    "ladder": {"D-DIM", "D-BASE"},
    "layout": {"D-LAYOUT", "D-NORM"},
    "memory": {"D-HISTORY"},
    "precision": {"D-DTYPE"},
    "alignment": {"D-ALIGN"},
    "range": {"D-LEN"},
    "axis": {"D-ORDER"},
    "healthy": set(),
}
SIZES = {7: {"d_model": 32}}
each_case = pytest.mark.parametrize("number", cases.numbers())


@each_case
def test_the_doctor_finds_what_the_word_says_and_nothing_else(number):
    suspect = pe_lab.exercises.case(number)
    report = pe_lab.diagnose(suspect, kind=suspect.kind, **SIZES.get(number, {}))
    bad = [f.check for f in report.findings if f.severity in ("wrong", "risky")]
    right = CHECKS[cases.word(number)]
    assert set(bad) <= right
    assert bool(bad) == bool(right)


@each_case
def test_what_is_shown_does_not_tell_the_name(number):
    suspect, entry = pe_lab.exercises.case(number), cases._ENTRIES[number]
    for text in (repr(suspect), str(suspect), str(dir(suspect)), str(type(suspect))):
        assert entry.name not in text
        assert entry.word not in text
    assert not hasattr(suspect, "__dict__")  # nothing to be listed by vars()


@each_case
def test_a_case_is_new_each_time_and_can_be_copied(number):
    first, second = pe_lab.exercises.case(number), pe_lab.exercises.case(number)
    assert first is not second
    assert repr(copy.deepcopy(first)) == repr(first)


def test_every_word_is_an_answer_and_every_answer_a_word():
    for exercise in CASES:
        words = {exercise.reference, *(m.wrong for m in exercise.mistakes)}
        assert words == set(cases.WORDS)


def test_several_kinds_and_words_are_asked_for():
    kinds = {cases._ENTRIES[n].kind for n in cases.numbers()}
    words = {cases.word(n) for n in cases.numbers()}
    assert len(cases.numbers()) >= 8
    assert len(kinds) >= 4
    assert len(words) == len(cases.numbers())


@pytest.mark.parametrize("number", [0, 9, 100])
def test_an_unknown_case_is_refused(number):
    with pytest.raises(ValueError, match=r"number needs"):
        pe_lab.exercises.case(number)


def test_a_score_says_which_and_not_what():
    given = {1: "ladder", 2: "size", 3: None, 4: ...}
    found = pe_lab.exercises.score(given)
    assert (found.right, found.wrong, found.open) == ((1,), (2,), (3, 4, 5, 6, 7, 8))
    assert repr(found) == "1 of 8 named; look again at 2; open: 3, 4, 5, 6, 7, 8."
    assert not any(word in repr(found) for word in cases.WORDS)


def test_all_words_make_a_full_score():
    full = {number: cases.word(number) for number in cases.numbers()}
    assert repr(pe_lab.exercises.score(full)) == "8 of 8 named."


@pytest.mark.parametrize("answers", [["ladder"], {0: "size"}, {"1": "size"}])
def test_what_is_no_set_of_answers_is_refused(answers):
    with pytest.raises((TypeError, ValueError), match=r"answers needs .*got"):
        pe_lab.exercises.score(answers)
