"""Judge an answer: right, not answered, or wrong in a way that has a name.

An exercise is data: what is right (`reference`), the calls on which a function is tried
(`probes`), and the `mistakes` that readers make, each a wrong answer with a sentence on
what it most likely means. A wrong answer is compared with those first; what is left is
named by the doctor, if the exercise says as what it is examined, or by the checks of
`compare`: a sign, a factor, a shift, an axis, a dtype.

Nothing that an answer does is passed on: exceptions become verdicts, the answer and the
arguments are copied, random states and torch's defaults are put back.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import random
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .compare import Finding, Pair, diagnose
from .examined import Examined
from .values import (
    Leaf,
    Leaves,
    Number,
    Unreadable,
    a,
    blank,
    leaves,
    same,
    shape_text,
)

RIGHT = "right"
BLANK = "not answered"
WIDTH = 80


@dataclass(frozen=True)
class Verdict:
    """What `check` found. True where the answer is right.

    Attributes:
        exercise_id: the exercise, for example "05-block".
        passed: True, False, or None while there is no answer.
        kind: "right", "not answered", or the name of the kind of mistake.
        message: one or two sentences for the reader.

    Example:
        >>> verdict = pe_lab.check("05-block", 3.0)
        >>> verdict.passed, verdict.kind
        (False, 'wrong type')
    """

    exercise_id: str
    passed: bool | None
    kind: str
    message: str

    def __bool__(self) -> bool:
        return self.passed is True

    def __repr__(self) -> str:
        if self.passed is None:
            return f"○ {self.exercise_id}: not answered yet."
        head = f"{'✓' if self.passed else '✗'} {self.exercise_id}: {self.kind}."
        if not self.message:
            return head
        if len(head) + 1 + len(self.message) <= WIDTH and self.passed:
            return f"{head} {self.message}"
        return f"{head}\n{textwrap.fill(self.message, WIDTH)}"


@dataclass(frozen=True, eq=False)
class Mistake:
    """A wrong answer that readers give, and what it most likely means.

    Args:
        kind: a short name, unique in its exercise: "turns the wrong way".
        wrong: the wrong answer itself: a value, or a function like the reference.
        message: a sentence that says what was probably done and where to look. It is
            for somebody who wants to find the answer alone.
        test: for exercises with many right answers: True when an answer makes this
            mistake. `wrong` is then one example of it.

    Example:
        >>> known = pe_lab.exercises.find("05-block").mistakes
        >>> [mistake.kind for mistake in known]
        ['turns the wrong way', 'the offset is missing', 'degrees']
    """

    kind: str
    wrong: Any
    message: str
    test: Callable[[Any], bool] | None = None


@dataclass(frozen=True, eq=False)
class Exercise:
    """A question with its right answer.

    Args:
        id: chapter and name: "05-block".
        title: as in the chapter.
        stars: 1 (apply) to 3 (find out).
        reference: the right answer: a value (number, tensor, list, text, tuple of
            these), or a function. With `accepts`, one right answer of many.
        probes: calls on which a function is tried, each a tuple of arguments. An
            exercise with probes asks for a function. Vary every argument.
        tolerance: right is abs(got - want) <= tolerance * (1 + abs(want)). The
            default is some tens of roundings of float32.
        mistakes: wrong answers that are recognised by name.
        accepts: for questions with many right answers: True for each of them. A value
            comes as a float64 tensor (or text), a function as a function that takes
            copies and gives such tensors.
        need: with `accepts`, a sentence that says what a right answer is.
        praise: a sentence for a right answer: what it shows, where it is used.
        examined: as what the doctor looks at an answer that fits no known mistake.

    Raises:
        ValueError: for what does not fit together, with the mend.

    Example:
        >>> steps = pe_lab.exercises.Exercise("05-steps", "Once round at ω = π/4", 1, 8)
        >>> bool(pe_lab.exercises.judge(steps, torch.tensor(8.0)))
        True
    """

    id: str
    title: str
    stars: int
    reference: Any
    probes: tuple[tuple[Any, ...], ...] = ()
    tolerance: float = 1e-5
    mistakes: tuple[Mistake, ...] = ()
    accepts: Callable[[Any], bool] | None = None
    need: str = ""
    praise: str = ""
    examined: Examined | None = None

    def __post_init__(self) -> None:
        for wrong, sentence in self._slips():
            if wrong:
                raise ValueError(f"{self.id}: {sentence}")

    def _slips(self) -> Iterator[tuple[bool, str]]:
        """What an author may get wrong, each with the mend."""
        function, given = callable(self.reference), len(self.probes)
        tests = [mistake.test is not None for mistake in self.mistakes]
        kinds = [RIGHT, BLANK, *(mistake.kind for mistake in self.mistakes)]
        yield self.stars not in (1, 2, 3), f"stars is {self.stars!r}; give 1, 2 or 3."
        yield (
            self.accepts is None and function != bool(given),
            "a function needs probes, and a value takes none; the reference is "
            f"{a(self.reference)} with {given} probes.",
        )
        yield (
            self.accepts is not None and not self.need,
            "say in `need` what `accepts` accepts.",
        )
        yield self.accepts is None and any(tests), "a mistake's `test` needs `accepts`."
        yield (
            function and not given and not all(tests),
            "without probes, a mistake needs a `test`.",
        )
        yield len(set(kinds)) < len(kinds), f"two verdicts of one name: {kinds}."
        yield (
            self.examined is not None and not function,
            "only a function can be `examined`.",
        )

    @property
    def asks_function(self) -> bool:
        """True when the answer has to be a function."""
        return callable(self.reference)

    @cached_property
    def wanted(self) -> list[Outcome]:
        """What the reference gives, one outcome per probe.

        Raises:
            RuntimeError: if the reference fails on every probe.
        """
        outcomes = self.outcomes(self.reference)
        if outcomes and not any(isinstance(outcome, dict) for outcome in outcomes):
            # An exception may be the right answer to some probes, not to all.
            raise RuntimeError(f"{self.id}: the reference itself gives {outcomes[0]}.")
        return outcomes

    @cached_property
    def foreseen(self) -> list[tuple[Mistake, list[Outcome]]]:
        """What each mistake gives, for those recognised by their values."""
        return [
            (mistake, self.outcomes(mistake.wrong, like=self.wanted))
            for mistake in self.mistakes
            if mistake.test is None
        ]

    def outcomes(
        self, answer: Any, like: Sequence[Outcome] | None = None
    ) -> list[Outcome]:
        """What an answer gives: one outcome per probe, or one for a value.

        Args:
            answer: a value, or the function that was asked for.
            like: what the reference gives, whose shapes help to read a value.

        Returns:
            for each, the tensors by their place, or why there are none.
        """
        count = len(self.probes) if self.asks_function else 1
        models = [None] * count if like is None else like
        shapes = [model if isinstance(model, dict) else None for model in models]
        if not self.asks_function:
            return [_read(answer, shapes[0])]
        return [
            _call(answer, probe, shape)
            for probe, shape in zip(self.probes, shapes, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Raised:
    """The exception that a call ended in."""

    error: Exception

    def __str__(self) -> str:
        return f"nothing: it {_what(self.error)}"


class Blank:
    """The result of a call that has no answer in it yet."""


Outcome = Leaves | Raised | Unreadable | Blank


def judge(exercise: Exercise, answer: object) -> Verdict:
    """Compare an answer with an exercise; never raises because of the answer.

    Args:
        exercise: what is asked.
        answer: anything. It is not changed, and neither is any random state.

    Returns:
        the Verdict.

    Example:
        >>> double = pe_lab.exercises.Exercise("05-double", "Twice 3", 1, 6)
        >>> pe_lab.exercises.judge(double, 6.0)
        ✓ 05-double: right.
        >>> pe_lab.exercises.judge(double, -6.0).kind
        'wrong sign'
    """
    with undisturbed():
        exercise.wanted, exercise.foreseen  # noqa: B018 - their errors are the author's
        try:
            finding = _find(exercise, answer)
        except Exception as error:
            finding = Finding("cannot be read", f"Reading it {_what(error)}.")
    passed = {RIGHT: True, BLANK: None}.get(finding.kind, False)
    return Verdict(exercise.id, passed, finding.kind, finding.message)


def _find(exercise: Exercise, answer: Any) -> Finding:
    """The first thing that can be said about an answer."""
    if blank(answer):
        return Finding(BLANK, "")
    wrong_type = _wrong_type(exercise, answer)
    if wrong_type is not None:
        return wrong_type
    if exercise.accepts is not None:
        return _find_by_property(exercise, answer)
    got = exercise.outcomes(answer, like=exercise.wanted)
    if all(isinstance(outcome, Blank) for outcome in got):
        return Finding(BLANK, "")
    if _agree(got, exercise.wanted, exercise.tolerance):
        return Finding(RIGHT, exercise.praise)
    for mistake, outcomes in exercise.foreseen:
        if _agree(got, outcomes, exercise.tolerance):
            return Finding(mistake.kind, mistake.message)
    return (
        _trouble(exercise, answer, got)
        or _examined(exercise, answer)
        or _numeric(exercise, got)
    )


def _examined(exercise: Exercise, answer: Any) -> Finding | None:
    """What the doctor says, where the exercise asks it."""
    return exercise.examined.finding(answer) if exercise.examined else None


def _wrong_type(exercise: Exercise, answer: Any) -> Finding | None:
    """A value for a function, or a function for a value."""
    if exercise.asks_function and not callable(answer):
        return Finding(
            "wrong type", f"A function is needed; yours is {a(answer)}: give its name."
        )
    if not exercise.asks_function and callable(answer):
        return Finding(
            "wrong type", f"A value is needed; yours is {a(answer)}: call it."
        )
    return None


def _find_by_property(exercise: Exercise, answer: Any) -> Finding:
    """Judge a question with many right answers."""
    assert exercise.accepts is not None
    given, trouble = _given(answer, _only_leaf(exercise)), None
    if isinstance(given, Unreadable):
        return Finding(given.kind, given.message)
    try:
        if exercise.accepts(given):
            return Finding(RIGHT, exercise.praise)
    except _Unanswered:
        return Finding(BLANK, "")
    except Unreadable as error:
        return Finding(error.kind, error.message)
    except Exception as error:
        trouble = _misfit(exercise, given, error)
    for mistake in exercise.mistakes:
        if mistake.test is not None and _holds(mistake.test, given):
            return Finding(mistake.kind, mistake.message)
    for mistake, outcomes in exercise.foreseen:
        if _agree(exercise.outcomes(answer), outcomes, exercise.tolerance):
            return Finding(mistake.kind, mistake.message)
    named = trouble or _examined(exercise, answer)
    return named or Finding("not what is asked", exercise.need)


def _only_leaf(exercise: Exercise) -> Leaves | None:
    """The reference of a property, where it is one value: the type that is needed."""
    want = None if exercise.asks_function else exercise.wanted[0]
    return want if isinstance(want, dict) and set(want) == {""} else None


def _misfit(exercise: Exercise, given: Any, error: Exception) -> Finding:
    """An answer for which the property cannot even be evaluated."""
    like = _only_leaf(exercise)
    example = _plain(like) if like is not None else None
    if (
        isinstance(given, Tensor)
        and isinstance(example, Tensor)
        and given.shape != example.shape
    ):
        got, want = shape_text(tuple(given.shape)), shape_text(tuple(example.shape))
        return Finding(
            "wrong shape", f"{exercise.need} Yours has shape {got}, not {want}."
        )
    return Finding("raised", f"{exercise.need} Trying yours {_what(error)}.")


def _holds(test: Callable[[Any], bool], given: Any) -> bool:
    """test(given), False where the test cannot even be made."""
    try:
        return bool(test(given))
    except Exception:
        return False


class _Unanswered(Exception):
    """A function under test returned None or ... ."""


def _given(answer: Any, like: Leaves | None) -> Any:
    """An answer in the form that `accepts` and `test` take."""
    if not callable(answer):
        read = _read(answer, like)
        return _plain(read) if isinstance(read, dict) else read

    def called(*arguments: Any) -> Any:
        outcome = _call(answer, arguments, None)
        if isinstance(outcome, dict):
            return _plain(outcome)
        if isinstance(outcome, Raised):
            raise outcome.error
        raise _Unanswered if isinstance(outcome, Blank) else outcome

    return called


def _plain(read: Leaves) -> Any:
    """Leaves as tensors and text: one of them, or a dict of parts."""
    values = {n: v.values if isinstance(v, Number) else v for n, v in read.items()}
    return values[""] if set(values) == {""} else values


def _read(raw: object, like: Leaves | None) -> Outcome:
    """Read a value, which may be missing or unreadable."""
    if blank(raw):
        return Blank()
    try:
        return leaves(raw, like)
    except Unreadable as error:
        return error


def _call(function: Any, arguments: Sequence[Any], like: Leaves | None) -> Outcome:
    """Call a function on copies, from a fixed random state, and read what it gives."""
    torch.default_generator.manual_seed(0)  # the CPU's; torch.manual_seed sets CUDA's
    random.seed(0)
    np.random.seed(0)
    copies = copy.deepcopy(tuple(arguments))
    try:
        raw = function(*copies)
    except NotImplementedError:
        return Blank()
    except Exception as error:
        return Raised(error)
    return _read(raw, like)


def _agree(got: Sequence[Outcome], want: Sequence[Outcome], tolerance: float) -> bool:
    """True when two answers give the same, probe by probe."""
    return len(got) == len(want) and all(
        _alike(one, other, tolerance) for one, other in zip(got, want, strict=True)
    )


def _alike(got: Outcome, want: Outcome, tolerance: float) -> bool:
    """True when two outcomes are the same numbers, text, or type of exception."""
    if isinstance(got, Raised) and isinstance(want, Raised):
        return type(got.error) is type(want.error)
    if not (isinstance(got, dict) and isinstance(want, dict)):
        return False
    return set(got) == set(want) and all(
        same(got[name], want[name], tolerance) for name in want
    )


def _trouble(exercise: Exercise, answer: Any, got: Sequence[Outcome]) -> Finding | None:
    """The first call that did not give what can be compared."""
    calls = exercise.probes or ((),)
    for probe, outcome, want in zip(calls, got, exercise.wanted, strict=True):
        call = call_text(exercise.reference, probe) if exercise.asks_function else ""
        at = f"{call}: " if call else ""
        if isinstance(outcome, Unreadable):
            return Finding(outcome.kind, f"{at}{outcome.message}")
        if isinstance(outcome, Blank):
            return Finding(
                "returns nothing", f"{call} returns nothing: is a return missing?"
            )
        if isinstance(outcome, Raised):
            if not _takes(answer, probe):
                return _wrong_arguments(exercise, answer, len(probe))
            return Finding("raised", f"{call} {_what(outcome.error)}.")
        if isinstance(want, Raised):
            return Finding(
                "not refused",
                f"{call} gives an answer where it must raise "
                f"{type(want.error).__name__}.",
            )
    return None


def _takes(function: Any, arguments: Sequence[Any]) -> bool:
    """True unless the function's signature cannot take so many arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except Exception:
        return True
    return True


