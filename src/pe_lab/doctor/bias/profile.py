"""A bias read as numbers: by pair, by distance, and by the rule that gives them.

A row of the softmax forgets what all its keys share, so every row is taken minus the
entry of its own position before anything is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.encodings.t5 import t5_bucket

NEAR = 24  # a square in which structure shows and rounding does not
FAR = 4096  # of a row; beyond the distances that released models tell apart
ELEMENTS = 16_000_000  # of one tensor: 64 MB in float32
# bfloat16 rounds a product by 2^-8 of its size; structure shows far above that
LOOSE = 1e-2
MASKED = -1e4  # a mask, not a bias: 24 tokens from here no penalty is that big


@dataclass(frozen=True)
class Reading:
    """How a subject is called, and how its result is laid out; the kind's adapter.

    Args:
        form: "lengths" f(q_len, k_len), "positions" f(q_pos, k_pos), or "encoding"
            with a method bias(q, k, q_pos, k_pos).
        swapped: whether the keys are its first argument.
        axes: of the result, a letter each: h, q, k, or 1 for an axis of one.
        square: "", or "q" or "k" for the one length that both axes have.
        heads: H; 1 if there is no such axis.
        width: of the queries that an encoding gets.
    """

    form: str
    swapped: bool = False
    axes: str = "hqk"
    square: str = ""
    heads: int = 1
    width: int = 8

    def __call__(self, copy: Any) -> Callable[..., Any]:
        """The call: of lengths, or of ids, whatever the form needs."""

        def call(q: Any, k: Any, dtype: torch.dtype = torch.float32) -> Any:
            q, k = (self._ids(q, k)) if self.form != "lengths" else (q, k)
            if self.form == "encoding":
                rows = max(q.shape[0] if q.dim() == 2 else 1, 1)
                axes = rows, self.heads
                x = torch.zeros(*axes, q.shape[-1], self.width, dtype=dtype)
                y = torch.zeros(*axes, k.shape[-1], self.width, dtype=dtype)
                return copy.bias(x, y, q, k)
            return copy(k, q) if self.swapped else copy(q, k)

        return call

    @staticmethod
    def _ids(q: Any, k: Any) -> tuple[Tensor, Tensor]:
        if isinstance(q, Tensor):
            return q, k
        return torch.arange(k - q, k), torch.arange(k)


def arrange(raw: Any, reading: Reading, q_len: int, k_len: int) -> Tensor | Failure:
    """The result of a call as (H, q_len, k_len) float64."""
    if isinstance(raw, Failure):
        return raw
    if not isinstance(raw, Tensor) or raw.dim() != len(reading.axes):
        given = getattr(raw, "shape", type(raw).__name__)
        return Failure(ValueError(f"it gives {given}"))
    shape, raw = tuple(raw.shape), raw.double()
    found = [reading.axes.find(name) for name in "hqk"]
    rest = [i for i in range(raw.dim()) if i not in found]
    if any(shape[i] != 1 for i in rest):
        return Failure(ValueError(f"it gives {shape}"))
    wide = raw.permute(*rest, *(i for i in found if i >= 0)).reshape(
        [shape[i] if i >= 0 else 1 for i in found]
    )
    sizes = wide.shape
    if sizes[1] not in (1, q_len) or sizes[2] not in (1, k_len):
        what = f"it gives {shape} for {q_len} queries and {k_len} keys"
        return Failure(ValueError(what))
    return wide.expand(sizes[0], q_len, k_len)


def read(
    patient: Patient, q: Any, k: Any, call: Callable[..., Any] | None = None
) -> Tensor | Failure:
    """(H, Lq, Lk) float64 by a copy without memory, or by the given one.

    Args:
        patient: with a `Reading` as its adapter.
        q, k: lengths, or ids where the form takes ids.
        call: None for a renewed copy, with weights drawn anew where all are zero.
    """
    if call is None:
        call = patient.renewed(patient.facts["change"])
    raw = patient.guard.call(call, q, k)
    sizes = (len(n) if isinstance(n, Tensor) else n for n in (q, k))
    return arrange(raw, reading(patient), *sizes)


def reading(patient: Patient) -> Reading:
    """The patient's adapter, by its type."""
    assert isinstance(patient.adapt, Reading)
    return patient.adapt


