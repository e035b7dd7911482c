"""A verdict names the mistake; nothing that an answer does gets past `judge`."""

import random
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_lab.exercises.engine import Exercise, Mistake, Verdict, call_text, judge

DOUBLE = torch.float64


def rotate(offset: float, omega: float) -> torch.Tensor:
    angle = torch.tensor(float(offset * omega), dtype=DOUBLE)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, sin]), torch.stack([-sin, cos])])


def backwards(offset: float, omega: float) -> torch.Tensor:
    return rotate(-offset, omega)


ROTATE = Exercise(
    "99-rotate",
    "Rotate",
    1,
    rotate,
    probes=((3, 0.5), (0, 1.0), (1, 0.01), (-2, 0.7)),
    mistakes=(Mistake("turns the wrong way", backwards, "Look at the sign."),),
    praise="Well turned.",
)
VALUE = Exercise(
    "99-value",
    "Value",
    2,
    torch.arange(12.0).reshape(3, 4).sin(),
    mistakes=(Mistake("cosine", torch.arange(12.0).reshape(3, 4).cos(), "No."),),
)
PARTS = Exercise(
    "99-parts",
    "Parts",
    2,
    lambda n: (torch.arange(n).cos(), torch.arange(n).sin()),
    probes=((3,), (5,)),
)
EVEN = Exercise(
    "99-even",
    "Even",
    3,
    lambda x: abs(x),
    accepts=lambda f: all(bool(f(x) == f(-x)) for x in (0.5, 1.0, 2.0)),
    need="A function f with f(x) = f(−x).",
    mistakes=(
        Mistake("odd", lambda x: x, "No.", test=lambda f: bool(f(1.0) == -f(-1.0))),
    ),
)
SQUARE = Exercise(
    "99-square",
    "Square",
    1,
    [[0.0, 1.0], [1.0, 0.0]],
    accepts=lambda p: torch.equal(p @ p, torch.eye(2, dtype=DOUBLE)),
    need="A 2×2 matrix whose square is the identity.",
    mistakes=(Mistake("its own square", [[1.0, 0.0], [0.0, 0.0]], "That is P P = P."),),
)
REFUSE = Exercise(
    "99-refuse",
    "Refuse",
    1,
    lambda n: torch.zeros(n) if n > 0 else _refuse(n),
    probes=((3,), (0,)),
)
TEXT = Exercise(
    "99-text", "Text", 1, "key", mistakes=(Mistake("query", "query", "No."),)
)
MASK = Exercise("99-mask", "Mask", 1, torch.ones(3, 3).tril().bool())
ALL = [MASK, ROTATE, VALUE, PARTS, EVEN, SQUARE, REFUSE, TEXT]


def _refuse(n: int) -> None:
    raise ValueError(f"n is {n}")


# ── right, and not answered ──────────────────────────────────────────────────────


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
def test_the_reference_passes(exercise):
    verdict = judge(exercise, exercise.reference)
    assert verdict.passed is True
    assert verdict.kind == "right"
    assert verdict


@pytest.mark.parametrize(
    "answer",
    [
        lambda k, w: rotate(k, w).tolist(),
        lambda k, w: rotate(k, w).numpy(),
        lambda k, w: tuple(map(tuple, rotate(k, w).tolist())),
        lambda k, w: rotate(k, w).float(),
        lambda k, w: rotate(k, w).requires_grad_(),
        lambda *both: rotate(*both),
        np.vectorize(rotate, signature="(),()->(a,b)"),
    ],
)
def test_the_same_numbers_pass_in_any_type(answer):
    assert judge(ROTATE, answer)


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
@pytest.mark.parametrize("nothing", [None, ..., NotImplemented, [..., 1]])
def test_nothing_is_not_answered(exercise, nothing):
    verdict = judge(exercise, nothing)
    assert verdict.passed is None
    assert not verdict
    assert repr(verdict) == f"○ {exercise.id}: not answered yet."


def not_implemented(*_: object) -> None:
    raise NotImplementedError


