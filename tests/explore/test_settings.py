"""Settings keep what is in range, refuse the rest, and say what would do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_lab.explore import KernelShape, Shuffle


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


@pytest.mark.parametrize(
    ("setting", "value", "error", "sentence"),
    [
        ("sentence", "cat", ValueError, "needs 2 to 6 words, got 1"),
        ("sentence", 3, TypeError, "needs a text, got 3"),
        ("sentence", "cat misunderstands", ValueError, "at most 10 letters"),
        ("order", [0, 0, 1, 2, 3], ValueError, "needs each of 0 … 4 once"),
        ("order", [1, 0], ValueError, "needs 5 numbers, one for each word"),
        ("order", "10", TypeError, "needs a list of whole numbers"),
        ("order", [0.0, 1, 2, 3, 4], TypeError, "needs a list of whole numbers"),
        ("causal", 1, TypeError, "needs True or False, got 1"),
    ],
)
def test_a_bad_sentence_or_order_is_refused(
    setting: str, value: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error) as caught:
        Shuffle(**{setting: value})
    assert f"Shuffle: {setting} " in str(caught.value)
    assert sentence in str(caught.value)
    figure = Shuffle()
    before = getattr(figure, setting)
    with pytest.raises(error):
        setattr(figure, setting, value)
    assert getattr(figure, setting) == before
