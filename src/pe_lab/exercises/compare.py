"""Name the kind of mistake in numbers that are wrong: sign, factor, shift, axis, …

Every check takes all pairs (one per probe) and answers None or a `Finding`. The first
that fires wins, so `CHECKS` runs from the most to the least specific.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .values import Number, close, shape_text

LOW_PRECISION = {"float16": 3, "bfloat16": 2, "float32": 7}


@dataclass(frozen=True)
class Finding:
    """A kind of mistake, and the sentence that says what it most likely means."""

    kind: str
    message: str


@dataclass(frozen=True, eq=False)
class Pair:
    """What one call gave and what it should have given."""

    got: Number
    want: Tensor
    tolerance: float
    call: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    boolean: bool = False  # what is wanted is True and False

    def agrees(self, values: Tensor, want: Tensor | None = None) -> bool:
        """True when `values` are within tolerance of what is wanted."""
        want = self.want if want is None else want
        return values.shape == want.shape and close(values, want, self.tolerance)

    @property
    def right(self) -> bool:
        """True when nothing is wrong with this pair."""
        return self.agrees(self.got.values)


Check = Callable[[Sequence[Pair]], Finding | None]


def diagnose(pairs: Sequence[Pair]) -> Finding:
    """Name what is wrong with pairs of which at least one disagrees."""
    for check in CHECKS:
        finding = check(pairs)
        if finding is not None:
            return finding
    return _somewhere(pairs)


def _every(pairs: Sequence[Pair], change: Callable[[Pair], Tensor | None]) -> bool:
    """True when `change`, applied to each answer, makes every pair agree."""
    for pair in pairs:
        changed = change(pair)
        if changed is None or not pair.agrees(changed):
            return False
    return True


def _at(pair: Pair) -> str:
    """'block(2, 0.5) ' for a function's call, nothing for a plain value."""
    return f"{pair.call}: " if pair.call else ""


# Shape


def _transposed(pairs: Sequence[Pair]) -> Finding | None:
    def swap(pair: Pair) -> Tensor | None:
        values = pair.got.values
        return values.mT if values.ndim >= 2 else None

    if not _every(pairs, swap):
        return None
    return Finding(
        "transposed",
        "The numbers are right, but rows and columns are exchanged: transpose it.",
    )


def _axes_moved(pairs: Sequence[Pair]) -> Finding | None:
    dims = pairs[0].want.ndim
    if not 3 <= dims <= 4 or any(pair.got.values.ndim != dims for pair in pairs):
        return None
    for order in itertools.permutations(range(dims)):
        if all(pair.agrees(pair.got.values.permute(order)) for pair in pairs):
            return Finding(
                "axes exchanged",
                f"The numbers are right after permute{order}: the axes are in "
                "another order.",
            )
    return None


def _reshaped(pairs: Sequence[Pair]) -> Finding | None:
    if all(pair.got.shape == tuple(pair.want.shape) for pair in pairs):
        return None

    def reshape(pair: Pair) -> Tensor | None:
        values = pair.got.values
        same_count = values.numel() == pair.want.numel()
        return values.reshape(pair.want.shape) if same_count else None

    if not _every(pairs, reshape):
        return None
    got, want = shape_text(pairs[0].got.shape), shape_text(tuple(pairs[0].want.shape))
    return Finding(
        "right numbers, wrong shape",
        f"The numbers are right; their shape is {got} where {want} is needed.",
    )


def _too_few(pairs: Sequence[Pair]) -> Finding | None:
    """Too few or too many rows or columns, those that should be there being right."""
    wrong = [pair for pair in pairs if not pair.right]
    axes = {_longer_axis(pair) for pair in wrong}
    if len(axes) != 1 or None in axes:
        return None
    axis, few = axes.pop()  # type: ignore[misc]
    given, needed = wrong[0].got.shape[axis], wrong[0].want.shape[axis]
    names = ("entries",) if wrong[0].want.ndim == 1 else ("rows", "columns")
    name = names[axis] if axis < len(names) else "entries"
    there = "What is there" if few else f"What comes first, {needed} of them,"
    return Finding(
        f"too {'few' if few else 'many'} {name}",
        f"{_at(wrong[0])}{there} is right; axis {axis} has {given} entries where "
        f"{needed} are needed.",
    )


