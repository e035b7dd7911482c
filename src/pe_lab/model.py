"""A small Transformer that calls the three doors and knows nothing about schemes.

Vaswani et al. 2017; pre-norm after Xiong et al. 2020.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.attention import KeyValueCache, MultiHeadAttention
from pe_lab.encodings.base import NoPE, PositionalEncoding

KINDS = ("encoder", "decoder", "encoder-decoder")


class Transformer(nn.Module):
    """Encoder, decoder, or both, over token ids.

    Args:
        vocab_size: number of token ids that are read and predicted.
        d_model: width of the layers.
        num_heads: heads of each layer.
        num_layers: layers of each stack.
        kind: "encoder" (sees everything), "decoder" (causal), "encoder-decoder".
        encoding: one scheme for every layer; by default none (`NoPE`).
        d_ff: width of the feed-forward layers; by default 4 · d_model.
        norm: "pre" or "post" normalisation.
        dropout: on the embedded sum, the sublayers' outputs and attention weights.
        embedding_std: of the normal initialisation; by default 1/√d_model.
        embedding_scale: factor on looked-up embeddings; by default √d_model, which
            with that initialisation gives each channel a variance of 1.
        token_dim: width of the token embeddings, if the encoding's `embed` widens
            them to d_model; by default d_model.
        source_vocab_size: of the encoder's tokens in an encoder-decoder; by default
            vocab_size.

    Raises:
        TypeError, ValueError: for sizes or words that do not fit.

    Source: Vaswani et al. 2017, section 3; norm="pre" is that of Xiong et al. 2020.

    Example:
        >>> model = pe_lab.Transformer(7, 8, 2, 1, encoding=pe_lab.RoPE(4)).double()
        >>> ids = torch.tensor([[3, 1, 4, 1, 5]])
        >>> _, cache = model.extend(ids[:, :4])
        >>> last, cache = model.extend(ids[:, 4:], cache)
        >>> torch.allclose(last, model(ids)[:, 4:])  # a cache changes nothing
        True
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        num_heads: int,
        num_layers: int,
        *,
        kind: str = "decoder",
        encoding: PositionalEncoding | None = None,
        d_ff: int | None = None,
        norm: str = "pre",
        dropout: float = 0.0,
        embedding_std: float | None = None,
        embedding_scale: float | None = None,
        token_dim: int | None = None,
        source_vocab_size: int | None = None,
    ) -> None:
        super().__init__()
        self.kind = refuse.one_of("kind", kind, KINDS)
        vocab_size = refuse.whole("vocab_size", vocab_size)
        token_dim = refuse.whole("d_model", d_model if token_dim is None else token_dim)
        std = token_dim**-0.5 if embedding_std is None else embedding_std
        scale = math.sqrt(token_dim) if embedding_scale is None else embedding_scale
        dropout = refuse.number("dropout", dropout, 0, 1)
        self.encoding = NoPE() if encoding is None else encoding
        refuse.doors(self.encoding)
        self.embed = Embedding(vocab_size, token_dim, std=std, scale=scale)
        d_ff = 4 * d_model if d_ff is None else refuse.whole("d_ff", d_ff)
        sizes = (d_model, num_heads, num_layers, d_ff, norm, dropout)
        self.stack = Stack(*sizes, cross=kind == "encoder-decoder")
        if kind == "encoder-decoder":
            given = vocab_size if source_vocab_size is None else source_vocab_size
            source_size = refuse.whole("source_vocab_size", given)
            self.source_embed = Embedding(source_size, token_dim, std=std, scale=scale)
            self.source_stack = Stack(*sizes, cross=False)
        self.head = nn.Linear(d_model, vocab_size)
        self.dropout = nn.Dropout(dropout)
        self.stack.apply(_initialise)
        if kind == "encoder-decoder":  # this order is that of the shipped results
            self.source_stack.apply(_initialise)
        self.head.apply(_initialise)

    def forward(
        self,
        ids: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_positions: Tensor | None = None,
        source_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits for each token.

        Args:
            ids: (B, L) token ids.
            positions: (L,) or (B, L) position ids; by default 0 … L−1.
            mask: (B, L) boolean, false for padding; or (B, L, L), true where token i
                may look at token j (packed documents). The causal rule comes on top.
            source, source_positions, source_mask: the same for the encoder of an
                encoder-decoder.

        Returns:
            (B, L, vocab_size).

        Raises:
            TypeError, ValueError: if ids are not (B, L) integers, or a source is
                missing or not expected.
        """
        memory = None
        if self.kind == "encoder-decoder":
            if source is None:
                raise ValueError("an encoder-decoder needs source=(B, L) token ids.")
            memory = self.encode(source, source_positions, source_mask)
        elif source is not None:
            raise ValueError(f"a {self.kind} reads no source; pass ids only.")
        hidden = self.hidden(ids, positions, mask, memory, source_mask)
        return self.head(hidden)

    def hidden(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """The last layer's output, before the logits.

        Args:
            ids, positions, mask: as for `forward`.
            memory: (B, S, d_model) of `encode`, in an encoder-decoder.
            memory_mask: (B, S) boolean, false for padding.

        Returns:
            (B, L, d_model).
        """
        x, positions = self._enter(self.embed, ids, positions)
        causal = self.kind != "encoder"
        return self.stack(
            x, positions, self.encoding, mask, causal, memory, memory_mask
        )

    def encode(
        self,
        source: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The encoder's output for a source.

        Args:
            source, positions, mask: as source, source_positions and source_mask of
                `forward`.

        Returns:
            (B, S, d_model).

        Raises:
            ValueError: if this is not an encoder-decoder.
        """
        if self.kind != "encoder-decoder":
            raise ValueError(
                f"encode needs kind='encoder-decoder', this is {self.kind!r}; call "
                "hidden(ids) for its last layer."
            )
        x, positions = self._enter(self.source_embed, source, positions)
        return self.source_stack(x, positions, self.encoding, mask, False)

    def extend(
        self,
        ids: Tensor,
        cache: list[KeyValueCache] | None = None,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, list[KeyValueCache]]:
        """Logits of new tokens after cached ones: what a full pass gives, for less.

        Args:
            ids: (B, L) new tokens.
            cache: of the tokens before, as returned by the last call; None at first.
            positions: (B, L) ids of the new tokens; by default they count on from
                the last cached id of each row, and from 0 if it is all padding. Ids
                with several axes have no such rule and must be given.
            mask: (B, L) boolean, false for padding.

        Returns:
            (B, L, vocab_size) and the longer cache; the one given is unchanged.

        Raises:
            TypeError, ValueError: if this is not a decoder, or ids, cache and
                positions do not fit.
        """
        if self.kind != "decoder":
            raise ValueError(f"extend needs kind='decoder', this is {self.kind!r}.")
        _refuse_ids(ids)
        _refuse_past(ids, cache, mask, len(self.stack.layers))
        if positions is None:
            counted = torch.arange(ids.shape[-1], device=ids.device).expand_as(ids)
            positions = counted + _next(cache) if cache else counted
        x, positions = self._enter(self.embed, ids, positions)
        visible = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        rows = positions if positions.dim() == 3 else positions.expand(ids.shape)
        x, cache = self.stack.extend(x, rows, visible, cache, self.encoding)
        return self.head(x), cache

    def _enter(
        self, embed: Embedding, ids: Tensor, positions: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        _refuse_ids(ids)
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)
        several = isinstance(positions, Tensor) and positions.dim() == 3
        places = positions[..., 0] if several else positions  # one number per axis
        refuse.ids("positions", places, *ids.shape)
        return self.dropout(self.encoding.embed(embed(ids), positions)), positions


class Embedding(nn.Embedding):
    """Token embeddings N(0, std²), multiplied by `scale` when they are looked up."""

    def __init__(self, size: int, dim: int, *, std: float, scale: float) -> None:
        self.std = refuse.number("embedding_std", std, 0)
        self.scale = refuse.number("embedding_scale", scale)
        super().__init__(size, dim)

    def reset_parameters(self) -> None:
        """Draw every row anew."""
        nn.init.normal_(self.weight, std=self.std)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, L, dim); an IndexError for ids that are not in the vocabulary."""
        visible = ids.device.type == "cpu" and not torch.compiler.is_compiling()
        if (
            visible
            and ids.numel()
            and not 0 <= ids.min() <= ids.max() < len(self.weight)
        ):
            raise IndexError(
                f"ids needs numbers from 0 to {len(self.weight) - 1}, got "
                f"{ids.min()} … {ids.max()}; check the tokenizer, or vocab_size."
            )
        return super().forward(ids) * self.scale


class Stack(nn.Module):
    """Layers one after the other; a last LayerNorm if they are pre-norm."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_layers: int,
        d_ff: int,
        norm: str,
        dropout: float,
        *,
        cross: bool,
    ) -> None:
        super().__init__()
        refuse.one_of("norm", norm, ("pre", "post"))
        self.layers = nn.ModuleList(
            Layer(d_model, num_heads, d_ff, norm, dropout, cross=cross)
            for _ in range(refuse.whole("num_layers", num_layers))
        )
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoding: PositionalEncoding,
        mask: Tensor | None,
        causal: bool,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """(B, L, d_model) to the same."""
        mask, memory_mask = _per_query(mask), _per_query(memory_mask)
        for layer in self.layers:
            x = layer(x, positions, encoding, mask, causal, memory, memory_mask)
        return self.norm(x)

    def extend(
        self,
        x: Tensor,
        positions: Tensor,
        visible: Tensor,
        cache: list[KeyValueCache] | None,
        encoding: PositionalEncoding,
    ) -> tuple[Tensor, list[KeyValueCache]]:
        """New tokens through every layer, each with its own cache."""
        seen: list[KeyValueCache] = []
        for i, layer in enumerate(self.layers):
            before = cache[i] if cache else None
            assert isinstance(layer, Layer)
            x, after = layer.extend(x, positions, visible, before, encoding)
            seen.append(after)
        return self.norm(x), seen


