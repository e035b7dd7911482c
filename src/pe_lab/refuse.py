"""Bad input is refused at the door: what was given, what is needed, how to mend it."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, cast

import torch
from torch import Tensor

_DOORS = ("embed", "rotate", "bias", "read", "channels")
FLOAT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def whole(name: str, value: Any, least: int = 1, mend: str = "") -> int:
    """The value as an int, if it is a whole number of at least `least`."""
    if isinstance(value, Tensor) and value.dim() == 0 and not value.is_floating_point():
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Integral | torch.SymInt):
        raise TypeError(
            f"{name} needs a whole number, got {value!r} "
            f"({type(value).__name__}). {mend}".strip()
        )
    if value < least:
        raise ValueError(
            f"{name} needs a whole number of at least {least}, got {value}. "
            f"{mend}".strip()
        )
    # the length of a traced tensor stays open; int() would fix it
    return cast(int, value) if isinstance(value, torch.SymInt) else int(value)


def even(name: str, value: Any, mend: str) -> int:
    """The value as an int, if it is a positive even whole number."""
    number = whole(name, value)
    if number % 2:
        raise ValueError(f"{name} needs an even number, got {number}. {mend}")
    return number


def frequency_base(value: Any) -> float:
    """The base of the frequency ladder as a float, if it is finite and above 1."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"base needs a number above 1, got {value!r}; the usual value is 10000."
        )
    if not 1 < float(value) < math.inf:
        raise ValueError(
            f"base needs a finite number above 1, got {value}: wavelengths grow from "
            "2π to 2π·base. The usual value is 10000."
        )
    return float(value)


def float_dtype(dtype: Any) -> torch.dtype:
    """The dtype, if results can be stored in it."""
    if not isinstance(dtype, torch.dtype) or dtype not in FLOAT_DTYPES:
        raise TypeError(
            f"dtype needs one of float64, float32, float16, bfloat16, got {dtype!r}: "
            "sines and cosines are not integers. Leave it out for torch.float32."
        )
    return dtype


def number(
    name: str, value: Any, least: float = -math.inf, most: float = math.inf
) -> float:
    """The value as a float, if it is a finite number within the bounds."""
    single = isinstance(value, Tensor) and value.dim() == 0 and not value.is_complex()
    value = value.item() if single else value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"{name} needs a number, got {value!r:.80} ({type(value).__name__})."
        )
    # not math.isfinite, which a number that stays open while compiling has not
    if not (abs(float(value)) < math.inf and least <= float(value) <= most):
        raise ValueError(
            f"{name} needs a finite number from {least:g} to {most:g}, got {value}."
        )
    return float(value)


def numbers(name: str, value: Any) -> Tensor:
    """The value as a float64 tensor, if it is a tensor or a list of numbers."""
    if isinstance(value, Tensor):
        if value.is_complex():
            raise TypeError(f"{name} needs real numbers, got {value.dtype}.")
        return value.double()
    given = [number(name, n) for n in listed(name, value, "numbers")]
    return torch.tensor(given, dtype=torch.float64, device="cpu")


def listed(name: str, value: Any, what: str) -> list[Any]:
    """The value as a list, if it is a list, a tuple or a tensor with one axis."""
    if isinstance(value, Tensor) and value.dim() == 1:
        return value.tolist()
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name} needs a list of {what}, got {value!r:.80}.")
    return list(value)


def readable(value: Tensor) -> bool:
    """Whether values can be looked at: not on the meta device, not while compiling."""
    return not (value.is_meta or torch.compiler.is_compiling())


def flag(name: str, value: Any) -> bool:
    """The value, if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} needs True or False, got {value!r:.80}.")
    return value


def doors(encoding: Any) -> None:
    """Refuse what has not the three doors of a positional encoding."""
    if not all(callable(getattr(encoding, door, None)) for door in _DOORS):
        raise TypeError(
            f"encoding needs the doors {', '.join(_DOORS)}, got "
            f"{type(encoding).__name__}; derive it from pe_lab.PositionalEncoding, or "
            "leave it out for no position at all."
        )


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """The value, if it is one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        words = " or ".join(repr(word) for word in allowed)
        raise ValueError(f"{name} needs {words}, got {value!r}.")
    return value


