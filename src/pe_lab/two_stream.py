"""XLNet's two-stream attention: predict tokens in any order (Yang et al. 2019).

A token predicted from a random set of others needs a query that knows the place to fill
but not the token that fills it. So each layer runs two streams on the same weights:

content  h_i = attend(h_i; keys h_j of j no later than i in the order)   knows token i
query    g_i = attend(g_i; keys h_j of j earlier than i in the order)    knows place i

Nothing ever reads g: the content stream alone is an ordinary encoder.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.attention import MultiHeadAttention
from pe_lab.encodings.base import PositionalEncoding
from pe_lab.model import Layer, Transformer, _refuse_ids

_AXES = "(batch, length, d_model)"


def factorization_order(
    length: int,
    generator: torch.Generator | None = None,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """A random order to predict tokens in: order[t] is the token that comes t-th.

    p(x) = Π_t p(x[order[t]] | x[order[:t]]) holds for every order; the order of the
    text itself is torch.arange(length). Only predictions are permuted, never the
    tokens or their positions.

    Args:
        length: L, number of tokens.
        generator: of the random numbers; by default torch's own on the CPU.
        mask: (B, L) boolean, false for padding: one order for each row, its padding
            first, so that what is predicted last is real.

    Returns:
        (L,) int64 on the generator's device, or (B, L) on the mask's.

    Raises:
        TypeError, ValueError: for a length below 1, or what is no generator or mask.
    Source: Yang et al. 2019, section 2.2.

    Example:
        >>> order = pe_lab.factorization_order(4, torch.Generator().manual_seed(0))
        >>> order.tolist()
        [2, 1, 3, 0]
    """
    length = refuse.whole("length", length)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator needs a torch.Generator, got {generator!r:.80}.")
    if mask is not None:
        _refuse_mask(mask, length)
    shape = (length,) if mask is None else tuple(mask.shape)
    device = "cpu" if generator is None else generator.device
    draw = torch.rand(shape, generator=generator, dtype=torch.float64, device=device)
    if mask is not None:
        draw = draw.to(mask.device).masked_fill(~mask, -1.0)
    return draw.argsort(dim=-1, stable=True)


def stream_masks(
    order: Tensor,
    *,
    predict: int | None = None,
    joint_context: bool = False,
    memory: int = 0,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Who may look at whom in each stream, true where a query may look.

    With r_i the turn of token i, content: r_j ≤ r_i, and query: r_j < r_i.

    Args:
        order: (L,) or (B, L), a permutation of 0 … L−1 in each row.
        predict: P, only the last P of the order are predicted; by default all L. XLNet
            predicts one in K = 6: 85 of 512 tokens.
        joint_context: let the L − P tokens that are not predicted all see each other,
            as in XLNet's released code; otherwise they too see only what is earlier.
        memory: M, tokens of segments before, which all may see.
        mask: (B, M + L) boolean, false for padding, which none may see.

    Returns:
        content (L, M + L), its rows and columns in the order of the text, and query
        (P, M + L), with a row for each of order[-P:]. Orders or masks with a batch
        give (B, 1, …), the 1 for the heads. The first of an order without memory has
        an all-false row in the query stream: it is predicted from its place alone.

    Raises:
        TypeError, ValueError: for an order that is no permutation, more to predict
            than there is, or a mask that does not fit.
    Source: Yang et al. 2019, section 2.3, and the released code.

    Example:
        >>> content, query = pe_lab.stream_masks(torch.tensor([2, 0, 1]), predict=2)
        >>> content.int().tolist()
        [[1, 0, 1], [1, 1, 1], [0, 0, 1]]
        >>> query.int().tolist()  # of token 0, then of token 1
        [[0, 0, 1], [1, 0, 1]]
    """
    order = _permutation(order)
    length, memory = order.shape[-1], refuse.whole("memory", memory, 0)
    predict = _predicted(predict, length)
    turn = order.argsort(dim=-1)
    if refuse.flag("joint_context", joint_context):
        turn = turn.clamp(min=length - predict - 1)  # all of the context at once
    asked = torch.arange(length - predict, length, device=order.device)
    content = turn[..., None, :] <= turn[..., :, None]
    query = turn[..., None, :] < asked[:, None]
    if mask is not None:
        _refuse_mask(mask, memory + length, len(order) if order.dim() == 2 else 1)
    return _complete(content, memory, mask), _complete(query, memory, mask)


