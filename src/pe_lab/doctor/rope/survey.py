"""What a rotation does to basis vectors: who mixes with whom, how fast, how much.

Every head carries one basis vector, so that one call gives the matrix R_p of each
position p. Ids are runs a, a+1, …, which every calling convention can express, and
every call is on a copy that has seen nothing before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from pe_lab.doctor.guard import Failure
from pe_lab.doctor.kind import Patient

NEAR = 8  # positions 0 … 7 whose whole matrices are looked at
FAR = tuple(2**k for k in range(3, 13))  # starts of runs, to unwrap slow angles
SAME = 1e-5  # two float32 ways to the same sine, with some roundings to spare
_MIXES = 1e-8  # products with the zeros of a basis vector are exact


@dataclass
class Survey:
    """What the first look found.

    Args:
        head_dim: D.
        near: (8, D, D), row j and column i of R_p: what channel i gives to channel j.
        keys: the same of keys, if they are turned in one call with queries.
        partners: of every channel, the others that it mixes with.
        pairs: of channels, if every channel has one partner or none.
        omega: (pairs,) radians per position, with sign, as fitted.
        phase: (pairs,) angle at position 0.
        gain: (8, pairs) factor on the norm at positions 0 … 7.
        bend: the first position that is not turned by p·omega; None up to 4096.
        refused: the first position that was refused, and in what words.
        failure: of the first call, if there is nothing to look at.
    """

    head_dim: int
    near: Tensor | None = None
    keys: Tensor | None = None
    partners: dict[int, tuple[int, ...]] = field(default_factory=dict)
    pairs: tuple[tuple[int, int], ...] = ()
    omega: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    phase: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    gain: Tensor = field(default_factory=lambda: torch.ones(0, 0, dtype=torch.float64))
    bend: int | None = None
    refused: tuple[int, str] | None = None
    failure: str = ""

    @property
    def steady(self) -> bool:
        """Whether lengths do not depend on the position."""
        return not len(self.gain) or bool(
            (self.gain - self.gain[0]).abs().max() <= SAME
        )

    @property
    def fastest(self) -> float:
        """Radians per position of the fastest pair, at least 1: precision lost."""
        return max([1.0, *self.omega.abs().tolist()])


def survey(patient: Patient) -> Survey:
    """The first look, kept in patient.facts["survey"]."""
    if "survey" not in patient.facts:
        patient.facts["survey"] = Survey(head_dim(patient))
        _look(patient, patient.facts["survey"])
    return cast(Survey, patient.facts["survey"])


def random_heads(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers, the same on every call, drawn in float64."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def run(start: int, length: int = 4) -> Tensor:
    """Ids start, start+1, …"""
    return torch.arange(start, start + length)


def is_pair_call(patient: Patient) -> bool:
    """Whether queries and keys are turned in one call, so perhaps differently."""
    return getattr(patient.adapt, "form", "x") != "x"


def head_dim(patient: Patient) -> int:
    """D, as recognised."""
    return int(getattr(patient.adapt, "head_dim", 64))


def turned(
    patient: Patient, x: Tensor, ids: Tensor, call: Callable[..., Any] | None = None
) -> Any:
    """x turned by `call` or a fresh copy: real numbers in x's shape, or a Failure."""
    out = patient.guard.call(call or patient.renewed(), x, ids)
    return as_turned(out, x)


def as_turned(out: Any, x: Tensor) -> Any:
    """What came out for x, if it can be compared with x; else a Failure."""
    if isinstance(out, Failure):
        return out
    real = isinstance(out, Tensor) and out.is_floating_point()
    if not real or out.shape != x.shape:
        given = f"{getattr(out, 'dtype', type(out).__name__)}"
        given += f" {tuple(getattr(out, 'shape', ()))}"
        return Failure(ValueError(f"it gave {given} for x of {tuple(x.shape)}"))
    return out


def turned_pair(
    patient: Patient,
    x: Tensor,
    ids: Tensor,
    k: Tensor,
    call: Callable[..., Any] | None = None,
) -> Any:
    """(q, k) of a call that turns both, with tensors in it, or a Failure."""
    out = patient.guard.call(call or patient.renewed(), x, ids, k)
    fit = isinstance(out, tuple) and len(out) == 2
    if fit and all(isinstance(o, Tensor) and o.dim() == 4 for o in out):
        return out
    return out if isinstance(out, Failure) else Failure(ValueError("it gave no pair"))


