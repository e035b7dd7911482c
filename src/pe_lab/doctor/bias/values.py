"""Whether the numbers of a bias are right: signs, slopes, buckets, long distances."""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from pe_lab.doctor.bias.common import (
    MOVED,
    found,
    needs,
    seen_of,
)
from pe_lab.doctor.bias.profile import (
    LOOSE,
    NEAR,
    Profile,
    numbered,
    parameters,
    read,
    reading,
    rounded_up,
)
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.doctor.slopes import ROUNDED, Named, name_slopes
from pe_lab.encodings.alibi import alibi_slopes
from pe_lab.encodings.t5 import t5_bucket


@needs("D-BIAS")
def check_centre(patient: Patient) -> Verdict:
    """What falls off on both sides does so from distance 0, in every head."""
    seen = seen_of(patient)
    if seen.future is None or seen.toeplitz != "all":
        return NotApplicable("D-BIAS", "it has no two sides")
    n = min(seen.past.shape[1], seen.future.shape[1], NEAR)
    line = torch.cat((seen.past[:, 1:n].flip(1), seen.future[:, :n]), 1)
    for head, values in enumerate(line):
        by = _top(values, n)
        if by:
            where = f"{abs(by)} {'after' if by > 0 else 'before'}"
            return found(
                patient,
                "D-BIAS",
                "wrong",
                f"Head {head} is symmetric about the key {where} the query's own: the "
                "distance is off.",
                "Distance 0 is the query's own position.",
                float(by),
                0.0,
            )
    return Passed("D-BIAS", "no head has its top at a neighbour")


def _top(values: Tensor, n: int) -> int:
    """Where (2n − 1,) falls to both sides in the same way, if not in the middle."""
    top = int(values.argmax())
    by = top - (n - 1)
    reach = min(top, 2 * n - 2 - top)
    if by == 0 or abs(by) > 8 or reach < 4:
        return 0
    left, right = values[top - reach : top + 1].flip(0), values[top : top + reach + 1]
    size = float((values.max() - values.min()).clamp(min=1e-30))
    falls = bool((left.diff() < 0).all())
    return by if falls and float((left - right).abs().max()) <= LOOSE * size else 0


@needs("D-BIAS")
def check_direction(patient: Patient) -> Verdict:
    """Distance costs, in each direction that is seen."""
    seen = seen_of(patient)
    name = seen.scheme["scheme"]
    if name.startswith(("T5", "DeBERTa", "buckets")):
        return _looks_back(patient)
    if not name.startswith(("ALiBi", "KERPLE")):
        return NotApplicable("D-BIAS", f"no sign is wrong for: {name}")
    far = seen.past[:, min(8, seen.past.shape[1] - 1)]
    if bool((far <= 0).all()) and bool((far < 0).any()):
        return _ahead(patient)
    if not bool((far >= 0).all()):
        if parameters(patient.subject):
            return NotApplicable("D-BIAS", "each head has learned a sign of its own")
        heads = (far > 0).nonzero().flatten().tolist()
        return found(
            patient,
            "D-BIAS",
            "wrong",
            f"Heads {heads} reward distance, the others punish it.",
            "Use positive slopes for every head.",
        )
    return _reversed(patient, far)


def _reversed(patient: Patient, far: Tensor) -> Finding:
    ahead, most = seen_of(patient).future, float(far.max())
    mend = "The bias is −slope · (query position − key position)."
    if most <= 0:
        message = (
            "Keys before the query all get the same, only those after it are punished: "
            "the distance is key − query where it should be query − key."
        )
        return found(patient, "D-BIAS", "wrong", message, mend)
    what = "its sign is reversed"
    if ahead is not None and ahead.shape[1] > 2 and bool((ahead[:, 2] < 0).any()):
        what = (
            "it is transposed, or the distance has the wrong sign or counts from the "
            "wrong end"
        )
    message = f"It rewards distance: a key 8 before the query gets +{most:.3g}; {what}."
    return found(patient, "D-BIAS", "wrong", message, mend, most, 0.0)