class Layer(nn.Module):
    """Self-attention, attention to the encoder if `cross`, and a feed-forward net.

    Source: Vaswani et al. 2017, section 3.1. Position enters self-attention only: ids
    of two sequences share no origin.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        norm: str,
        dropout: float,
        *,
        cross: bool,
    ) -> None:
        super().__init__()
        self.attend = MultiHeadAttention(d_model, num_heads, dropout=dropout)
        self.cross = (
            MultiHeadAttention(d_model, num_heads, dropout=dropout) if cross else None
        )
        self.feed = nn.Sequential(
            nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2 + cross))
        self.dropout = nn.Dropout(dropout)
        self.pre = norm == "pre"

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoding: PositionalEncoding,
        mask: Tensor | None,
        causal: bool,
        memory: Tensor | None,
        memory_mask: Tensor | None,
    ) -> Tensor:
        """(B, L, d_model) to the same."""
        y = self.attend(
            self._before(0, x), mask=mask, causal=causal, encoding=encoding,
            q_pos=positions, k_pos=positions,
        )  # fmt: skip
        return self._finish(self._after(0, x, y), memory, memory_mask)

    def extend(
        self,
        x: Tensor,
        positions: Tensor,
        visible: Tensor,
        cache: KeyValueCache | None,
        encoding: PositionalEncoding,
    ) -> tuple[Tensor, KeyValueCache]:
        """New tokens after cached ones."""
        y, seen = self.attend.extend(
            self._before(0, x), positions, visible, cache, encoding
        )
        return self._finish(self._after(0, x, y), None, None), seen

    def _finish(
        self, x: Tensor, memory: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor:
        if self.cross is not None and memory is not None:
            y = self.cross(self._before(2, x), memory, mask=memory_mask)
            x = self._after(2, x, y)
        return self._after(1, x, self.feed(self._before(1, x)))

    def _before(self, i: int, x: Tensor) -> Tensor:
        return self.norms[i](x) if self.pre else x

    def _after(self, i: int, x: Tensor, y: Tensor) -> Tensor:
        x = x + self.dropout(y)
        return x if self.pre else self.norms[i](x)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def _per_query(mask: Tensor | None) -> Tensor | None:
    """A (B, L) or (B, L, L) mask with axes for heads and queries."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dim() not in (2, 3):
        given = getattr(mask, "shape", type(mask).__name__)
        raise TypeError(
            "mask needs a boolean tensor (batch, length) or (batch, length, length), "
            f"got {given}."
        )
    return mask[:, None, None, :] if mask.dim() == 2 else mask[:, None]