def by_ids(patient: Patient) -> bool:
    """Whether it takes ids, not lengths."""
    return reading(patient).form != "lengths"


def centred(bias: Tensor) -> Tensor:
    """Each row minus its last entry that is no mask: what the softmax sees.

    Args:
        bias: (H, Lq, Lk) with Lq ≤ Lk, the queries being the last of the keys.
    """
    _, q_len, k_len = bias.shape
    own = torch.arange(k_len - q_len, k_len)
    return bias - bias[:, torch.arange(q_len), own][..., None]


def masked(bias: Tensor) -> Tensor:
    """Where a mask is part of the bias."""
    return bias < MASKED


def band(hidden: Tensor) -> bool:
    """Whether a mask hides later keys, or keys far away, and nothing near."""
    size = hidden.shape[-1]
    if not _constant(hidden[None].double(), torch.ones_like(hidden)):
        return False
    first, last = hidden[0], hidden[-1].flip(0)
    sides = [bool((side.int().diff() >= 0).all()) for side in (first, last)]
    open_past = size < 2 or not bool(last[1])
    return all(sides) and not bool(first[0]) and open_past


@dataclass
class Profile:
    """What a bias is as a function of distance.

    Args:
        near: (H, N, N) as it was given.
        hidden: (N, N) where a mask is.
        toeplitz: "all", "past" (only where the key is not after the query) or "none".
        absolute: whether rows carry a constant that makes them differ.
        past, future: (H, n) by distance from 0 on; future is None behind a mask.
        failure: what came when a longer length was asked for, and that length.
        scheme: what `name_scheme` says.
    """

    near: Tensor
    hidden: Tensor
    toeplitz: str
    absolute: bool
    past: Tensor
    future: Tensor | None
    failure: tuple[int, Failure] | None = None
    scheme: dict[str, Any] = field(default_factory=dict)


def profile(patient: Patient) -> Profile | Failure:
    """Read a patient from near by and from far."""
    near: Tensor | Failure = Failure(ValueError("nothing was read"))
    for size in (NEAR, 12, 8, 6, 5, 4, 3):
        near = read(patient, size, size)
        if not isinstance(near, Failure):
            break
    if isinstance(near, Failure):
        return near
    hidden = masked(near).any(0)
    level = centred(near)
    toeplitz = _toeplitz(level, hidden)
    looked_at = ~hidden if toeplitz == "all" else torch.ones_like(hidden).tril()
    absolute = toeplitz != "none" and not _constant(near, looked_at)
    past, future, failure = _far(patient, near)
    seen = Profile(near, hidden, toeplitz, absolute, past, future, failure)
    seen.scheme = name_scheme(seen)
    return seen


def _toeplitz(level: Tensor, hidden: Tensor) -> str:
    behind = torch.ones_like(hidden).tril() & ~hidden
    if _constant(level, ~hidden):
        return "all"
    return "past" if _constant(level, behind) else "none"


def _constant(level: Tensor, where: Tensor) -> bool:
    """Whether the entries of each diagonal agree where they are looked at."""
    shown = level[:, where]
    if shown.numel() == 0 or not bool(shown.isfinite().all()):
        return False
    allowed = LOOSE * float(shown.max() - shown.min())
    size = level.shape[-1]
    for offset in range(1 - size, size):
        seen = level.diagonal(offset, 1, 2)[:, where.diagonal(offset)]
        if seen.shape[1] > 1 and bool(
            ((seen.amax(1) - seen.amin(1)) > allowed).any(),
        ):
            return False
    return True


