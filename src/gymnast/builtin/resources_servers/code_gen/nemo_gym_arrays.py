"""Numbers and arrays of numpy that a function returned, compared as numpy compares them.

numpy itself is only in the sandbox, which does not know what is expected. Texts of errors are numpy's.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any, Final

_SHORT_FLOATS: Final = {2: "e", 4: "f"}
_KINDS_OF_NUMBERS: Final = "biufc"
_EMPTY: Final = (
    "The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array is not empty."
)
_SEVERAL: Final = "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"


class Truth:
    """The result of a comparison: true or false if it has one element, and neither otherwise."""

    def __init__(self, size: int, value: object) -> None:
        self.size, self._value = size, bool(value)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(_SEVERAL if self.size else _EMPTY)
        return self._value


class Array:
    """A number (`is_scalar`) or an array: its elements as nested lists, its shape and the size of its elements."""

    def __init__(self, items: Any, shape: list[int], kind: str, item_bytes: int, *, is_scalar: bool) -> None:
        self.items, self._shape, self._is_scalar = items, tuple(shape), is_scalar
        self._comparable = (int, float, list) if kind in _KINDS_OF_NUMBERS else list
        self._format = _SHORT_FLOATS.get(item_bytes) if kind == "f" else None
        self.is_float = is_scalar and kind == "f" and self._format is None
        """Whether it is a float of Python as well, which can be written as JSON."""

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Array):
            return Truth(1, self.items == other.items)
        if self._is_scalar and not isinstance(other, self._comparable):
            return False
        shape = _find_shape(other)
        size = prod(_broadcast(self._shape, shape))
        expected = _first(other) if isinstance(other, list) else self._round(other)
        return Truth(size, size == 1 and _first(self.items) == expected)

    def __hash__(self) -> int:
        return hash(self.items)

    def __float__(self) -> float:
        if prod(self._shape) != 1:
            raise TypeError("only length-1 arrays can be converted to Python scalars")
        value = _first(self.items)
        return value.real if isinstance(value, complex) else float(value)

    def __str__(self) -> str:
        return str(self.items)

    def _round(self, value: Any) -> Any:
        """A float that is compared with a number of fewer bits has as few; one in a list has all."""
        if self._format is None or not isinstance(value, float):
            return value
        try:
            return struct.unpack(self._format, struct.pack(self._format, value))[0]
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")


def _first(value: Any) -> Any:
    while isinstance(value, list):
        value = value[0]
    return value


def _find_shape(value: Any) -> tuple[int, ...]:
    """The shape of an array of nested lists. Raises ValueError if their lengths differ."""
    shape, is_ragged = _explore(value)
    if is_ragged:
        raise ValueError(
            "setting an array element with a sequence. The requested array has an inhomogeneous shape after "
            f"{len(shape)} dimensions. The detected shape was {shape} + inhomogeneous part."
        )
    return shape


def _explore(value: Any) -> tuple[tuple[int, ...], bool]:
    """The dimensions that all nested lists agree on, and whether some have more."""
    if not isinstance(value, list):
        return (), False
    explored = [_explore(item) for item in value]
    shapes = [shape for shape, _ in explored]
    common = 0
    while shapes and all(len(shape) > common and shape[common] == shapes[0][common] for shape in shapes):
        common += 1
    is_ragged = any(ragged for _, ragged in explored) or any(len(shape) > common for shape in shapes)
    return (len(value), *(shapes[0][:common] if shapes else ())), is_ragged


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a comparison of two arrays. Raises ValueError if there is none."""
    rank = max(len(one), len(other))
    pairs = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True)
    shape = []
    for length, length_of_other in pairs:
        if length != length_of_other and 1 not in (length, length_of_other):
            raise ValueError(f"operands could not be broadcast together with shapes {_write(one)} {_write(other)} ")
        shape.append(length_of_other if length == 1 else length)
    return tuple(shape)


def _write(shape: tuple[int, ...]) -> str:
    return f"({shape[0]},)" if len(shape) == 1 else f"({','.join(map(str, shape))})"
