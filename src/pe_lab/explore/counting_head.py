"""Chapter 13: a causal head without position that counts the tokens it sees.

Kazemnejad et al. 2023, theorem 1, for what such a head is good for.
"""

from pe_lab.explore.base import Explorable
from pe_lab.explore.settings import Choice, Switch, Whole


class CountingHead(Explorable):
    """One head with equal scores, and what its output tells of the place.

    Place m sees m + 1 tokens, each with the weight 1/(m + 1). Marked tokens carry the
    value 1, all others 0, so the output is (marked tokens seen)/(m + 1). With one mark
    at place 0, 1/output − 1 gives m back.

    Move: the place that looks; the marked token; how many are marked; the number format
    in which the output is kept. Then switch the mask off.

    Notice: the grey area is always 1, spread over more and more tokens. Without the
    mask all places have one output. In bfloat16, neighbours far from the start have one
    output, too: the stairs.

    Args:
        length: tokens in the sequence, 4 … 4096.
        place: of the query, counted from 0; at most length − 1 is used.
        start: place of the first marked token; at most length − 1 is used.
        marked: how many tokens are marked, 1 … 8.
        causal: each place sees itself and those before it.
        dtype: in which the output is kept: "float64", "float32", "float16" or
            "bfloat16".

    Example:
        >>> figure = pe_lab.explore.CountingHead(length=512, dtype="bfloat16")
        >>> figure.causal, figure.marked
        (True, 1)
        >>> figure.close()
    """

    module = "counting_head.js"
    text = (
        "Above, the attention weights of one place as bars over the tokens that it "
        "sees, all of one height. Below, the place that is read back from the output "
        "against the true place: a diagonal with a causal mask and a mark at the "
        "start, a level line without the mask, stairs in low precision."
    )

    length = Whole(16, 4, 4096)
    place = Whole(7, 0, 4095)
    start = Whole(0, 0, 4095)
    marked = Whole(1, 1, 8)
    causal = Switch(True)
    dtype = Choice("float64", "float32", "float16", "bfloat16")
