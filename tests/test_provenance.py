"""Provenance names what a result depends on, and never fails because of git."""

import dataclasses
import json
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy
import pytest
import torch

import pe_lab
from pe_lab.provenance import Provenance, _commit, _git, provenance


def test_names_the_versions_that_run():
    record = provenance(seed=3)
    assert record.pe_lab == pe_lab.__version__
    assert record.torch == torch.__version__
    assert record.numpy == numpy.__version__
    assert record.threads == torch.get_num_threads()
    assert record.seed == 3


def test_follows_the_number_of_threads():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert provenance().threads == 2
    finally:
        torch.set_num_threads(before)


def test_goes_through_json_unchanged():
    record = provenance(seed=1)
    assert Provenance(**json.loads(json.dumps(record.to_dict()))) == record


def test_date_is_utc_in_iso():
    moment = datetime.fromisoformat(provenance().date)
    assert moment.utcoffset().total_seconds() == 0


def test_text_is_two_lines_with_all_that_outputs_depend_on():
    record = provenance(seed=11)
    text = repr(record)
    assert len(text.splitlines()) == 2
    for name, value in record.to_dict().items():
        shown = str(value) in text
        assert shown != (name in ("date", "commit")) or value is None, name


def test_text_is_the_same_from_one_second_to_the_next():
    record = provenance()
    later = dataclasses.replace(
        record, date="2999-01-01T00:00:00+00:00", commit="f" * 10
    )
    assert repr(later) == repr(record)


def test_commit_is_that_of_the_checkout(tmp_path):
    folder = Path(pe_lab.__file__).resolve().parent
    head = _git(folder, "rev-parse", "HEAD")
    commit = provenance().commit
    if head is None:  # not in a checkout
        assert commit is None
    elif commit is not None:
        assert re.fullmatch(r"[0-9a-f]{10,}\+?", commit)
        assert head.startswith(commit.rstrip("+"))


def test_commit_is_none_in_a_checkout_that_is_not_ours(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert _commit(tmp_path) is None


def test_commit_is_none_outside_a_checkout(tmp_path):
    assert _commit(tmp_path) is None


def test_commit_is_none_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance().commit is None


def test_marks_changed_files(monkeypatch, tmp_path):
    answers = {"ls-files": "x", "rev-parse": "abc", "status": " M x"}
    monkeypatch.setattr(
        sys.modules["pe_lab.provenance"], "_git", lambda _, verb, *rest: answers[verb]
    )
    assert _commit(tmp_path) == "abc+"
    answers["status"] = ""
    assert _commit(tmp_path) == "abc"


@pytest.mark.parametrize("seed", [True, 1.5, "1"])
def test_refuses_a_seed_that_is_no_integer(seed):
    with pytest.raises(ValueError, match="seed is"):
        provenance(seed=seed)