def _next(cache: list[KeyValueCache]) -> Tensor:
    """(B, 1): one more than each row's last id, or 0 where all is padding."""
    positions, visible = cache[0].positions, cache[0].visible
    if positions.dim() != 2:
        raise ValueError(
            "new tokens need positions=(batch, length, axes) after a cache with ids "
            f"{tuple(positions.shape)}; only single numbers can be counted on."
        )
    return torch.where(visible.any(1, keepdim=True), positions[:, -1:] + 1, 0)


def _refuse_past(
    ids: Tensor, cache: list[KeyValueCache] | None, mask: Tensor | None, layers: int
) -> None:
    boolean = isinstance(mask, Tensor) and mask.dtype == torch.bool
    if mask is not None and not (boolean and mask.shape == ids.shape):
        given = getattr(mask, "dtype", type(mask).__name__)
        raise TypeError(
            f"mask needs booleans of the shape of ids, {tuple(ids.shape)}, false for "
            f"padding, got {given} {tuple(getattr(mask, 'shape', ()))}."
        )
    if cache is None or cache == []:
        return
    whole = isinstance(cache, list) and len(cache) == layers
    if not whole or not all(isinstance(part, KeyValueCache) for part in cache):
        raise TypeError(
            f"cache needs the list of {layers}, one per layer, that the last call "
            f"returned, got {cache!r:.80}."
        )
    if len(cache[0].k) != len(ids):
        raise ValueError(
            f"ids need the {len(cache[0].k)} rows of the cache, got {len(ids)}."
        )


def _refuse_ids(ids: Tensor) -> None:
    whole = isinstance(ids, Tensor) and ids.dtype in (torch.int32, torch.int64)
    if not whole or ids.dim() != 2:
        given = getattr(ids, "dtype", type(ids).__name__)
        raise TypeError(
            f"ids needs integer token ids of shape (batch, length), got {given} "
            f"{tuple(getattr(ids, 'shape', ()))}; one sequence is ids[None]."
        )
