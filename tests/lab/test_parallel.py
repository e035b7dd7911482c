"""Two processes that share every batch have the losses of one.

Real processes, started by torchrun. The sums are those of one process in another order,
so losses agree to fp32 rounding, 1e-7 at a step, which 30 steps of training grow.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from pe_lab.lab import parallel, read_result, run
from pe_lab.lab.tasks import IGNORE, left_neighbour
from pe_lab.lab.training import loss_of
from pe_lab.model import Transformer

from . import together

TOLERANCE = 1e-5  # nats
SECONDS = 300  # of a hang; a busy machine takes one minute


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("together")


@pytest.fixture(scope="module")
def torchrun(folder):
    """What was said by two processes that did all that `together` orders."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node=2", "-m", "tests.lab.together", str(folder)]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=one_thread
    )


@pytest.fixture(scope="module")
def shared(torchrun, folder):
    assert (folder / "found.json").exists(), torchrun.stderr
    return json.loads((folder / "found.json").read_text())


def difference(one, other):
    curves = ("train_loss", "held_out_loss")
    assert all(one[name]["steps"] == other[name]["steps"] for name in curves)
    return max(
        abs(a - b)
        for name in curves
        for a, b in zip(one[name]["values"], other[name]["values"], strict=True)
    )


@pytest.mark.parametrize("case", together.CASES)
def test_two_processes_have_the_losses_of_one(shared, case):
    assert shared["size"]["size"] == 2
    alone = together.outcome(case)
    assert len(alone["train_loss"]["values"]) == 30
    assert difference(alone, shared[case]) < TOLERANCE
    assert alone["norm"] == pytest.approx(shared[case]["norm"], rel=1e-5)
    first, last = (alone["train_loss"]["values"][i] for i in (0, -1))
    assert abs(first - last) > 100 * TOLERANCE  # they did train


def test_two_processes_go_on_from_a_checkpoint(shared):
    resumed = shared["resumed"]
    assert resumed.pop("found") == [15, 0]
    assert resumed == shared["left neighbour"]  # bits: all sums are in the same order


def test_an_error_of_the_first_process_is_everybodys(shared):
    assert "zero" in shared["error"]["said"]


def test_the_command_line_shares_a_run(torchrun, folder, tmp_path):
    """One bar, one table, one file, one line of where it comes from."""
    assert torchrun.stdout.count("left-neighbour/none") == 1
    assert torchrun.stderr.count(" 0/100 [00:00<?") == 1  # a bar begins
    files = sorted(p.name for p in (folder / "two").rglob("*") if p.is_file())
    assert files == ["left-neighbour.none-0.json", "stall-quick.json"]
    two = read_result(folder / "two" / "stall-quick.json").runs[0]
    one = run("stall", size="quick", variants=["left-neighbour/none"]).runs[0]
    assert two.provenance["processes"] == 2 and "processes" not in one.provenance
    curves = [run.curves["train_loss"].values[:3] for run in (one, two)]  # 30 steps
    assert max(abs(a - b) for a, b in zip(*curves, strict=True)) < TOLERANCE


def test_an_error_ends_all_processes_with_its_sentence(torchrun):
    """Only the first process looks at the folder; nobody is left waiting for it.

    Which of the two says it is open: torchrun ends the others once one has ended.
    """
    assert torchrun.returncode == 1
    assert "cannot be made (Not a directory)" in torchrun.stderr


def test_one_process_shares_with_nobody():
    batch = left_neighbour().draw(3, torch.Generator())
    model = Transformer(50, 16, 2, 1, kind="encoder")
    loss_of(model, batch).backward()
    before = [p.grad.clone() for p in model.parameters()]
    parallel.add_gradients(model)
    assert parallel.share(batch) is batch
    assert parallel.total(torch.tensor(2.5)) == 2.5
    assert all(map(torch.equal, before, (p.grad for p in model.parameters())))
    assert (parallel.rank(), parallel.size()) == (0, 1)


def test_shares_add_up_to_the_mean(monkeypatch):
    """Also where a share asks nothing: 0, and no 0 / 0."""
    monkeypatch.setattr(parallel, "size", lambda: 3)
    batch = left_neighbour().draw(7, torch.Generator())
    batch.targets[:3] = IGNORE  # all of the first share
    model = Transformer(50, 16, 2, 1, kind="encoder").double()
    losses = []
    for rank in range(3):
        monkeypatch.setattr(parallel.dist, "get_rank", lambda rank=rank: rank)
        losses.append(loss_of(model, parallel.share(batch), asked=4 * 15).item())
    assert losses[0] == 0
    assert sum(losses) == pytest.approx(loss_of(model, batch).item(), abs=1e-12)
    with pytest.raises(ValueError, match="2 sequences cannot be shared among 3"):
        parallel.share(left_neighbour().draw(2, torch.Generator()))
