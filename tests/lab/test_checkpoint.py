"""A stopped training goes on and ends as if it had not been stopped, to the last bit.

All comparisons are exact: a checkpoint holds everything that changes, and on one thread
of a CPU the same operations give the same bits. So no tolerance is due.
"""

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from pe_lab.encodings import Learned
from pe_lab.lab import checkpoint, tasks
from pe_lab.lab.training import (
    NotANumberError,
    Recipe,
    Session,
    Stopwatch,
    reproducible,
    train,
)
from pe_lab.model import Transformer

RECIPE = Recipe(17, 8, 3e-3, warmup=4, measure_at=(0, 5, 6), average=4, held_out_size=8)
EVERY = 5


class Stopped(BaseException):
    """Like Ctrl-C, but ours."""


def session(folder, stop_at=None, act=None, **options):
    """A session that keeps checkpoints, and does something after some update."""
    made = []

    def progress(updates, tokens):
        made.append((updates, tokens))
        if sum(n for n, _ in made) == stop_at:
            act() if act else stop()

    options = {"every": EVERY, "of": {"experiment": "toy", "seed": 3}} | options
    return Session(progress=progress, folder=folder, **options), made


def stop():
    raise Stopped


def model():
    encoding = Learned(40, 16)  # of whose rows 24 are never met
    return Transformer(50, 16, 2, 1, kind="encoder", encoding=encoding, dropout=0.1)


def trained(kept, recipe=RECIPE):
    """Curves, weights and the number that would be drawn next."""
    with reproducible(3):
        net = model()
        curves = train(net, tasks.left_neighbour(), recipe, 3, kept)
        return curves, net.state_dict(), torch.rand(())


def same(one, other):
    weights = all(torch.equal(one[1][name], other[1][name]) for name in one[1])
    return one[0] == other[0] and weights and torch.equal(one[2], other[2])


@pytest.fixture(scope="module")
def whole():
    return trained(Session())


def test_keeping_checkpoints_changes_nothing(tmp_path, whole):
    assert same(trained(session(tmp_path)[0]), whole)
    assert [file.name for file in tmp_path.iterdir()] == ["train.safetensors"]


@pytest.mark.parametrize("step", range(1, RECIPE.steps + 1))
def test_a_training_stopped_at_any_step_ends_as_if_it_was_not(tmp_path, whole, step):
    """Among the steps are those within a mean of the curve, and beside a held-out loss."""
    with pytest.raises(Stopped):
        trained(session(tmp_path, stop_at=step)[0])
    kept, made = session(tmp_path)
    assert same(trained(kept), whole)
    # the progress says what was found and then each update: at most EVERY are redone
    found = made[0][0] if made[0][1] == 0 else 0
    assert found == (step - 1) // EVERY * EVERY
    assert sum(updates for updates, _ in made) == RECIPE.steps


def test_a_finished_training_is_not_repeated(tmp_path, whole):
    trained(session(tmp_path)[0])
    kept, made = session(tmp_path)
    assert same(trained(kept), whole)
    assert made == [(RECIPE.steps, 0)]


def two_parts(kept):
    """As a measure does that trains, and then fine-tunes what was trained."""
    with reproducible(3):
        net, task = model(), tasks.left_neighbour()
        curves = [train(net, task, RECIPE, 3, kept.part("first"))]
        short = replace(RECIPE, steps=7)
        for part in ("tune/a", "tune/b"):
            curves.append(train(net, task, short, 4, kept.part(part)))
        return curves, net.state_dict(), torch.rand(())


@pytest.mark.parametrize("step", [9, 17, 20, 24, 30])
def test_of_several_trainings_the_finished_ones_are_skipped(tmp_path, step):
    want = two_parts(Session())
    with pytest.raises(Stopped):
        two_parts(session(tmp_path, stop_at=step)[0])
    kept, made = session(tmp_path)
    assert same(two_parts(kept), want)
    updates = sum(n for n, tokens in made if tokens)
    assert step - EVERY <= 31 - updates <= step
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {f"{n}.safetensors" for n in ("first", "tune.a", "tune.b")}