def _wrong_arguments(exercise: Exercise, answer: Any, count: int) -> Finding:
    """Name the arguments that are needed."""
    needed = ", ".join(_parameters(exercise.reference))
    return Finding(
        "wrong arguments",
        f"It has to take {count} argument{'s' * (count != 1)}: ({needed}).",
    )


def _parameters(function: Any) -> list[str]:
    """The names of a function's parameters, none where it does not tell."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _numeric(exercise: Exercise, got: Sequence[Outcome]) -> Finding:
    """Name what is wrong with values that could all be read."""
    first = exercise.wanted[0]
    assert isinstance(first, dict)
    swapped = _swapped(exercise, got)
    if swapped is not None:
        return swapped
    for name in first:
        column = [_leaf(outcome, name) for outcome in got]
        wanted = [_leaf(outcome, name) for outcome in exercise.wanted]
        if all(map(_same_as(exercise.tolerance), column, wanted)):
            continue
        finding = _leafwise(exercise, column, wanted)
        prefix = f"{name}: " if name else ""
        return Finding(finding.kind, prefix + finding.message)
    return Finding("wrong value", "")


def _same_as(tolerance: float) -> Callable[[Leaf, Leaf], bool]:
    """`same` at one tolerance."""
    return lambda got, want: same(got, want, tolerance)


def _leaf(outcome: Outcome, name: str) -> Leaf:
    """One part of an outcome that could be read."""
    assert isinstance(outcome, dict)
    return outcome[name]


def _swapped(exercise: Exercise, got: Sequence[Outcome]) -> Finding | None:
    """All parts are right, in another order."""
    names = list(exercise.wanted[0]) if isinstance(exercise.wanted[0], dict) else []
    turned = [
        dict(zip(names, reversed([_leaf(outcome, n) for n in names]), strict=True))
        for outcome in got
    ]
    if len(names) < 2 or not _agree(turned, exercise.wanted, exercise.tolerance):
        return None
    return Finding("parts exchanged", "Every part is right, in the opposite order.")


def _leafwise(
    exercise: Exercise, column: Sequence[Leaf], wanted: Sequence[Leaf]
) -> Finding:
    """Name what is wrong with one part over all probes."""
    pairs = []
    calls = exercise.probes or ((),)
    for got, want, probe in zip(column, wanted, calls, strict=True):
        if not (isinstance(got, Number) and isinstance(want, Number)):
            return Finding("another answer", "That is not it.")
        call = call_text(exercise.reference, probe) if exercise.asks_function else ""
        sizes = _sizes(exercise.reference, probe, want.values)
        boolean = want.dtype == "bool"
        pairs.append(Pair(got, want.values, exercise.tolerance, call, sizes, boolean))
    return diagnose(pairs)


def _sizes(reference: Any, probe: Sequence[Any], want: Tensor) -> dict[str, int]:
    """Numbers by which a formula may be off: integer arguments and axes, by name."""
    sizes = {}
    for name, value in zip(_parameters(reference), probe, strict=False):
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            sizes[name] = value
    for axis in (-1, 0)[: want.ndim]:
        sizes["the last axis" if axis else "the first axis"] = want.shape[axis]
    return sizes


def call_text(function: Any, arguments: Sequence[Any]) -> str:
    """A call as it would be typed, long arguments shortened: 'block(2, 0.5)'."""
    return f"{_name(function)}({', '.join(map(_argument, arguments))})"


def _name(function: Any) -> str:
    """The name of a function, without the underscores of a private one."""
    name = getattr(function, "__name__", "f")
    return "f" if not isinstance(name, str) or name == "<lambda>" else name.strip("_")


def _argument(value: Any) -> str:
    """One argument of a call, short."""
    if isinstance(value, Tensor) and value.numel() > 4:
        return f"<tensor {'×'.join(map(str, value.shape))}>"
    if isinstance(value, Tensor):
        return f"tensor({value.tolist()})"
    if callable(value):
        return _name(value)
    return textwrap.shorten(repr(value), 40, placeholder="…")


def _what(error: Exception) -> str:
    """'raised ValueError: …' in one short line, whatever the error does."""
    try:
        text = textwrap.shorten(str(error).split("\n")[0], 200, placeholder=" …")
    except Exception:
        text = ""
    name = type(error).__name__
    return f"raised {name}: {text.rstrip('.')}" if text else f"raised {name}"


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Work under torch's own defaults; put back the reader's, and random states."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    try:
        with torch.device("cpu"):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
