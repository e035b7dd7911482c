"""Code that is not ours is called in bounds, and leaves no trace."""

import contextlib
import importlib
import random
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_lab.doctor.guard import Exhausted, Failure, Guard, fresh


def raising(*_):
    raise KeyError("lost\nin two lines")


def leaving_things_changed(x):
    torch.manual_seed(7)
    torch.rand(3)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(True)
    return x + 1


def test_what_a_subject_raises_comes_back_as_a_value():
    failure = Guard(5).call(raising, 1)
    assert isinstance(failure, Failure) and not failure
    assert str(failure) == "KeyError: 'lost\\nin two lines'"


def test_random_state_default_dtype_and_grad_mode_are_restored():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    result = Guard(5).call(leaving_things_changed, torch.zeros(2))
    assert result.tolist() == [1, 1]
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


def test_a_default_device_that_was_set_leaves_no_mode_behind():
    """Under a mode, even that of the CPU, torch.compile refuses some calls."""
    before = torch.overrides._get_current_function_mode_stack()
    Guard(5).call(lambda: torch.set_default_device("meta"))
    assert torch.overrides._get_current_function_mode_stack() == before


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda x: x.add_(1), True),
        (lambda x: x.resize_(1), True),
        (lambda x: x.clone().mul_(2), False),
        (lambda x: x.fill_(torch.nan), True),
    ],
)
def test_writing_into_an_input_is_seen_and_does_not_reach_the_caller(change, seen):
    guard, x = Guard(5), torch.arange(3.0)
    guard.call(change, x)
    assert (guard.mutated is not None) == seen
    assert x.tolist() == [0, 1, 2]


def test_results_do_not_share_memory_with_the_subject():
    """A cache that is handed out would otherwise change under the doctor's hands."""
    cache = torch.zeros(3)
    guard = Guard(5)
    first = guard.call(lambda: cache)
    cache += 1
    assert first.tolist() == [0, 0, 0]


def test_an_endless_loop_is_ended():
    def hang():
        while True:
            pass

    start = time.monotonic()
    failure = Guard(0.4).call(hang)
    assert isinstance(failure, Failure) and "did not come back in time" in str(failure)
    assert time.monotonic() - start < 5


def test_no_call_is_made_after_the_last_second():
    guard = Guard(0.0)
    with pytest.raises(Exhausted):
        guard.call(lambda: 1)


def test_it_works_outside_the_main_thread():
    """Without the alarm, which only the main thread can have."""
    results = []
    thread = threading.Thread(target=lambda: results.append(Guard(5).call(lambda: 3)))
    thread.start()
    thread.join()
    assert results == [3]


def test_what_cannot_be_copied_is_used_as_it_is():
    lock = threading.Lock()
    assert fresh(lock) is lock
    module = torch.nn.Linear(2, 2)
    assert fresh(module) is not module


@settings(max_examples=50, deadline=None)
@given(
    error=st.sampled_from([ValueError, RuntimeError, IndexError, ZeroDivisionError, AssertionError, MemoryError, SystemExit, StopIteration]),
    words=st.text(max_size=300),
)  # fmt: skip
def test_no_exception_of_a_subject_gets_out(error, words):
    def fail():
        raise error(words)

    failure = Guard(5).call(fail)
    assert isinstance(failure, Failure) and error.__name__ in str(failure)


def test_a_loop_that_swallows_exceptions_is_ended_too():
    def stubborn():
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    assert "in time" in str(Guard(0.4).call(stubborn))


def test_an_import_is_not_interrupted(tmp_path, monkeypatch):
    """A module of which half is loaded would stay so for everybody."""
    (tmp_path / "slow_to_load.py").write_text(
        "import time\ntime.sleep(0.6)\ndone = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = Guard(0.4).call(importlib.import_module, "slow_to_load")
    assert module.done == 1


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (torch.zeros(1).expand(2**36), "more than can be held"),
        (torch.zeros(2, device="meta"), "cannot be read: meta"),
        (torch.eye(2).to_sparse(), "cannot be read: torch.sparse_coo"),
        ((torch.zeros(2), torch.zeros(2, device="meta")), "cannot be read: meta"),
    ],
)
def test_numbers_that_cannot_be_read_are_a_failure(result, words):
    assert words in str(Guard(5).call(lambda: result))


def test_other_random_states_the_default_device_and_threads_are_restored():
    def spoil():
        random.seed(3), np.random.seed(3)
        torch.set_default_device("meta"), torch.set_num_threads(3)

    before = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_num_threads(),
    )
    Guard(5).call(spoil)
    after = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_num_threads(),
    )
    assert before == after and torch.get_default_device() == torch.device("cpu")
