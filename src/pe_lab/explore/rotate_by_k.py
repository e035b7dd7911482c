"""Chapter 05: one matrix takes every position k further.

Vaswani et al. 2017, section 3.5.
"""

from pe_lab.explore.base import Explorable
from pe_lab.explore.settings import Real, Switch, Whole


class RotateByK(Explorable):
    """PE(p + k) = M_k·PE(p), pair by pair: a row of clocks and the matrix M_k.

    Each clock shows one (sin, cos) pair: sine to the right, cosine upwards, so the hand
    starts at twelve and turns clockwise by ω_i per position. M_k turns hand i by kω_i.

    Move: the position p; then the offset k; then turn on "use the transpose".

    Notice: moving p turns every hand and changes no entry of M_k. The turned hand lies
    on the ring that marks PE(p + k), whatever p is. The transpose turns the other way:
    its hand points to PE(p − k), which is p + k only for k = 0.

    Args:
        d_model: an even number of channels, 2 … 16: d_model/2 clocks.
        base: 10 … 1e6.
        position: p, 0 … 64.
        offset: k, −32 … 32 positions.
        transpose: use M_kᵀ in place of M_k.

    Example:
        >>> pe_lab.explore.RotateByK(d_model=7)
        Traceback (most recent call last):
        ValueError: RotateByK: d_model needs one of 2, 4, … 16, got 7; try 6.
    """

    module = "rotate_by_k.js"
    text = (
        "A row of clocks, one for each pair of channels, with a hand at position p and "
        "a hand turned by the matrix M_k, which lands on position p + k; beside them "
        "the matrix, with one two-by-two block for each clock."
    )

    d_model = Whole(8, 2, 16, step=2)
    base = Real(10000.0, 10, 1e6)
    position = Whole(5, 0, 64)
    offset = Whole(2, -32, 32)
    transpose = Switch()
