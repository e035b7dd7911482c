"""Who sees whom: rows, later tokens, and nothing by chance."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.report import Finding, Passed, Verdict
from pe_lab.doctor.sequence import Sequence, gap
from pe_lab.doctor.sequence.bench import Bench, Unable, check
from pe_lab.doctor.sequence.identity import future, past, reach
from pe_lab.doctor.sequence.layers import first_in_layers

_BREAK, _FIND = "01 Break the symmetry", "18 Find the bug"


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
        apart = float(past(here).max()) <= here.tolerance if _known(here) else False
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
    ahead, behind = future(here), past(here)
    most, usual = float(ahead.max()), float(behind.mean())
    if float(behind.max()) <= here.tolerance < most:
        return _leak(
            here,
            "Each token sees only itself and later ones: the causal "
            "mask is transposed.",
            most,
        )
    if max(most, float(behind.max())) <= here.tolerance:
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
    ahead, behind = reach(here, -1), reach(here, 1)
    if ahead < min(behind, here.plan.length - 1):
        text = f"Position i sees tokens up to i + {ahead}, and none after them: the "
        return _leak(here, f"{text}causal mask is off by one.", most)
    share = float(future(here).mean()) / max(usual, 1e-12)
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
    if wanted is None and why.startswith("the causal mask is missing"):
        why += "; if it shall see them, say expected={'causal': False}"
    return _leak(
        here, f"{text}, {share:.2g} times as much as the other way: {why}.", most
    )


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