def _longer_axis(pair: Pair) -> tuple[int, bool] | None:
    """(the axis that is cut, True if the answer is the short one), if that is all."""
    got, want = pair.got.values, pair.want
    if got.ndim != want.ndim:
        return None
    axes = [n for n in range(want.ndim) if got.shape[n] != want.shape[n]]
    common = min(got.shape[axes[0]], want.shape[axes[0]]) if len(axes) == 1 else 0
    if common == 0:
        return None
    short, full = (t.narrow(axes[0], 0, common) for t in (got, want))
    if not pair.agrees(short, full):
        return None
    return axes[0], got.shape[axes[0]] < want.shape[axes[0]]


def _not_broadcast(pairs: Sequence[Pair]) -> Finding | None:
    def spread(pair: Pair) -> Tensor | None:
        try:
            return pair.got.values.expand(pair.want.shape)
        except RuntimeError:
            return None

    if not _every(pairs, spread):
        return None
    return Finding(
        "right numbers, not repeated",
        "The numbers are right but given once: repeat them to shape "
        f"{shape_text(tuple(pairs[0].want.shape))}.",
    )


def _wrong_shape(pairs: Sequence[Pair]) -> Finding | None:
    for pair in pairs:
        if pair.got.shape != tuple(pair.want.shape):
            got, want = shape_text(pair.got.shape), shape_text(tuple(pair.want.shape))
            return Finding(
                "wrong shape", f"{_at(pair)}shape {got} where {want} is needed."
            )
    return None


# Values (from here on, every shape is right)


def _boolean(pairs: Sequence[Pair]) -> Finding | None:
    """True and False where they are not wanted, or something else where they are."""
    if not any(pair.boolean for pair in pairs):
        given = all(pair.got.dtype == "bool" for pair in pairs)
        sentence = "You give True or False where a number is needed."
        return Finding("wrong type", sentence) if given else None
    for pair in pairs:
        strange = pair.got.values[(pair.got.values != 0) & (pair.got.values != 1)]
        if len(strange):
            return Finding(
                "wrong type",
                f"You give {strange[0]:.4g} where True or False is needed.",
            )
    return None


def _opposite(pairs: Sequence[Pair]) -> Finding | None:
    if not all(pair.boolean and pair.agrees(1 - pair.got.values) for pair in pairs):
        return None
    return Finding(
        "the opposite", "You give False for every True, True for every False."
    )


def _not_finite(pairs: Sequence[Pair]) -> Finding | None:
    for pair in pairs:
        bad = ~pair.got.values.isfinite() & pair.want.isfinite()
        if bad.any():
            index = tuple(bad.nonzero()[0].tolist())
            place = f" at {list(index)}" if index else ""
            return Finding(
                "not finite",
                f"{_at(pair)}{pair.got.values[index].item()}{place}. That comes of a "
                "division by zero, an overflow, or a softmax over nothing.",
            )
    return None


def _rounded(pairs: Sequence[Pair]) -> Finding | None:
    for decimals in range(1, 7):
        if all(
            pair.agrees(pair.got.values, pair.want.round(decimals=decimals))
            for pair in pairs
        ):
            return Finding(
                "rounded too soon",
                f"Right to {decimals} decimal{'s' * (decimals > 1)}: keep every digit "
                "until the end.",
            )
    return None


