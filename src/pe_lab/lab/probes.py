"""Linear probes: what can a weighted sum read from a model's hidden states?

A probe is fitted on some windows of text and tested on others; on those it was fitted
on, it finds structure in noise. Ridge regression has a closed form, so that a probe has
no learning rate, no seed and nothing to tune but its penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.model import Transformer


@dataclass(frozen=True)
class Probe:
    """y ≈ (x − mean) w + offset.

    Attributes:
        weight: (d,) w.
        mean: (d,) of the rows that it was fitted on.
        offset: the mean of their targets.

    Example:
        >>> one, zero = torch.ones(2).double(), torch.zeros(2).double()
        >>> probe = pe_lab.lab.probes.Probe(weight=one, mean=zero, offset=1.0)
        >>> probe(torch.tensor([[1.0, 2.0]]))
        tensor([4.], dtype=torch.float64)
    """

    weight: Tensor
    mean: Tensor
    offset: float

    def __call__(self, x: Tensor) -> Tensor:
        """What the probe reads from rows.

        Args:
            x: (..., d).

        Returns:
            (...) float64.
        """
        return (x.double() - self.mean) @ self.weight + self.offset


def ridge(x: Tensor, y: Tensor, penalty: float = 1e-3) -> Probe:
    """The w that minimises |ỹ − x̃w|²/n + λs|w|², with s the mean variance of a channel.

    x̃ and ỹ are centred. The minimum is at w = (x̃ᵀx̃/n + λsI)⁻¹ x̃ᵀỹ/n; s makes λ a
    number without a unit.

    Args:
        x: (n, d) rows to read from.
        y: (n,) what they should tell.
        penalty: λ, positive.

    Returns:
        a `Probe`.

    Raises:
        TypeError, ValueError: if tensors do not fit, or the penalty is not positive.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> probe = pe_lab.lab.probes.ridge(x, torch.tensor([1.0, 3.0, 5.0]), 1e-9)
        >>> probe(torch.tensor([[10.0]])).round(decimals=4)
        tensor([21.], dtype=torch.float64)
    """
    refuse.float_tensor("x", x, 2, "(rows, width)")
    refuse.float_tensor("y", y, 1, "(rows)")
    if len(y) != len(x) or x.numel() == 0:
        raise ValueError(
            f"ridge needs rows with one target each, got {len(x)} rows of {x.shape[1]} "
            f"and {len(y)} targets; flatten(0, 1) joins windows and places."
        )
    if refuse.number("penalty", penalty) <= 0:
        raise ValueError(f"penalty needs a positive number, got {penalty}; try 1e-3.")
    x, y = x.double(), y.double()
    mean, offset = x.mean(dim=0), y.mean()
    centred = x - mean
    gram = centred.T @ centred / len(x)
    size = float(gram.diagonal().mean()) or 1.0  # rows that are all alike say nothing
    gram.diagonal().add_(penalty * size)
    weight = torch.linalg.solve(gram, centred.T @ (y - offset) / len(x))
    return Probe(weight, mean, float(offset))


def r_squared(guess: Tensor, y: Tensor) -> float:
    """1 − Σ(y − guess)²/Σ(y − ȳ)²: the share of the variance that a guess explains.

    Args:
        guess, y: of one shape.

    Returns:
        1 for a perfect guess, 0 for the mean, less than 0 for what is worse.

    Raises:
        TypeError, ValueError: if shapes differ, or all targets are alike.

    Example:
        >>> y = torch.tensor([1.0, 2.0, 3.0])
        >>> [pe_lab.lab.probes.r_squared(g, y) for g in (y, y.mean() + 0 * y)]
        [1.0, 0.0]
    """
    guess, y = refuse.numbers("guess", guess), refuse.numbers("y", y)
    if guess.shape != y.shape:
        raise ValueError(
            f"r_squared needs a guess for every target, got {tuple(guess.shape)} and "
            f"{tuple(y.shape)}."
        )
    total = float((y - y.mean()).square().sum())
    if not total > 0:
        raise ValueError("r_squared needs targets that differ, got equal ones.")
    return 1 - float((y - guess).square().sum()) / total


def read_places(
    fit: Tensor, test: Tensor, penalty: float = 1e-3
) -> tuple[float, Tensor]:
    """How well a ridge probe tells the place of a token from its hidden state.

    Args:
        fit: (W, L, d) states of the windows that the probe is fitted on.
        test: (V, L, d) states of other windows.
        penalty: as for `ridge`.

    Returns:
        R² on the test windows, and the mean of what is read at each place, (L,).

    Raises:
        TypeError, ValueError: if the windows differ in length or width.

    Example:
        >>> rows = torch.arange(4.0)[:, None].expand(3, 4, 1)  # the place itself
        >>> share, read = pe_lab.lab.probes.read_places(rows, rows, penalty=1e-9)
        >>> round(share, 4), read.round(decimals=3).tolist()
        (1.0, [0.0, 1.0, 2.0, 3.0])
    """
    refuse.float_tensor("fit", fit, 3, "(windows, length, width)")
    refuse.float_tensor("test", test, 3, "(windows, length, width)")
    if fit.shape[1:] != test.shape[1:]:
        raise ValueError(
            "read_places needs windows of one length and width, got "
            f"{tuple(fit.shape)} and {tuple(test.shape)}."
        )
    places = torch.arange(fit.shape[1], dtype=torch.float64, device=fit.device)
    probe = ridge(fit.flatten(0, 1), places.repeat(len(fit)), penalty)
    read = probe(test)
    return r_squared(read, places.expand_as(read)), read.mean(dim=0)


@torch.no_grad()
def hidden_states(model: Transformer, ids: Tensor) -> list[Tensor]:
    """What the first layer reads, and what each layer gives to the next.

    Args:
        model: an encoder or a decoder; in evaluation mode while it is looked at.
        ids: (B, L).

    Returns:
        (B, L, d_model) for the embeddings with what door 1 adds, and for each layer.

    Example:
        >>> model = pe_lab.Transformer(3, 8, 2, 2)
        >>> states = pe_lab.lab.probes.hidden_states(model, torch.tensor([[0, 2, 1]]))
        >>> len(states), states[0].shape
        (3, torch.Size([1, 3, 8]))
    """
    positions = torch.arange(ids.shape[1], device=ids.device)
    entered = model.encoding.embed(model.embed(ids), positions)
    return [entered, *outputs_of(model, list(model.stack.layers), ids)]


@torch.no_grad()
def outputs_of(
    model: Transformer, parts: Sequence[nn.Module], ids: Tensor
) -> list[Tensor]:
    """What parts of a model give when it reads ids.

    Args:
        model: an encoder or a decoder; in evaluation mode while it is looked at.
        parts: modules of it that return one tensor, each called once.
        ids: (B, L).

    Returns:
        their outputs, in the order in which they are called.

    Example:
        >>> model, ids = pe_lab.Transformer(3, 8, 2, 2), torch.tensor([[0, 2]])
        >>> first = model.stack.layers[0].attend
        >>> (out,) = pe_lab.lab.probes.outputs_of(model, [first], ids)
        >>> out.shape
        torch.Size([1, 2, 8])
    """
    kept: list[Tensor] = []

    def keep(part: nn.Module, inputs: Any, output: Tensor) -> None:
        kept.append(output)

    handles = [part.register_forward_hook(keep) for part in parts]
    was_training = model.training
    try:
        model.eval()(ids)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return kept
