"""What is fetched is held to its SHA-256, and pip's own reason is passed on."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from pe_lab.lab import fetch


def test_the_cache_is_where_the_reader_wants_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PE_LAB_CACHE", str(tmp_path / "mine"))
    assert fetch.cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("PE_LAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch.cache_folder() == tmp_path / "pe_lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert fetch.cache_folder() == Path.home() / ".cache" / "pe_lab"


def test_a_file_is_held_to_its_sha256(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"\x00\xff")
    right = hashlib.sha256(b"\x00\xff").hexdigest()
    assert fetch.verified(path, right, "pe-lab fetch") == path
    with pytest.raises(ValueError, match=r"a\.bin needs the SHA-256 0{16}….*`get it`"):
        fetch.verified(path, "0" * 64, "get it")


@pytest.mark.parametrize(
    ("wheel", "option"), [(True, "--only-binary"), (False, "--no-binary")]
)
def test_pip_is_asked_for_one_file_by_its_hash(monkeypatch, tmp_path, wheel, option):
    asked = []

    def pip(command, **options):
        asked.extend(command)
        (tmp_path / "toy.whl").write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    got = fetch.download("toy==1.0", "ab" * 32, tmp_path, wheel=wheel)
    assert got == tmp_path / "toy.whl"
    assert asked[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--require-hashes"} < set(asked)
    assert asked[asked.index(option) + 1] == ":all:"
    wanted = Path(asked[asked.index("--requirement") + 1]).read_text()
    assert wanted == f"toy==1.0 --hash=sha256:{'ab' * 32}\n"


def test_pips_last_line_is_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(RuntimeError, match="pe-lab-toy==1.0"):
        fetch.download("pe-lab-toy==1.0", "ab" * 32, tmp_path, wheel=True)