def _precision(pairs: Sequence[Pair]) -> Finding | None:
    """Right within 1e-2 of the largest value, and no closer."""
    if any(not pair.right and _error(pair) > 1e-2 * _size(pair.want) for pair in pairs):
        return None
    worst = max(_error(pair) for pair in pairs)
    dtypes = sorted({pair.got.dtype for pair in pairs} & set(LOW_PRECISION))
    if dtypes:
        return Finding(
            "too low precision",
            f"Nearly right: the largest error is {worst:.1e}. {dtypes[0]} keeps about "
            f"{LOW_PRECISION[dtypes[0]]} digits: compute in torch.float64.",
        )
    return Finding(
        "nearly right",
        f"The largest error is {worst:.1e}: too large for rounding. A constant is "
        "slightly off, or a term is missing.",
    )


def _error(pair: Pair) -> float:
    """The largest difference between entries that are not equal (inf - inf is 0)."""
    unequal = pair.got.values != pair.want
    gap = (pair.got.values - pair.want)[unequal].abs()
    worst = gap.max().item() if gap.numel() else 0.0
    return math.inf if math.isnan(worst) else worst


def _size(want: Tensor) -> float:
    """The largest finite magnitude."""
    finite = want[want.isfinite()].abs()
    return finite.max().item() if finite.numel() else 0.0


def _whole(pairs: Sequence[Pair]) -> Finding | None:
    if not all(pair.got.dtype.startswith(("int", "uint")) for pair in pairs):
        return None
    for cut in (torch.trunc, torch.round, torch.floor):
        if all(torch.equal(pair.got.values, cut(pair.want)) for pair in pairs):
            return Finding(
                "whole numbers",
                f"Your numbers are {pairs[0].got.dtype}: the part behind the decimal "
                "point is lost. Make the tensor floating point first.",
            )
    return None


def _zeros(pairs: Sequence[Pair]) -> Finding | None:
    if any(pair.got.values.any() for pair in pairs):
        return None
    return Finding("all zeros", "Every number that you give is 0.")


# Constant factors that formulas lose, by the name that a reader knows them by.
CONSTANTS = {
    "2": 2.0,
    "1/2": 0.5,
    "4": 4.0,
    "1/4": 0.25,
    "10": 10.0,
    "1/10": 0.1,
    "π": math.pi,
    "1/π": 1 / math.pi,
    "2π": 2 * math.pi,
    "1/(2π)": 0.5 / math.pi,
    "π/180 (degrees against radians)": math.pi / 180,
    "180/π (degrees against radians)": 180 / math.pi,
    "√2": math.sqrt(2.0),
    "1/√2": math.sqrt(0.5),
}
SIZED: dict[str, Callable[[float], float]] = {
    "√{}": math.sqrt,
    "1/√{}": lambda n: 1 / math.sqrt(n),
    "{}": lambda n: n,
    "1/{}": lambda n: 1 / n,
    "√({}/2)": lambda n: math.sqrt(n / 2),
    "√(2/{})": lambda n: math.sqrt(2 / n),
    "{}/2": lambda n: n / 2,
    "2/{}": lambda n: 2 / n,
}


def _factor(pairs: Sequence[Pair]) -> Finding | None:
    """Every answer is the right one times a constant."""
    ratios = [_ratio(pair) for pair in pairs]
    known = [(r, p) for r, p in zip(ratios, pairs, strict=True) if r is not None]
    if not known or any(math.isnan(ratio) for ratio, _ in known):
        return None
    if all(math.isclose(ratio, -1, rel_tol=1e-4) for ratio, _ in known):
        return Finding("wrong sign", "Every number is right but for its sign.")
    name = _named_factor(known)
    if name is not None:
        return Finding(
            "off by a factor", f"Your numbers are the right ones times {name}."
        )
    count = sum(int(pair.want.count_nonzero()) for _, pair in known)
    spread = {f"{ratio:.4g}" for ratio, _ in known}
    if count < 3 or (len(spread) > 1 and count < 3 * len(known)):
        return None
    times = spread.pop() if len(spread) == 1 else "a factor that differs by input"
    return Finding("off by a factor", f"Your numbers are the right ones times {times}.")


