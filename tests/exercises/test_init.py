"""Exercises are found by id, chapter by chapter; an unknown id names its neighbours."""

import subprocess
import sys

import pytest

import pe_lab
from pe_lab import exercises


def test_check_is_the_top_level_name():
    assert pe_lab.check is exercises.check


def test_every_exercise_is_found_by_its_id():
    for number in exercises.chapters():
        for exercise in exercises.chapter(number):
            assert exercise.id.startswith(f"{number}-")
            assert exercises.find(exercise.id) is exercise


def test_ids_are_unique():
    ids = [e.id for n in exercises.chapters() for e in exercises.chapter(n)]
    assert len(set(ids)) == len(ids)


def test_check_judges_the_exercise():
    verdict = exercises.check("05-block", None)
    assert verdict.exercise_id == "05-block"
    assert verdict.passed is None


@pytest.mark.parametrize(
    ("exercise_id", "says"),
    [
        ("05-blok", "Near it: .*05-block"),
        ("05_block", "Near it: .*05-block"),
        ("block", "Near it: .*05-block"),
        ("05-qqqqqqqqqqqq", "Near it: 05-"),
        ("", "exercises for chapters"),
        ("zz", "exercises for chapters"),
        ("77-zzzzzzzzzz", "exercises for chapters"),
        ("../05", "There is no exercise"),
    ],
)
def test_unknown_id_names_its_neighbours(exercise_id, says):
    with pytest.raises(ValueError, match=says):
        exercises.check(exercise_id, 1)


@pytest.mark.parametrize("exercise_id", [5, None, ["05-block"], lambda: 1])
def test_id_of_another_type_is_refused_with_the_order(exercise_id):
    with pytest.raises(ValueError, match=r"check\(exercise_id, answer\)"):
        exercises.check(exercise_id, 1)


def test_chapters_are_imported_only_when_needed():
    code = (
        "import sys, pe_lab.exercises as e\n"
        "loaded = [m for m in sys.modules if 'exercises.chapter_' in m]\n"
        "assert not loaded, loaded\n"
        "e.check('05-block', None)\n"
        "loaded = [m for m in sys.modules if 'exercises.chapter_' in m]\n"
        "assert loaded == ['pe_lab.exercises.chapter_05'], loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