def test_two_trainings_of_one_name_are_refused(tmp_path):
    kept, _ = session(tmp_path)
    trained(kept)
    with pytest.raises(ValueError, match=r"two .* called 'train'; .* session\.part"):
        trained(kept)


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


DAMAGES = {
    "empty": lambda content: b"",
    "cut in the header": lambda content: content[:100],
    "cut in the tensors": lambda content: content[:-1000],
    "cut by one byte": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "text": lambda content: b"not a tensor\n" * 500,
    "zeros": lambda content: bytes(len(content)),
    "a weight": lambda content: flipped(content, len(content) - 7),
    "a note": lambda content: content.replace(b'step\\":', b'stop\\":', 1),
    "the step": lambda content: content.replace(b'step\\": 1', b'step\\": 2', 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_stays(tmp_path, damage):
    trained(session(tmp_path)[0])
    path = tmp_path / "train.safetensors"
    bad = DAMAGES[damage](path.read_bytes())
    assert bad != path.read_bytes()
    path.write_bytes(bad)
    with pytest.raises(
        ValueError, match=r"train\.safetensors is no whole .* delete it"
    ):
        trained(session(tmp_path)[0])
    assert path.read_bytes() == bad


def test_any_damaged_bit_is_seen(tmp_path):
    """In the header, where most of the structure is, and all over the file."""
    trained(session(tmp_path)[0])
    path = tmp_path / "train.safetensors"
    good = path.read_bytes()
    draw = random.Random(0)
    places = [*range(0, 9), *(draw.randrange(2000) for _ in range(150))]
    places += [draw.randrange(len(good)) for _ in range(50)]
    for place in places:
        path.write_bytes(flipped(good, place))
        with pytest.raises(ValueError, match="is no whole checkpoint"):
            checkpoint.read(path)


def test_other_safetensors_and_other_formats_are_refused(tmp_path):
    path = tmp_path / "train.safetensors"
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(ValueError, match="is no whole checkpoint"):
        trained(session(tmp_path)[0])
    checkpoint.write(path, {"weight": torch.ones(2)}, {"format": 99})
    with pytest.raises(ValueError, match="has format 99, this version reads 1"):
        trained(session(tmp_path)[0])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"of": {"experiment": "other", "seed": 3}}, "experiment = toy, .* has other"),
        ({"of": {"experiment": "toy", "seed": 4}}, "seed = 3, .* now has 4"),
        ({"of": {"experiment": "toy"}}, "seed = 3, this run now has None"),
        (
            {"recipe": replace(RECIPE, learning_rate=1.0)},
            "learning_rate = 0.003, .*1.0",
        ),
        ({"recipe": replace(RECIPE, steps=18)}, "recipe.steps = 17, .* now has 18"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused_and_stays(
    tmp_path, other, message
):
    trained(session(tmp_path)[0])
    path = tmp_path / "train.safetensors"
    before = path.read_bytes()
    recipe = other.pop("recipe", RECIPE)
    with pytest.raises(ValueError, match=message + "; choose another folder"):
        trained(session(tmp_path, **other)[0], recipe)
    assert path.read_bytes() == before


def test_other_initial_weights_are_another_training(tmp_path):
    """As after a change of the code, which no config shows."""
    trained(session(tmp_path)[0])
    with reproducible(4), pytest.raises(ValueError, match="initial_weights = "):
        train(model(), tasks.left_neighbour(), RECIPE, 3, session(tmp_path)[0])


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch, whole, where):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    def fill():
        monkeypatch.setattr(os, where, full)

    told = r"train\.safetensors could not be written \(No space left .*goes on from"
    with pytest.raises(OSError, match=told):
        trained(session(tmp_path, stop_at=8, act=fill)[0])  # after that of step 5
    assert [file.name for file in tmp_path.iterdir()] == ["train.safetensors"]
    monkeypatch.undo()
    kept, made = session(tmp_path)
    assert same(trained(kept), whole)
    assert made[0] == (5, 0)


