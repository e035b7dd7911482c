"""Chapter 07: how long the word vector is beside the position vector.

Vaswani et al. 2017, section 3.4, for the factor √d_model.
"""

from pe_lab.explore.base import Explorable
from pe_lab.explore.settings import Choice, Switch, Whole


class ScaleBalance(Explorable):
    """Lengths of e and p in the sum e + p, for an initialisation and two factors.

    Entries of e are independent N(0, s²): E‖e‖ = s·√2·Γ((d+1)/2)/Γ(d/2), close to s·√d.
    Entries of p are sines and cosines: ‖p‖ = √(d/2). A random e is perpendicular to p
    on average, so the sum is the long side of a right-angled triangle, and its cosine
    with e is ‖e‖/√(‖e‖² + ‖p‖²).

    Move: the width, the initialisation, the factor √d on the words, the factor on the
    positions; or press one of the named cases.

    Notice: the paper's factor belongs to the paper's initialisation. Without it the
    word is a sixteenth of the position at d = 512; with it on top of N(0, 1) the word
    is 32 times the position. Both, from one line of code.

    Args:
        d_model: an even number of channels, 16 … 4096.
        init: standard deviation s of the embedding: "1/sqrt(d)", "1" or "0.02".
        scale_words: multiply the embedding by √d.
        scale_positions: what the table is multiplied by: "1" or "1/sqrt(d)".

    Example:
        >>> figure = pe_lab.explore.ScaleBalance(init="1")  # √d on top of N(0, 1)
        >>> figure.d_model, figure.scale_words
        (512, True)
        >>> figure.close()
    """

    module = "scale_balance.js"
    text = (
        "Two bars, the expected length of a word vector and the length of a position "
        "vector, the right-angled triangle that their sum makes, and the share of each "
        "in the energy of the sum."
    )

    d_model = Whole(512, 16, 4096, step=2)
    init = Choice("1/sqrt(d)", "1", "0.02")
    scale_words = Switch(True)
    scale_positions = Choice("1", "1/sqrt(d)")