def _far(
    patient: Patient, near: Tensor
) -> tuple[Tensor, Tensor | None, tuple[int, Failure] | None]:
    """Rows with all distances to one query: from behind, and ahead of it."""
    heads, size = near.shape[0], near.shape[1]
    length = FAR if by_ids(patient) else int((ELEMENTS / max(heads, 4)) ** 0.5)
    failure = None
    while length > size:
        rows = _rows(patient, min(length, FAR))
        if not isinstance(rows, Failure):
            return (*_sides(*rows), failure)
        failure = (length, rows)
        length //= 2
    first, last = near[:, :1], near[:, -1:]
    return (*_sides(first, last), failure)


def _rows(patient: Patient, length: int) -> tuple[Tensor, Tensor] | Failure:
    """The first and the last row of a square."""
    if by_ids(patient):
        keys = torch.arange(length)
        first = read(patient, keys[:1], keys)
        last = read(patient, keys[-1:], keys)
        if isinstance(first, Failure) or isinstance(last, Failure):
            return first if isinstance(first, Failure) else last  # type: ignore[return-value]
        return first, last
    square = read(patient, length, length)
    return (
        square
        if isinstance(square, Failure)
        else (square[:, :1].clone(), square[:, -1:].clone())
    )


def _sides(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor | None]:
    past = _seen_part((last - last[..., -1:]).flip(-1)[:, 0])
    future = _seen_part((first - first[..., :1])[:, 0])
    return past, future if future.shape[1] > 1 else None


def _seen_part(side: Tensor) -> Tensor:
    """(H, n) up to where a mask begins, or what is no number."""
    step = side.diff(dim=1)
    ends = (~side.isfinite()).any(0)
    ends[1:] |= (step < MASKED).any(0)
    return side[:, : int(ends.int().argmax())] if bool(ends.any()) else side


def name_scheme(seen: Profile) -> dict[str, Any]:
    """The scheme of a profile, with its numbers."""
    if seen.toeplitz == "none":
        return {"scheme": "not a function of distance"}
    past, future = seen.past, seen.future
    sides = [past] if future is None or seen.toeplitz == "past" else [past, future]
    if not any(bool((side != 0).any()) for side in sides):
        return {"scheme": "no bias"}
    main = past if bool((past != 0).any()) else sides[-1]
    # from the square near the origin, where slope·j is not rounded yet
    slopes = linear(_near_side(seen, ahead=main is not past))
    if slopes is not None:
        return {"scheme": "ALiBi", "slopes": slopes}
    steps = starts(main)
    if steps is not None:
        return _stepped(past, future, steps)
    curve = kerple(main)
    if curve is not None:
        return curve
    jagged = _jagged(main)
    return {"scheme": "table of distances" if jagged else "other, of distance"}


def _near_side(seen: Profile, *, ahead: bool) -> Tensor:
    level = centred(seen.near)
    return _seen_part(level[:, 0] if ahead else level[:, -1].flip(-1))


def linear(side: Tensor) -> Tensor | None:
    """(H,) slopes of −slope · distance, if that is what (H, n) is."""
    distance = torch.arange(side.shape[1], dtype=torch.float64)
    if side.shape[1] < 3 or not bool(side.isfinite().all()):
        return None
    slopes = -(side @ distance) / (distance @ distance)
    residual = (side + slopes[:, None] * distance).abs().amax(1)
    allowed = LOOSE * side.abs().amax(1)
    return slopes if bool((residual <= allowed).all()) else None


