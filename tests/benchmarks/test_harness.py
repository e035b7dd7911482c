"""Turns, ratios, and who is left out and why."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import harness


def summary(seconds):
    return harness.ratios(seconds, baseline="ours", bound="copy")


def test_ratios_are_taken_round_by_round():
    # all slow down threefold in the second round; the ratios do not see it
    base = [1.0, 3.0, 1.0, 1.0]
    found = summary(
        {
            "ours": base,
            "slow": [2 * second for second in base],
            "copy": [second / 2 for second in base],
        }
    )
    assert found["ours"]["ratio"] == 1
    assert found["slow"] == {
        "milliseconds": 2000,
        "ratio": 2,
        "ratio_low": 2,
        "ratio_high": 2,
        "over_bound": 4,
    }


def test_a_clock_that_saw_nothing_gives_a_finite_ratio():
    found = summary({"ours": [0.0, 0.0], "copy": [0.0, 1e-6]})
    assert found["ours"]["over_bound"] > 0


def test_quartiles_lie_within_what_was_measured():
    found = summary({"ours": [1.0, 1.0], "copy": [1.0, 9.0]})  # two rounds, far apart
    assert 1 <= found["copy"]["ratio_low"] <= found["copy"]["ratio_high"] <= 9


def test_everybody_has_a_turn_in_every_round_and_one_before():
    calls = []
    runs = {name: lambda name=name: calls.append(name) for name in "abc"}
    seconds = harness.cpu_seconds(runs, rounds=2, calls=2)
    assert calls == ["a", "a", "b", "b", "c", "c"] * 3
    assert {name: len(times) for name, times in seconds.items()} == dict.fromkeys(
        "abc", 2
    )


def absent():
    raise ImportError("No module named 'absent'\nand more")


def test_a_peer_that_is_absent_is_reported_and_not_raised():
    found, missing = harness.gather([absent, lambda: "here"])
    assert found == ["here"]
    assert missing == {"absent": "ImportError: No module named 'absent'"}


def test_a_peer_that_breaks_is_reported_and_ours_raises():
    runs = {"ours": lambda: 1, "peer": absent}
    able, missing = harness.try_all(runs, ours="ours")
    assert list(able) == ["ours"]
    assert list(missing) == ["peer"]
    with pytest.raises(ImportError):
        harness.try_all(runs, ours="peer")


def test_gradients_come_back_for_every_input():
    x, y = torch.ones(3), torch.full((3,), 2.0)
    run = harness.with_backward(torch.mul, (x, y), torch.ones(3))
    assert [g.tolist() for g in run()] == [[2.0] * 3, [1.0] * 3]


def test_a_file_says_where_it_comes_from(tmp_path):
    content = harness.heading("trial", {"length": 3}, ["pe-lab", "no-such-package"])
    path = harness.save(content, tmp_path / "new")
    read = json.loads(path.read_text("utf-8"))
    assert path.name == "trial.json"
    assert read["provenance"]["packages"] == {
        "no-such-package": None,
        "pe-lab": harness.installed("pe-lab"),
    }
    assert {"date", "commit", "torch", "cpu", "processor"} <= set(read["provenance"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rounds", "1"], "at least 2"),
        (["--quick"], "needs --output"),
        (["--only", "nothing"], "invalid choice"),
    ],
)
def test_words_that_make_no_sense_are_refused(words, sentence, capsys):
    with pytest.raises(SystemExit):
        harness.options("A text.", words, only=("tables",))
    assert sentence in capsys.readouterr().err