def test_a_process_killed_while_it_writes_leaves_the_checkpoint_before(
    tmp_path, monkeypatch, whole
):
    """Before the new name, after it, and with the half of a file beside it."""
    replace_file = os.replace
    for when in ("before", "after"):
        folder = tmp_path / when

        def dying(part, path, when=when):
            if when == "after":
                replace_file(part, path)
            raise Stopped

        def die(dying=dying):
            monkeypatch.setattr(os, "replace", dying)

        with pytest.raises(Stopped):
            trained(session(folder, stop_at=8, act=die)[0])
        monkeypatch.undo()
        (folder / ".train.safetensors.0").write_bytes(b"half")
        kept, made = session(folder)
        assert same(trained(kept), whole)
        assert made[0] == ((5, 0) if when == "before" else (10, 0))
        checkpoint.remove(folder)
        assert not folder.exists()


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
def test_a_real_limit_leaves_the_checkpoint_before(tmp_path, whole):
    """Not simulated: the kernel refuses to write more than a thousand bytes."""
    code = f"""
import resource, signal
from pathlib import Path
from tests.lab.test_checkpoint import session, trained
limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, -1))
trained(session(Path({str(tmp_path)!r}), stop_at=8, act=limit)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "train.safetensors could not be written (File too large)" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["train.safetensors"]
    kept, made = session(tmp_path)
    assert same(trained(kept), whole)
    assert made[0] == (5, 0)


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    """A file stands in the way, which stops root too."""
    (tmp_path / "there").write_text("")
    with pytest.raises(OSError, match="could not be written .*[Dd]irectory"):
        trained(session(tmp_path / "there" / "run")[0])
    assert (tmp_path / "there").is_file()


def test_a_loss_that_is_no_number_leaves_the_checkpoint_before(tmp_path):
    with reproducible(3):
        net = model()

        def break_it():
            torch.nn.init.constant_(net.head.bias, torch.nan)

        kept, _ = session(tmp_path, stop_at=8, act=break_it)
        with pytest.raises(NotANumberError, match="loss is nan at step 8 "):
            train(net, tasks.left_neighbour(), RECIPE, 3, kept)
    _, notes = checkpoint.read(tmp_path / "train.safetensors")
    assert notes["step"] == 5


def test_weights_that_are_no_numbers_are_never_kept(tmp_path):
    """They break after the last finite loss, just before a checkpoint is due."""
    with reproducible(3):
        net = model()

        def break_it():
            torch.nn.init.constant_(net.head.bias, torch.inf)

        kept, _ = session(tmp_path, stop_at=10, act=break_it)
        with pytest.raises(NotANumberError, match="weight is not finite after step 9;"):
            train(net, tasks.left_neighbour(), RECIPE, 3, kept)
    tensors, notes = checkpoint.read(tmp_path / "train.safetensors")
    assert notes["step"] == 5
    assert all(t.isfinite().all() for t in tensors.values())


def test_the_file_is_safetensors_that_anyone_can_read(tmp_path):
    trained(session(tmp_path)[0])
    tensors = load_file(tmp_path / "train.safetensors")
    weights = {name: t for name, t in tensors.items() if name.startswith("model.")}
    net = model()
    net.load_state_dict({n.removeprefix("model."): t for n, t in weights.items()})


def test_a_folder_keeps_what_is_not_a_checkpoint(tmp_path):
    folder = tmp_path / "run"
    trained(session(folder)[0])
    (folder / "notes.txt").write_text("mine")
    checkpoint.remove(folder)
    assert [file.name for file in folder.iterdir()] == ["notes.txt"]
    checkpoint.remove(tmp_path / "nowhere")  # others may be faster


def test_the_seconds_before_an_interruption_count(tmp_path):
    with pytest.raises(Stopped):
        kept, _ = session(tmp_path, stop_at=8)
        kept.watch.go_on_from([1000.0, 500.0])
        trained(kept)
    kept, _ = session(tmp_path)
    trained(kept)
    wall, cpu = kept.watch.read()
    assert wall > 1000 and cpu > 500
    assert Stopwatch().read() < (1000, 500)