def two_stream_attention(
    attend: MultiHeadAttention,
    h: Tensor,
    g: Tensor,
    masks: tuple[Tensor, Tensor],
    targets: Tensor,
    *,
    encoding: PositionalEncoding | None = None,
    positions: Tensor | None = None,
    memory: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Both streams through the same weights: queries h and g, keys and values h.

    Args:
        attend: the projections that the streams share.
        h: (B, L, d_model), the content stream.
        g: (B, P, d_model), the query stream, a row for each target.
        masks: content and query, of `stream_masks`.
        targets: (P,) or (B, P), which tokens g stands for: order[..., -P:].
        encoding: its `rotate` and `bias` doors are used; Transformer-XL's is XLNet's.
        positions: (M + L,) or (B, M + L) ids of memory and tokens; by default they are
            counted from 0.
        memory: (B, M, d_model), h of segments before, which is only looked at.

    Returns:
        the new h (B, L, d_model) and g (B, P, d_model).

    Raises:
        TypeError, ValueError: if shapes or dtypes do not fit.
    Source: Yang et al. 2019, sections 2.3 and 2.4.

    Example:
        >>> order = torch.tensor([2, 0, 1])
        >>> masks = pe_lab.stream_masks(order, predict=1)
        >>> attend, x = pe_lab.MultiHeadAttention(8, 2), torch.ones(1, 3, 8)
        >>> h, g = pe_lab.two_stream_attention(attend, x, x[:, :1], masks, order[-1:])
        >>> g.shape
        torch.Size([1, 1, 8])
    """
    if not isinstance(attend, MultiHeadAttention):
        raise TypeError(
            f"attend needs a pe_lab.MultiHeadAttention, got {type(attend).__name__}."
        )
    refuse.float_tensor("h", h, 3, _AXES)
    memory = h[:, :0] if memory is None else memory
    _refuse_streams(h, g, memory, masks, attend.d_model)
    past, length = memory.shape[1], h.shape[1]
    _refuse_targets(targets, len(h), g.shape[1], length)
    k_pos, q_pos = _places(positions, targets, len(h), past, length)
    out = attend(
        torch.cat((h, g), dim=1), torch.cat((memory, h), dim=1),
        mask=torch.cat(tuple(masks), dim=-2), encoding=encoding, q_pos=q_pos,
        k_pos=k_pos,
    )  # fmt: skip
    return out[:, :length], out[:, length:]


class TwoStreamTransformer(Transformer):
    """An encoder that learns by predicting its tokens in random orders.

    Training runs both `streams` and minimises the cross-entropy of `head(g)` with the
    tokens at the targets. Called on ids, as any `Transformer` is, it runs the content
    stream alone and sees everything: fine-tuning needs no order and no g.

    Args:
        vocab_size, d_model, num_heads, num_layers, d_ff, dropout: as for `Transformer`.
        encoding: one scheme for every layer. Without one g does not know its place:
            every target of the same context gets the same prediction.
        norm: "post", as in XLNet, or "pre".

    Convention: g starts from one learned vector w; door 1, if the encoding opens it,
        marks w with the place to fill, as it marks the tokens of h.
    Raises:
        TypeError, ValueError: for sizes or words that do not fit.
    Source: Yang et al. 2019, sections 2.2 to 2.4.

    Example:
        >>> model = pe_lab.TwoStreamTransformer(7, 8, 2, 1, encoding=pe_lab.ALiBi(2))
        >>> ids, order = torch.ones(1, 6).long(), pe_lab.factorization_order(6)
        >>> h, g, memory = model.streams(ids, order, predict=2)
        >>> model.head(g).shape  # logits of the tokens ids[:, order[-2:]]
        torch.Size([1, 2, 7])
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        num_heads: int,
        num_layers: int,
        *,
        encoding: PositionalEncoding | None = None,
        d_ff: int | None = None,
        norm: str = "post",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            vocab_size, d_model, num_heads, num_layers, kind="encoder",
            encoding=encoding, d_ff=d_ff, norm=norm, dropout=dropout,
        )  # fmt: skip
        self.w = nn.Parameter(torch.empty(d_model))
        nn.init.normal_(self.w, std=self.embed.std * self.embed.scale)

    def streams(
        self,
        ids: Tensor,
        order: Tensor,
        *,
        predict: int | None = None,
        joint_context: bool = False,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        memory: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Both streams through every layer.

        Args:
            ids: (B, L) token ids.
            order: (L,) or (B, L), the turns in which they are predicted.
            predict, joint_context, mask: as for `stream_masks`; mask and positions
                are those of the memory followed by the tokens.
            positions: (M + L,) or (B, M + L); by default counted from 0.
            memory: what the call on the segment before returned; None at first. To
                keep the last n tokens only: [m[:, -n:] for m in memory].

        Returns:
            h (B, L, d_model); g (B, P, d_model), a row for each of order[-P:], whose
            logits are `head(g)`; and the memory for the next segment, the input of each
            layer (B, M + L, d_model), through which no gradient flows.

        Raises:
            TypeError, ValueError: for tokens, orders or memory that do not fit.
        """
        past = _past(memory, ids, len(self.stack.layers), len(self.w))
        refuse.ids("order", order, *ids.shape)
        order = order.to(ids.device)
        masks = stream_masks(
            order, predict=predict, joint_context=joint_context, memory=past, mask=mask
        )
        (batch, length), count = ids.shape, masks[1].shape[-2]
        targets = order.long()[..., -count:]
        k_pos, q_pos = _places(positions, targets, batch, past, length)
        h = self._start(self.embed(ids), q_pos[:, :length])
        g = self._start(self.w.expand(batch, count, -1), q_pos[:, length:])
        seen = []
        for i, layer in enumerate(self.stack.layers):
            before = memory[i] if memory else h[:, :0]
            seen.append(torch.cat((before, h), dim=1).detach())
            assert isinstance(layer, Layer)
            h, g = _through(layer, h, g, masks, targets, self.encoding, k_pos, before)
        return self.stack.norm(h), self.stack.norm(g), seen

    def _start(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(self.encoding.embed(x, positions))


def _through(
    layer: Layer,
    h: Tensor,
    g: Tensor,
    masks: tuple[Tensor, Tensor],
    targets: Tensor,
    encoding: PositionalEncoding,
    positions: Tensor,
    memory: Tensor,
) -> tuple[Tensor, Tensor]:
    """Both streams through one layer: attention, then the feed-forward net."""
    from_h, from_g, memory = (layer._before(0, x) for x in (h, g, memory))
    to_h, to_g = two_stream_attention(
        layer.attend, from_h, from_g, masks, targets, encoding=encoding,
        positions=positions, memory=memory,
    )  # fmt: skip
    h, g = layer._after(0, h, to_h), layer._after(0, g, to_g)
    return layer._finish(h, None, None), layer._finish(g, None, None)


def _places(
    positions: Tensor | None, targets: Tensor, batch: int, past: int, length: int
) -> tuple[Tensor, Tensor]:
    """Ids of all keys, and (1 or B, L + P) of the queries: tokens, then targets."""
    if positions is None:
        positions = torch.arange(past + length, device=targets.device)
    refuse.ids("positions", positions, batch, past + length)
    own = positions.reshape(-1, past + length)[:, past:]
    chosen = targets.reshape(-1, targets.shape[-1])
    rows = max(len(own), len(chosen))
    own = own.expand(rows, -1)
    return positions, torch.cat((own, own.gather(1, chosen.expand(rows, -1))), dim=1)


def _complete(seen: Tensor, memory: int, mask: Tensor | None) -> Tensor:
    """The mask with the memory before its keys, an axis for heads, no padding."""
    seen = F.pad(seen, (memory, 0), value=True)
    seen = seen.unsqueeze(1) if seen.dim() == 3 else seen
    return seen if mask is None else seen & mask[:, None, None, :]


def _permutation(order: Tensor) -> Tensor:
    """The order in int64, if each row is a permutation of 0 … L−1."""
    whole = isinstance(order, Tensor) and order.dtype in (torch.int32, torch.int64)
    if not whole or order.dim() not in (1, 2) or order.numel() == 0:
        given = f"{getattr(order, 'dtype', type(order).__name__)}"
        raise TypeError(
            f"order needs whole numbers of shape (length,) or (batch, length), got "
            f"{given} {tuple(getattr(order, 'shape', ()))}; factorization_order(length)"
            " draws one."
        )
    order = order.long()
    if refuse.readable(order):
        counted = torch.arange(order.shape[-1], device=order.device)
        if not bool((order.sort(dim=-1).values == counted).all()):
            raise ValueError(
                f"order needs each of 0 … {order.shape[-1] - 1} once in every row, got "
                f"{order.tolist()!r:.80}; it says which token comes first, second, …"
            )
    return order


def _predicted(predict: int | None, length: int) -> int:
    count = length if predict is None else refuse.whole("predict", predict)
    if count > length:
        raise ValueError(
            f"predict needs at most the {length} tokens of the order, got {count}."
        )
    return count


def _refuse_mask(mask: Tensor, length: int, rows: int = 1) -> None:
    boolean = isinstance(mask, Tensor) and mask.dtype == torch.bool
    if not boolean or mask.dim() != 2 or mask.shape[1] != length:
        given = getattr(mask, "dtype", type(mask).__name__)
        raise TypeError(
            f"mask needs booleans (batch, {length}), false for padding, memory "
            f"included, got {given} {tuple(getattr(mask, 'shape', ()))}."
        )
    if rows != len(mask) and 1 not in (rows, len(mask)):
        raise ValueError(f"mask needs the {rows} rows of order, got {len(mask)}.")


def _refuse_streams(
    h: Tensor, g: Tensor, memory: Tensor, masks: tuple[Tensor, Tensor], d_model: int
) -> None:
    for name, x in (("h", h), ("g", g), ("memory", memory)):
        refuse.float_tensor(name, x, 3, _AXES)
        if x.shape[0] != h.shape[0] or x.shape[2] != d_model or x.dtype != h.dtype:
            raise ValueError(
                f"{name} needs shape ({h.shape[0]}, length, {d_model}) in {h.dtype}, "
                f"got {tuple(x.shape)} in {x.dtype}."
            )
    keys = memory.shape[1] + h.shape[1]
    pair = list(masks) if isinstance(masks, tuple | list) else []
    shapes = [tuple(getattr(mask, "shape", ())) for mask in pair]
    extra = shapes[0][:-2] if shapes else ()
    if shapes != [(*extra, h.shape[1], keys), (*extra, g.shape[1], keys)]:
        raise ValueError(
            f"masks need two, of content (…, {h.shape[1]}, {keys}) and of query (…, "
            f"{g.shape[1]}, {keys}), for h, g and memory of these lengths, got "
            f"{shapes or masks!r:.80}; stream_masks(order, predict=…, memory=…) makes "
            "them."
        )


def _refuse_targets(targets: Tensor, batch: int, count: int, length: int) -> None:
    whole = isinstance(targets, Tensor) and targets.dtype == torch.int64
    shapes = ((count,), (1, count), (batch, count))
    if not whole or tuple(targets.shape) not in shapes:
        given = getattr(targets, "dtype", type(targets).__name__)
        raise ValueError(
            f"targets need int64 indices ({count},) or ({batch}, {count}), one for "
            f"each row of g, got {given} {tuple(getattr(targets, 'shape', ()))}; they "
            f"are order[..., -{count}:]."
        )
    if count and refuse.readable(targets):
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= length:
            raise ValueError(
                f"targets need indices from 0 to {length - 1} of the tokens in h, got "
                f"{low} … {high}."
            )


def _past(memory: list[Tensor] | None, ids: Tensor, layers: int, d_model: int) -> int:
    """M, if the ids are ids and the memory is that of this model and batch."""
    _refuse_ids(ids)
    if memory is None:
        return 0
    listed = memory if isinstance(memory, list) else []
    shapes = [tuple(getattr(m, "shape", ())) for m in listed]
    past = shapes[0][1] if shapes and len(shapes[0]) == 3 else 0
    if shapes != [(len(ids), past, d_model)] * layers:
        raise ValueError(
            f"memory needs the {layers} tensors ({len(ids)}, length, {d_model}) that "
            f"the call on the segment before returned, got {memory!r:.80}."
        )
    return past
