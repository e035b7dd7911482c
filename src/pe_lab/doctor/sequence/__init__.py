"""Layers and models over sequences: how each is called, and what it can be asked.

An attention layer takes embeddings, a model takes ids; both give one row of channels
for each token. What else they take is read off their signature; how they mean it, from
what they do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.guard import Failure, Guard, fresh

MASKS = (
    "attention_mask", "key_padding_mask", "src_key_padding_mask", "padding_mask",
    "pad_mask", "mask", "attn_mask",
)  # fmt: skip
POSITIONS = ("position_ids", "positions", "pos_ids", "position", "pos", "input_pos")
OFFSETS = ("start_pos", "offset", "past_length", "position_offset")
CACHES = (
    "past_key_values", "cache", "kv_cache", "past_kv", "past_key_value", "layer_past",
    "past", "state",
)  # fmt: skip
DOCUMENTS = ("document_ids", "doc_ids", "documents", "segment_ids", "sequence_ids")
_HIDING = ("key_padding_mask", "src_key_padding_mask", "padding_mask", "pad_mask")
_OUTPUTS = ("logits", "last_hidden_state", "output", "out")


@dataclass(frozen=True)
class MaskForm:
    """How a padding mask is handed over.

    Args:
        shape: "row" (B, L), "key" (B, 1, L) or "head" (B, 1, 1, L).
        dtype: bool, int64, or float for 0 where visible and −∞ where not.
        hides: whether true means hidden.
    """

    shape: str = "row"
    dtype: torch.dtype = torch.bool
    hides: bool = False

    def __call__(self, visible: Tensor) -> Tensor:
        """The boolean mask, true where a token is real, in this form."""
        if visible.dim() == 2:
            visible = {
                "row": visible,
                "key": visible[:, None],
                "head": visible[:, None, None],
            }[self.shape]
        elif self.shape != "row":
            visible = visible if self.shape == "key" else visible[:, None]
        if self.dtype.is_floating_point:
            lowest = torch.finfo(self.dtype).min
            return torch.zeros(visible.shape).masked_fill(~visible, lowest)
        return (~visible if self.hides else visible).to(self.dtype)


@dataclass(frozen=True)
class Plan:
    """How a subject is called.

    Args:
        kind: "attention" or "model".
        width: d_model of embeddings, or how many token ids are used.
        length: of the usual probe.
        times: how often the sequence is given: 3 for (query, key, value).
        turned: whether axes 0 and 1 are (length, batch).
        needs: names of arguments without default, of those below.
        names: of all arguments.
        mask, positions, offset, cache, documents: their names, "" without.
        form: of the mask.
        rows: whether positions are (B, L), not (L,).
        first: the position of the first token by default.
        step: the caller's own way to decode.
        adapters: what the caller says about mask and positions.
    """

    kind: str
    width: int = 0
    length: int = 9
    times: int = 1
    turned: bool = False
    needs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    mask: str = ""
    positions: str = ""
    offset: str = ""
    cache: str = ""
    documents: str = ""
    form: MaskForm = MaskForm()
    rows: bool = True
    first: int = 0
    step: Callable[..., Any] | None = None
    adapters: Mapping[str, Callable[[Tensor], Mapping[str, Any]]] = field(
        default_factory=dict
    )

    def inputs(self, rows: int, length: int, seed: int = 0) -> Tensor:
        """Random tokens (B, L), or embeddings (B, L, d), no two neighbours alike."""
        draw = torch.Generator().manual_seed(1000 * seed + length)
        if self.kind == "attention":
            shape = (rows, length, self.width)
            return torch.randn(shape, generator=draw, dtype=torch.float64).float()
        # the first ids are often padding, beginning and end
        low = 3 if self.width > 6 else 0
        ids = torch.randint(low, self.width - 1, (rows, length), generator=draw)
        alike = ids[:, 1:] == ids[:, :-1]
        ids[:, 1:] += (alike & (ids[:, 1:] < self.width - 1)).long()
        return ids

    def arguments(
        self, x: Tensor, asked: Mapping[str, Tensor | None]
    ) -> dict[str, Any]:
        """Keyword arguments for what is asked, and for what cannot be left out."""
        given: dict[str, Any] = {}
        rows, length = x.shape[:2]
        mask, positions = asked.get("mask"), asked.get("positions")
        if mask is None and self.mask in self.needs:
            mask = torch.ones(rows, length, dtype=torch.bool)
        if positions is None and self.positions in self.needs:
            positions = self.first + torch.arange(length).expand(rows, -1)
        if mask is not None:
            own = self.adapters.get("mask")
            given |= own(mask) if own else {self.mask: self.form(mask)}
        if positions is not None:
            own = self.adapters.get("positions")
            short = positions if self.rows else positions[0]
            given |= own(positions) if own else {self.positions: short}
        if asked.get("documents") is not None:
            given[self.documents] = asked["documents"]
        if self.offset in self.needs:
            given[self.offset] = 0
        return given


class Sequence:
    """A copy of the subject, called in one way whatever its own is.

    Args:
        subject: the copy.
        plan: how it is called.
        training: in train mode instead of eval mode.
    """

    def __init__(self, subject: Any, plan: Plan, *, training: bool = False) -> None:
        self.subject, self.plan, self.training = subject, plan, training
        self.modules = modules_of(subject)

    def __call__(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """(B, L, channels) of tokens (B, L) or embeddings (B, L, d).

        mask is true where a token may be seen, (B, L) or (B, L, L).
        """
        asked = {"mask": mask, "positions": positions, "documents": documents}
        return self.ask(x, self.plan.arguments(x, asked))

    def ask(self, x: Tensor, given: Mapping[str, Any]) -> Tensor:
        """The output for these arguments."""
        return self.output(self.raw(x, given))

    def raw(self, x: Tensor, given: Mapping[str, Any]) -> Any:
        """What the subject gives back, whole."""
        x = x.transpose(0, 1) if self.plan.turned else x
        if x.is_floating_point():
            x = x.to(self.dtype)
        with in_mode(self.modules, self.training):
            return self.subject(*[x] * self.plan.times, **given)

    def output(self, result: Any) -> Tensor:
        """The rows of channels in what came back."""
        for name in _OUTPUTS:
            if isinstance(getattr(result, name, None), Tensor):
                result = getattr(result, name)
            elif isinstance(result, Mapping) and name in result:
                result = result[name]
        while isinstance(result, tuple | list) and len(result):
            result = result[0]
        if not isinstance(result, Tensor):
            raise TypeError(f"it gives a {type(result).__name__}, not a tensor")
        return result.transpose(0, 1) if self.plan.turned else result

    @property
    def dtype(self) -> torch.dtype:
        """Of its parameters."""
        floats = (p.dtype for m in self.modules for p in m.parameters())
        return next((d for d in floats if d.is_floating_point), torch.float32)


def modules_of(subject: Any) -> list[nn.Module]:
    """The modules that a subject is, is bound to, closes over or calls by name."""
    if isinstance(subject, nn.Module):
        return [subject]
    if isinstance(subject, MethodType):
        return modules_of(subject.__self__)
    if isinstance(subject, partial):
        return [m for part in (subject.func, *subject.args) for m in modules_of(part)]
    if isinstance(subject, FunctionType):
        cells = [c.cell_contents for c in subject.__closure__ or ()]
        named = [subject.__globals__.get(n) for n in subject.__code__.co_names]
        given = [
            *(subject.__defaults__ or ()),
            *(subject.__kwdefaults__ or {}).values(),
        ]
        parts = cells + given + [n for n in named if isinstance(n, nn.Module)]
        return [m for part in parts if part is not subject for m in modules_of(part)]
    if isinstance(subject, type):
        return []
    inner = getattr(subject, "__dict__", {}).values()
    return [part for part in inner if isinstance(part, nn.Module)]


@contextmanager
def in_mode(modules: list[nn.Module], training: bool) -> Iterator[None]:
    """All of them in train or eval mode for a while."""
    every = [m for module in modules for m in module.modules()]
    modes = [m.training for m in every]
    for module in every:
        module.training = training
    try:
        yield
    finally:
        for module, mode in zip(every, modes, strict=True):
            module.training = mode


def loud(subject: Any) -> Any:
    """The subject with weights at least so large that attention attends to something.

    Weights near 0, as many are at first, make scores near 0, a softmax that is a plain
    mean, and differences that drown in rounding. Their structure is the same.
    """
    draw = torch.Generator().manual_seed(0)
    weights = {id(p): p for m in modules_of(subject) for p in m.parameters()}
    for p in weights.values():
        if p.requires_grad and p.is_floating_point() and not p.is_meta:
            noise = torch.randn(p.shape, generator=draw, dtype=torch.float64)
            _raise(p.data, noise)
    return subject


def _raise(weight: Tensor, noise: Tensor) -> None:
    if weight.dim() < 2:
        weight += 0.1 * noise.to(weight)
        return
    enough = min(weight.shape[-2:]) ** -0.5
    level = float(weight.double().std()) if weight.numel() > 1 else 0.0
    if level < 0.05 * enough:
        weight += enough * noise.to(weight)
    elif level < enough:
        weight *= enough / level


def recognise(
    kind: str, subject: Any, options: Mapping[str, Any], guard: Guard
) -> Callable[[Any], Sequence] | str:
    """How to call the subject, or why it is not of this kind."""
    if not callable(subject) or isinstance(subject, type):
        return "it cannot be called"
    plan = _sized(_named(kind, subject, options), subject, options, guard)
    if isinstance(plan, str):
        return plan
    twin = fresh(subject)
    probe = Sequence(twin if twin is subject else loud(twin), plan)
    found = _with_positions(_with_mask(plan, probe, guard), probe, guard)
    return lambda copy: Sequence(copy, found)


def _parameters(subject: Any) -> list[inspect.Parameter]:
    """Its named arguments, as far as they can be known."""
    try:
        called = subject.forward if isinstance(subject, nn.Module) else subject
        every = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _named(kind: str, subject: Any, options: Mapping[str, Any]) -> Plan:
    """What the signature says."""
    plain = _parameters(subject)
    names = tuple(p.name for p in plain[1:])
    needs = tuple(p.name for p in plain[1:] if p.default is p.empty)
    triple = kind == "attention" and len(needs) >= 2 and not set(needs) & set(MASKS)
    picked: dict[str, Any] = {
        part: next((n for n in words if n in names), "")
        for part, words in (
            ("mask", MASKS), ("positions", POSITIONS), ("offset", OFFSETS),
            ("cache", CACHES), ("documents", DOCUMENTS),
        )
    }  # fmt: skip
    own = {n: options[n] for n in ("mask", "positions") if callable(options.get(n))}
    picked |= {n: n for n in own}
    picked |= {n: v for n, v in options.items() if n in picked and isinstance(v, str)}
    return Plan(
        kind, times=3 if triple else 1, needs=needs, names=names, adapters=own,
        turned=triple and getattr(subject, "batch_first", None) is False,
        step=options.get("step"), **picked,
    )  # fmt: skip


def _sized(
    plan: Plan, subject: Any, options: Mapping[str, Any], guard: Guard
) -> Plan | str:
    """With a width that the subject takes."""
    why = "it takes no sequence"
    for width in _widths(plan.kind, subject, options):
        for length in (9, 5):
            trial = replace(plan, width=width, length=length)
            x = trial.inputs(2, length)
            out = guard.call(Sequence(fresh(subject), trial), x)
            if isinstance(out, Failure):
                why = str(out)
                continue
            fits = out.dim() == 3 and out.shape[:2] == (2, length) and out.numel()
            if fits and (plan.kind == "model" or out.shape[2] == width):
                return trial
            why = f"of {tuple(x.shape)} it gives {tuple(out.shape)}"
    return why


def _widths(kind: str, subject: Any, options: Mapping[str, Any]) -> list[int]:
    told = options.get("d_model" if kind == "attention" else "vocab_size")
    if isinstance(told, int):
        return [told if kind == "attention" else min(told, 24)]
    if kind == "model":
        return [24, 12, 8, 5, 3]
    sizes = [d for m in modules_of(subject) for p in m.parameters() for d in p.shape]
    names = ("embed_dim", "d_model", "hidden_size", "dim")
    named = [getattr(subject, n, None) for n in names]
    usual = [32, 64, 16, 8, 128, 512, 768]
    common = sorted(set(sizes), key=lambda d: -sizes.count(d))[:8]
    known = [n for n in named if isinstance(n, int)] + common + usual
    return list(dict.fromkeys(known))


def _with_mask(plan: Plan, probe: Sequence, guard: Guard) -> Plan:
    """With the form of mask under which hidden tokens are hidden."""
    if not plan.mask or "mask" in plan.adapters:
        return plan
    length, usual = plan.length, plan.mask in _HIDING
    x, other = plan.inputs(3, length), plan.inputs(3, length, seed=1)
    other = torch.cat((other[:, :2], x[:, 2:]), 1)
    real = torch.ones(3, length, dtype=torch.bool)
    part = real.clone()
    part[:, :2] = False
    runs = None
    for form in _forms(plan.mask, usual):
        trial = Sequence(probe.subject, replace(plan, form=form))
        plain = guard.call(trial, x) if plan.mask not in plan.needs else None
        whole, one, two = (
            guard.call(trial, a, m) for a, m in ((x, real), (x, part), (other, part))
        )
        if any(
            isinstance(o, Failure) or o.shape[:2] != x.shape[:2]
            for o in (whole, one, two)
        ):
            continue
        runs = runs or form
        same = plain is None or gap(whole, plain) < 1e-4
        if same and gap(one[:, 2:], two[:, 2:]) < 1e-4:
            return replace(plan, form=form)
    return replace(plan, mask="") if runs is None else replace(plan, form=runs)


def _forms(name: str, hides: bool) -> list[MaskForm]:
    whole = torch.long if name == "attention_mask" else torch.bool
    other = torch.bool if whole == torch.long else torch.long
    kinds = [(d, h) for h in (hides, not hides) for d in (whole, other)]
    kinds.append((torch.float32, False))
    return [MaskForm(s, d, h) for s in ("row", "head", "key") for d, h in kinds]


def _with_positions(plan: Plan, probe: Sequence, guard: Guard) -> Plan:
    """With the shape of position ids, and where they start by default."""
    if not plan.positions:
        return plan
    x, steps = plan.inputs(2, plan.length), torch.arange(plan.length).expand(2, -1)
    plain, works = guard.call(Sequence(probe.subject, plan), x), None
    for rows in (True, False):
        trial = replace(plan, rows=rows)
        for first in (0, 1, 2, 3):
            sequence = Sequence(probe.subject, trial)
            out = guard.call(sequence, x, None, steps + first)
            if isinstance(out, Failure) or out.shape != plain.shape:
                break
            works = works or trial
            if gap(out, plain) < 1e-4:
                return replace(trial, first=first)
    return works or replace(plan, positions="")


def gap(a: Any, b: Any) -> float:
    """Largest difference, relative to the size of b; ∞ if they cannot be compared."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    if not bool(torch.isfinite(a).all() & torch.isfinite(b).all()):
        return float("inf")
    a, b = a.double(), b.double()
    size = b.pow(2).mean().sqrt().clamp_min(1e-12)
    return float((a - b).abs().max() / size)
