"""Chapter 03: the sinusoidal table, one cell at a time.

Vaswani et al. 2017, section 3.5.
"""

from pe_lab.explore.base import Explorable
from pe_lab.explore.settings import Choice, Real, Whole


class TableBuilder(Explorable):
    """The table PE[p, 2i] = sin(p·ω_i), PE[p, 2i+1] = cos(p·ω_i), as a heat map.

    Beside it runs the wave of the chosen channel, down the positions.

    Move: point at a cell, or walk with the arrow keys, and read how it is computed.
    Change the width, the base, the number of positions, the order of the channels.

    Notice: the wavelengths grow by one and the same factor from pair to pair. A row is
    a clock read at one moment, a column is one hand through time. The slow channels on
    the right barely move in so few positions. The order of the channels moves columns
    and changes no number.

    Args:
        d_model: 4 … 64 channels; an odd width ends in a sine without a cosine.
        base: 10 … 1e6; wavelengths run from 2π towards 2π·base.
        num_positions: rows, 4 … 128.
        order: "interleaved" (sin, cos, sin, cos, …) or "halves".
        position, channel: the cell that the readout explains.

    Example:
        >>> figure = pe_lab.explore.TableBuilder(d_model=6)
        >>> figure.channel = 5  # the last cosine
        >>> figure.position, figure.channel
        (3, 5)
        >>> figure.close()
    """

    module = "table_builder.js"
    text = (
        "A heat map of the sinusoidal table: positions go down, channels go right. "
        "Fast waves on the left, slow ones on the right, each a sine beside its cosine."
    )

    d_model = Whole(8, 4, 64)
    base = Real(10000.0, 10, 1e6)
    num_positions = Whole(16, 4, 128)
    order = Choice("interleaved", "halves")
    position = Whole(3, 0, 127)
    channel = Whole(2, 0, 63)