def _ahead(patient: Patient) -> Verdict:
    """What a penalty makes of keys after the query."""
    seen = seen_of(patient)
    if seen.future is None or seen.toeplitz == "past":
        return Passed("D-BIAS", "distance costs; later keys are masked")
    n = min(seen.past.shape[1], seen.future.shape[1], NEAR) - 1
    past, ahead = seen.past[:, n], seen.future[:, n]
    if bool(((past - ahead).abs() <= LOOSE * past.abs()).all()):
        return found(
            patient,
            "D-BIAS",
            "note",
            "It is symmetric: distance costs in both directions. Under a causal mask "
            "that is the same as one direction.",
            "",
        )
    if bool(((past + ahead).abs() <= LOOSE * past.abs()).all()):
        return found(
            patient,
            "D-BIAS",
            "note",
            "Later keys are rewarded, as in −slope·(m − n): it needs a causal mask.",
            "",
        )
    return Passed("D-BIAS", "distance costs")


def _looks_back(patient: Patient) -> Verdict:
    seen = seen_of(patient)
    if len(seen.scheme["starts"]) == 1:
        return found(
            patient,
            "D-BIAS",
            "wrong",
            "All keys before the query share one bucket, and those after it have all "
            "others: the distance has the wrong sign.",
            "T5's relative position is key − query; its negative counts backwards.",
        )
    return Passed("D-BIAS", "keys before the query are told apart")


@needs("D-BIAS")
def check_slopes(patient: Patient) -> Verdict:
    """One slope per head, those of the released models."""
    scheme = seen_of(patient).scheme
    if scheme["scheme"] == "KERPLE power" and not parameters(patient.subject):
        return _bent(patient)
    if scheme["scheme"] != "ALiBi":
        return NotApplicable("D-BIAS", f"no slopes in: {scheme['scheme']}")
    slopes, name = scheme["slopes"], scheme["named"]
    if name.severity is None:
        return Passed("D-BIAS", "the slopes are the released ones", name.value, ROUNDED)
    used = int((slopes != 0).sum())
    rest = bool((slopes[used:] == 0).all()) and 0 < used < len(slopes)
    if rest and name_slopes(slopes[:used], tolerance=ROUNDED).severity is None:
        what = f"Of {len(slopes)} heads the first {used} have slopes."
        return found(patient, "D-BIAS", "differs", what, "")
    severity = _slopes_severity(patient, slopes, name)
    shown = ", ".join(f"{s:.4g}" for s in slopes[:8].tolist())
    message = f"The slopes are {shown}: {name.message}."
    return found(patient, "D-BIAS", severity, message, name.remedy, name.value, ROUNDED)


def _bent(patient: Patient) -> Verdict:
    """A power of the distance that nothing trains, with ALiBi's slopes."""
    scheme = seen_of(patient).scheme
    height, power = scheme["r1"], scheme["r2"]
    released = name_slopes(height, tolerance=ROUNDED).severity is None
    if not released or bool((power.round() - power).abs().max() > LOOSE):
        return NotApplicable("D-BIAS", "no slopes in: KERPLE power")
    return found(
        patient,
        "D-BIAS",
        "risky",
        f"ALiBi's slopes multiply the distance to the power {float(power[0]):.3g}, not "
        "the distance; and it is no KERPLE, as nothing of it is trained.",
        "The bias is −slope · (query position − key position).",
        float(power[0]),
        1.0,
    )


def _slopes_severity(patient: Patient, slopes: Tensor, name: Named) -> str:
    if len(slopes) == 1 or (name.rule == "other" and parameters(patient.subject)):
        return "differs"  # one head has any slope, and trained ones move
    if name.rule == "other" and bool((slopes > 0).all()):
        return "risky"  # chosen for a reason that cannot be seen, perhaps
    return name.severity or "differs"


