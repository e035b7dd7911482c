"""What a layer or model knows about order, who sees whom, and where position enters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lab.doctor.bench import Bench, Unable, bench, check, parameters
from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient
from pe_lab.doctor.layers import first_in_layers, order_in_layers
from pe_lab.doctor.report import Finding, Passed, Verdict
from pe_lab.doctor.sequence import Sequence, gap

_BREAK, _FIND = "01 Break the symmetry", "18 Find the bug"
_NONE = ("none", "nope")
_ABSOLUTE = ("absolute", "sinusoidal", "learned", "sinusoid")


def identify(patient: Patient) -> dict[str, Any]:
    """What it is: its scheme as far as it can be seen, who sees whom, what it takes."""
    here = bench(patient)
    try:
        here.facts["seen"] = who_sees_whom(here)
        here.facts["causal"] = _causal(here)
        here.facts["scheme"] = scheme(here)
    except Unable as error:
        here.facts.setdefault("scheme", f"not seen ({error})")
    plan, given = here.plan, here.facts
    named = (plan.mask, plan.positions, plan.documents)
    takes = [
        *filter(None, named),
        *(["a cache"] if here.decodes and given.get("causal") else []),
    ]
    identity = {
        "scheme": given["scheme"],
        "causal": given.get("causal"),
        "enters": enters(here),
        "takes": ", ".join(takes) or "tokens only",
        "offset": plan.first if plan.positions else None,
        "parameters": parameters(patient.subject),
    }
    return {name: value for name, value in identity.items() if value is not None}


def who_sees_whom(here: Bench) -> Tensor:
    """(L, L): by how much output i moves when token j changes, at [j, i]."""
    length = here.plan.length
    base, other = here.x(1), here.x(1, seed=2)
    if base.dtype == torch.long:
        other = torch.where(other == base, base - 1, other)
    rows = base.repeat(length + 1, *[1] * (base.dim() - 1))
    for j in range(length):
        rows[j + 1, j] = other[0, j]
    # one row a call, so that rows that see each other do not blur it
    out = torch.cat([here.run(row[None]) for row in rows]).double()
    here.facts["plain"] = out[:1]
    moved = (out[1:] - out[:1]).abs().amax(-1)
    return moved / out.pow(2).mean().sqrt().clamp_min(1e-12)


def _causal(here: Bench) -> bool:
    """Whether later tokens do not matter."""
    return not bool((_future(here) > here.tolerance).any())


def _future(here: Bench) -> Tensor:
    """Effects of token j on an earlier output i."""
    seen = here.facts["seen"]
    length = len(seen)
    i, j = torch.tril_indices(length, length, -1)[[1, 0]]
    return seen[j, i]


def _past(here: Bench) -> Tensor:
    """Effects of token j on a later output i."""
    seen = here.facts["seen"]
    length = len(seen)
    j, i = torch.triu_indices(length, length, 1)
    return seen[j, i]


def scheme(here: Bench) -> str:
    """Whether it is none, relative or absolute, or what could not be told apart."""
    constant = _differs_on_equal_tokens(here)
    here.facts["constant"] = constant
    ordered = _ordered(here, constant)
    here.facts["ordered"] = ordered
    if ordered is False:
        return "none"
    moved = _moved_by_a_shift(here)
    here.facts["shift"] = moved
    if moved is None:
        absolute = constant > here.tolerance
        unsure = "relative" if ordered else "relative or none"
        return "absolute" if absolute else unsure
    return "absolute" if moved > 10 * here.tolerance else "relative"


def _differs_on_equal_tokens(here: Bench) -> float:
    """Largest difference between outputs in the middle when all tokens are equal.

    Weights of any kind over equal values give the same value: only a position that is
    part of the token, or of the value, is seen here. The ends may be special.
    """
    one = here.x(1)[:, :1]
    same = one.expand(1, 15, *one.shape[2:]).clone()
    out = here.attempt(same)
    if isinstance(out, Failure):
        out = here.run(same[:, : here.plan.length])
    edge = out.shape[1] // 3
    return max(gap(row, out[0, edge]) for row in out[0, edge + 1 : -edge])


def _ordered(here: Bench, constant: float) -> bool | None:
    """Whether anything besides a causal mask tells the order; None if unknown."""
    if not here.facts["causal"]:
        x, order = here.x(1), _order(here.plan.length)
        moved = gap(here.run(x[:, order]), here.run(x)[:, order])
        return moved > here.tolerance
    if constant > here.tolerance:
        return True
    if here.plan.positions:
        wide = here.plan.first + 2 * torch.arange(here.plan.length)[None]
        out = here.attempt(here.x(1), None, wide)
        if not isinstance(out, Failure) and gap(out, here.run(here.x(1))) > 1e-4:
            return True
    try:
        return max(order_in_layers(here)) > here.tolerance
    except Unable:
        x = here.x(1)
        last = here.plan.length - 1
        swap = torch.tensor([*range(last - 1, -1, -1), last])
        moved = gap(here.run(x[:, swap])[:, -1], here.run(x)[:, -1])
        return None if moved > here.tolerance else False


def _order(length: int) -> Tensor:
    return torch.randperm(length, generator=torch.Generator().manual_seed(5))


def _moved_by_a_shift(here: Bench) -> float | None:
    """How much outputs change when every token moves by 3 places."""
    plan, x = here.plan, here.x(2)
    if plan.positions:
        far = here.attempt(x, None, here.steps(2) + 3)
        if not isinstance(far, Failure):
            return gap(far, here.run(x, None, here.steps(2)))
    if plan.mask:
        pads = here.x(2, 3, seed=4)
        mask = torch.ones(2, plan.length + 3, dtype=torch.bool)
        mask[:, :3] = False
        out = here.attempt(torch.cat((pads, x), 1), mask)
        if not isinstance(out, Failure):
            moved = gap(out[:, 3:], here.run(x))
            return None if moved == float("inf") else moved
    return None


def enters(here: Bench) -> str | None:
    """Where position enters, if layers are found inside."""
    if here.facts.get("ordered") is not True:
        return None
    try:
        moved = order_in_layers(here)
    except Unable:
        return None
    inside = [m > here.tolerance for m in moved]
    here.facts["layers"] = inside
    if all(inside):
        return "in every layer"
    if not any(inside):
        return "before the first layer"
    which = ", ".join(str(i) for i, yes in enumerate(inside) if yes)
    return f"in layers {which} of 0 … {len(inside) - 1}"


@check("D-MODE")
def check_mode(here: Bench) -> Verdict:
    """In eval mode the same input gives the same output."""

    def seeded(x: Tensor, sequence: Sequence, seed: int) -> Tensor:
        torch.manual_seed(seed)
        return sequence(x)

    x, call = here.x(2), here.patient.guard.call
    one, two = (here.given(call(seeded, x, here.sequence(), n)) for n in (0, 1))
    moved = gap(two, one)
    if not bool(torch.isfinite(one).all()):
        return _not_finite(one)
    if moved <= here.tolerance:
        return Passed("D-MODE", "eval mode is deterministic", moved, here.tolerance)
    return Finding(
        "D-MODE",
        "wrong",
        "In eval mode the same input gives another output with each random seed.",
        moved,
        here.tolerance,
        "Tie every dropout to self.training: F.dropout(x, p, self.training).",
        _FIND,
    )


def _not_finite(out: Tensor) -> Finding:
    first = int((~torch.isfinite(out)).any(-1).any(0).nonzero()[0])
    return Finding(
        "D-CAUSAL",
        "wrong",
        f"On {out.shape[1]} random tokens the output has NaN or infinite entries, the "
        f"first at position {first}.",
        remedy="A query that may look nowhere needs a key: let each see itself.",
        chapter=_FIND,
    )


@check("D-BATCH", after=("D-CAUSAL",))
def check_rows(here: Bench) -> Verdict:
    """A row's output does not depend on the rows beside it, nor on its place."""
    x = here.x(3)
    other = torch.cat((x[:1], here.x(2, seed=1)))
    moved = gap(here.run(other)[:1], here.run(x)[:1])
    if moved > here.tolerance:
        apart = float(_past(here).max()) <= here.tolerance if _known(here) else False
        swapped = (
            " Tokens of one row do not see each other: axes 0 and 1 are taken as "
            "(length, batch)."
        )
        return Finding(
            "D-BATCH",
            "wrong",
            "Row 0 changes when only rows 1 and 2 do." + (swapped if apart else ""),
            moved,
            here.tolerance,
            "Give (batch, length, channels) to what expects it: batch_first=True, or "
            "transpose before and after.",
            _FIND,
        )
    return _equal_rows(here)