def matrices(
    patient: Patient,
    ids: Tensor,
    call: Callable[..., Any] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Any:
    """(L, D, D) float64 of the ids (L,), by `call` or a fresh copy; or a Failure."""
    return as_matrices(
        turned(patient, basis(head_dim(patient), len(ids), dtype), ids, call)
    )


def basis(width: int, length: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """(1, D, L, D): head i of every token is basis vector i."""
    return torch.eye(width, dtype=dtype)[None, :, None].repeat(1, 1, length, 1)


def as_matrices(out: Any) -> Any:
    """What came out for basis vectors, as matrices; Failures pass."""
    return out[0].permute(1, 2, 0).double() if isinstance(out, Tensor) else out


def blocks(matrix: Tensor, pairs: tuple[tuple[int, int], ...]) -> Tensor:
    """(…, pairs, 2, 2) of (…, D, D)."""
    both = torch.tensor(pairs)
    return matrix[..., both[:, :, None], both[:, None, :]]


def angles_of(matrix: Tensor, pairs: tuple[tuple[int, int], ...]) -> Tensor:
    """(…, pairs): the angle of each pair's block, in (−π, π]."""
    block = blocks(matrix, pairs)
    cos = block[..., 0, 0] + block[..., 1, 1]
    return torch.atan2(block[..., 1, 0] - block[..., 0, 1], cos)


def angles(
    patient: Patient, ids: Tensor, call: Callable[..., Any] | None = None
) -> Any:
    """(L, pairs) from one vector in which the first of every pair is 1; or a Failure.

    Needs the pairs of the survey; long runs cost one head instead of D.
    """
    pairs = torch.tensor(survey(patient).pairs)
    x = torch.zeros(1, 1, len(ids), head_dim(patient))
    x[..., pairs[:, 0]] = 1
    out = turned(patient, x, ids, call)
    if isinstance(out, Failure):
        return out
    out = out[0, 0].double()
    return torch.atan2(out[:, pairs[:, 1]], out[:, pairs[:, 0]])


def wrapped(angle: Tensor) -> Tensor:
    """The angle in (−π, π], as a distance from a full turn."""
    return torch.atan2(angle.sin(), angle.cos())


def _look(patient: Patient, found: Survey) -> None:
    x = basis(head_dim(patient), NEAR)
    near = as_matrices(as_turned(patient.call(x, run(0, NEAR)), x))
    if isinstance(near, Failure):
        found.failure = str(near)
        return
    found.near = near
    patient.facts["first"] = near  # of the copy that keeps its memory
    if is_pair_call(patient):
        found.keys = _keys(patient)
    far = matrices(patient, run(1000, 1))  # where slow pairs have begun to turn
    found.partners = _partners(torch.cat((near, far)) if _sane(far) else near)
    found.pairs = _pairs(found.partners)
    if found.pairs:
        _speeds(patient, found)


def _keys(patient: Patient) -> Tensor | None:
    x = basis(head_dim(patient), NEAR)
    both = turned_pair(patient, x, run(0, NEAR), x)
    keys = both if isinstance(both, Failure) else as_matrices(as_turned(both[1], x))
    return keys if isinstance(keys, Tensor) else None


def _sane(far: Any) -> bool:
    return isinstance(far, Tensor) and bool(far.isfinite().all())


def _partners(near: Tensor) -> dict[int, tuple[int, ...]]:
    mixes = near.abs().nan_to_num(1.0).amax(0) > _MIXES
    mixes = (mixes | mixes.T).fill_diagonal_(False)
    return {i: tuple(row.nonzero().flatten().tolist()) for i, row in enumerate(mixes)}


def _pairs(partners: dict[int, tuple[int, ...]]) -> tuple[tuple[int, int], ...]:
    if any(len(others) > 1 for others in partners.values()):
        return ()
    return tuple((i, o[0]) for i, o in partners.items() if o and i < o[0])


def _speeds(patient: Patient, found: Survey) -> None:
    """Frequencies, unwrapped by runs at 8, 16, …: each doubles the precision."""
    assert found.near is not None
    near = angles_of(found.near, found.pairs)
    block = blocks(found.near, found.pairs)
    found.gain = (block.square().sum((-1, -2)) / 2).sqrt()
    found.phase = near[0]
    omega = wrapped(near[1] - near[0])
    for position in range(2, NEAR):
        omega, miss = _refined(omega, near[position] - near[0], position)
        if miss > 0.1:
            found.bend = found.bend or position
    found.omega = _unaliased(omega)
    for start in FAR if found.bend is None else ():
        there = angles(patient, run(start))
        if isinstance(there, Failure):
            found.refused = (start, str(there))
            return
        for i in range(4):
            omega, miss = _refined(found.omega, there[i] - found.phase, start + i)
            if not miss <= 1e-3 + start * 2**-20 * found.fastest:
                found.bend = start + i
                return
            found.omega = omega


def _refined(omega: Tensor, angle: Tensor, position: int) -> tuple[Tensor, float]:
    """(the frequency seen at this position, radians by which it surprises)."""
    miss = wrapped(angle - position * omega)
    return omega + miss / position, float(miss.abs().max())


def _unaliased(omega: Tensor) -> Tensor:
    """Speeds above π, seen as backwards, if a geometric ladder says that they are.

    Integer positions show a speed up to full turns; the ladder through its slowest two
    pairs tells how many there are.
    """
    for order in (1, -1) if len(omega) > 4 else ():
        w = omega.flip(0) if order == 1 else omega
        ratio = w[1] / w[0]
        if not (0 < float(w[0]) < 1 and float(ratio) > 1 and bool((w < 0).any())):
            continue
        steps = torch.arange(len(w), dtype=torch.float64)
        guess = w[0] * ratio**steps
        miss = wrapped(w - guess)
        # two speeds of float32 know their ratio to about 1e-6
        if bool((miss.abs() <= 1e-4 + 1e-5 * guess * steps).all()):
            fixed = guess + miss
            return fixed.flip(0) if order == 1 else fixed
    return omega
