"""Order: whether it is known, by which positions, and in which layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.report import Finding, Passed, Verdict
from pe_lab.doctor.sequence import Sequence, gap
from pe_lab.doctor.sequence.bench import Bench, Unable, check
from pe_lab.doctor.sequence.identity import reach, shuffled

_BREAK, _FIND = "01 Break the symmetry", "18 Find the bug"
_NONE = ("none", "nope")
_ABSOLUTE = ("absolute", "sinusoidal", "learned", "sinusoid")


@check("D-ORDER", after=("D-CAUSAL", "D-ORDER"))
def check_order(here: Bench) -> Verdict:
    """It knows the order of tokens, if it should."""
    found, wanted = here.facts["scheme"], here.expected("scheme")
    if found == "none":
        wrong = wanted is not None and wanted not in _NONE
        return Finding(
            "D-ORDER",
            "wrong" if wrong else "note",
            "It does not know the order of tokens: moved tokens give moved outputs."
            if not here.facts["causal"]
            else "Nothing but the causal mask tells it the order of tokens.",
            remedy="Add a positional encoding, unless none is meant."
            if not wrong
            else "Check that the encoding is applied, along the tokens, in what runs.",
            chapter=_BREAK,
        )
    if wanted in _NONE and here.facts["ordered"]:
        return Finding("D-ORDER", "wrong", "It knows positions, and should not.")
    return _uses_positions(here)


def _uses_positions(here: Bench) -> Verdict:
    """The positions argument is what decides."""
    plan = here.plan
    if not plan.positions:
        return Passed("D-ORDER", "it knows the order of tokens")
    x, wide = here.x(2), plan.first + 2 * torch.arange(plan.length).expand(2, -1)
    out = here.attempt(x, None, wide)
    moved = gap(out, here.run(x)) if isinstance(out, Tensor) else 1.0
    if moved <= here.tolerance:
        return Finding(
            "D-ORDER",
            "note" if _counted_by_mask(here) else "wrong",
            f"It takes {plan.positions} and ignores them: every other position gives "
            "the same output.",
            moved,
            here.tolerance,
            "Hand the positions on to the encoding, or do not take them.",
            _BREAK,
        )
    everything = min(reach(here, 1), reach(here, -1)) == plan.length - 1
    if not here.facts["causal"] and everything:  # windows go by the order of the tensor
        return _moves_with_positions(here, x)
    return Passed("D-ORDER", "it knows the order of tokens", moved, here.tolerance)


def _counted_by_mask(here: Bench) -> bool:
    """Whether tokens are numbered by the mask: hidden ones in between do not count."""
    if not here.plan.mask:
        return False
    x, pads = here.x(2), here.x(2, 2, seed=4)
    rows = torch.cat((x[:, :4], pads, x[:, 4:]), 1)
    mask = torch.ones(rows.shape[:2], dtype=torch.bool)
    mask[:, 4:6] = False
    out = here.attempt(rows, mask)
    real = out[:, mask[0]] if isinstance(out, Tensor) else out
    return gap(real, here.run(x)) <= 10 * here.tolerance


def _moves_with_positions(here: Bench, x: Tensor) -> Verdict:
    order, steps = shuffled(here.plan.length), here.steps(2)
    moved = gap(
        here.run(x[:, order], None, steps[:, order]),
        here.run(x, None, steps)[:, order],
    )
    if moved > here.tolerance:
        # a second encoding that is relative by index is a design, such as DeBERTa's
        return Finding(
            "D-ORDER",
            "differs" if here.facts["constant"] > here.tolerance else "wrong",
            f"Tokens that are moved together with their {here.plan.positions} give "
            "other outputs: something still goes by the order of the tensor.",
            moved,
            here.tolerance,
            "Use the given positions for queries and keys, in every layer.",
            _BREAK,
        )
    return Passed("D-ORDER", "the positions tell the order", moved, here.tolerance)


@check("D-SHIFT", after=("D-CAUSAL", "D-ORDER"))
def check_shift(here: Bench) -> Verdict:
    """Relative schemes do not change when all positions shift."""
    moved, wanted = here.facts.get("shift"), here.expected("scheme")
    if moved is None:
        raise Unable("it takes neither positions nor a mask")
    added = here.facts["constant"] > here.tolerance
    wrong = wanted is not None and wanted not in (*_ABSOLUTE, *_NONE)
    if here.facts["scheme"] != "absolute" or (added and not wrong):
        return Passed("D-SHIFT", f"it is {here.facts['scheme']}", moved)
    return Finding(
        "D-SHIFT",
        "wrong" if wrong else "differs",
        ("Values or tokens" if added else "Scores") + " depend on where tokens are, "
        "not only on how far apart: shifting all positions by 3 changes the output.",
        moved,
        10 * here.tolerance,
        "Turn queries and keys, and only them, by one rule, each by its own position.",
        "05 Rotate by k",
    )


@check("D-LAYER", after=("D-CAUSAL", "D-ORDER"))
def check_layers(here: Bench) -> list[Verdict]:
    """Position enters once or in every layer, and every path gives the same."""
    return [*_where(here), *_paths(here)]


def _where(here: Bench) -> list[Verdict]:
    inside = here.facts.get("layers")
    added = here.facts["constant"] > here.tolerance  # then layers need not know
    if not inside or all(inside) or not any(inside) or added:
        return []
    wanted = here.expected("enters") or "in every layer"
    told = "enters" in (here.patient.options.get("expected") or {})
    some = ", ".join(str(i) for i, yes in enumerate(inside) if not yes)
    return [
        Finding(
            "D-LAYER",
            "wrong" if told and wanted != "in some layers" else "differs",
            f"Layers {some} do not know positions, and others do.",
            remedy="Hand the encoding to every layer, unless they take turns by "
            "design.",
            chapter=_FIND,
        )
    ]


def _paths(here: Bench) -> list[Verdict]:
    x, plan = here.x(3), here.plan
    plain = here.run(x)
    everything = torch.ones(x.shape[:2], dtype=torch.bool)
    paths = {
        f"a {plan.mask} that hides nothing": (plan.mask, (everything,)),
        f"{plan.positions} that are the usual ones": (
            plan.positions,
            (None, here.steps(3)),
        ),
    }
    worst = 0.0
    for name, (there, asked) in paths.items():
        out = here.attempt(x, *asked) if there else plain
        moved = gap(out, plain)
        worst = max(worst, moved)
        if moved > here.tolerance:
            return [
                _from_the_end(here, x, plain) or _other_path(here, name, moved, out)
            ]
    return [*_train_mode(here, plain), Passed("D-LAYER", "all paths agree", worst)]


def _from_the_end(here: Bench, x: Tensor, plain: Tensor) -> Finding | None:
    """Whether the default positions are the usual ones in reverse."""
    if not here.plan.positions:
        return None
    moved = gap(here.attempt(x, None, here.steps(len(x)).flip(1)), plain)
    if moved > here.tolerance:
        return None
    return Finding(
        "D-ORDER",
        "wrong",
        "Its default positions count from the last token, and change when one is "
        "appended.",
        remedy="Count from the first token, with its cache.",
        chapter=_BREAK,
    )


def _other_path(here: Bench, name: str, moved: float, out: Any) -> Finding:
    failed = f" ({out})" if isinstance(out, Failure) else ""
    return Finding(
        "D-LAYER",
        "wrong",
        f"With {name} the output is another one{failed}: two paths through the code "
        "do not agree.",
        moved,
        here.tolerance,
        "Let one path call the other, with the default filled in.",
        _FIND,
    )


def _train_mode(here: Bench, plain: Tensor) -> list[Verdict]:
    """Train mode without randomness is eval mode."""

    def seeded(x: Tensor, seed: int) -> Tensor:
        torch.manual_seed(seed)
        return trained(x)

    x, call = here.x(3), here.patient.guard.call
    trained = Sequence(here.sequence().subject, here.plan, training=True)
    one, two = call(seeded, x, 0), call(seeded, x, 1)
    random = isinstance(one, Failure) or isinstance(two, Failure)
    if random or gap(two, one) > 0 or gap(one, plain) <= here.tolerance:
        return []
    alone = gap(call(seeded, x[:1], 0), one[:1]) <= here.tolerance
    return [
        Finding(
            "D-MODE",
            "risky" if alone else "note",
            "Train mode gives another output than eval mode, and not by chance.",
            gap(one, plain),
            here.tolerance,
            "Apply position and mask in both modes alike.",
            _FIND,
        )
    ]