def _known(here: Bench) -> bool:
    return "seen" in here.facts


def _equal_rows(here: Bench) -> Verdict:
    one = here.x(1)
    out = here.run(one.expand(3, *one.shape[1:]).clone())
    moved = max(gap(out[1], out[0]), gap(out[2], out[0]))
    if moved > here.tolerance:
        return Finding(
            "D-ORDER",
            "wrong",
            "Three equal rows of a batch come out different: position is counted "
            "along the batch, not along the tokens.",
            moved,
            here.tolerance,
            "Index positions by the length axis: of (batch, length, channels), "
            "x.size(1).",
            _BREAK,
        )
    return _ragged_rows(here)


def _ragged_rows(here: Bench) -> Verdict:
    """Rows with positions of their own are the rows alone."""
    x, plan, moved = here.x(2), here.plan, 0.0
    if plan.positions and plan.rows:
        steps = here.steps(2)
        for other in (2 * steps - plan.first, steps + 3, steps + 5000):
            places = torch.stack((steps[0], other[1]))
            out = here.attempt(x, None, places)
            if not isinstance(out, Failure):
                alone = [
                    here.run(x[i : i + 1], None, places[i : i + 1]) for i in (0, 1)
                ]
                moved = max(moved, gap(out, torch.cat(alone)))
    if moved > here.tolerance:
        return Finding(
            "D-BATCH",
            "wrong",
            "Two rows with positions of their own are not what they are alone: one "
            "row's positions, or the largest of the batch, are used for all.",
            moved,
            here.tolerance,
            "Keep positions (batch, length), and no choice that depends on a maximum "
            "over rows.",
            _FIND,
        )
    return Passed("D-BATCH", "rows do not see each other", moved, here.tolerance)