def starts(side: Tensor) -> list[int] | None:
    """Distances at which a new number begins, if there are few: buckets, or a clip.

    Numbers of one bucket are one number of a table, equal to the last bit.
    """
    change = (side[:, 1:] != side[:, :-1]).any(0)
    found = [0, *(change.nonzero().flatten() + 1).tolist()]
    quiet = side.shape[1] - found[-1]
    settled = quiet >= max(4, side.shape[1] // 8)
    return found if settled and 2 * len(found) <= side.shape[1] + 4 else None


def _stepped(past: Tensor, future: Tensor | None, steps: list[int]) -> dict[str, Any]:
    behind = starts(past) or steps
    ahead = None if future is None else starts(future)
    said = {"starts": behind, "ahead": ahead}
    if all(s == list(range(len(s))) for s in (behind, ahead or [0])):
        clip = max(len(behind), len(ahead or [])) - 1
        return {"scheme": "clipped table", "max_distance": clip, **said}
    return {"scheme": "buckets", **said}


def kerple(side: Tensor) -> dict[str, Any] | None:
    """KERPLE's logarithm or power with r₁ and r₂ per head, if (H, n) is one."""
    side = side[:, : min(side.shape[1], 512)]
    n = side.shape[1] - 1
    if n < 4 or not bool(side.isfinite().all()) or bool((side[:, 1] == 0).any()):
        return None
    ratio = side[:, n] / side[:, 1]
    if not bool((ratio > 1).all()):
        return None
    distance = torch.arange(n + 1, dtype=torch.float64)
    bend = _log_bend(ratio, n)
    log = torch.log1p(bend[:, None] * distance)
    power = ratio.log() / math.log(n)
    shapes = {
        "log": (-side[:, 1] / torch.log1p(bend), bend, log),
        "power": (-side[:, 1], power, distance ** power[:, None]),
    }
    for name, (height, bent, grown) in shapes.items():
        residual = (side + height[:, None] * grown).abs().amax(1)
        if bool((residual <= LOOSE * side.abs().amax(1)).all()):
            return {"scheme": f"KERPLE {name}", "r1": height, "r2": bent}
    return None


def _log_bend(ratio: Tensor, n: int) -> Tensor:
    """r₂ with ln(1 + r₂·n) / ln(1 + r₂) = ratio, by halving in its logarithm."""
    low, high = torch.full_like(ratio, -14.0), torch.full_like(ratio, 14.0)
    for _ in range(60):
        middle = (low + high) / 2
        bend = middle.exp()
        above = torch.log1p(bend * n) / torch.log1p(bend) > ratio
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return ((low + high) / 2).exp()


def _jagged(side: Tensor) -> bool:
    """Numbers that jump up and down, as of a table nobody has smoothed."""
    step = side.diff(dim=1)
    turns = (step[:, 1:] * step[:, :-1] < 0).double().mean()
    return bool(turns > 0.5)  # two thirds of random steps turn, a wave's do not


@dataclass(frozen=True)
class Buckets:
    """T5's rule as it fits seen steps.

    Args:
        buckets: of one direction.
        max_distance: where the last begins.
        off: (distance at which a bucket begins, at which it should), if not equal.
    """

    buckets: int
    max_distance: int
    off: tuple[int, int] | None = None


_ROUND = (128, 64, 32, 256, 512, 1024, 2048, 16, 100, 200, 800, 1000)


def t5_rule(found: list[int]) -> Buckets | None:
    """The rule that gives these first distances, exactly or but for one token."""
    buckets, last = len(found), found[-1]
    if buckets < 4:
        return None
    near = None
    for far in _reaches(buckets, last):
        wanted = t5_starts(buckets, far)
        if wanted is None or len(wanted) != buckets:
            continue
        if list(wanted) == found:
            return Buckets(buckets, far)
        off = [(a, b) for a, b in zip(found, wanted, strict=True) if a != b]
        if near is None and all(abs(a - b) <= 1 for a, b in off):
            near = Buckets(buckets, far, off[0])
    return near


def _reaches(buckets: int, last: int) -> list[int]:
    """Distances that may be the maximal one, if the last bucket begins at `last`.

    It begins where e·(max/e)^((w − 1)/w) does, with e exact buckets and w wide ones.
    """
    exact = buckets // 2
    wide = buckets - exact
    low, high = (
        exact * (max(last + by, exact + 1) / exact) ** (wide / (wide - 1))
        for by in (-2, 2)
    )
    between = range(int(low), min(int(high), int(low) + 400) + 2)
    return [*(m for m in _ROUND if m in between), *between]


@lru_cache(maxsize=512)
def t5_starts(buckets: int, far: int) -> tuple[int, ...] | None:
    """The smallest distance in each bucket that is used, one direction."""
    if far <= buckets // 2:
        return None
    distance = torch.arange(far + 2)
    ids = t5_bucket(
        -distance, bidirectional=False, num_buckets=buckets, max_distance=far
    )
    change = (ids.diff() != 0).nonzero().flatten() + 1
    return (0, *change.tolist())


def rounded_up(found: list[int]) -> bool:
    """Whether these are T5's buckets with a logarithm that is rounded up."""
    for exact in {len(found) // 2, (len(found) - 1) // 2} - {0}:
        for far in _ROUND:
            if far <= exact:
                continue
            distance = torch.arange(far + 2, dtype=torch.float64)
            wide = (distance.clamp(min=1) / exact).log() / math.log(far / exact)
            ids = exact + (wide * exact).ceil()
            ids = torch.where(distance < exact, distance, ids)
            for most in (2 * exact, 2 * exact - 1):
                steps = (ids.clamp(max=most).diff() != 0).nonzero().flatten() + 1
                if [0, *steps.tolist()] == found:
                    return True
    return False


def deberta_rule(found: list[int]) -> tuple[int, int] | None:
    """(bucket size, farthest position) of DeBERTa's logarithmic buckets, rounded up."""
    middle = len(found) // 2
    if len(found) < 6:
        return None
    for far in (512, 128, 256, 1024, *range(found[-1], found[-1] + 300)):
        if far <= middle + 1:
            continue
        distance = torch.arange(found[-1] + 2, dtype=torch.float64).clamp(min=1)
        wide = (distance / middle).log() / math.log((far - 1) / middle)
        grown = (wide * (middle - 1)).ceil() + middle
        ids = torch.where(distance <= middle, distance, grown)
        ids[0] = 0
        if [0, *((ids.diff() != 0).nonzero().flatten() + 1).tolist()] == found:
            return 2 * middle, far
    return None


def parameters(subject: Any) -> list[nn.Parameter]:
    """The trained tensors of a module; none of anything else."""
    return list(subject.parameters()) if isinstance(subject, nn.Module) else []


def numbered(patient: Patient, q: Any, k: Any) -> Tensor | None:
    """(Lq, Lk) the row of its one trained table that each entry is read from.

    A copy gets the row numbers for weights, another gets ones; None if it has not one
    table, or does more than read it.
    """
    tables = parameters(patient.subject)
    if len(tables) != 1 or tables[0].dim() != 2:
        return None
    heads = reading(patient).heads
    axis = 0 if tables[0].shape[1] == heads else 1

    def fill(values: Callable[[nn.Parameter], Tensor]) -> Callable[[Any], Any]:
        def change(copy: Any) -> Any:
            for table in copy.parameters():
                table.requires_grad_(False).copy_(values(table))
            return copy

        return change

    def rows(table: nn.Parameter) -> Tensor:
        count = torch.arange(table.shape[axis], dtype=table.dtype)
        return count[:, None].expand_as(table) if axis == 0 else count.expand_as(table)

    count = read(patient, q, k, patient.renewed(fill(rows)))
    ones = read(patient, q, k, patient.renewed(fill(torch.ones_like)))
    if isinstance(count, Failure) or isinstance(ones, Failure):
        return None
    ids = (count / ones)[0]
    whole = ids.round()
    return whole.long() if bool(((ids - whole).abs() < 1e-3).all()) else None