def _ratio(pair: Pair) -> float | None:
    """The c with got = c want; None if want is all zero; nan without such a c."""
    got, want = pair.got.values.flatten(), pair.want.flatten()
    if not want.any():
        return None if pair.right else math.nan
    ratio = (got @ want / (want @ want)).item()
    fits = math.isfinite(ratio) and ratio != 0 and pair.agrees(got / ratio, want)
    return ratio if fits else math.nan


def _named_factor(known: list[tuple[float, Pair]]) -> str | None:
    """The name of a factor that every pair shares, up to its sign."""
    for sign, minus in ((1, ""), (-1, "−")):
        for name, value in CONSTANTS.items():
            if all(math.isclose(r, sign * value, rel_tol=1e-4) for r, _ in known):
                return minus + name
        for label, form in itertools.product(known[0][1].sizes, SIZED):
            sizes = [pair.sizes.get(label, 0) for _, pair in known]
            if min(sizes) >= 1 and all(
                math.isclose(ratio, sign * SIZED[form](size), rel_tol=1e-4)
                for (ratio, _), size in zip(known, sizes, strict=True)
            ):
                value = sign * SIZED[form](sizes[0])
                return f"{minus}{form.format(label)} ({value:.4g} here)"
    return None


def _off_by_one(pairs: Sequence[Pair]) -> Finding | None:
    """Whole numbers, each of them one too large or one too small."""
    if not all(torch.equal(pair.want, pair.want.round()) for pair in pairs):
        return None
    for step, word in ((1, "large"), (-1, "small")):
        if all(pair.agrees(pair.got.values - step) for pair in pairs):
            return Finding(
                "off by one", f"You are one too {word}. Positions are counted from 0."
            )
    return None


def _constant_added(pairs: Sequence[Pair]) -> Finding | None:
    gap = torch.cat([(pair.got.values - pair.want).flatten() for pair in pairs])
    if gap.numel() < 3 or not bool(gap.isfinite().all()):
        return None
    extra = gap.mean().item()
    if not _every(pairs, lambda pair: pair.got.values - extra):
        return None
    return Finding("a constant added", f"Your numbers are the right ones {extra:+.4g}.")


# Order


def _shifted(pairs: Sequence[Pair]) -> Finding | None:
    """Rows that belong to the position before or after."""
    for axis in (0, -2):
        if not all(_can_shift(pair, axis) for pair in pairs):
            continue
        for later in (True, False):
            if all(_is_shifted(pair, axis, later) for pair in pairs):
                side = "after" if later else "before"
                return Finding(
                    "shifted by one",
                    f"Every row belongs to the position {side} it. Positions are "
                    "counted from 0: where do yours start?",
                )
    return None


def _can_shift(pair: Pair, axis: int) -> bool:
    """True where a shift along `axis` is defined and would be seen."""
    want = pair.want
    if want.ndim < (1 if axis == 0 else 2) or want.shape[axis] < 3:
        return False
    rows = want.shape[axis]
    return not pair.agrees(
        want.narrow(axis, 1, rows - 1), want.narrow(axis, 0, rows - 1)
    )


def _is_shifted(pair: Pair, axis: int, later: bool) -> bool:
    """True when the answer's row n is the right row n + 1 (or n - 1)."""
    rows = pair.want.shape[axis]
    low, high = (0, 1) if later else (1, 0)
    got = pair.got.values.narrow(axis, low, rows - 1)
    return pair.agrees(got, pair.want.narrow(axis, high, rows - 1))


def _reversed(pairs: Sequence[Pair]) -> Finding | None:
    if any(pair.want.ndim == 0 for pair in pairs):
        return None
    for axis, name in ((0, "first"), (-1, "last")):
        if all(pair.agrees(pair.got.values.flip(axis)) for pair in pairs):
            return Finding(
                "reversed", f"The numbers run backwards along the {name} axis."
            )
    return None


