"""Chapter 15: by how much each rule of context extension slows each pair of channels.

Chen et al. 2023, Peng et al. 2023, Dubey et al. 2024, Ding et al. 2024.
"""

from pe_lab.explore.base import Explorable
from pe_lab.explore.settings import Choice, Real, Whole


class ContextStretch(Explorable):
    """The slow-down ω_i/ω_i' of every pair, for nine rules, on a logarithmic axis.

    A pair has seen all its angles if it turned once within the trained length. One that
    has not meets new angles in a text of L tokens if it turns further there than it did
    in training: if (L/L₀)·r_i over its slow-down exceeds r_i, its turns in training.

    Move: the rule, its factor, the trained length, the length of the text, the base and
    the width of a head; or press one of the named cases.

    Notice: all rules run between 1 and s, and differ in which pairs they slow. Linear
    slows the fastest, too. NTK-aware keeps it, and leaves most slow pairs with new
    angles at s times the trained length; YaRN leaves none.

    Args:
        method: the rule; "longrope" is Phi-3's list, whatever the sliders say.
        factor: s, 1 … 64.
        trained: L₀ in tokens, 16 … 131072.
        reach: L/L₀, the length of the text over the trained one, 1 … 64.
        base: of the trained frequencies, 10 … 1e6.
        head_dim: an even number of channels, 8 … 256.

    Example:
        >>> figure = pe_lab.explore.ContextStretch(method="yarn", factor=8)
        >>> figure.trained, figure.reach
        (32, 4.0)
        >>> figure.close()
    """

    module = "context_stretch.js"
    text = (
        "A dot for each pair of channels, the fastest at the left: how much slower it "
        "turns under the chosen rule, from one to the factor. A vertical line stands "
        "where pairs turn once within the trained length; rings are pairs that meet "
        "angles never seen in training."
    )

    method = Choice(
        "ntk", "linear", "dynamic", "by-parts", "yarn", "llama3", "longrope",
        "base 5e5", "base 1e6",
    )  # fmt: skip
    factor = Real(4, 1, 64)
    trained = Whole(32, 16, 131072)
    reach = Real(4, 1, 64)
    base = Real(10000, 10, 1e6)
    head_dim = Whole(16, 8, 256, step=2)
