"""Read what a reader hands in: numbers, text and tuples become comparable leaves.

A leaf is a `Number` (float64 values and the dtype they came in), a `str` or a
`frozenset`. An answer with several parts, such as (cos, sin), is a dict of leaves by
name; an answer with one part has the single name "".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

# More numbers than any exercise asks for: larger answers are refused unread, because
# an expanded tensor may claim terabytes that it does not hold.
MOST_NUMBERS = 2**22
MOST_NESTING = 8


class Unreadable(Exception):
    """An answer that cannot be compared; carries the kind of mistake and a sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


@dataclass(frozen=True, eq=False)
class Number:
    """Real values in float64, with the name of the dtype that they arrived in."""

    values: Tensor
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(self.values.shape)


Leaf = Number | str | frozenset[Any]
Leaves = dict[str, Leaf]


def blank(raw: object) -> bool:
    """True for what a stub leaves behind: None, ..., or a list that holds one."""
    if raw is None or raw is Ellipsis or raw is NotImplemented:
        return True
    if isinstance(raw, list | tuple):
        return any(item is None or item is Ellipsis for item in raw)
    return False


def leaves(raw: object, like: Leaves | None = None) -> Leaves:
    """Read `raw` into leaves, with the same parts as `like` where that is possible.

    Raises: Unreadable, with the kind of mistake, when there is no such reading.
    """
    parts = _parts(raw, like)
    if parts is None:
        return {"": _leaf(raw, None if like is None else like.get(""))}
    if like is not None and set(parts) != set(like):
        raise Unreadable("wrong parts", _parts_needed(len(parts), like))
    out: Leaves = {}
    for name, part in parts.items():
        out[name] = _leaf(part, None if like is None else like[name])
    return out


def _parts_needed(given: int, like: Leaves) -> str:
    """Say how many values an answer needs, and which."""
    if set(like) == {""}:
        return f"You give {given} values where one is needed."
    names = ", ".join(like)
    return f"You give {given} value(s); needed are {len(like)}: {names}."


def _parts(raw: Any, like: Leaves | None) -> dict[str, Any] | None:
    """Split `raw` into named parts, or return None when it is one leaf."""
    if isinstance(raw, dict):
        return {str(name): part for name, part in raw.items()}
    if like is not None and set(like) == {""}:
        return None
    row = isinstance(raw, Tensor | np.ndarray) and raw.ndim > 0 and like is not None
    if not (row or isinstance(raw, list | tuple)):
        return None if like is None else {"": raw}
    if like is None and not any(_is_part(item) for item in raw):
        return None
    if like is None:
        return {f"part {n}": part for n, part in enumerate(raw, 1)}
    if len(raw) != len(like):
        raise Unreadable("wrong parts", _parts_needed(len(raw), like))
    return dict(zip(like, raw, strict=True))


def _is_part(item: object) -> bool:
    """True for an item that makes its list a tuple of parts rather than a row."""
    if isinstance(item, Tensor | np.ndarray):
        return item.ndim > 0
    return isinstance(item, str)


def _leaf(raw: object, like: Leaf | None) -> Leaf:
    """Read one part as the type that is wanted, or as its own when `like` is None."""
    if isinstance(raw, str) and not isinstance(like, Number):
        return " ".join(raw.split()).casefold()
    if isinstance(like, str):
        raise Unreadable("wrong type", f"A text is needed; yours is {a(raw)}.")
    if isinstance(like, frozenset) or isinstance(raw, set | frozenset):
        return _set(raw)
    return number(raw)


def _set(raw: object) -> frozenset[Any]:
    """Read a collection whose order does not count."""
    if not isinstance(
        raw, set | frozenset | list | tuple | range | Tensor | np.ndarray
    ):
        raise Unreadable("wrong type", f"A set is needed; yours is {a(raw)}.")
    items = raw.tolist() if isinstance(raw, Tensor | np.ndarray) else list(raw)
    return frozenset(items)


