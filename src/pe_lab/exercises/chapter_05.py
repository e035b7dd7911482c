"""Exercises of chapter 5, Rotate by k: the block, whole tables, data, a head."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lab.encodings.sinusoidal import rotation_matrix, sinusoidal

from .engine import Exercise, Mistake


def _block(offset: float, omega: float) -> Tensor:
    """[[cos kω, sin kω], [−sin kω, cos kω]]: takes (sin, cos) at p to that at p + k."""
    cos, sin = math.cos(offset * omega), math.sin(offset * omega)
    return torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)


def _block_textbook(offset: float, omega: float) -> Tensor:
    return _block(-offset, omega)


def _block_without_offset(offset: float, omega: float) -> Tensor:
    return _block(1.0, omega)


def _block_in_degrees(offset: float, omega: float) -> Tensor:
    return _block(math.radians(offset), omega)


BLOCK = Exercise(
    id="05-block",
    title="One clock, k steps on",
    stars=1,
    reference=_block,
    probes=((3, 0.5), (0, 1.0), (1, 0.01), (-2, 0.7), (100, 1.0)),
    praise="M_k is made of blocks like this one, one for each frequency.",
    mistakes=(
        Mistake(
            "turns the wrong way",
            _block_textbook,
            "This is the textbook rotation of (x, y). Our pairs are (sin, cos), sine "
            "first, so the minus sign sits in the lower left.",
        ),
        Mistake(
            "the offset is missing",
            _block_without_offset,
            "The angle is omega alone: a step of one position. It has to grow with the "
            "offset.",
        ),
        Mistake(
            "degrees",
            _block_in_degrees,
            "The offset went through degrees. omega is in radians per position, and "
            "cos and sin take radians.",
        ),
    ),
)


def _positions(start: int, count: int) -> Tensor:
    return torch.arange(start, start + count)


def _table(start: int, count: int, d_model: int) -> Tensor:
    return sinusoidal(_positions(start, count), d_model, dtype=torch.float64)


def _shift_rows(table: Tensor, k: int) -> Tensor:
    """Every row PE(p)ᵀ of the table becomes PE(p + k)ᵀ = PE(p)ᵀ M_kᵀ."""
    return table @ rotation_matrix(k, table.shape[-1]).T


def _shift_rows_back(table: Tensor, k: int) -> Tensor:
    return table @ rotation_matrix(k, table.shape[-1])


def _shift_rows_roll(table: Tensor, k: int) -> Tensor:
    return table.roll(-k, dims=0)


def _shift_rows_from_zero(table: Tensor, k: int) -> Tensor:
    return _table(k, *table.shape)


def _shift_rows_columns(table: Tensor, k: int) -> Tensor:
    return rotation_matrix(k, table.shape[-1]) @ table.T


ROWS = Exercise(
    id="05-rows",
    title="Shift a whole table",
    stars=1,
    reference=_shift_rows,
    probes=(
        (_table(0, 5, 4), 3),
        (_table(7, 3, 8), 10),
        (_table(100, 6, 6), -2),
        (_table(2, 4, 4), 0),
    ),
    praise="A table holds row vectors, so the matrix goes to the right, transposed.",
    mistakes=(
        Mistake(
            "goes the other way",
            _shift_rows_back,
            "Every row arrives k positions before, not after. The table holds rows, "
            "and M_k acts on columns: write one row's product down and transpose it.",
        ),
        Mistake(
            "columns, not rows",
            _shift_rows_columns,
            "The numbers are right, but positions now run along the columns. The "
            "answer needs the shape of the table.",
        ),
        Mistake(
            "reads other rows",
            _shift_rows_roll,
            "This takes rows that are there already, and the last ones wrap around to "
            "the first. A matrix makes rows that the table does not hold.",
        ),
        Mistake(
            "starts from position 0",
            _shift_rows_from_zero,
            "This computes a table that starts at position k. The given one may start "
            "anywhere, and nobody says where: use its rows.",
        ),
    ),
)


def _recover(before: Tensor, after: Tensor) -> Tensor:
    """The M with after = M before for columns: least squares over the rows."""
    return torch.linalg.lstsq(before, after).solution.T


def _recover_for_rows(before: Tensor, after: Tensor) -> Tensor:
    return torch.linalg.lstsq(before, after).solution


def _recover_backwards(before: Tensor, after: Tensor) -> Tensor:
    return torch.linalg.lstsq(after, before).solution.T


def _recover_products(before: Tensor, after: Tensor) -> Tensor:
    return after.T @ before


def _line(start: int, count: int) -> Tensor:
    """Rows (p, 1), which a shear moves: not every shift map is a rotation."""
    positions = _positions(start, count).double()
    return torch.stack((positions, torch.ones_like(positions)), dim=1)


FIT = Exercise(
    id="05-fit",
    title="Find the matrix in the data",
    stars=2,
    reference=_recover,
    probes=(
        (_table(0, 200, 4), _table(3, 200, 4)),
        (_table(50, 300, 6), _table(51, 300, 6)),
        (_line(0, 10), _line(5, 10)),
    ),
    praise="No sine, no cosine, no k went in: the rows alone hold the matrix.",
    mistakes=(
        Mistake(
            "acts on rows",
            _recover_for_rows,
            "This is the matrix X with before @ X = after, which acts on rows. Asked "
            "for is the one that acts on columns.",
        ),
        Mistake(
            "backwards",
            _recover_backwards,
            "This matrix takes `after` to `before`. lstsq(A, B) solves A X = B: which "
            "of the two is known, and which is made?",
        ),
        Mistake(
            "products without the inverse",
            _recover_products,
            "afterᵀ before is half of the normal equations: it still has to be "
            "multiplied by the inverse of beforeᵀ before.",
        ),
    ),
)


def _looks(weights: Tensor, offset: int) -> bool:
    """True if, with keys PE, every query row's largest score lies at m + offset."""
    table = _table(0, 256, 16)
    scores = (table @ weights.T) @ table.T
    rows = torch.arange(8, 248)
    return bool((scores[rows].argmax(dim=1) == rows + offset).all())


