"""The doctor on the libraries that are installed, against the table that is shipped."""

import dataclasses
import json

import pytest
import torch

from pe_lab.doctor import peers
from pe_lab.doctor.confusion import ALARMS
from pe_lab.doctor.mutants import KINDS
from pe_lab.doctor.peers.catalogue import PEERS

torch.set_num_threads(1)
SHIPPED = json.loads(peers.RESULT.read_text(encoding="utf-8"))
BY_NAME = {(r["package"], r["what"], r["kind"]): r for r in SHIPPED["rows"]}


def test_the_shipped_table_is_of_the_catalogue_and_as_known():
    """Every defect that is known is found, and nothing where none is known."""
    assert {r["package"] for r in SHIPPED["rows"]} <= SHIPPED["versions"].keys()
    have = {(p.package, p.what, p.kind) for p in PEERS}
    assert set(BY_NAME) == {h for h in have if h[0] in SHIPPED["versions"]}
    assert len(have) == len(PEERS)
    assert [r["what"] for r in SHIPPED["rows"] if not r["as_known"]] == []


@pytest.mark.parametrize("peer", PEERS, ids=lambda p: f"{p.package}, {p.what}")
def test_piece_is_found_as_shipped(peer):
    """The same checks raise an alarm as in the table, on the releases of the table.

    Messages hold numbers that may differ in the last digit between machines.
    """
    release = peers.installed(peer.package)
    if release is None:
        pytest.skip(f"{peer.package} is not installed")
    shipped = BY_NAME.get((peer.package, peer.what, peer.kind))
    if shipped is None:
        pytest.skip(f"the table was made without {peer.package}")
    if release != shipped["version"]:
        pytest.skip(f"the table is of {shipped['version']}, installed is {release}")
    row = peers.examine(peer, release)
    assert row.as_known, row
    assert row.scheme == shipped["scheme"]
    assert alarms(row.findings) == alarms(shipped["findings"])


def alarms(findings):
    return sorted(
        (f["check"], f["severity"]) for f in findings if f["severity"] in ALARMS
    )


def test_every_piece_is_of_a_kind_and_every_defect_in_words():
    for peer in PEERS:
        assert peer.kind in KINDS
        assert bool(peer.known) == bool(peer.finds), peer.what


def test_a_piece_that_is_not_as_known_is_told(tmp_path, monkeypatch, capsys):
    """The command's exit code, its line, and its file."""
    healthy = next(
        p for p in PEERS if p.kind == "slopes" and peers.installed(p.package)
    )
    wrong = dataclasses.replace(healthy, known="nothing", finds=("D-BIAS",))
    monkeypatch.setattr(
        peers, "rows", lambda: (peers.examine(p, "0") for p in (healthy, wrong))
    )
    assert peers.main(["--output", str(tmp_path / "some.json")]) == 1
    assert capsys.readouterr().out.count("?") == 1
    content = json.loads((tmp_path / "some.json").read_text(encoding="utf-8"))
    assert [row["as_known"] for row in content["rows"]] == [True, False]
    assert content["date"] and content["versions"]["torch"]


def test_a_piece_that_is_called_otherwise_is_no_crash():
    peer = dataclasses.replace(PEERS[0], make=lambda: lambda x: x)
    row = peers.examine(peer, "0")
    assert not row.as_known
    assert "Tried" in row.findings[0]["message"]
