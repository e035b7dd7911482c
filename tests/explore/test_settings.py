"""Settings keep what is in range, refuse the rest, and say what would do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_lab.explore import KernelShape


@pytest.mark.parametrize(
    ("setting", "value", "error", "sentence"),
    [
        ("d_model", 7, ValueError, "needs one of 2, 4, … 1024, got 7; try 6"),
        ("d_model", 0, ValueError, "from 2 to 1024, got 0"),
        ("d_model", 8.0, TypeError, "needs a whole number, got 8.0"),
        ("d_model", True, TypeError, "needs a whole number, got True"),
        ("base", 1, ValueError, "from 10 to 1e+06, got 1"),
        ("base", float("nan"), ValueError, "finite number"),
        ("base", "10", TypeError, "needs a number, got '10'"),
        ("alibi", "1/3", ValueError, "needs one of 'none', '1/2'"),
    ],
)
def test_a_bad_value_is_refused(
    setting: str, value: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=f"KernelShape: {setting} .*") as caught:
        KernelShape(**{setting: value})
    assert sentence in str(caught.value)
    figure = KernelShape()
    before = getattr(figure, setting)
    with pytest.raises(error):
        setattr(figure, setting, value)
    assert getattr(figure, setting) == before


def test_numpy_numbers_are_numbers() -> None:
    figure = KernelShape(d_model=np.int64(64), base=np.float32(100))
    assert type(figure.d_model) is int and figure.d_model == 64
    assert type(figure.base) is float and figure.base == 100
