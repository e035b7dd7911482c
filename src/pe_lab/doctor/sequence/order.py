"""Order: whether it is known, by which positions, and in which layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.report import Finding, Passed, Verdict
from pe_lab.doctor.sequence import Sequence, gap, modules_of
from pe_lab.doctor.sequence.bench import Bench, Unable, check
from pe_lab.doctor.sequence.identity import reach, shuffled

_BREAK, _FIND = "01 Break the symmetry", "18 Find the bug"
_NONE = ("none", "nope")
_ABSOLUTE = ("absolute", "sinusoidal", "learned", "sinusoid")


@check("D-ORDER", after=("D-CAUSAL", "D-ORDER"))
def check_order(here: Bench) -> Verdict:
    """It knows the order of tokens, if it should."""
    found, wanted = here.facts["scheme"], here.expected("scheme")
    if (without := _no_default(here)) is not None:
        return without
    if found == "none":
        return _no_order(here, wanted)
    if wanted in _NONE and here.facts["ordered"]:
        return Finding("D-ORDER", "wrong", "It knows positions, and should not.")
    return _uses_positions(here)


def _no_order(here: Bench, wanted: Any) -> Finding:
    """Whether none is meant: not if another scheme is expected, or a table is there."""
    table = _unused(here) if wanted is None else ""
    wrong = wanted is not None and wanted not in _NONE
    message = (
        "Nothing but the causal mask tells it the order of tokens"
        if here.facts["causal"]
        else "It does not know the order of tokens: moved tokens give moved outputs"
    )
    if table:
        message += f", though it holds a table of positions, {table}"
    remedy = "Check that the encoding is applied, along the tokens, in what runs."
    if not wrong:
        remedy = "Add a positional encoding, unless none is meant."
    if table:
        remedy = "Look the rows up by 0, 1, 2, … along the tokens."
    severity = "wrong" if wrong else "risky" if table else "note"
    return Finding("D-ORDER", severity, f"{message}.", remedy=remedy, chapter=_BREAK)


def _no_default(here: Bench) -> Finding | None:
    """Positions that are given matter, and those that it makes itself are all alike."""
    if not here.plan.positions or here.plan.positions in here.plan.needs:
        return None
    x = here.x(2)
    plain, usual = here.run(x), here.attempt(x, None, here.steps(2))
    alike = here.attempt(x, None, here.plan.first + torch.zeros_like(here.steps(2)))
    if gap(usual, plain) <= here.tolerance or gap(alike, plain) > here.tolerance:
        return None
    return Finding(
        "D-ORDER",
        "wrong",
        f"Without {here.plan.positions} all tokens of a row are at the same position, "
        "so that it does not know their order; with them it does.",
        gap(usual, plain),
        here.tolerance,
        "By default number the tokens of each row 0, 1, 2, …: along the length, not "
        "the batch.",
        _BREAK,
    )


def _unused(here: Bench) -> str:
    """The name and shape of a learned table of positions inside, if there is one."""
    for module in modules_of(here.prototype):
        for name, part in module.named_modules():
            words = name.lower().replace(".", "_").split("_")
            named = any(w in ("pe", "wpe") or w.startswith("pos") for w in words)
            if named and isinstance(part, nn.Embedding):
                return f"{name} of {part.num_embeddings} rows"
    return ""


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
    legitimate = added and not wrong and not _turned(here, moved)
    if here.facts["scheme"] != "absolute" or legitimate:
        return Passed("D-SHIFT", f"it is {here.facts['scheme']}", moved)
    severity = "wrong" if wrong else "risky" if _turned(here, moved) else "differs"
    return Finding(
        "D-SHIFT",
        severity,
        ("Values or tokens" if added else "Scores") + " depend on where tokens are, "
        "not only on how far apart: shifting all positions by 3 changes the output.",
        moved,
        10 * here.tolerance,
        "Turn queries and keys, and only them, by one rule, each by its own position.",
        "05 Rotate by k",
    )


def _turned(here: Bench, moved: float) -> bool:
    """Whether positions multiply what is there, as a rotation does, and add nothing.

    Of a layer without biases: zeros give zeros, wherever they are, and small inputs
    give scores near 0, in which a position that multiplies is not seen any more.
    """
    plan = here.plan
    if plan.kind != "attention" or not plan.positions:
        return False

    def unbiased(x: Tensor, steps: Tensor) -> Any:
        sequence = here.sequence()
        for module in sequence.modules:
            for name, p in module.named_parameters():
                if name.endswith("bias"):
                    p.data = torch.zeros_like(p)
        return here.patient.guard.call(sequence, x, None, steps)

    if here.facts.get("large"):  # its one copy is not to be changed
        return False
    x, steps = here.x(2), here.steps(2)
    if here.facts["constant"] > here.tolerance:
        nothing = unbiased(0 * x, steps)
        return isinstance(nothing, Tensor) and not bool(nothing.any())
    small = gap(unbiased(0.01 * x, steps + 3), unbiased(0.01 * x, steps))
    return small < 0.01 * moved


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
