"""The layers inside a subject, each asked alone whether it knows the order of tokens.

A stack of causal layers knows the order by its mask alone, whatever its encoding; a
single layer does not: its last token sees a set. So each layer is handed a prepared
sequence instead of what the layer before it made.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.sequence import Sequence, gap, modules_of
from pe_lab.doctor.sequence.bench import Bench, Unable


def order_in_layers(here: Bench) -> list[float]:
    """By how much each layer's last output moves when the tokens before it swap."""
    outs = _through(here, _swapped)
    return [gap(out[1:, -1], out[:1, -1]) for out in outs]


def first_in_layers(here: Bench) -> list[float]:
    """By how much each layer's first output differs from the second on equal tokens."""
    outs = _through(here, _equal)
    return [gap(out[0, 0], out[0, 1]) for out in outs]


def entering(here: Bench, x: Tensor) -> Tensor:
    """What the first layer is given, (B, L, channels).

    Raises:
        Unable: if no layers are found.
    """
    sequence = here.sequence()
    kept: list[Tensor] = []
    layers = _layers(here, sequence)
    if not layers or here.plan.turned:
        raise Unable("no list of layers is found in it")

    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (*args, *kwargs.values())
        kept.extend(a.detach().clone() for a in given if _rows(a, tuple(x.shape[:2])))

    handle = layers[0].register_forward_pre_hook(keep, with_kwargs=True)
    try:
        here.given(here.patient.guard.call(sequence, x))
    finally:
        handle.remove()
    if not kept:
        raise Unable("its layers are not given (batch, length, channels)")
    return kept[0]


def _rows(value: Any, shape: tuple[int, ...]) -> bool:
    """Whether it is a tensor of channels for each token."""
    if not isinstance(value, Tensor) or value.dim() != 3:
        return False
    return value.is_floating_point() and tuple(value.shape[:2]) == shape


def _swapped(shape: torch.Size) -> Tensor:
    x = torch.randn(shape[1:], generator=torch.Generator().manual_seed(3))
    order = [*range(shape[1] - 2, -1, -1), shape[1] - 1]
    return torch.stack((x, x[order]))


def _equal(shape: torch.Size) -> Tensor:
    token = torch.randn(shape[2:], generator=torch.Generator().manual_seed(3))
    return token.expand(shape)


def _other_past(shape: torch.Size) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    x[:, -1] = x[:1, -1]
    return x


def _through(here: Bench, make: Any) -> list[Tensor]:
    """Each layer's output when it is given `make(shape)` instead of its input."""
    sequence = here.sequence()
    layers = _layers(here, sequence)
    if not layers or here.plan.turned:
        raise Unable("no list of layers is found in it")
    return _replaced(here, sequence, layers, make)


def _replaced(
    here: Bench, sequence: Sequence, layers: list[nn.Module], make: Any
) -> list[Tensor]:
    x = here.x(2)
    outs: dict[int, Tensor] = {}
    handles = []
    for i, layer in enumerate(layers):
        swap = _Swap(i, make, tuple(x.shape[:2]), outs)
        handles.append(layer.register_forward_pre_hook(swap.before, with_kwargs=True))
        handles.append(layer.register_forward_hook(swap.after))
    try:
        here.given(here.patient.guard.call(sequence, x))
    finally:
        for handle in handles:
            handle.remove()
    if len(outs) != len(layers):
        raise Unable("its layers do not hand on (batch, length, channels)")
    return [outs[i] for i in range(len(layers))]


class _Swap:
    """The hooks of one layer: its input is replaced, its output is kept."""

    def __init__(
        self, index: int, make: Any, shape: tuple[int, ...], outs: dict[int, Tensor]
    ) -> None:
        self.index, self.make, self.shape, self.outs = index, make, shape, outs
        self.swapped = False

    def before(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Replace every tensor that is the layer's input, once or as q, k and v."""
        given = [*args, *kwargs.values()]
        old = next((a for a in given if self._fits(a)), None)
        if old is None:
            return args, kwargs
        new, self.swapped = self.make(old.shape).to(old), True
        swap = {name: new if a is old else a for name, a in kwargs.items()}
        return tuple(new if a is old else a for a in args), swap

    def after(self, _: nn.Module, args: Any, out: Any) -> None:
        """Keep the first tensor of the output."""
        while isinstance(out, tuple | list) and out:
            out = out[0]
        if self.swapped and self._fits(out):
            self.outs[self.index] = out.detach().clone()

    def _fits(self, value: Any) -> bool:
        return _rows(value, self.shape)


def _layers(here: Bench, sequence: Sequence) -> list[nn.Module]:
    """The longest list of modules that mix tokens, the outermost among equals.

    Norms and feed-forward parts, which may stand in lists of their own, see one token
    at a time, and know no order whatever the encoding.
    """
    stacks = _stacks(sequence)
    if len(stacks) < 2:
        return stacks[0] if stacks else []
    if "stack" not in here.facts:
        here.facts["stack"] = next(
            (i for i in range(len(stacks)) if _mixes(here, i)), -1
        )
    return stacks[here.facts["stack"]] if here.facts["stack"] >= 0 else []


def _mixes(here: Bench, index: int) -> bool:
    """Whether the last output of these layers depends on the tokens before it."""
    sequence = here.sequence()
    try:
        outs = _replaced(here, sequence, _stacks(sequence)[index], _other_past)
    except Unable:
        return False
    return all(gap(out[1:, -1], out[:1, -1]) > here.tolerance for out in outs)


def _stacks(sequence: Sequence) -> list[list[nn.Module]]:
    """Lists of modules of one class, the longest first."""
    inside = [m for module in modules_of(sequence.subject) for m in module.modules()]
    lists = [list(m) for m in inside if isinstance(m, nn.ModuleList) and len(m) > 1]
    alike = [part for part in lists if len({type(m) for m in part}) == 1]
    plain = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout)
    stacks = [part for part in alike if not isinstance(part[0], plain)]
    return sorted(stacks, key=len, reverse=True)