@pytest.mark.parametrize("exercise", [ROTATE, PARTS, EVEN], ids=lambda e: e.id)
@pytest.mark.parametrize(
    "stub", [lambda *_: None, lambda *_: ..., lambda *_: (None, None), not_implemented]
)
def test_a_stub_is_not_answered(exercise, stub):
    assert judge(exercise, stub).passed is None


# ── wrong ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("exercise", "answer", "kind"),
    [
        (ROTATE, backwards, "turns the wrong way"),
        (ROTATE, lambda k, w: backwards(k, w).float().tolist(), "turns the wrong way"),
        (ROTATE, 3, "wrong type"),
        (ROTATE, rotate(3, 0.5), "wrong type"),
        (ROTATE, lambda k: 1, "wrong arguments"),
        (ROTATE, lambda a, b, c: 1, "wrong arguments"),
        (ROTATE, lambda k, w: 1 / 0, "raised"),
        (ROTATE, lambda k, w: [].append(1, 2), "raised"),
        (ROTATE, lambda k, w: "text", "wrong type"),
        (ROTATE, lambda k, w: (x for x in [1]), "wrong type"),
        (ROTATE, lambda k, w: None if k == 0 else rotate(k, w), "returns nothing"),
        (ROTATE, lambda k, w: -rotate(k, w), "wrong sign"),
        (ROTATE, lambda k, w: 2 * rotate(k, w), "off by a factor"),
        (ROTATE, lambda k, w: rotate(3, 0.5), "right only for the first input"),
        (ROTATE, lambda k, w: rotate(k, w)[:1], "too few rows"),
        (ROTATE, lambda k, w: rotate(k, w).flatten(), "right numbers, wrong shape"),
        (VALUE, torch.arange(12).reshape(3, 4).cos(), "cosine"),
        (VALUE, lambda: VALUE.reference, "wrong type"),
        (VALUE, VALUE.reference.T, "transposed"),
        (VALUE, "sin", "wrong type"),
        (VALUE, object(), "wrong type"),
        (VALUE, [[1.0], [1.0, 2.0]], "wrong shape"),
        (VALUE, {"a": 1.0}, "wrong parts"),
        (PARTS, lambda n: PARTS.reference(n)[::-1], "parts exchanged"),
        (PARTS, lambda n: PARTS.reference(n)[0], "wrong parts"),
        (PARTS, lambda n: [-p for p in PARTS.reference(n)], "wrong sign"),
        (EVEN, lambda x: x, "odd"),
        (EVEN, lambda x: x + 1, "not what is asked"),
        (EVEN, lambda: 0, "raised"),
        (EVEN, 0, "wrong type"),
        (SQUARE, [[1.0, 0.0], [0.0, 0.0]], "its own square"),
        (SQUARE, [[2.0, 0.0], [0.0, 0.0]], "not what is asked"),
        (SQUARE, [[1.0, 2.0, 3.0]], "wrong shape"),
        (SQUARE, "swap", "wrong type"),
        (REFUSE, lambda n: torch.zeros(n), "not refused"),
        (REFUSE, lambda n: _refuse(n), "raised"),
        (MASK, ~MASK.reference, "the opposite"),
        (MASK, MASK.reference.T, "transposed"),
        (MASK, MASK.reference & ~torch.eye(3).bool(), "shifted by one"),
        (MASK, torch.zeros(3, 3).masked_fill(MASK.reference, -torch.inf), "wrong type"),
        (TEXT, "Query ", "query"),
        (TEXT, "value", "another answer"),
        (TEXT, 3, "wrong type"),
    ],
)
def test_names_the_kind_of_mistake(exercise, answer, kind):
    verdict = judge(exercise, answer)
    assert (verdict.passed, verdict.kind) == (False, kind)
    assert verdict.message


def test_an_exception_is_reported_with_type_text_and_call():
    def fails(offset, omega):
        return {}["theta"]

    message = judge(ROTATE, fails).message
    assert "KeyError" in message
    assert "theta" in message
    assert "rotate(3, 0.5)" in message


def test_wrong_arguments_are_listed():
    assert "(offset, omega)" in judge(ROTATE, lambda k: 1).message


