"""Exercises of chapter 5, Rotate by k: the block, and when a clock is back."""

from __future__ import annotations

import math

import torch
from torch import Tensor

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


def _is_back(offset: Tensor) -> bool:
    """True for a whole number of steps from 1 to 1000 that ends within 0.02 rad."""
    steps = offset.item()
    turned = math.remainder(steps, 2 * math.pi)
    return steps == int(steps) and 1 <= steps <= 1000 and abs(turned) <= 0.02


RETURN = Exercise(
    id="05-return",
    title="When the fastest clock is back",
    stars=2,
    reference=44,
    accepts=_is_back,
    need="A whole number k from 1 to 1000 with k mod 2π within 0.02 of a full turn.",
    praise="k / 2π is nearly whole: 44/7 and 710/113 are famous fractions near 2π.",
    mistakes=(
        Mistake(
            "no step at all",
            0,
            "Zero steps do not turn the clock. Look for k from 1 on.",
            test=lambda offset: offset.item() == 0,
        ),
        Mistake(
            "not a whole number",
            2 * math.pi,
            "A full turn takes 2π steps, but positions are whole numbers: find a k "
            "that is near a multiple of 2π.",
            test=lambda offset: offset.item() % 1 != 0,
        ),
        Mistake(
            "nearly back",
            6,
            "The clock is within half a radian of a full turn: near, but another k "
            "comes nearer.",
            test=lambda offset: (
                0.02 < abs(math.remainder(offset.item(), math.tau)) < 0.5
            ),
        ),
    ),
)

EXERCISES = (BLOCK, RETURN)
