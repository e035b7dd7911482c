"""Calling code that is not ours: in bounds of time, and leaving everything as it was.

The subject gets copies of its inputs, gives copies of its outputs, and whatever it does
to the random state, the default dtype or its own mode is undone. What it raises comes
back as a value.
"""

from __future__ import annotations

import copy
import operator
import random
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_COPYING, _AGAIN = 10.0, 0.2  # seconds
MOST_NUMBERS = 2**28  # of one result: 1 GiB, which a machine can hold twice


class Exhausted(Exception):
    """The examination has used up its time."""


@dataclass(frozen=True)
class Failure:
    """What a call raised instead of giving a result."""

    error: BaseException

    def __str__(self) -> str:
        text = str(self.error).split("\n")[0]
        return f"{type(self.error).__name__}: {text:.160}"

    def __bool__(self) -> bool:
        return False


class Guard:
    """Calls with a limit on each, and on all together.

    Args:
        seconds: of wall time for the whole examination; a call gets half at most.
    """

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.slice = seconds / 2
        self.mutated: str | None = None

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """function(*args, **options) as fresh tensors, or a Failure.

        Raises:
            Exhausted: if no time is left before the call.
        """
        left = self.end - time.monotonic()
        if left <= 0:
            raise Exhausted
        given = [_copied(a) for a in args]
        try:
            with _as_it_was(), _alarm(min(left, self.slice)), torch.no_grad():
                result = _copied(_readable(function(*given, **options)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the subject's, whatever it is
            return Failure(error)
        for before, after in zip(args, given, strict=True):
            if _changed(before, after):
                self.mutated = "it writes into its input"
        return result


def fresh(subject: Any) -> Any:
    """A copy to work on; the subject itself if it cannot be copied."""
    try:
        if isinstance(subject, FunctionType):
            return _function(subject, {})
        with _alarm(_COPYING):
            return copy.deepcopy(subject)
    except KeyboardInterrupt:
        raise
    except BaseException:  # over files, locks, C++ objects …
        return subject


def _function(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    """The function over copies of the modules in its closure, defaults and names."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    mine, own = ([_part(value, memo) for value in part] for part in (cells, given))
    outer = {n: function.__globals__.get(n) for n in function.__code__.co_names}
    named = {n: _part(v, memo) for n, v in outer.items() if isinstance(v, nn.Module)}
    if not named and all(map(operator.is_, cells + given, mine + own)):
        return function
    world = {**function.__globals__, **named} if named else function.__globals__
    closure = tuple(map(CellType, mine))
    count = len(function.__defaults__ or ())
    twin = FunctionType(
        function.__code__, world, function.__name__, tuple(own[:count]), closure
    )
    twin.__kwdefaults__ = dict(
        zip(function.__kwdefaults__ or {}, own[count:], strict=True)
    )
    return twin


def _part(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, nn.Module):
        return copy.deepcopy(value, memo)
    return _function(value, memo) if isinstance(value, FunctionType) else value


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, tuple | list):
        return tuple(_copied(v) for v in value)
    return value


def _readable(value: Any) -> Any:
    """The result, if its numbers can be read; in time, and without filling memory."""
    for part in value if isinstance(value, tuple | list) else (value,):
        if not isinstance(part, Tensor):
            continue
        if part.numel() > MOST_NUMBERS:
            raise ValueError(f"it gives {part.numel()} numbers, more than can be held")
        if part.is_meta or part.layout != torch.strided or part.is_quantized:
            kind = "meta" if part.is_meta else f"{part.layout}, {part.dtype}"
            raise ValueError(f"it gives a tensor whose numbers cannot be read: {kind}")
    return value


def _changed(before: Any, after: Any) -> bool:
    if not isinstance(before, Tensor):
        return False
    if before.shape != after.shape or before.dtype != after.dtype:
        return True
    return not torch.equal(before.nan_to_num(), after.nan_to_num())


@contextmanager
def _as_it_was() -> Iterator[None]:
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    device, threads = torch.get_default_device(), torch.get_num_threads()
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(grad)
            if torch.get_default_device() != device:
                # a CPU that is set is a mode, in which not everything can be compiled
                torch.set_default_device(None if device.type == "cpu" else device)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            random.setstate(drawn)
            np.random.set_state(drawn_by_numpy)


class _TooLong(BaseException):  # which `except Exception` of a subject lets through
    def __str__(self) -> str:
        return "it did not come back in time"


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Interrupt what runs too long, in the main thread and not on Windows."""
    able = hasattr(signal, "setitimer")
    if not able or threading.current_thread() is not threading.main_thread():
        yield
        return

    over = False

    def ring(_: int, frame: FrameType | None) -> None:
        if not (over or _imports(frame)):
            raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    # again and again: it may not be heard in an import, or a callback of the collector
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        over = True
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being loaded, which would be left half done for everybody."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def evaluating(subject: Any) -> Iterator[None]:
    """Modules in eval mode for a while."""
    modules = list(subject.modules()) if isinstance(subject, nn.Module) else []
    modes = [m.training for m in modules]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