def test_which_part_is_wrong():
    def second_wrong(n):
        cos, sin = PARTS.reference(n)
        return cos, 2 * sin

    assert judge(PARTS, second_wrong).message.startswith("part 2: ")


# ── the verdict ──────────────────────────────────────────────────────────────────


def test_repr_fits_and_repeats():
    for answer in (rotate, backwards, None, lambda k, w: 2 * rotate(k, w)):
        first, again = judge(ROTATE, answer), judge(ROTATE, answer)
        assert repr(first) == repr(again)
        assert first == again
        assert all(len(line) <= 80 for line in repr(first).splitlines())
    assert repr(judge(ROTATE, rotate)) == "✓ 99-rotate: right. Well turned."
    wrong = "✗ 99-rotate: turns the wrong way.\nLook at the sign."
    assert repr(judge(ROTATE, backwards)) == wrong


def test_a_verdict_shows_no_address():
    class Thing:
        pass

    for answer in (Thing(), lambda k, w: Thing(), [Thing()], Thing):
        for exercise in ALL:
            assert "0x" not in repr(judge(exercise, answer))


# ── nothing is disturbed ─────────────────────────────────────────────────────────


def test_the_answer_and_the_arguments_are_not_changed():
    probe = torch.ones(3)

    def spoils(x):
        return x.mul_(0)

    exercise = Exercise("99-x", "X", 1, lambda x: x * 0, probes=((probe,), (probe,)))
    assert judge(exercise, spoils)
    assert probe.tolist() == [1.0, 1.0, 1.0]
    answer = torch.arange(12.0).reshape(3, 4)
    judge(VALUE, answer)
    assert answer.tolist() == torch.arange(12.0).reshape(3, 4).tolist()


def test_states_are_put_back():
    def wild(offset, omega):
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return torch.rand(2, 2)

    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    expected = torch.rand(1).item(), random.random(), np.random.rand()
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    judge(ROTATE, wild)
    assert (torch.rand(1).item(), random.random(), np.random.rand()) == expected
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


def test_the_reader_s_defaults_do_not_change_a_verdict():
    def plain(offset, omega):
        c, s = np.cos(offset * omega), np.sin(offset * omega)
        return torch.tensor([[c, s], [-s, c]])

    expected = [repr(judge(ROTATE, answer)) for answer in (plain, backwards)]
    try:
        torch.set_default_dtype(torch.float16)
        torch.set_default_device("meta")
        for cached in ("wanted", "foreseen"):
            ROTATE.__dict__.pop(cached, None)
        found = [repr(judge(ROTATE, answer)) for answer in (plain, backwards)]
        assert torch.zeros(1).is_meta
        assert torch.get_default_dtype() == torch.float16
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert found == expected


def test_a_mistake_never_overrules_what_is_accepted():
    greedy = Exercise(
        "99-x",
        "X",
        1,
        1.0,
        accepts=lambda x: x > 0,
        need="A positive number.",
        mistakes=(Mistake("any", -1.0, "No.", test=lambda x: True),),
    )
    assert judge(greedy, 2.0)
    assert judge(greedy, -2.0).kind == "any"


def test_a_random_answer_is_judged_the_same_each_time():
    def guesses(offset, omega):
        return torch.rand(2, 2)

    assert repr(judge(ROTATE, guesses)) == repr(judge(ROTATE, guesses))


# ── hostile answers ──────────────────────────────────────────────────────────────


class Bomb:
    """Raises on everything that can be asked of it."""

    def __getattribute__(self, name):
        raise RuntimeError("boom")

    __repr__ = __str__ = __eq__ = __len__ = __iter__ = __bool__ = __float__ = None
    __hash__ = None


class LoudBomb(Bomb):
    def __call__(self, *_):
        raise RuntimeError("boom")

    def __array__(self, *_):
        raise RuntimeError("boom")


class Mute(Exception):
    """An exception without a text."""

    def __str__(self):
        raise RuntimeError("boom")


