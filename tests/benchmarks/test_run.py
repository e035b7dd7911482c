"""The commands: what they write, what they print, and how they end."""

from __future__ import annotations

import json

import pytest
import torch

import pe_lab
from benchmarks import gpu, gpu_checks, gpu_report, gpu_times, run


def test_the_command_writes_files_and_prints_tables(tmp_path, capfd):
    words = ["--quick", "--rounds", "2", "--output", str(tmp_path), "--only", "tables"]
    assert run.main(words) == 0
    content = json.loads((tmp_path / "tables.json").read_text("utf-8"))
    assert content["rounds"] == 2
    assert content["provenance"]["threads"] == 1
    shown = capfd.readouterr()
    assert "pe_lab.rope_table" in shown.out
    assert "≤ 3" in shown.out  # an aim, met or missed, fails nothing
    assert "2 rounds" in shown.err  # progress


def test_the_gpu_script_runs_at_tiny_sizes(tmp_path, capsys):
    words = ["--device", "cpu", "--quick", "--output", str(tmp_path)]
    assert gpu.main(words) == 0
    content = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert {"name", "kind"} <= set(content["device"])
    names = {scheme.name for scheme in gpu_checks.schemes(gpu_checks.QUICK)}
    assert {check["scheme"] for check in content["checks"]} == names
    assert all(check["ok"] for check in content["checks"])
    for job in content["timings"]:
        assert job["bound"] in job["rows"]
        assert any(name.startswith("pe_lab") for name in job["rows"])
        assert all(row["over_bound"] > 0 for row in job["rows"].values())
    assert "Liger-Kernel" in content["timings"][0]["missing"]
    assert "gradients, bfloat16" in capsys.readouterr().out
    assert gpu_report.load(tmp_path) == content
    assert str(content["device"]["name"]) in gpu_report.origin(content)


def test_every_scheme_of_the_package_is_checked():
    made = {type(s.make()) for s in gpu_checks.schemes(gpu_checks.QUICK)}
    public = {getattr(pe_lab.encodings, name) for name in pe_lab.encodings.__all__}
    assert public - made == {pe_lab.PositionalEncoding}


def test_a_wrong_scheme_is_seen():
    class Wrong(pe_lab.RoPE):
        def rotate(self, q, k, q_pos, k_pos):
            wide = q.dtype == torch.float64
            return super().rotate(q, k, q_pos, k_pos if wide else k_pos + 1)

    scheme = gpu_checks.Scheme("wrong", lambda: Wrong(16))
    found = gpu_checks.checks_of(scheme, torch.float32, "cpu", gpu_checks.QUICK)
    assert not any(check.ok for check in found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_ends_with_2(capsys):
    assert gpu.main([]) == 2
    assert "no GPU" in capsys.readouterr().err


def test_tiny_sizes_are_not_for_the_book(capsys):
    for words in (["--device", "cpu"], ["--device", "cpu", "--quick"]):
        with pytest.raises(SystemExit):
            gpu.main(words)
        assert "needs" in capsys.readouterr().err


def test_when_time_is_over_the_rest_is_left_out():
    job = next(iter(gpu_times.jobs(gpu_times.QUICK, "cpu", True)))
    found = gpu_times.measure(job, "cpu", 2, lambda: True)
    assert found["rows"] == {}
    assert all("left out" in why for why in found["missing"].values())