def _orders(width: int) -> dict[str, Tensor]:
    """Channel orders met in the wild, as index lists that undo them."""
    index = torch.arange(width)
    pairs = index.reshape(-1, 2)
    halves = index.reshape(2, -1)
    return {
        "sine and cosine are exchanged within each pair": pairs.flip(1).flatten(),
        "the two halves are exchanged": halves.flip(0).flatten(),
        "they come in halves where pairs are needed": halves.T.flatten(),
        "they come in pairs where halves are needed": pairs.T.flatten(),
    }


def _channel_order(pairs: Sequence[Pair]) -> Finding | None:
    if any(p.want.ndim == 0 or p.want.shape[-1] % 2 for p in pairs):
        return None
    orders = [_orders(pair.want.shape[-1]) for pair in pairs]
    for name in orders[0]:
        if all(
            pair.agrees(pair.got.values[..., order[name]])
            for pair, order in zip(pairs, orders, strict=True)
        ):
            return Finding(
                "channel order", f"The channels are right but in another order: {name}."
            )
    return None


def _signs(pairs: Sequence[Pair]) -> Finding | None:
    if not all(pair.agrees(pair.got.values.abs(), pair.want.abs()) for pair in pairs):
        return None
    pair = next(pair for pair in pairs if not pair.right)
    return Finding(
        "some signs", f"The sizes are right but some signs are not. {_first(pair)}"
    )


# Only part of it


def _first_position(pairs: Sequence[Pair]) -> Finding | None:
    if not all(pair.want.ndim and pair.want.shape[0] >= 3 for pair in pairs):
        return None
    for pair in pairs:
        rows = zip(pair.got.values, pair.want, strict=True)
        right = [pair.agrees(got, want) for got, want in rows]
        if not right[0] or any(right[1:]):
            return None
    return Finding(
        "right only at position 0",
        "Row 0 is right and every other row is wrong: does the position enter at all, "
        "and in the right place?",
    )


def _first_probe(pairs: Sequence[Pair]) -> Finding | None:
    right = [pair.right for pair in pairs]
    if len(pairs) < 2 or not right[0] or any(right[1:]):
        return None
    return Finding(
        "right only for the first input",
        f"{pairs[0].call} is right and every other call is wrong: a number from the "
        "example may be written into your code.",
    )


def _somewhere(pairs: Sequence[Pair]) -> Finding:
    """Nothing has a name: say how much is wrong and where it starts."""
    pair = next(pair for pair in pairs if not pair.right)
    return Finding("wrong value", _first(pair))


def _shown(pair: Pair, index: tuple[int, ...]) -> tuple[str, str]:
    """What is given and what is right, with as many digits as tell them apart."""
    got, want = pair.got.values[index].item(), pair.want[index].item()
    if pair.boolean:
        return str(bool(got)), str(bool(want))
    for digits in range(4, 17):
        texts = f"{got:.{digits}g}", f"{want:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def _first(pair: Pair) -> str:
    """How many entries are wrong, and the first of them.

    What is right is shown for a function's call; for a plain value it is the answer.
    """
    near = torch.isclose(
        pair.got.values, pair.want, pair.tolerance, pair.tolerance, equal_nan=True
    )
    bad = (~near).nonzero()
    index = tuple(bad[0].tolist())
    got, right = _shown(pair, index)
    want = f" where {right} is right" if pair.call else ""
    if not index:
        return f"{_at(pair)}{got}{want or ' is not it'}."
    many = f"{len(bad)} of {near.numel()} entries are wrong, the first"
    one = f"one of {near.numel()} entries is wrong, that"
    return f"{_at(pair)}{one if len(bad) == 1 else many} at {list(index)}: {got}{want}."


CHECKS: tuple[Check, ...] = (
    _transposed,
    _axes_moved,
    _reshaped,
    _too_few,
    _not_broadcast,
    _wrong_shape,
    _boolean,
    _opposite,
    _not_finite,
    _whole,
    _zeros,
    _off_by_one,
    _rounded,
    _precision,
    _factor,
    _shifted,
    _reversed,
    _channel_order,
    _signs,
    _constant_added,
    _first_position,
    _first_probe,
)
