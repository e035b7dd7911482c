"""The picture of the front page is what the package computes today."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from book.tools import hero


def pixels(file: object) -> np.ndarray:
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGBA"), dtype=float)


@pytest.mark.parametrize("theme", hero.THEMES, ids=lambda theme: theme.file)
def test_the_stored_picture_is_the_drawn_one(theme):
    """To two levels of 255 on average: another matplotlib may smooth edges otherwise."""
    drawn = io.BytesIO()
    hero.draw(theme).savefig(drawn, dpi=hero.DPI, transparent=True)
    drawn.seek(0)
    stored, now = pixels(hero.STATIC / theme.file), pixels(drawn)
    assert stored.shape == now.shape
    assert np.abs(stored - now).mean() < 2
