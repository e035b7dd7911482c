"""Chapter 06: how the score of two positions depends on their distance.

Vaswani et al. 2017, section 3.5, for the encoding; Press et al. 2022 for ALiBi's line.
"""

from pe_lab.explore.base import Explorable
from pe_lab.explore.settings import Choice, Real, Whole


class KernelShape(Explorable):
    """The curve K(Δ)/K(0), where K(Δ) = Σ_i cos(Δ·ω_i) = PE(p)·PE(p + Δ).

    Move: the width, the base, the distance Δ (slider, or point at the curve), and lay
    ALiBi's line 1 − m·Δ over it. Softmax ignores what is constant along a row, so the
    line may be lifted to start where the curve starts.

    Notice: with eight channels the curve falls to Δ = 3 and climbs almost all the way
    back at Δ = 6. More pairs flatten the climb and do not remove it. A larger base
    makes the fall slower. The line never turns.

    Args:
        d_model: an even number of channels, 2 … 1024: d_model/2 pairs.
        base: 10 … 1e6.
        max_offset: the largest Δ drawn, 8 … 2048 positions.
        offset: the Δ that the readout speaks of.
        alibi: "none", or a slope m of the eight-head ALiBi, "1/2" … "1/256".

    Example:
        >>> figure = pe_lab.explore.KernelShape(d_model=64, alibi="1/8")
        >>> figure
        KernelShape(d_model=64, base=10000.0, max_offset=32, offset=6, alibi='1/8')
        >>> figure.close()
    """

    module = "kernel_shape.js"
    text = (
        "A curve of the score between two positions against their distance: highest at "
        "distance zero, falling to a first minimum, rising again to a rebound."
    )

    d_model = Whole(8, 2, 1024, step=2)
    base = Real(10000.0, 10, 1e6)
    max_offset = Whole(32, 8, 2048)
    offset = Whole(6, 0, 2048)
    alibi = Choice("none", *(f"1/{2**h}" for h in range(1, 9)))