@check("D-CAUSAL")
def check_causal(here: Bench) -> Verdict:
    """Whether later tokens are hidden, all of them and only they."""
    seen = here.facts.get("seen")
    if seen is None:
        raise Unable("its outputs could not be compared")
    future, past = _future(here), _past(here)
    most, usual = float(future.max()), float(past.mean())
    if float(past.max()) <= here.tolerance < most:
        return _leak(
            here,
            "Each token sees only itself and later ones: the causal "
            "mask is transposed.",
            most,
        )
    if max(most, float(past.max())) <= here.tolerance:
        return _leak(here, "No token sees any other.", 0.0)
    if most > here.tolerance:
        return _open(here, most, usual)
    return _hidden_diagonal(here) or _depends_on_what_follows(here)


def _leak(here: Bench, message: str, value: float) -> Finding:
    return Finding(
        "D-CAUSAL",
        "wrong",
        message,
        value,
        here.tolerance,
        "Set scores of later keys to −∞ before the softmax: key n is visible from "
        "query m if n ≤ m.",
        _BREAK,
    )


def _open(here: Bench, most: float, usual: float) -> Verdict:
    """It sees later tokens: by design, or by a bug?"""
    ahead, behind = _reach(here, -1), _reach(here, 1)
    if ahead < min(behind, here.plan.length - 1):
        text = f"Position i sees tokens up to i + {ahead}, and none after them: the "
        return _leak(here, f"{text}causal mask is off by one.", most)
    share = float(_future(here).mean()) / max(usual, 1e-12)
    wanted = here.expected("causal")
    # what decodes with a cache has not seen later tokens, so a full pass must not
    if wanted or (wanted is None and _decoder(here)):
        why = "the causal mask is missing, multiplied, or applied after the softmax"
    elif share < 0.3:
        why = "a mask hides them in part"
    elif share > 1 / 0.3:
        why = "the causal mask is inverted or transposed"
    else:
        return Passed("D-CAUSAL", "all tokens see each other", most)
    text = "Later tokens change earlier outputs"
    return _leak(
        here, f"{text}, {share:.2g} times as much as the other way: {why}.", most
    )


def _reach(here: Bench, sign: int) -> int:
    """How many tokens ahead (−1) or back (1) anything is seen."""
    seen = here.facts["seen"]
    effects = [float(seen.diagonal(sign * k).max()) for k in range(1, len(seen))]
    return max((k for k, e in enumerate(effects, 1) if e > here.tolerance), default=0)


def _decoder(here: Bench) -> bool:
    """Whether it decodes with a cache, so that it cannot have seen the future."""
    if not here.decodes:
        return False
    try:
        here.decode(here.x(2, 5), [3, 1, 1])
    except Unable:
        return False
    return True


def _hidden_diagonal(here: Bench) -> Finding | None:
    own = here.facts["seen"].diagonal()
    message = "A token does not see itself: the mask hides the diagonal too"
    if float(own[1:].min()) <= here.tolerance:
        where = int(own[1:].argmin()) + 1
        return _leak(
            here,
            f"{message} (output {where} ignores token {where}).",
            float(own[1:].min()),
        )
    try:
        first = max(first_in_layers(here))
    except Unable:
        return None
    inside = here.facts.get("layers")
    if first > here.tolerance and not (inside and any(inside)):
        return _leak(
            here,
            f"{message}: on equal tokens position 0, which then sees "
            "nothing, differs from position 1.",
            first,
        )
    return None


def _depends_on_what_follows(here: Bench) -> Verdict:
    x, short = here.x(2), here.plan.length - 3
    moved = gap(here.run(x[:, :short]), here.run(x)[:, :short])
    if moved > here.tolerance:
        return Finding(
            "D-CAUSAL",
            "wrong",
            f"Earlier outputs change when {here.plan.length - short} tokens are "
            "appended, whatever they are: position or scale depends on the length.",
            moved,
            here.tolerance,
            "Count positions from the first token, and take nothing from the length.",
            _FIND,
        )
    if here.expected("causal") is False:
        return Finding(
            "D-CAUSAL",
            "wrong",
            "Later tokens are hidden, and should be seen.",
            remedy="Leave the causal mask out.",
            chapter=_BREAK,
        )
    return Passed("D-CAUSAL", "later tokens are hidden", moved, here.tolerance)


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
    everything = min(_reach(here, 1), _reach(here, -1)) == plan.length - 1
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
    order, steps = _order(here.plan.length), here.steps(2)
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
