"""Every answer is right, only answers are asked, and padding changes nothing."""

import math

import pytest
import torch

import pe_lab
from pe_lab.lab import strings
from pe_lab.lab.tasks import IGNORE
from pe_lab.lab.training import loss_of
from pe_lab.lab.vocabulary import BOS, EOS, PAD

DIGITS = {strings.SYMBOLS.ids[str(digit)]: digit for digit in range(10)}
PLUS = strings.SYMBOLS.ids["+"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rows_of(batch):
    """(x, y) of each row as lists of ids, read off by the marks alone."""
    for read, asked in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert read[0] == BOS
        sep = read.index(strings.SEP)
        assert all(target == IGNORE for target in asked[:sep])
        end = asked.index(EOS)
        x, y = read[1:sep], asked[sep:end]
        assert read[sep + 1 : end + 1] == y  # what was asked is read one slot later
        assert set(read[end + 1 :]) <= {PAD} and set(asked[end + 1 :]) <= {IGNORE}
        yield x, y


def number(ids):
    return sum(DIGITS[i] * 10**k for k, i in enumerate(reversed(ids)))


def counting_sort(ids):
    return [i for i in DIGITS for other in ids if other == i]


@pytest.mark.parametrize("name", ["copy", "reverse", "sort"])
def test_answers_are_right(name):
    right = {
        "copy": lambda x: x,
        "reverse": lambda x: [x[-1 - i] for i in range(len(x))],
        "sort": counting_sort,
    }[name]
    rows = list(rows_of(strings.TASKS[name](1, 8).draw(300, generator())))
    assert {len(x) for x, _ in rows} == set(range(1, 9))
    for x, y in rows:
        assert set(x) <= DIGITS.keys() and y == right(x)


@pytest.mark.parametrize("units_first", [True, False])
def test_sums_are_right_in_both_orders(units_first):
    task = strings.addition(1, 8, units_first=units_first)
    carried = 0
    for x, y in rows_of(task.draw(300, generator())):
        plus = x.index(PLUS)
        a, b = x[:plus], x[plus + 1 :]
        assert len(a) == len(b) == len(y) - 1
        total = number(y[::-1] if units_first else y)
        assert total == number(a) + number(b)
        carried += total >= 10 ** len(a)
    assert 100 < carried < 200  # about every second sum has one digit more


def test_a_written_example_of_each():
    """By hand, since the tests above read a batch in the order in which it is made."""
    batch = strings.string_batch([("7+5", "21"), ("9", "9")])
    seven, five, two, one, nine = (strings.SYMBOLS.ids[c] for c in "75219")
    sep, ignore = strings.SEP, IGNORE
    assert batch.inputs.tolist() == [
        [BOS, seven, PLUS, five, sep, two, one],
        [BOS, nine, sep, nine, PAD, PAD, PAD],
    ]
    assert batch.targets.tolist() == [
        [ignore, ignore, ignore, ignore, two, one, EOS],
        [ignore, ignore, nine, EOS, ignore, ignore, ignore],
    ]
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64


@pytest.mark.parametrize("name", strings.TASKS)
def test_a_chosen_length_is_the_only_one(name):
    task = strings.TASKS[name](5, 5)
    width = {"addition": 1 + 11 + 1 + 6}.get(name, 1 + 5 + 1 + 5)
    assert task.draw_held_out(40, generator()).inputs.shape == (40, width)


@pytest.mark.parametrize("name", strings.TASKS)
def test_a_seed_decides_the_batch(name):
    task = strings.TASKS[name](1, 8)
    first, again, other = (task.draw(16, generator(s)) for s in (3, 3, 4))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.targets, again.targets)
    assert first.inputs.tolist() != other.inputs.tolist()


def test_lengths_and_digits_are_even():
    batch = strings.copy(1, 4).draw(4_000, generator())
    rows = list(rows_of(batch))
    for n in range(1, 5):  # 1000 expected; five standard deviations are 137
        assert 860 < sum(len(x) == n for x, _ in rows) < 1140
    counts = torch.bincount(torch.tensor([i for x, _ in rows for i in x]))
    digits = counts[list(DIGITS)]  # some 1000 of each; five deviations are 150
    assert digits.min() > 850 and digits.max() < 1150


def test_no_answer_is_told_before_it_is_asked():
    """Changing a token of y leaves every logit up to the one that is asked for it."""
    task = strings.copy(4, 4)
    torch.manual_seed(0)
    model = pe_lab.Transformer(task.num_inputs, 16, 2, 2).eval()
    batch = task.draw(3, generator())
    changed = batch.inputs.clone()
    changed[:, 7] = strings.SYMBOLS.ids["+"]  # y[1], the target of slot 6
    with torch.no_grad():
        before, after = model(batch.inputs), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.equal(before[:, 7:], after[:, 7:])


@pytest.mark.parametrize("encoding", [pe_lab.Sinusoidal(16), pe_lab.ALiBi(2), None])
def test_padding_does_not_change_the_loss(encoding):
    pairs = [("12", "12"), ("1234567", "1234567"), ("5", "5")]
    torch.manual_seed(0)
    sizes = (len(strings.SYMBOLS), 16, 2, 2)
    model = pe_lab.Transformer(*sizes, encoding=encoding).double()
    narrow, wide = (strings.string_batch(pairs, length=n) for n in (0, 30))
    assert narrow.inputs.shape == (3, 16) and wide.inputs.shape == (3, 30)
    alone = [strings.string_batch([pair]) for pair in pairs]
    asked = [int((batch.targets != IGNORE).sum()) for batch in alone]
    losses = [loss_of(model, batch).item() for batch in alone]
    mean = sum(n * x for n, x in zip(asked, losses, strict=True)) / sum(asked)
    # float64: sums in another order
    assert loss_of(model, narrow).item() == pytest.approx(mean, rel=1e-12)
    assert loss_of(model, wide).item() == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("name", ["copy", "reverse", "sort"])
def test_the_guess_is_the_entropy_of_the_answers(name):
    """One EOS for 4.5 digits on average, each digit as likely as another."""
    end = 1 / 5.5
    want = -end * math.log(end) - (1 - end) * math.log((1 - end) / 10)
    assert strings.TASKS[name](1, 8).guess == pytest.approx(want, abs=0.01)


@pytest.mark.parametrize("sizes", [(0, 3), (4, 3), (1, 2.5)])
def test_lengths_that_do_not_fit_are_refused(sizes):
    for task in strings.TASKS.values():
        with pytest.raises((TypeError, ValueError), match="(shortest|longest) needs"):
            task(*sizes)
    with pytest.raises(TypeError, match="units_first needs True or False"):
        strings.addition(units_first="yes")
    with pytest.raises(ValueError, match="symbol number 1 is not in this vocabulary"):
        strings.string_batch([("1a", "1")])