@needs("D-BIAS")
def check_buckets(patient: Patient) -> Verdict:
    """Boundaries, directions and numbers of buckets."""
    scheme = seen_of(patient).scheme
    if "starts" not in scheme:
        return NotApplicable("D-BIAS", f"no buckets in: {scheme['scheme']}")
    sides = [s for s in (scheme["starts"], scheme["ahead"]) if s and len(s) > 1]
    if len(sides) == 2 and sides[0] != sides[1]:
        return _uneven(patient, sides)
    if scheme["scheme"] == "clipped table":
        return _rows_in_order(patient)
    if not scheme["scheme"].startswith(("T5", "buckets")):
        return Passed("D-BIAS", f"the steps of a {scheme['scheme']}")
    rule = scheme.get("rule")
    if rule is None:
        return _unknown_steps(patient, sides[0])
    if rule.off is not None:
        return _off_by_one(patient, *rule.off)
    return (
        _mixed_logarithms(patient)
        or _numbers(patient)
        or Passed("D-BIAS", "every boundary is T5's")
    )


def _off_by_one(patient: Patient, at: int, wanted: int) -> Finding:
    message = (
        f"A bucket begins at distance {at} instead of {wanted}: its boundary is off by "
        "one."
    )
    mend = "Take the floor of the logarithm in float32 or wider."
    return found(patient, "D-BIAS", "wrong", message, mend, float(at - wanted), 0.0)


def _mixed_logarithms(patient: Patient) -> Finding | None:
    """log_a(distance/e) over log_b(128/e): the last bucket ends at e·a^(log_b(128/e)).

    With one base it ends at 128, the maximal distance.
    """
    rule = seen_of(patient).scheme["rule"]
    exact = rule.buckets // 2
    names = {"log": math.e, "log2": 2.0, "log10": 10.0}
    for (above, a), (below, b) in product(names.items(), repeat=2):
        end = exact * a ** math.log(128 / exact, b)
        if a == b or abs(end - rule.max_distance) > 1 + 1e-3 * end:
            continue
        return found(
            patient,
            "D-BIAS",
            "risky",
            f"Distances from {rule.max_distance} on share a bucket, which is what "
            f"comes of 128 if {above} stands above the fraction and {below} below it.",
            "Take one logarithm of both distances: log(n/e) / log(m/e).",
            float(rule.max_distance),
            128.0,
        )
    return None


def _rows_in_order(patient: Patient) -> Verdict:
    """The rows of a clipped table go up or down with the distance."""
    reach = seen_of(patient).scheme["max_distance"]
    size = min(reach + 4, seen_of(patient).past.shape[1])
    rows = numbered(patient, size, size)
    if rows is None:
        return Passed("D-BIAS", "the steps of a clipped table")
    line = torch.cat((rows[-1], rows[0, 1:]))
    step = line.diff()
    if bool((step >= 0).all()) or bool((step <= 0).all()):
        return _idle(patient, len(line.unique())) or Passed(
            "D-BIAS", "the rows of a clipped table, in order"
        )
    return found(
        patient,
        "D-BIAS",
        "wrong",
        f"From one end to the other distances read the rows {line[:4].tolist()} … "
        f"{line[-4:].tolist()}, not in order: an index below 0 came round.",
        "Row k + distance, distance from −k to k, needs 2k + 1 rows.",
    )


def _idle(patient: Patient, used: int) -> Finding | None:
    """A good part of the rows of its one table is read at no distance."""
    table = parameters(patient.subject)[0]
    count = table.numel() // reading(patient).heads
    if 4 * used > 3 * count:
        return None
    return found(
        patient,
        "D-BIAS",
        "risky",
        f"Of {count} rows of its table distances read {used}: the others are never "
        "trained, and distances that should differ share a row.",
        "Clip the distance from −k to k first, then add k to make it an index.",
        float(used),
        float(count),
    )


def _uneven(patient: Patient, sides: list[list[int]]) -> Finding:
    a, b = next(
        ((x, y) for x, y in zip(*sides, strict=False) if x != y),
        (len(sides[0]), len(sides[1])),
    )
    return found(
        patient,
        "D-BIAS",
        "wrong",
        f"Keys before and after the query have different steps: {a} against {b}, of "
        f"{len(sides[0])} and {len(sides[1])} in all.",
        "Halve the buckets and take the absolute distance, then add half for one "
        "direction.",
    )