LOOK = Exercise(
    id="05-look",
    title="A head that looks three back",
    stars=2,
    reference=rotation_matrix(-3, 16),
    accepts=lambda weights: _looks(weights, -3),
    need="For every position m, the largest of the scores (W_q PE(m))·PE(n) has to "
    "lie at n = m − 3.",
    praise="One fixed matrix does it at every position, also at those never seen.",
    mistakes=(
        Mistake(
            "looks ahead",
            rotation_matrix(3, 16),
            "The largest scores lie at m + 3. The query has to look like the key that "
            "it wants to meet: where is that key, seen from m?",
            test=lambda weights: _looks(weights, 3),
        ),
        Mistake(
            "looks at itself",
            torch.eye(16, dtype=torch.float64),
            "The largest score of every row lies at m itself. The query has to be "
            "turned.",
            test=lambda weights: _looks(weights, 0),
        ),
        Mistake(
            "looks away",
            -rotation_matrix(-3, 16),
            "The smallest scores lie at m − 3: the sign is the wrong way round.",
            test=lambda weights: _looks(-weights, -3),
        ),
    ),
)


def _sums(coarse: Tensor, fine: Tensor, sign: int = 1) -> Tensor:
    """(sin, cos) of a ± b for every pair of rows: (A, B, pairs, 2)."""
    (sin_a, cos_a), (sin_b, cos_b) = coarse[:, None].unbind(-1), fine.unbind(-1)
    sin = sin_a * cos_b + sign * cos_a * sin_b
    cos = cos_a * cos_b - sign * sin_a * sin_b
    return torch.stack((sin, cos), dim=-1)


def _add_angles(coarse: Tensor, fine: Tensor) -> Tensor:
    """Rows for a·B + b from rows for a·B and for b, by the addition theorem."""
    return _sums(coarse, fine).flatten(0, 1)


def _add_angles_vectors(coarse: Tensor, fine: Tensor) -> Tensor:
    return (coarse[:, None] + fine).flatten(0, 1)


def _add_angles_difference(coarse: Tensor, fine: Tensor) -> Tensor:
    return _sums(coarse, fine, sign=-1).flatten(0, 1)


