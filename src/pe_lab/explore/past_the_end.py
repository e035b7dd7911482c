"""Chapter 08: what a table reads where its rows end."""

from pe_lab.explore.base import Explorable
from pe_lab.explore.settings import Choice, Whole


class PastTheEnd(Explorable):
    """The place p' in a table of N trained rows that position p of L is read at.

    error: p' = p, and p ≥ N is refused. untrained: p' = p in a longer table, whose rows
    from N on no gradient ever reached. clamp: p' = min(p, N − 1). wrap: p' = p mod N.
    resample: p' = p·(N − 1)/(L − 1), between two rows the nearer one counts more.

    Move: the way out, the length, the position; or point at a dot.

    Notice: four shapes, and each breaks something that training relied on. Untrained
    rows are noise, clamping makes one place of many, wrapping jumps back to the start,
    and resampling moves every position, early ones too.

    Args:
        way: "error", "untrained", "clamp", "wrap" or "resample".
        rows: N, trained rows, 2 … 32.
        length: L, positions that are asked for, 2 … 64.
        position: p, 0 … 63; the last one asked for if it is beyond.

    Example:
        >>> figure = pe_lab.explore.PastTheEnd(way="wrap", rows=4)
        >>> figure.length, figure.position
        (20, 11)
        >>> figure.close()
    """

    module = "past_the_end.js"
    text = (
        "A dot for each position, at the height of the row that is read for it: rising "
        "up to the end of the table, and then refused, rising on into rows never "
        "trained, level, falling back to row 0, or rising less steeply from the start."
    )

    way = Choice("error", "untrained", "clamp", "wrap", "resample")
    rows = Whole(8, 2, 32)
    length = Whole(20, 2, 64)
    position = Whole(11, 0, 63)
