"""The benchmark of tables: everybody makes the same table, and the sums are right."""

from __future__ import annotations

import json
import math

import pytest
import torch

from benchmarks import tables

ENTRIES, MISSING = tables.contestants()
MAKERS = [entry for entry in ENTRIES if entry.rows is not None]


def test_the_reference_is_exact():
    # float64 angles near 10⁴ are rounded by up to 1e-12, the reference is not
    cos, sin = tables.exact(10_000)
    p = tables.last_ids(10_000).double()
    angle = p * tables.BASE ** (-2 * 3 / tables.WIDTH)
    torch.testing.assert_close(cos[:, 3], angle.cos(), rtol=0, atol=4e-12)
    torch.testing.assert_close(sin[:, 3], angle.sin(), rtol=0, atol=4e-12)
    assert cos.dtype == sin.dtype == torch.float64


@pytest.mark.parametrize("entry", MAKERS, ids=lambda entry: entry.name)
def test_everybody_makes_the_same_table(entry: tables.Contestant):
    # float32 angles near 10³ are rounded by up to 6e-5; another formula, order of
    # channels or position is off by far more
    for got, want in zip(entry.rows(1000), tables.exact(1000), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=0, atol=2e-4)


def test_ratios_are_taken_round_by_round():
    # all slow down threefold in the second round; the ratios do not see it
    base = [1.0, 3.0, 1.0, 1.0]
    seconds = {tables.BASELINE: base, "slow": [2 * second for second in base]}
    summary = tables.ratios(seconds)
    assert summary[tables.BASELINE]["ratio"] == 1
    assert summary["slow"] == {
        "milliseconds": 2000,
        "ratio": 2,
        "ratio_low": 2,
        "ratio_high": 2,
    }


def test_shared_memory_is_counted_once():
    points = torch.zeros(500, 2)  # 4000 bytes
    assert tables.megabytes((points[:, 0], points[:, 1])) == 0.004
    assert tables.megabytes((points, points.clone())) == 0.008


def test_a_small_run_is_written_whole(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tables, "LENGTH", 512)
    monkeypatch.setattr(tables, "ENDS", (5000,))
    monkeypatch.setattr(tables, "take_memory", lambda kind: True)  # leave pytest alone
    path = tmp_path / "new" / "tables.json"
    threads = torch.get_num_threads()
    try:
        assert tables.main(["--rounds", "2", "--output", str(path)]) == 0
    finally:
        torch.set_num_threads(threads)
    content = json.loads(path.read_text("utf-8"))
    assert set(content["max_error"]) == {entry.name for entry in MAKERS}
    assert set(content["missing"]) == set(MISSING)
    for timing in content["timings"].values():
        assert set(timing) == {entry.name for entry in ENTRIES}
        assert all(math.isfinite(row["ratio"]) for row in timing.values())
    assert tables.BASELINE in capsys.readouterr().out


def test_too_few_rounds_are_refused(capsys):
    with pytest.raises(SystemExit):
        tables.main(["--rounds", "1"])
    assert "at least 2" in capsys.readouterr().err


def test_the_stored_run_says_what_the_chapter_says():
    # 3.3e-8: half a step of float32 just below 1 is 3.0e-8
    content = json.loads(tables.RESULTS.read_text("utf-8"))
    for name, errors in content["max_error"].items():
        if name.startswith("pe_lab") or "float64" in name:
            assert max(errors.values()) <= 3.3e-8, name
        else:
            assert errors["1000000"] > 1e-2, name
    for timing in content["timings"].values():
        others = [n for n in content["max_error"] if not n.startswith("pe_lab")]
        assert all(timing[name]["ratio"] > 1 for name in others)