def number(raw: object, depth: int = 0) -> Number:
    """Read a number, an array or nested lists of them as float64 values."""
    if isinstance(raw, Tensor):
        return _from_tensor(raw)
    if isinstance(raw, np.ndarray | np.generic):
        return _from_array(np.asarray(raw))
    if isinstance(raw, range | list | tuple):
        return _from_list(raw, depth)
    if isinstance(raw, str | bytes | dict | set | type) or callable(raw):
        raise Unreadable("wrong type", f"A number is needed; yours is {a(raw)}.")
    if isinstance(raw, bool | int | float | complex):
        return _from_array(np.asarray(raw))
    if hasattr(raw, "__array__"):
        return _from_array(np.asarray(raw))
    if hasattr(raw, "__float__"):
        return _from_array(np.asarray(float(raw)))
    hint = " Write list(...) around it." if hasattr(raw, "__next__") else ""
    raise Unreadable("wrong type", f"A number is needed; yours is {a(raw)}.{hint}")


def _from_tensor(raw: Tensor) -> Number:
    """Copy a tensor of any dtype, device and layout to float64 on the CPU."""
    _refuse_huge(tuple(raw.shape))
    if raw.is_meta:
        raise Unreadable("wrong type", "Your tensor is on the meta device: no values.")
    name = str(raw.dtype).removeprefix("torch.")
    plain = raw.detach()
    plain = plain if plain.layout == torch.strided else plain.to_dense()
    return Number(_real(plain.cpu()), name)


def _from_array(raw: np.ndarray) -> Number:
    """Copy a NumPy array to float64."""
    _refuse_huge(raw.shape)
    if raw.dtype.kind == "O":
        return Number(torch.from_numpy(raw.astype(np.float64)), "float64")
    if raw.dtype.kind not in "biufc":
        raise Unreadable("wrong type", f"A number is needed; yours is {a(raw[()])}.")
    wide = np.complex128 if raw.dtype.kind == "c" else np.float64
    plain = np.array(raw, dtype=wide, order="C", copy=True)
    return Number(_real(torch.from_numpy(plain)), raw.dtype.name)


def _from_list(raw: range | list[Any] | tuple[Any, ...], depth: int) -> Number:
    """Read nested lists of numbers, arrays or tensors as one array."""
    if depth > MOST_NESTING:
        raise Unreadable("wrong shape", f"Your lists nest over {MOST_NESTING} deep.")
    if all(isinstance(item, bool | int | float) for item in raw):
        return _from_array(np.asarray(list(raw), dtype=None if raw else np.float64))
    rows = [number(item, depth + 1) for item in raw]
    shapes = {row.shape for row in rows}
    if len(shapes) > 1:
        raise Unreadable("wrong shape", "The rows of your list differ in length.")
    return Number(torch.stack([row.values for row in rows]), rows[0].dtype)


def _real(values: Tensor) -> Tensor:
    """float64 values; a complex number with an imaginary part becomes two numbers."""
    if not values.is_complex():
        return values.to(torch.float64, copy=True)
    pairs = torch.view_as_real(values.resolve_conj()).to(torch.float64, copy=True)
    return pairs if bool(pairs[..., 1].ne(0).any()) else pairs[..., 0]


def _refuse_huge(shape: tuple[int, ...]) -> None:
    """Refuse an answer with more numbers than any exercise asks for."""
    count = 1
    for size in shape:
        count *= size
    if count > MOST_NUMBERS:
        sizes = shape_text(shape)
        raise Unreadable(
            "wrong shape", f"Your answer has shape {sizes}: far too large."
        )


def a(raw: object) -> str:
    """Name the type of a value for a sentence: 'a list', 'an int', 'a function'."""
    name = type(raw).__name__
    name = {"str": "text", "builtin_function_or_method": "function"}.get(name, name)
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


def shape_text(shape: tuple[int, ...]) -> str:
    """Write a shape as a reader would: '(6, 8)', or 'a single number'."""
    return str(tuple(shape)) if shape else "() (a single number)"


def same(got: Leaf, want: Leaf, tolerance: float) -> bool:
    """True when two leaves agree: numbers as in `close`, anything else exactly."""
    if not (isinstance(got, Number) and isinstance(want, Number)):
        return type(got) is type(want) and got == want
    if want.dtype != "bool" and got.dtype == "bool":
        return False
    return got.shape == want.shape and close(got.values, want.values, tolerance)


def close(got: Tensor, want: Tensor, tolerance: float) -> bool:
    """True when abs(got - want) <= tolerance * (1 + abs(want)) in every entry."""
    return bool(torch.isclose(got, want, tolerance, tolerance, equal_nan=True).all())
