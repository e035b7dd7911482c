"""One seed for every random number generator that the book uses."""

import random as python_random

import numpy as np
import torch


def seed(value: int) -> None:
    """Seed Python's, NumPy's and PyTorch's generators, on every device.

    Args:
        value: any integer in [0, 2^32), the range that NumPy accepts.

    Raises:
        ValueError: if the value is outside that range.

    Example:
        >>> pe_lab.seed(7)
        >>> first = torch.rand(2)
        >>> pe_lab.seed(7)
        >>> torch.equal(first, torch.rand(2))
        True
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        raise ValueError(
            f"seed needs an integer in [0, 2**32), got {value!r}; "
            "use a small number such as 0."
        )
    python_random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)
