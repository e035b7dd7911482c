"""ALiBi's slopes on the table: f(num_heads) → (H,), each number against the paper's.

Press et al. 2022, section 3; the order for head counts that are no power of two is that
of the released code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure, Guard, fresh
from pe_lab.doctor.kind import Adapter, Kind, Patient
from pe_lab.doctor.report import Finding, NotApplicable, Passed, Verdict
from pe_lab.encodings.alibi import alibi_slopes

_CHAPTER = "06 Score position against position"
_CONVENTION = "f(num_heads) → (num_heads,)"
_HEADS = (1, 2, 4, 8, 16, 32, 64, 3, 6, 12, 20, 40, 112)
# 2^x in float32 is right to a few units of 2^-24, however it is multiplied together
# over 112 heads; a wrong exponent changes slopes by percents
EXACT = 2e-5
# of slopes stored in 16 bits: 2^-8 relative
ROUNDED = 5e-3


@dataclass(frozen=True)
class Named:
    """What a set of slopes is.

    Args:
        rule: its formula in words.
        severity: None for the released slopes.
        message, remedy: if it is another one.
        value: the largest relative distance from the released slopes.
    """

    rule: str
    severity: str | None = None
    message: str = ""
    remedy: str = ""
    value: float = 0.0


_NEGATIVE = Named(
    "released slopes, negative",
    "risky",
    "the slopes are negative: right only where they multiply + distance",
    "Return positive slopes, and put the sign where the bias is made.",
    2.0,
)


def _powers(exponents: Tensor) -> Tensor:
    return 2.0**-exponents


def _steps(heads: int) -> Tensor:
    return torch.arange(1, heads + 1, dtype=torch.float64)


def _doubled(heads: int) -> Tensor:
    """The slopes of twice the power of two, cut; each other one from the second on."""
    below = 1 << (heads.bit_length() - 1)
    extra = alibi_slopes(2 * below)[1::2]
    return torch.cat((alibi_slopes(below), extra))[:heads]


def _above(heads: int) -> Tensor:
    """The first slopes of the power of two above; the released ones if H is one."""
    return alibi_slopes(1 << (heads - 1).bit_length())[:heads]


def _pad(heads: int) -> Tensor:
    """The power of two below, then nothing."""
    below = alibi_slopes(1 << (heads.bit_length() - 1))
    return torch.cat((below, torch.zeros_like(below)))[:heads]


def _extras_first(heads: int) -> Tensor:
    below = 1 << (heads.bit_length() - 1)
    slopes = alibi_slopes(heads)
    return torch.cat((slopes[below:], slopes[:below]))


# rule → (formula, severity, what is wrong with it); the first that fits names it
_SLIPS: dict[str, tuple[Callable[[int], Tensor], str, str]] = {
    "2^(−8h/H), also where H is no power of two": (
        lambda h: _powers(8 * _steps(h) / h),
        "risky",
        "these are 2^(−8h/H) in one sequence; the released code, BLOOM and MPT take "
        "the slopes of the power of two below, then every other one of the power above",
    ),
    "released slopes, sorted": (
        lambda h: alibi_slopes(h).sort(descending=True).values,
        "risky",
        "the slopes are sorted; the released order is not: first those of the power "
        "of two below, then the others, so heads of a checkpoint get each other's",
    ),
    "released slopes, from the smallest": (
        lambda h: alibi_slopes(h).flip(0),
        "risky",
        "the slopes come in reversed order, so heads of a checkpoint get each other's",
    ),
    "released slopes, ascending": (
        lambda h: alibi_slopes(h).sort().values,
        "risky",
        "the slopes come in ascending order, so heads of a checkpoint get each other's",
    ),
    "2^(−8(h − 1)/H)": (
        lambda h: _powers(8 * (_steps(h) - 1) / h),
        "wrong",
        "the heads are counted from 0, so the first slope is 1 and all are one too big",
    ),
    "2^(−h)": (
        lambda h: _powers(_steps(h)),
        "wrong",
        "the ratio is ½ whatever the number of heads, which is right for 8 heads only",
    ),
    "2^(−8/h)": (
        lambda h: _powers(8 / _steps(h)),
        "wrong",
        "the exponent is 8/h instead of 8h/H, so slopes grow with h and reach no 1/256",
    ),
    "2^(−h/H)": (
        lambda h: _powers(_steps(h) / h),
        "wrong",
        "the factor 8 is missing in the exponent, so no slope is below ½",
    ),
    "2^(8h/H)": (
        lambda h: _powers(-8 * _steps(h) / h),
        "wrong",
        "the exponent has the wrong sign, so every slope is above 1",
    ),
    "2^(−8h/(H + 1))": (
        lambda h: _powers(8 * _steps(h) / (h + 1)),
        "wrong",
        "the exponent is divided by H + 1",
    ),
    "2^(−8h/(H − 1))": (
        lambda h: _powers(8 * _steps(h) / max(1, h - 1)),
        "wrong",
        "the exponent is divided by H − 1",
    ),
    "2^(−8(h − 1)/(H − 1))": (
        lambda h: _powers(8 * (_steps(h) - 1) / max(1, h - 1)),
        "wrong",
        "the exponents run from 0 to 8, both included, so the first slope is 1",
    ),
    "2^(−8(h + 1)/H)": (
        lambda h: _powers(8 * (_steps(h) + 1) / h),
        "wrong",
        "the heads are counted from 2, so the last slope is below 1/256",
    ),
    "e^(−8h/H)": (
        lambda h: torch.exp(-8 * _steps(h) / h),
        "wrong",
        "the base is e instead of 2",
    ),
    "10^(−8h/H)": (
        lambda h: 10.0 ** (-8 * _steps(h) / h),
        "wrong",
        "the base is 10 instead of 2",
    ),
    "8h/H": (
        lambda h: 8 * _steps(h) / h,
        "wrong",
        "these are the exponents; 2 to the power of minus them are the slopes",
    ),
    "h/H": (
        lambda h: _steps(h) / h,
        "wrong",
        "the slopes are a straight line, not a geometric sequence",
    ),
    "1/h": (
        lambda h: 1 / _steps(h),
        "wrong",
        "the slopes are 1/h, not a geometric sequence",
    ),
    "released slopes, the extra heads first": (
        _extras_first,
        "wrong",
        "the slopes of the power of two above come first; they belong after the others",
    ),
    "extra heads from the second slope": (
        _doubled,
        "wrong",
        "the extra heads take the second, fourth … slope of the power of two above, "
        "which are those of the first heads again; they need the first, third …",
    ),
    "the first slopes of the power of two above": (
        _above,
        "wrong",
        "these are the first slopes of the power of two above, and the small ones are "
        "missing",
    ),
    "the power of two below, then 0": (
        _pad,
        "wrong",
        "the heads beyond the power of two below have no slope",
    ),
}


def name_slopes(slopes: Tensor, *, tolerance: float = EXACT) -> Named:
    """The rule of slopes (H,), positive where the bias punishes distance."""
    return fitting(slopes, tolerance)[0]


def fitting(slopes: Tensor, tolerance: float = EXACT) -> list[Named]:
    """Every rule that gives these slopes (H,), the likeliest first; at least one."""
    slopes = slopes.double().flatten()
    heads = len(slopes)
    paper = alibi_slopes(heads)
    value = float(((slopes - paper) / paper).abs().max())
    mend = f"For {heads} heads the slopes are {_listed(paper)}."
    fits = [Named("released", value=value)] if value <= tolerance else []
    if _near(slopes, -paper, tolerance):
        fits.append(_NEGATIVE)
    for rule, (formula, severity, message) in _SLIPS.items():
        if _near(slopes, formula(heads), tolerance):
            fits.append(Named(rule, severity, message, mend, value))
    fits += _family(slopes, value, mend, tolerance)
    return fits or [_unlike(slopes, value, mend)]


def _family(slopes: Tensor, value: float, mend: str, tolerance: float) -> list[Named]:
    """Multiples and powers of the released slopes, which have their uses."""
    fits, paper = [], alibi_slopes(len(slopes))
    decay = -torch.log1p(-_powers(4 + _steps(len(slopes))))
    if _near(slopes, decay, tolerance):
        message = "the slopes are −ln(1 − 2^(−4 − h)), the decay of a retention layer"
        fits.append(Named("−ln(1 − 2^(−4 − h))", "differs", message, mend, value))
    least, factor = float(slopes.min()), float(slopes[0] / paper[0])
    if not 0 < least < math.inf:
        return []
    reach = -math.log2(least)
    whole = abs(reach - round(reach)) < 1e-3 and round(reach) > 0
    if whole and _near(slopes, paper ** (reach / 8), 8 * tolerance):
        message = f"the smallest slope is 2^−{reach:.0f} instead of 2^−8"
        fits.append(Named(f"2^(−{reach:.0f}h/H)", "differs", message, mend, value))
    if _near(slopes, factor * paper, tolerance):
        message = (
            f"the slopes are the released ones times {factor:.4g}; right if the bias "
            "is scaled later, or for a checkpoint that divides it"
        )
        rule = f"released slopes × {factor:.4g}"
        fits.append(Named(rule, "differs", message, mend, value))
    return fits


def _unlike(slopes: Tensor, value: float, mend: str) -> Named:
    heads = len(slopes)
    if bool((slopes == slopes[0]).all()) and heads > 1:
        message = f"the heads all have the same slope {slopes[0]:.4g}"
        return Named("one slope for all heads", "wrong", message, mend, value)
    if not bool((slopes > 0).all()):
        message = "the slopes are not all above 0"
        return Named("other", "wrong", message, mend, value)
    return Named("other", "wrong", "the slopes follow no known rule", mend, value)


def _near(slopes: Tensor, wanted: Tensor, tolerance: float) -> bool:
    scale = wanted.abs().clamp(min=1e-30)
    return bool(((slopes - wanted).abs() <= tolerance * scale).all())


def _listed(slopes: Tensor) -> str:
    shown = ", ".join(f"{s:.4g}" for s in slopes[:8].tolist())
    return f"{shown}{', …' if len(slopes) > 8 else ''}"


def as_slopes(result: Any, heads: int) -> Tensor | Failure:
    """(H,) float64 of what f(num_heads) gave: a tensor, an array, a list of numbers."""
    if isinstance(result, Failure):
        return result
    try:
        values = torch.as_tensor(result).detach()
    except Exception as error:  # whatever a foreign object says
        return Failure(error)
    if values.is_complex() or values.dtype == torch.bool:
        return Failure(TypeError(f"it gives {values.dtype}"))
    if values.numel() != heads or max(values.shape, default=0) != heads:
        shape = tuple(values.shape)
        return Failure(ValueError(f"it gives {shape} for {heads} heads"))
    return values.double().flatten()


def _recognise(subject: Any, options: Mapping[str, Any], guard: Guard) -> Adapter | str:
    if not callable(subject):
        return "it cannot be called"
    why, copy = "", fresh(subject)
    for heads in (8, 4):
        seen = as_slopes(guard.call(copy, heads), heads)
        if isinstance(seen, Failure):
            why = f"f({heads}): {seen}"
            break
    return why or (lambda copy: copy)


def _identify(patient: Patient) -> dict[str, Any]:
    # each on a copy without memory, so that an earlier answer explains nothing
    raw = {h: patient.guard.call(patient.renewed(), h) for h in _asked(patient)}
    seen = {h: as_slopes(result, h) for h, result in raw.items()}
    patient.facts["slopes"] = seen
    named = _together(
        {
            heads: fitting(slopes, _tolerance(raw[heads]))
            for heads, slopes in seen.items()
            if not isinstance(slopes, Failure)
        }
    )
    patient.facts["named"] = named
    rules = {rule.rule for rule in named.values()}
    shown = {h: s for h, s in seen.items() if not isinstance(s, Failure)}
    heads = next((h for h in (_wish(patient), 6, 8) if h in shown), None)
    return {
        "scheme": "ALiBi slopes",
        "order": rules.pop() if len(rules) == 1 else _worst(named).rule,
        "slopes": None if heads is None else [float(s) for s in shown[heads]],
        "parameters": f"shown for {heads} heads",
    }


def _together(fits: Mapping[int, list[Named]]) -> dict[int, Named]:
    """For each head count the rule that fits most of the others too.

    With few heads many rules agree: 2^−16 for one head may be 2^(−16h/H) as well.
    """
    votes = Counter(name.rule for names in fits.values() for name in names)
    return {
        heads: max(names, key=lambda name: votes[name.rule])
        for heads, names in fits.items()
    }


def _wish(patient: Patient) -> int:
    return int(patient.options.get("num_heads", 0))


def _asked(patient: Patient) -> list[int]:
    wish = _wish(patient)
    return [*_HEADS, *([wish] if wish and wish not in _HEADS else [])]


def _tolerance(raw: Any) -> float:
    """As exact as the dtype is: 16-bit slopes are rounded, and reported as such."""
    narrow = isinstance(raw, Tensor) and raw.dtype in (torch.float16, torch.bfloat16)
    return ROUNDED if narrow else EXACT


_ORDER = {"wrong": 0, "risky": 1, "differs": 2, None: 3}


def _worst(named: Mapping[int, Named]) -> Named:
    ranked = sorted(named.items(), key=lambda item: _ORDER[item[1].severity])
    return ranked[0][1] if ranked else Named("other")


def check_shape(patient: Patient) -> Verdict:
    """One number per head, for every number of heads."""
    bad = {h: s for h, s in patient.facts["slopes"].items() if isinstance(s, Failure)}
    if not bad:
        return Passed("D-SHAPE", f"one slope per head for {len(_HEADS)} head counts")
    heads, failure = next(iter(bad.items()))
    patient.facts["cause"] = "D-SHAPE"
    return Finding(
        "D-SHAPE",
        "wrong",
        f"There are no slopes for {heads} heads ({failure}).",
        remedy="Take the slopes of the power of two below and every other one of the "
        "power above.",
        chapter=_CHAPTER,
    )


def check_values(patient: Patient) -> Verdict:
    """Every slope against the released ones."""
    named: dict[int, Named] = patient.facts["named"]
    bad = [(h, n) for h, n in named.items() if n.severity]
    if not bad:
        worst = max((n.value for n in named.values()), default=0.0)
        return Passed("D-BIAS", "every slope is the released one", worst, ROUNDED)
    if patient.facts.get("cause"):
        return NotApplicable("D-BIAS", f"explained by {patient.facts['cause']}")
    heads, name = _clearest(bad)
    slopes = patient.facts["slopes"][heads]
    return Finding(
        "D-BIAS",
        name.severity or "wrong",
        f"For {heads} heads {name.message}; it gives {_listed(slopes)}.",
        name.value,
        EXACT,
        name.remedy,
        _CHAPTER,
    )


def _clearest(bad: list[tuple[int, Named]]) -> tuple[int, Named]:
    """Of the worst, a rule that has a name, at a head count that is easy to read."""
    rank = {h: i for i, h in enumerate((6, 8, 4, 16, 12, 3, 2, 1))}
    return min(
        bad,
        key=lambda item: (
            _ORDER[item[1].severity],
            item[1].rule == "other",
            rank.get(item[0], 99),
        ),
    )


def check_rounding(patient: Patient) -> Verdict:
    """How far the numbers are from the rule that they follow."""
    if any(n.severity for n in patient.facts["named"].values()):
        return NotApplicable("D-DTYPE", "explained by D-BIAS")
    value = max((n.value for n in patient.facts["named"].values()), default=0.0)
    if value <= EXACT:
        return Passed("D-DTYPE", "right to the roundings of float32", value, EXACT)
    return Finding(
        "D-DTYPE",
        "note",
        f"The slopes are rounded to 16 bits, off by {value:.1e} of their size, which "
        "moves probabilities by less than a thousandth.",
        value,
        EXACT,
        "Keep slopes in float32 until the bias is made.",
        _CHAPTER,
    )


def check_history(patient: Patient) -> Verdict:
    """The same call gives the same slopes, whatever was asked in between."""
    for heads, before in patient.facts["slopes"].items():
        again = as_slopes(patient.call(heads), heads)
        if isinstance(before, Failure) or isinstance(again, Failure):
            continue
        # NaN is not equal to itself, and no memory
        if not torch.equal(before.nan_to_num(), again.nan_to_num()):
            patient.facts["cause"] = "D-HISTORY"
            return Finding(
                "D-HISTORY",
                "wrong",
                f"Slopes for {heads} heads change after a call for others.",
                float((before - again).abs().max()),
                0.0,
                "Make them anew, or key what is kept by the number of heads.",
                _CHAPTER,
            )
    return Passed("D-HISTORY", "the same call gives the same slopes", 0.0, 0.0)


def check_expected(patient: Patient) -> Verdict:
    """The slopes that the caller expects."""
    wanted = patient.options.get("expected", {}).get("slopes")
    if wanted is None:
        return NotApplicable("D-BIAS", "no slopes are expected")
    want = torch.as_tensor(wanted, dtype=torch.float64).flatten()
    seen = as_slopes(patient.call(len(want)), len(want))
    if not isinstance(seen, Failure) and _near(seen, want, ROUNDED):
        return Passed("D-BIAS", "the slopes are the expected ones")
    shown = seen if isinstance(seen, Failure) else _listed(seen)
    return Finding(
        "D-BIAS",
        "wrong",
        f"For {len(want)} heads it gives {shown} instead of {_listed(want)}.",
        remedy="Take the rule that the checkpoint was trained with.",
        chapter=_CHAPTER,
    )


KIND = Kind(
    "slopes",
    _CONVENTION,
    _recognise,
    _identify,
    (
        check_shape,
        check_history,
        check_values,
        check_rounding,
        check_expected,
    ),
)
