"""How a module that adds positions is called: shapes, axes, modes, and its width."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab.doctor.guard import evaluating, fresh
from pe_lab.positions import grid

WIDTHS = (32, 64, 16, 128, 512, 768, 256)
_NAMES = (
    "d_model", "dim", "embed_dim", "embedding_dim", "hidden_size", "hidden_dim",
    "d_embed", "n_embd", "emb_size", "width", "org_channels", "channels", "d",
)  # fmt: skip


class Add:
    """The kind's one call: x (B, L, d) → x + encoding (B, L, d), in eval mode.

    Args:
        subject: a copy of the subject.
        form: "call" is f(x), "embed" is f.embed(x, positions), "cells" the same with
            a row and a column for each, "grid" takes (B, h, w, d) and "image"
            (B, d, h, w).
        axes: (h, w) of a grid, or ().
        batch_first: whether f takes (B, L, d), not (L, B, d).
        training: whether it is called in training mode.
    """

    def __init__(
        self, subject: Any, form: str, axes: tuple[int, ...], batch_first: bool
    ) -> None:
        self.subject, self.form, self.axes = subject, form, axes
        self.batch_first, self.training = batch_first, False

    def __call__(self, x: Tensor, **more: Any) -> Tensor:
        """As the class says; more arguments are passed on."""
        if not self.training:
            with evaluating(self.subject):
                return self._formed(x, **more)
        if isinstance(self.subject, nn.Module):
            self.subject.train()
        return self._formed(x, **more)

    def again(self) -> Add:
        """The same call on a copy that was never called."""
        return Add(fresh(self.subject), self.form, self.axes, self.batch_first)

    def _formed(self, x: Tensor, **more: Any) -> Tensor:
        shape = x.shape
        if self.form in ("embed", "cells"):
            ids = torch.arange(shape[1]) if self.form == "embed" else grid(*self.axes)
            more.setdefault("positions", ids.to(x.device))
            return self.subject.embed(x, **more)
        if self.form in ("grid", "image"):
            x = x.reshape(shape[0], *self.axes, shape[2])
        if self.form == "image":
            x = x.movedim(-1, 1)
        if not self.batch_first:
            x = x.transpose(0, 1)
        got = self.subject(x, **more)
        if isinstance(got, tuple | list) and got and isinstance(got[0], Tensor):
            got = got[0]
        if not isinstance(got, Tensor):
            raise TypeError(f"it gives {type(got).__name__}, not a tensor")
        return self._back(got, shape)

    def _back(self, got: Tensor, shape: torch.Size) -> Tensor:
        if not self.batch_first and got.dim() == 3:
            got = got.transpose(0, 1)
        if self.form == "image" and got.dim() == 4:
            got = got.movedim(1, -1)
        if self.form in ("grid", "image") and got.dim() in (3, 4):
            got = got.flatten(-3, -2)
        # the encoding alone, which is the same for the whole batch
        alone = got.dim() == 2 or (got.dim() == 3 and got.shape[0] == 1)
        if alone and got.shape[-2:] == shape[1:]:
            return got.expand(shape)
        return got


def widths(subject: Any, options: Mapping[str, Any]) -> tuple[int, ...]:
    """Widths to try: the one named, those that its parts suggest, usual ones."""
    if options.get("d_model") is not None:
        return (int(options["d_model"]),)
    found = [n for part in parts(subject) for n in _suggested(part)]
    return tuple(dict.fromkeys([*found, *WIDTHS]))


def parts(subject: Any) -> list[Any]:
    """The subject, and the modules in it."""
    return list(subject.modules()) if isinstance(subject, nn.Module) else [subject]


def _suggested(part: Any) -> Iterator[int]:
    for name in _NAMES:
        value = getattr(part, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            yield value
    for _, tensor, _ in tensors_of(part):
        if tensor.dim() > 1:
            yield tensor.shape[-1]
        elif tensor.dim() == 1 and len(tensor) > 1:
            yield 2 * len(tensor)  # a ladder of frequencies


def tensors_of(part: Any) -> Iterator[tuple[str, Tensor, str]]:
    """(name, tensor, "parameter", "buffer" or "attribute") of one module's own."""
    if isinstance(part, nn.Module):
        for name, value in part._parameters.items():
            if value is not None:
                yield name, value, "parameter"
        for name, buffer in part._buffers.items():
            if buffer is not None:
                yield name, buffer, "buffer"
    for name, value in getattr(part, "__dict__", {}).items():
        if isinstance(value, Tensor):
            yield name, value, "attribute"


def arguments(subject: Any, form: str) -> tuple[str, ...]:
    """Names of what it can be told besides x."""
    target = subject.embed if form in ("embed", "cells") else subject
    target = target.forward if isinstance(target, nn.Module) else target
    try:
        names = list(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return ()
    return tuple(names[1:])