class Rebel(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError("boom")


def mute(*_):
    raise Mute


def endless(*arguments):
    return endless(*arguments)


def rebel(*_):
    return torch.zeros(2, 2).as_subclass(Rebel)


loop: list = []
loop.append(loop)

HOSTILE = {
    "bomb": Bomb(),
    "callable bomb": LoudBomb(),
    "returns a bomb": lambda *_: Bomb(),
    "returns bombs": lambda *_: [Bomb(), Bomb()],
    "mute exception": mute,
    "endless recursion": endless,
    "rebel tensor": rebel(),
    "returns a rebel": rebel,
    "list in itself": loop,
    "returns itself": lambda *_: HOSTILE["returns itself"],
    "class": Bomb,
    "module": torch,
    "generator": (x for x in range(3)),
    "huge number": 10**400,
    "huge view": torch.zeros(1).expand(2**40, 2**20),
    "returns a huge view": lambda *_: torch.zeros(1).expand(2**40, 2**20),
    "meta": torch.zeros(2, 2, device="meta"),
    "nested tensor": torch.nested.nested_tensor(
        [torch.zeros(2), torch.zeros(3)], layout=torch.jagged
    ),
    "bytes": b"\x00\xff",
    "lone surrogate": "\udcff",
    "structured array": np.zeros(2, dtype=[("a", float)]),
    "object array": np.array([object(), None]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "memory view": memoryview(b"abc"),
    "empty": [],
    "empties": [[], []],
    "empty tensor": torch.zeros(0, 4),
    "many axes": torch.zeros([1] * 30),
    "dict of odd keys": {None: 1, (1, 2): 2},
    "set of lists": {(1,), (2,)},
    "signaling": float("nan"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_get_a_verdict(exercise, name):
    verdict = judge(exercise, HOSTILE[name])
    assert verdict.passed is False
    assert isinstance(repr(verdict), str)


ANSWERS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.sampled_from([..., torch.zeros(2), torch.zeros(2, 2, dtype=torch.bool)])
    | st.decimals()
    | st.fractions(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(ANSWERS)
def test_any_answer_gets_a_verdict(answer):
    for exercise in ALL:
        for given_answer in (answer, lambda *_: answer):
            verdict = judge(exercise, given_answer)
            assert isinstance(verdict, Verdict)
            assert repr(verdict) == repr(judge(exercise, given_answer))


def test_an_interrupt_is_not_swallowed():
    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(ROTATE, interrupted)


def test_a_broken_reference_is_the_author_s_mistake_not_the_reader_s():
    broken = Exercise("99-x", "X", 1, lambda x: 1 / 0, probes=((1,),))
    with pytest.raises(RuntimeError, match="99-x: the reference.*ZeroDivisionError"):
        judge(broken, lambda x: 1 / 0)


# ── exercises are checked as they are written ────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"stars": 4}, "stars"),
        ({"stars": 0}, "stars"),
        ({"reference": rotate}, "needs probes"),
        ({"reference": 1.0, "probes": ((1,),)}, "takes none"),
        ({"accepts": lambda x: True}, "need"),
        ({"mistakes": (Mistake("k", 1, "m", test=lambda x: True),)}, "accepts"),
        ({"mistakes": (Mistake("right", 2, "m"),)}, "one name"),
        ({"mistakes": (Mistake("k", 2, "m"), Mistake("k", 3, "m"))}, "one name"),
        (
            {
                "reference": rotate,
                "accepts": lambda f: True,
                "need": "n",
                "mistakes": (Mistake("k", rotate, "m"),),
            },
            "needs a `test`",
        ),
    ],
)
def test_a_bad_exercise_is_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        Exercise(**{"id": "99-x", "title": "X", "stars": 1, "reference": 1.0, **fields})


def test_a_call_is_written_as_typed():
    assert call_text(rotate, (3, 0.5)) == "rotate(3, 0.5)"
    assert call_text(lambda x: x, ([1, 2],)) == "f([1, 2])"
    assert call_text(rotate, (backwards, lambda: 0)) == "rotate(backwards, f)"
    long = call_text(rotate, (torch.zeros(6, 8), torch.tensor([1.0, 2.0])))
    assert long == "rotate(<tensor 6×8>, tensor([1.0, 2.0]))"


def test_checking_is_silent(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for exercise in ALL:
            judge(exercise, exercise.reference)
    assert capsys.readouterr() == ("", "")