def float_tensor(name: str, value: Any, dim: int, axes: str) -> Tensor:
    """The value, if it is a floating-point tensor with `dim` axes."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} needs a torch tensor {axes}, got {type(value).__name__}; "
            f"torch.as_tensor({name}) makes one."
        )
    if not value.is_floating_point():
        raise TypeError(
            f"{name} needs a floating-point tensor {axes}, got {value.dtype}; "
            f"{name}.float() converts it."
        )
    if value.dim() != dim:
        raise ValueError(
            f"{name} needs {dim} axes {axes}, got shape {tuple(value.shape)}."
        )
    return value


def embeddings(x: Any, positions: Any, d_model: int, axes: int | None = None) -> None:
    """Refuse embeddings that are not (B, L, d_model) with ids for every token."""
    float_tensor("x", x, 3, "(batch, length, d_model)")
    if x.shape[-1] != d_model:
        raise ValueError(
            f"x needs {d_model} channels in its last axis, got shape "
            f"{tuple(x.shape)}; build the encoding with d_model={x.shape[-1]}, or "
            "check the order of the axes."
        )
    if axes is None:
        ids("positions", positions, x.shape[0], x.shape[1])
    else:
        places("positions", positions, x.shape[0], x.shape[1], axes)


def ids(name: str, positions: Any, batch: int, length: int) -> None:
    """Refuse position ids that are not (L,), (1, L) or (B, L)."""
    if not isinstance(positions, Tensor):
        raise TypeError(
            f"{name} needs a tensor of position ids, got {type(positions).__name__}; "
            "torch.arange(length) counts from 0."
        )
    if tuple(positions.shape) not in ((length,), (1, length), (batch, length)):
        raise ValueError(
            f"{name} needs one id for each token, ({length},) or ({batch}, "
            f"{length}), got shape {tuple(positions.shape)}."
        )


def id_rows(name: str, positions: Any) -> None:
    """Refuse what is not ids (L,) or (B, L)."""
    if not isinstance(positions, Tensor) or positions.dim() not in (1, 2):
        given = getattr(positions, "shape", None)
        raise TypeError(
            f"{name} needs a tensor of position ids, (length,) or (batch, length), got "
            f"{type(positions).__name__ if given is None else tuple(given)}; "
            "torch.arange(length) counts from 0."
        )
    if positions.dtype == torch.bool or positions.is_complex():
        raise TypeError(
            f"{name} needs whole or real position ids, got {positions.dtype}."
        )


def heads(
    q: Any,
    k: Any,
    q_pos: Any,
    k_pos: Any,
    *,
    num_heads: int | None = None,
    head_dim: int | None = None,
) -> None:
    """Refuse queries and keys that are not (B, H, L, head_dim) with their ids."""
    axes = "(batch, heads, length, head_dim)"
    for name, value in (("q", q), ("k", k)):
        float_tensor(name, value, 4, axes)
    if q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q and k need the same batch and head_dim, got {tuple(q.shape)} and "
            f"{tuple(k.shape)}, read as {axes}."
        )
    if num_heads is not None and not q.shape[1] == k.shape[1] == num_heads:
        raise ValueError(
            f"q and k need {num_heads} heads in axis 1, got shapes {tuple(q.shape)} "
            f"and {tuple(k.shape)}; build the encoding for {q.shape[1]} heads, or "
            "check the order of the axes."
        )
    if head_dim is not None and q.shape[-1] != head_dim:
        raise ValueError(
            f"q and k need head_dim = {head_dim} channels, got {q.shape[-1]}; build "
            f"the encoding for head_dim = {q.shape[-1]}."
        )
    ids("q_pos", q_pos, q.shape[0], q.shape[2])
    ids("k_pos", k_pos, k.shape[0], k.shape[2])


def axis_ids(name: str, x: Any, positions: Any, head_dim: int, axes: int) -> None:
    """Refuse heads or ids that do not fit an encoding with several axes."""
    float_tensor(name, x, 4, "(batch, heads, length, head_dim)")
    if x.shape[-1] != head_dim:
        raise ValueError(
            f"{name} needs head_dim = {head_dim} channels, got {x.shape[-1]}."
        )
    places(f"{name}_pos", positions, x.shape[0], x.shape[2], axes)


def places(name: str, positions: Any, batch: int, length: int, axes: int) -> None:
    """Refuse ids that are not (L, axes), (1, L, axes) or (B, L, axes)."""
    allowed = ((length, axes), (1, length, axes), (batch, length, axes))
    if not isinstance(positions, Tensor) or tuple(positions.shape) not in allowed:
        given = getattr(positions, "shape", type(positions).__name__)
        raise ValueError(
            f"{name} needs {axes} numbers for each token, ({length}, {axes}) or "
            f"({batch}, {length}, {axes}), got {given}; "
            "pe_lab.positions.grid(height, width) makes ids of an image."
        )
