"""Exercises of chapter 13, Drop the encoding: counters, symmetries, probes."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lab.lab import probes

from .engine import Exercise, Mistake


def _place(output: Tensor, marked: int) -> Tensor:
    """m for the output marked/(m + 1)."""
    return marked / output - 1


def _place_counted_from_one(output: Tensor, marked: int) -> Tensor:
    return marked / output


def _place_one_mark(output: Tensor, marked: int) -> Tensor:
    return 1 / output - 1


def _place_marks_taken_off(output: Tensor, marked: int) -> Tensor:
    return 1 / output - marked


INVERT = Exercise(
    id="13-invert",
    title="Read the counter",
    stars=1,
    reference=_place,
    probes=(
        (torch.tensor([1.0, 0.5, 0.25]), 1),
        (torch.tensor([0.5, 0.2, 0.125]), 2),
        (torch.tensor([1.0, 0.75, 0.03]), 3),
    ),
    praise="It holds from the last marked token on; before it, not all marks are seen.",
    mistakes=(
        Mistake(
            "counted from 1",
            _place_counted_from_one,
            "This is the number of tokens that are seen. The place itself is among "
            "them, and places are counted from 0.",
        ),
        Mistake(
            "one mark only",
            _place_one_mark,
            "Right for a single mark. With more of them the output is larger at every "
            "place.",
        ),
        Mistake(
            "marks taken off at the end",
            _place_marks_taken_off,
            "The marks stand on top of the fraction marks/(m + 1): they multiply.",
        ),
    ),
)

WHO = Exercise(
    id="13-who",
    title="Who can know?",
    stars=2,
    reference=frozenset({"B", "D"}),
    praise="A mask and a mark, or positions in the input: nothing else on this list.",
    mistakes=(
        Mistake(
            "a mark without a mask",
            frozenset({"A", "B", "D"}),
            "In A the other tokens can change places and their outputs go along: the "
            "mark is equally far from all of them.",
        ),
        Mistake(
            "a mask and nothing to count",
            frozenset({"B", "C", "D"}),
            "In C every place takes a mean of equal values, however many it sees.",
        ),
        Mistake(
            "left is not right",
            frozenset({"B", "D", "E"}),
            "In E the score knows how far, and not on which side: read the sequence "
            "backwards, and the two ends change places.",
        ),
        Mistake(
            "equal tokens with unequal rows",
            frozenset({"B"}),
            "In D the rows of the table are added, and they differ even where the "
            "tokens do not.",
        ),
        Mistake(
            "a mask can count",
            frozenset({"D"}),
            "In B the share of the mark falls from place to place.",
        ),
    ),
)


def _first_merge(dtype: torch.dtype) -> int:
    """The first m for which 1/(m + 1) and 1/(m + 2) are one number of the dtype."""
    kept = (1 / torch.arange(1, 5000, dtype=torch.float64)).to(dtype)
    return int((kept[1:] == kept[:-1]).nonzero()[0])


def _first_merge_tokens(dtype: torch.dtype) -> int:
    return _first_merge(dtype) + 1


def _first_merge_of_counts(dtype: torch.dtype) -> int:
    counts = torch.arange(1, 5000, dtype=torch.float64).to(dtype)
    return int((counts[1:] == counts[:-1]).nonzero()[0])


def _first_merge_epsilon(dtype: torch.dtype) -> int:
    return round(1 / torch.finfo(dtype).eps)


BITS = Exercise(
    id="13-bits",
    title="Where sixteen bits lose count",
    stars=2,
    reference=_first_merge,
    probes=((torch.bfloat16,), (torch.float16,)),
    praise="With p significant bits it is close to 2^(p − 1/2).",
    mistakes=(
        Mistake(
            "tokens instead of places",
            _first_merge_tokens,
            "One too many: place m sees m + 1 tokens.",
        ),
        Mistake(
            "the counts themselves",
            _first_merge_of_counts,
            "This is where whole numbers merge. The head gives 1/(m + 1), whose "
            "neighbours are closer than the numbers next to it sooner or later.",
        ),
        Mistake(
            "1/ε",
            _first_merge_epsilon,
            "The right size, and only that: ε is the spacing at 1, and between two "
            "powers of 2 the spacing relative to the number varies by a factor of 2.",
        ),
    ),
)


def _best_share(orders: list[list[int]]) -> float:
    """Classes of alike places over places."""
    alike = list(range(len(orders[0])))  # the first place of each one's class
    for _ in alike:  # as many rounds as the longest chain may need
        for order in orders:
            for t, source in enumerate(order):
                alike[t] = alike[source] = min(alike[t], alike[source])
    return len(set(alike)) / len(alike)


def _best_share_guess(orders: list[list[int]]) -> float:
    return 1 / len(orders[0])


def _best_share_fixed(orders: list[list[int]]) -> float:
    still = [t for t in range(len(orders[0])) if all(o[t] == t for o in orders)]
    return len(still) / len(orders[0])


def _best_share_one_step(orders: list[list[int]]) -> float:
    length = len(orders[0])
    names = {min([t, *(order[t] for order in orders)]) for t in range(length)}
    return len(names) / length


def _best_share_number(orders: list[list[int]]) -> float:
    return round(_best_share(orders) * len(orders[0]))


ORBITS = Exercise(
    id="13-orbits",
    title="The best that a symmetry leaves",
    stars=3,
    reference=_best_share,
    probes=(
        ([[5, 4, 3, 2, 1, 0]],),
        ([[1, 2, 3, 4, 5, 0]],),
        ([[0, 2, 1, 3, 4]],),
        ([[1, 0, 2, 3], [0, 2, 1, 3]],),
        ([[0, 1, 2]],),
    ),
    praise="Two exchanges of neighbours tie three places together, a turn all of them.",
    mistakes=(
        Mistake(
            "a guess among all",
            _best_share_guess,
            "This is right when every place can be carried to every other one. A "
            "reversal ties them in pairs only.",
        ),
        Mistake(
            "only what stays",
            _best_share_fixed,
            "Places that no order moves can be known, but in each class of the others "
            "one place can be named, too, and is right once.",
        ),
        Mistake(
            "one step only",
            _best_share_one_step,
            "Alike goes on: if 0 is carried to 1, and 1 to 2, then 0 and 2 are alike.",
        ),
        Mistake(
            "classes, not their share",
            _best_share_number,
            "This is the number of classes. Divide by the number of places.",
        ),
    ),
)


def _weights(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """argmin |y − xw|²/n + λ|w|²."""
    gram = x.T @ x / len(x) + penalty * torch.eye(x.shape[1], dtype=x.dtype)
    return torch.linalg.solve(gram, x.T @ y / len(x))


def _weights_plain(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    return _weights(x, y, 0.0)


def _weights_everywhere(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    return torch.linalg.solve(x.T @ x / len(x) + penalty, x.T @ y / len(x))


def _weights_of_sums(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    return _weights(x, y, penalty / len(x))


def _rows(count: int, width: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, width, generator=rng, dtype=torch.float64)
    return rows - rows.mean(dim=0)


RIDGE = Exercise(
    id="13-ridge",
    title="A probe in two lines",
    stars=2,
    reference=_weights,
    probes=(
        (_rows(20, 3, 0), _rows(20, 1, 1)[:, 0], 0.5),
        (_rows(8, 5, 2), _rows(8, 1, 3)[:, 0], 0.01),
    ),
    praise="No learning rate, no seed: whoever has the same states has the same probe.",
    mistakes=(
        Mistake(
            "no penalty",
            _weights_plain,
            "This is ordinary least squares. The penalty belongs to xᵀx/n, on the "
            "diagonal.",
        ),
        Mistake(
            "λ on every entry",
            _weights_everywhere,
            "A number added to a matrix lands on all of its entries. λ|w|² has the "
            "derivative 2λw, so λ stands on the diagonal alone.",
        ),
        Mistake(
            "a sum instead of a mean",
            _weights_of_sums,
            "Here the penalty is weighed against the sum over rows. The mean was "
            "asked for, so that λ means the same for any number of rows.",
        ),
    ),
)


def _share(fit: Tensor, test: Tensor) -> float:
    """R² on the places of some windows of a probe that was fitted on others."""
    return probes.read_places(fit, test)[0]


def _honest(states: Tensor) -> float:
    """R² on the second half of the windows, fitted on the first."""
    fit, test = states.chunk(2)
    return _share(fit, test)


def _honest_leaked(states: Tensor) -> float:
    return _share(states, states)


def _honest_fitted_on_all(states: Tensor) -> float:
    return _share(states, states.chunk(2)[1])


def _honest_first_half(states: Tensor) -> float:
    fit, _ = states.chunk(2)
    return _share(fit, fit)


def _honest_turned(states: Tensor) -> float:
    test, fit = states.chunk(2)
    return _share(fit, test)


def _noisy(windows: int, length: int, width: int, seed: int) -> Tensor:
    """Random states; the first channel holds a tenth of the place."""
    states = _rows(windows * length, width, seed).reshape(windows, length, width)
    states[..., 0] += torch.arange(length) / 10
    return states


HONEST = Exercise(
    id="13-honest",
    title="Mend a probe that leaks",
    stars=3,
    reference=_honest,
    probes=((_noisy(4, 8, 12, 0),), (_noisy(10, 6, 4, 1),)),
    praise="On noise it gives no more than 0, as it should.",
    mistakes=(
        Mistake(
            "tested where it was fitted",
            _honest_leaked,
            "The probe has seen the windows that it is tested on. It reads noise that "
            "it knows by heart.",
        ),
        Mistake(
            "fitted on all of them",
            _honest_fitted_on_all,
            "The second half is tested, but the probe was fitted on it, too.",
        ),
        Mistake(
            "the first half twice",
            _honest_first_half,
            "Half of the windows are set aside, and not used: test on those.",
        ),
        Mistake(
            "the halves exchanged",
            _honest_turned,
            "As honest as the other way round. The exercise asks to fit on the first "
            "half and to test on the second.",
        ),
    ),
)

EXERCISES = (INVERT, WHO, BITS, ORBITS, RIDGE, HONEST)