def _unknown_steps(patient: Patient, steps: list[int]) -> Finding:
    if rounded_up(steps):
        return found(
            patient,
            "D-BIAS",
            "wrong",
            f"Buckets begin at {steps[-4:]} and end a step early: the logarithm is "
            "rounded up where T5 takes its floor.",
            "Cut the logarithm off, as .long() does.",
        )
    shown = ", ".join(str(s) for s in steps[:24])
    exact = next((i for i, s in enumerate(steps) if s != i), len(steps))
    severity = "differs"
    what = f"Its {len(steps)} steps begin at {shown}, which is not T5's ladder"
    if exact not in (len(steps) // 2, len(steps) // 2 + 1, len(steps) // 2 + 2):
        severity = "wrong"
        what += (
            f": {exact} distances have a bucket of their own, T5 has half of "
            f"{len(steps)}"
        )
    mend = "Half of a direction's buckets are exact, the rest grows logarithmically."
    return found(patient, "D-BIAS", severity, f"{what}.", mend)


def _numbers(patient: Patient) -> Verdict | None:
    """The rows of the table that distances read, where they can be told."""
    scheme, far = seen_of(patient).scheme, 200
    rows = numbered(patient, far, far)
    if rows is None:
        return None
    count, both = scheme["buckets"], scheme["scheme"].endswith("two directions")
    ids = torch.arange(far)
    relative = ids[None, :] - ids[:, None]
    sizes = {"num_buckets": count, "max_distance": scheme["max_distance"]}
    wanted = t5_bucket(relative, bidirectional=both, **sizes)
    if torch.equal(rows, wanted):
        return Passed("D-BIAS", f"{count} rows are read in T5's order")
    m, n = (int(i) for i in (rows != wanted).nonzero()[0])
    mirrored = torch.equal(rows, t5_bucket(-relative, bidirectional=both, **sizes))
    what = "rows are numbered in another way"
    if mirrored:
        what = "directions are swapped"
    elif both and torch.equal(rows, rows.T):
        what = "two directions share their rows, and the other half is never read"
    message = (
        f"Relative position {n - m} (key − query) reads row {int(rows[m, n])}, in T5 "
        f"row {int(wanted[m, n])}: the {what}."
    )
    mend = "Relative position is key − query; those above 0 get the second half."
    return found(patient, "D-BIAS", "wrong", message, mend)


@needs("D-LEN")
def check_length(patient: Patient) -> Verdict:
    """Far distances: no end of the table, no wrapping round, no change of rule."""
    seen = seen_of(patient)
    if seen.failure is not None:
        return _ends(patient)
    wrapped = _wraps(seen) if seen.toeplitz == "all" else None
    if wrapped is not None:
        small = "slopes" in seen.scheme
        return found(
            patient,
            "D-LEN",
            "wrong",
            f"{wrapped}: "
            + ("the distance" if small else "an index past the end of the table")
            + " came round.",
            "Keep distances in int64, and clip them before they are an index.",
        )
    slopes = seen.scheme.get("slopes")
    if slopes is None:
        return Passed("D-LEN", f"distances up to {seen.past.shape[1] - 1} have a bias")
    return _keeps_on(patient, slopes)


def _ends(patient: Patient) -> Finding:
    seen = seen_of(patient)
    assert seen.failure is not None
    failed, why = seen.failure
    good, bad = seen.near.shape[-1], failed
    while bad - good > 1:
        middle = (good + bad) // 2
        result = read(patient, middle, middle)
        good, bad = (good, middle) if isinstance(result, Failure) else (middle, bad)
        why = result if isinstance(result, Failure) else why
    refusal = isinstance(why.error, ValueError | NotImplementedError | AssertionError)
    return found(
        patient,
        "D-LEN",
        "note" if refusal else "risky",
        f"It ends at {good} tokens; {bad} give {why}",
        "Clip the distance to the table, or refuse longer texts in words.",
        float(good),
    )


def _wraps(seen: Profile) -> str | None:
    """Distances past some k read what others read."""
    n = seen.past.shape[1]
    for name, side in (("before", seen.past), ("after", seen.future)):
        if side is None or side.shape[1] < 12 or "starts" in seen.scheme:
            continue
        if not bool((side != 0).any()):
            continue
        for period in range(3, min(n // 2, 600)):
            span = min(2 * period, side.shape[1] - period)
            if bool((side[:, period : period + span] == side[:, :span]).all()):
                return f"Keys {period} {name} the query get what its own position gets"
    return _other_side(seen)


def _other_side(seen: Profile) -> str | None:
    """−k − 1 reading the last row of a table, as −1 does in Python."""
    past, future = seen.past, seen.future
    if future is None:
        return None
    for near, far in ((past, future), (future, past)):
        for k in range(1, min(near.shape[1] // 2 - 1, far.shape[1] - 1, 600)):
            back = far[:, : k + 1].flip(1)
            span = min(k + 1, near.shape[1] - k - 1)
            ahead = near[:, k + 1 : k + 1 + span]
            varied = bool((back.diff(dim=1) != 0).any())
            if varied and torch.equal(ahead, back[:, :span]):
                return f"A distance of {k + 1} gets what {k} the other way gets"
    return None


def _keeps_on(patient: Patient, slopes: Tensor) -> Verdict:
    """A straight line stays one; where it is rounded, `check_precision` measures it."""
    seen = seen_of(patient)
    distance = torch.arange(seen.past.shape[1], dtype=torch.float64)
    wanted = -slopes[:, None] * distance
    error = (seen.past - wanted).abs().amax(0)
    # 16 bits hold a product to 2^-8 of its size, and slope·j to 2^-8 of the longest
    allowed = 4 * 2**-8 * float(wanted.abs().max())
    bad = (error > allowed).nonzero().flatten()
    if not len(bad):
        return Passed("D-LEN", f"straight up to {len(distance) - 1} tokens")
    patient.facts["bent"] = True
    edge = float(error[-1])
    flat = bool((seen.past[:, -1] == seen.past[:, -2]).all())
    return found(
        patient,
        "D-LEN",
        "differs" if flat else "wrong",
        f"The line {'ends in a constant' if flat else 'bends'}: at distance "
        f"{len(distance) - 1} it is {float(seen.past[0, -1]):.4g}, not "
        f"{float(wanted[0, -1]):.4g}.",
        "Clip only if that is meant; keep distances in whole numbers or float32.",
        edge,
        allowed,
    )


@needs("D-DTYPE")
def check_precision(patient: Patient) -> Verdict:
    """Probabilities at long lengths, in the numbers that it gives."""
    seen = seen_of(patient)
    slopes = seen.scheme.get("slopes")
    if slopes is None or seen.past.shape[1] < 256 or "bent" in patient.facts:
        return NotApplicable("D-DTYPE", "no exact rule to compare long rows with")
    if bool(seen.near[:, ~seen.hidden].isfinite().all()):
        slopes = _exact(slopes)
    distance = torch.arange(seen.past.shape[1], dtype=torch.float64)
    right = (-slopes[:, None] * distance).softmax(-1)
    error = float((seen.past.softmax(-1) - right).abs().max())
    if error <= MOVED:
        return Passed("D-DTYPE", "probabilities at long lengths", error, MOVED)
    how = "slope·j" if seen.absolute else "distance"
    return found(
        patient,
        "D-DTYPE",
        "wrong",
        f"At {len(distance)} tokens probabilities are off by {error:.2g}: {how} is "
        "made in 16 bits, which cannot tell neighbours apart there.",
        "Multiply float32 slopes by the difference of whole positions; round last.",
        error,
        MOVED,
    )


def _exact(slopes: Tensor) -> Tensor:
    """The released slopes, if these are they but for roundings."""
    released = alibi_slopes(len(slopes))
    near = bool(((slopes - released).abs() <= ROUNDED * released).all())
    return released if near else slopes
