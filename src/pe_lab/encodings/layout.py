"""The two layouts of rotary pairs, and weights reordered from one to the other."""

from __future__ import annotations

from torch import Tensor

from pe_lab import refuse

LAYOUTS = ("half", "interleaved")


def convert_layout(
    weight: Tensor,
    num_heads: int,
    *,
    num_kv_heads: int | None = None,
    frm: str,
    to: str,
) -> Tensor:
    """The rows of a query or key projection, reordered for the other layout.

    With both projections converted, scores under the new layout are the scores under
    the old one. Converting one of the two, or the values, breaks a model.

    Args:
        weight: (num_heads · head_dim, …), a weight matrix or its bias.
        num_heads: H, of the projection's heads.
        num_kv_heads: of a key projection that has fewer heads than there are queries
            (grouped-query attention); its rows are then shared out among these.
        frm, to: "half" or "interleaved", as for `apply_rope`.

    Returns:
        a tensor of the same shape; converting back gives the one that was given.

    Raises:
        TypeError, ValueError: for an unknown layout, or rows that do not make heads of
            an even width.
    Source: the reordering that converts Meta's Llama weights for Hugging Face.

    Example:
        >>> rows = torch.arange(6.0)  # one head; its pairs are (0, 1), (2, 3), (4, 5)
        >>> pe_lab.convert_layout(rows, 1, frm="interleaved", to="half")
        tensor([0., 2., 4., 1., 3., 5.])
    """
    refuse.one_of("frm", frm, LAYOUTS)
    refuse.one_of("to", to, LAYOUTS)
    heads = refuse.whole("num_heads", num_heads)
    if num_kv_heads is not None:
        heads = refuse.whole("num_kv_heads", num_kv_heads)
        if num_heads % heads:
            raise ValueError(
                f"num_kv_heads needs a divisor of num_heads = {num_heads}, got {heads}."
            )
    rows = weight.shape[0] if isinstance(weight, Tensor) and weight.dim() else 0
    if rows == 0 or rows % (2 * heads):
        given = getattr(weight, "shape", type(weight).__name__)
        raise ValueError(
            f"weight needs {heads} heads of an even width along its first axis, got "
            f"{given}; a key projection of grouped-query attention needs num_kv_heads."
        )
    if frm == to:
        return weight
    pairs = rows // heads // 2
    shape = (heads, pairs, 2) if frm == "interleaved" else (heads, 2, pairs)
    return weight.unflatten(0, shape).transpose(1, 2).flatten(0, 2)
