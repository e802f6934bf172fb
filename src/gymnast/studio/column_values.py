"""Decoded values of any type as columns of numbers and of short texts."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.report.transcript_items import as_text
from gymnast.types.encoding import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ANY: Final = msgspec.json.Decoder()


def is_constant(values: Sequence[Any]) -> bool:
    """Whether all values are equal, as in most columns of a few hundred records."""
    return not values or values.count(values[0]) == len(values)


def as_numbers(values: Sequence[Any]) -> NDArray[np.float64]:
    """Numbers as an array; NaN for everything else."""
    if values.count(None) == len(values):
        return np.full(len(values), math.nan)
    kinds = set(map(type, values))
    try:
        if kinds <= {int, float, bool}:
            return np.array(values, np.float64)
        return np.array([value if isinstance(value, int | float) else math.nan for value in values], np.float64)
    except OverflowError:
        return np.array([_float(value) for value in values], np.float64)


def _float(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan


def either(structs: Sequence[Any], name: str, other: str) -> NDArray[np.float64]:
    """The numbers of one field, or of another where that is missing."""
    values = list(map(attrgetter(name), structs))
    if None in values:
        values = list(map(first_known, values, map(attrgetter(other), structs)))
    return as_numbers(values)


def as_texts(values: list[Any], size: int) -> list[str | None]:
    """Values as short texts. Most columns have few distinct ones, and each is converted once."""
    if values.count(None) == len(values):
        return values
    try:
        distinct = {value: text_of(value, size) for value in set(values)}
    except TypeError:  # a list or an object
        return [text_of(value, size) for value in values]
    return [distinct[value] for value in values]


def text_of(value: Any, size: int) -> str | None:
    """A value as a short text; None if there is none."""
    if value is None or value is msgspec.UNSET:
        return None
    if isinstance(value, str):
        return printable(value[:size])
    return printable(as_text(value)[:size])


def first_known(value: Any, other: Any) -> Any:
    """A value, or another one if there is none."""
    return value if value is not None and value is not msgspec.UNSET else other


def scalar_of(value: Any, size: int) -> Any:
    """The scalar in a raw value of at most this size, or None."""
    if not isinstance(value, msgspec.Raw):
        return value if isinstance(value, int | float | str) else None
    data = bytes(value)
    if not data or data[:1] in b"{[" or len(data) > size:
        return None
    try:
        return _ANY.decode(data)
    except (ValueError, RecursionError):
        return None
