"""How well a trained language model predicts each place of texts longer than it knows.

Text is cut into windows that do not overlap, so that place p of a window has p tokens
before it: a mean over windows is the loss at place p. Masks and positions are the
caller's: that is where the ways to run past the trained length differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pe_lab import refuse
from pe_lab.attention import MultiHeadAttention, attention
from pe_lab.model import Transformer

Places = Callable[[Tensor], Tensor]  # ids 0 … T−1 → the ids that the model is given


def as_they_are(positions: Tensor) -> Tensor:
    """Position ids unchanged.

    Args:
        positions: any.

    Returns:
        the same tensor.

    Example:
        >>> pe_lab.lab.extrapolation.as_they_are(torch.arange(3))
        tensor([0, 1, 2])
    """
    return positions


def windows(ids: Tensor, length: int, tokens: int) -> Tensor:
    """Rows of length + 1 ids from the start of a text, each a window and what follows.

    Args:
        ids: (N,) the text.
        length: T, of a window.
        tokens: predictions in all; rounded down to whole windows.

    Returns:
        (tokens // T, T + 1); row i starts at place i·T.

    Raises:
        ValueError: if the text is too short, or tokens less than one window.

    Example:
        >>> pe_lab.lab.extrapolation.windows(torch.arange(9), 3, 7)
        tensor([[0, 1, 2, 3],
                [3, 4, 5, 6]])
    """
    rows = tokens // refuse.whole("length", length)
    if rows < 1 or rows * length + 1 > len(ids):
        raise ValueError(
            f"windows needs tokens from length = {length} to {len(ids) - 1} for a text "
            f"of {len(ids)} ids, got {tokens}."
        )
    return ids[: rows * length + 1].unfold(0, length + 1, length)


def nearest(length: int, window: int) -> Tensor:
    """A mask that shows each token itself and the window − 1 tokens before it.

    Args:
        length: T.
        window: how many tokens are seen.

    Returns:
        (1, T, T) boolean, rows are queries.

    Raises:
        TypeError, ValueError: if a number is not whole, or less than 1.
    Source: Beltagy et al. 2020, section 3.1, looking back only.

    Example:
        >>> pe_lab.lab.extrapolation.nearest(4, 2)[0].int()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [0, 1, 1, 0],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    ids = torch.arange(refuse.whole("length", length))
    back = ids[:, None] - ids
    return ((back >= 0) & (back < refuse.whole("window", window)))[None]


@torch.no_grad()
def position_losses(
    model: Transformer,
    rows: Tensor,
    *,
    window: int | None = None,
    places: Places = as_they_are,
    batch_tokens: int = 4096,
) -> Tensor:
    """Mean loss at each place of the windows.

    Args:
        model: a decoder; in evaluation mode while it is measured.
        rows: (W, T + 1) of `windows`.
        window: how many tokens a query sees; by default all before it.
        places: from ids 0 … T−1 to those that the model is given.
        batch_tokens: ids in one forward pass, about.

    Returns:
        (T,) float64, nats per token.

    Example:
        >>> even = pe_lab.Transformer(3, 8, 2, 1)
        >>> _ = torch.nn.init.zeros_(even.head.weight)  # no opinion: ln 3 everywhere
        >>> rows = torch.zeros(5, 4, dtype=torch.long)
        >>> pe_lab.lab.extrapolation.position_losses(even, rows)
        tensor([1.0986, 1.0986, 1.0986], dtype=torch.float64)
    """
    was_training = model.training
    model.eval()
    length = rows.shape[1] - 1
    device = next(model.parameters()).device
    mask = None if window is None else nearest(length, window).to(device)
    positions = places(torch.arange(length)).to(device)
    total = torch.zeros(length, dtype=torch.float64)
    for part in rows.to(device).split(max(1, batch_tokens // length)):
        visible = None if mask is None else mask.expand(len(part), -1, -1)
        logits = model(part[:, :-1], positions=positions, mask=visible)
        losses = F.cross_entropy(logits.mT.float(), part[:, 1:], reduction="none")
        total += losses.double().sum(dim=0).cpu()
    model.train(was_training)
    return total / len(rows)


@torch.no_grad()
def last_token_loss(model: Transformer, ids: Tensor, length: int, count: int) -> float:
    """Loss of tokens that are predicted from exactly `length` tokens before them.

    Args:
        model: a decoder.
        ids: (N,) the text.
        length: T, tokens that are read for each prediction.
        count: how many tokens are predicted, evenly spread over the text.

    Returns:
        nats per token.

    Raises:
        ValueError: if the text has fewer than T + count tokens.

    Example:
        >>> even = pe_lab.Transformer(3, 8, 2, 1)
        >>> _ = torch.nn.init.zeros_(even.head.weight)
        >>> ids = torch.zeros(20, dtype=torch.long)
        >>> round(pe_lab.lab.extrapolation.last_token_loss(even, ids, 4, 9), 4)
        1.0986
    """
    step = (len(ids) - refuse.whole("length", length)) // refuse.whole("count", count)
    if step < 1:
        raise ValueError(
            f"last_token_loss needs a text of length + count = {length + count} ids or "
            f"more, got {len(ids)}."
        )
    rows = ids.unfold(0, length + 1, step)[:count]
    return float(position_losses(model, rows)[-1])


@torch.no_grad()
def attention_weights(
    model: Transformer, ids: Tensor, *, window: int | None = None
) -> list[Tensor]:
    """Where each layer of a decoder looks, computed again with the model's own parts.

    Args:
        model: a decoder.
        ids: (B, T).
        window: as for `position_losses`.

    Returns:
        (B, H, T, T) for each layer, rows are queries.

    Example:
        >>> model = pe_lab.Transformer(3, 8, 2, 2, encoding=pe_lab.ALiBi(2))
        >>> weights = pe_lab.lab.extrapolation.attention_weights(
        ...     model, torch.zeros(1, 4, dtype=torch.long))
        >>> len(weights), torch.allclose(weights[1].sum(-1), torch.ones(()))
        (2, True)
    """
    kept: list[Tensor] = []
    handles = [
        part.register_forward_pre_hook(_keeper(kept), with_kwargs=True)
        for part in model.stack.modules()
        if isinstance(part, MultiHeadAttention)
    ]
    was_training = model.training
    try:
        mask = None if window is None else nearest(ids.shape[1], window)
        visible = None if mask is None else mask.to(ids.device).expand(len(ids), -1, -1)
        model.eval()(ids, mask=visible)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return kept


def _keeper(kept: list[Tensor]) -> Callable[..., None]:
    """A hook that computes the weights of the call it sees, and keeps them."""

    def keep(attend: Any, inputs: tuple[Tensor, ...], options: dict[str, Any]) -> None:
        q, k, v = attend._project(inputs[0], inputs[0])
        _, weights = attention(q, k, v, **options, return_weights=True)
        kept.append(weights)

    return keep


@dataclass(frozen=True)
class Gaze:
    """How far the last queries of a text look, as means over heads, layers and texts.

    Attributes:
        recent: share of the weight on the query's token and the `near` − 1 before it.
        distance: tokens back, weighted.
        entropy: nats; ln of the number of visible tokens if all count alike.

    Example:
        >>> pe_lab.lab.extrapolation.Gaze(1.0, 0.0, 0.0).recent
        1.0
    """

    recent: float
    distance: float
    entropy: float


def gaze(model: Transformer, ids: Tensor, *, queries: int = 8, near: int = 8) -> Gaze:
    """Where the last tokens of texts look.

    Args:
        model: a decoder.
        ids: (B, T).
        queries: how many of the last tokens are asked.
        near: how many tokens count as recent.

    Returns:
        a `Gaze`.

    Example:
        >>> blind = pe_lab.Transformer(3, 8, 2, 1)  # one token only: all look alike
        >>> ids = torch.zeros(2, 5, dtype=torch.long)
        >>> seen = pe_lab.lab.extrapolation.gaze(blind, ids, queries=1, near=2)
        >>> round(seen.recent, 3), round(seen.distance, 3)
        (0.4, 2.0)
    """
    weights = torch.stack(attention_weights(model, ids))[..., -queries:, :].double()
    keys = torch.arange(ids.shape[1], device=ids.device)
    back = keys[-queries:, None] - keys
    seen = weights.clamp_min(torch.finfo(weights.dtype).tiny)
    return Gaze(
        recent=float((weights * (back < near)).sum(-1).mean()),
        distance=float((weights * back).sum(-1).mean()),
        entropy=float(-(weights * seen.log()).sum(-1).mean()),
    )
