"""The three doors through which position enters attention; there is no fourth.

tokens ─ embed ─► x ─ W_q, W_k ─► q, k ─ rotate ─► q·k ─ bias ─► softmax ─► · v
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Offset = Callable[[Tensor, Tensor, Tensor], Tensor]  # m − n of (b, index, index)
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def in_full(x: Tensor) -> torch.autocast:
    """A context in which autocast does not make products of x coarser."""
    return torch.autocast(device_type(x), enabled=False)


def autocasts(x: Tensor) -> bool:
    """Whether autocast would make products of x coarser."""
    return torch.is_autocast_enabled(device_type(x))


def device_type(x: Tensor) -> str:
    """The device that autocast knows x by; it knows no meta device."""
    return "cpu" if x.is_meta else x.device.type


class PositionalEncoding(nn.Module):
    """A scheme that opens no door; schemes override the doors they use.

    Convention: positions are ids of shape (L,) or (B, L), one per token. No door
        keeps anything between calls: same input, same output. A class that overrides
        `bias` says its own `channels` and `score_mod`, or has none: it inherits none
        that would go on speaking for the bias of its parent.

    Example:
        >>> class Distance(pe_lab.PositionalEncoding):
        ...     def bias(self, q, k, q_pos, k_pos):
        ...         return -pe_lab.positions.pairwise_offsets(q_pos, k_pos).abs().to(q)
        >>> x = torch.zeros(1, 2, 5, 4)
        >>> pe_lab.attention(x, x, x, encoding=Distance()).shape
        torch.Size([1, 2, 5, 4])
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "bias" in vars(cls):
            for name in {"channels", "score_mod"} - vars(cls).keys():
                setattr(cls, name, getattr(PositionalEncoding, name))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Door 1, before the first layer: token embeddings with position put in.

        Args:
            x: (B, L, d_model) token embeddings.
            positions: (L,) or (B, L).

        Returns:
            (B, L, d_model) in x's dtype. Here: x unchanged.
        """
        return x

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Door 2, in every layer: queries and keys turned by their positions.

        Args:
            q, k: (B, H, Lq, head_dim) and (B, H, Lk, head_dim).
            q_pos, k_pos: (Lq,) or (B, Lq), and (Lk,) or (B, Lk).

        Returns:
            (q, k) of the same shapes and dtypes. Here: unchanged.
        """
        return q, k

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Door 3, in every layer: a term added to the scores before the softmax.

        Args: as for `rotate`.

        Returns:
            (B or 1, H, Lq, Lk) in score units, or None for no term. Here: None.
        """
        return None

    def channels(
        self,
        q: Tensor,
        k: Tensor,
        q_pos: Tensor,
        k_pos: Tensor,
        *,
        scale: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor] | None:
        """Door 3 as channels of queries and keys: attention without an L×L tensor.

        Args:
            q, k, q_pos, k_pos: as for `rotate`.
            scale: what the product of queries and keys will be multiplied by.
            dtype: in which they will be multiplied.

        Returns:
            (1 or B, 1 or H, Lq, C) and (1 or B, 1 or H, Lk, C). Their product times
            scale is the bias, up to what a row shares. None if there is no such pair,
            or none worth it, so that `bias` is needed. Here: None.
        """
        return None

    def score_mod(self, offset: Offset, device: torch.device) -> ScoreMod | None:
        """Door 3 for FlexAttention, of offsets m − n; see `pe_lab.flex.score_mod`.

        Args:
            offset: a function of (b, query index, key index).
            device: where the scores are.

        Returns:
            a function of (score, b, h, query index, key index), or None if the bias
            depends on more than the offset. Here: None.
        """
        return None

    def read(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """What is added to the output because of where it was read from.

        Only Shaw et al. 2018 use it: their door 3 also marks the values.

        Args:
            weights: (B, H, Lq, Lk) after the softmax.
            q_pos, k_pos: as for `rotate`.

        Returns:
            (B, H, Lq, head_dim), or None for nothing. Here: None.
        """
        return None


class NoPE(PositionalEncoding):
    """No positional encoding: every door stays shut.

    Source: Kazemnejad et al. 2023.

    Example:
        >>> x = torch.ones(1, 3, 4)
        >>> pe_lab.NoPE().embed(x, torch.arange(3)) is x
        True
    """