def _add_angles_products(coarse: Tensor, fine: Tensor) -> Tensor:
    return (coarse[:, None] * fine).flatten(0, 1)


def _add_angles_order(coarse: Tensor, fine: Tensor) -> Tensor:
    return _sums(coarse, fine).transpose(0, 1).flatten(0, 1)


def _hands(start: int, count: int, step: int, pairs: int) -> Tensor:
    """(sin, cos) at start, start + step, …: (count, pairs, 2)."""
    positions = start + step * torch.arange(count)
    table = sinusoidal(positions, 2 * pairs, dtype=torch.float64)
    return table.unflatten(-1, (pairs, 2))


ADD = Exercise(
    id="05-add",
    title="A long table from two short ones",
    stars=2,
    reference=_add_angles,
    probes=(
        (_hands(0, 3, 4, 2), _hands(0, 4, 1, 2)),
        (_hands(1000, 2, 5, 3), _hands(0, 5, 1, 3)),
        (_hands(0, 1, 1, 1), _hands(0, 3, 1, 1)),
    ),
    praise="pe_lab.tables does this with complex numbers: one product for each entry.",
    mistakes=(
        Mistake(
            "adds the vectors",
            _add_angles_vectors,
            "Positions add, and so do angles. Sines and cosines do not: use the "
            "identity for sin(a + b).",
        ),
        Mistake(
            "the difference",
            _add_angles_difference,
            "These are the rows for a − b: both signs of the identity are the other "
            "way round.",
        ),
        Mistake(
            "entry times entry",
            _add_angles_products,
            "sin a · sin b is not the sine of anything here. Each of the two results "
            "takes two products.",
        ),
        Mistake(
            "rows in another order",
            _add_angles_order,
            "The rows are right but b runs in the outer loop. Position a·B + b is row "
            "a·B + b: the fine index runs fastest.",
        ),
    ),
)


def _offset_between(before: Tensor, after: Tensor) -> Tensor:
    """The k from −1000 to 1000 for which M_k before is nearest to after."""
    offsets = torch.arange(-1000, 1001)
    moved = rotation_matrix(offsets, before.shape[0]) @ before
    return offsets[(moved @ after).argmax()]


def _offset_backwards(before: Tensor, after: Tensor) -> Tensor:
    return _offset_between(after, before)


def _offset_fastest(before: Tensor, after: Tensor) -> Tensor:
    """The turn of the first clock, between −π and π."""
    start, stop = (torch.atan2(row[0], row[1]) for row in (before, after))
    return torch.remainder(stop - start + math.pi, math.tau) - math.pi


def _offset_fastest_whole(before: Tensor, after: Tensor) -> Tensor:
    return _offset_fastest(before, after).round()


def _row(position: int, d_model: int) -> Tensor:
    return _table(position, 1, d_model)[0]


OFFSET = Exercise(
    id="05-offset",
    title="How far apart are two rows?",
    stars=3,
    reference=_offset_between,
    probes=(
        (_row(12, 16), _row(15, 16)),
        (_row(500, 16), _row(493, 16)),
        (_row(40_000, 16), _row(40_250, 16)),
        (_row(7, 32), _row(1006, 32)),
        (_row(3, 16), _row(3, 16)),
    ),
    praise="You never learned where the rows stand, only how far apart: that is what "
    "relative position means.",
    mistakes=(
        Mistake(
            "the wrong way round",
            _offset_backwards,
            "The size is right and the sign is not: this k leads from `after` to "
            "`before`.",
        ),
        Mistake(
            "the fastest clock alone",
            _offset_fastest,
            "This is the turn of the first clock, which is back after 2π steps. Longer "
            "offsets need the slower clocks.",
        ),
        Mistake(
            "the fastest clock, rounded",
            _offset_fastest_whole,
            "The first clock is back after 2π steps, so it tells offsets apart only up "
            "to 3. Longer ones need the slower clocks.",
        ),
    ),
)

EXERCISES = (BLOCK, ROWS, FIT, LOOK, ADD, OFFSET)
