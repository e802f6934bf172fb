"""Parses the arguments of an instruction from a row's `kwargs`, which may have nulls and keys of other instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Arguments = Mapping[str, Any]
Kind = Callable[[Any], Any]

_RELATIONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "less than": int.__lt__,
    "at least": int.__ge__,
    "at most": int.__le__,
    "more than": int.__gt__,
    "exactly": int.__eq__,
}


def holds(count: int, relation: str, bound: int) -> bool:
    """Whether a count satisfies the relation to a bound."""
    return _RELATIONS[relation](count, bound)


def number(value: Any) -> int:
    """An integer, also written as 3.0 or "3"."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or float(value) != int(float(value)):
        raise ValueError(f"expected an integer, got {value!r}")
    return int(float(value))


def position(value: Any) -> int:
    """A position, counted from 1."""
    if number(value) < 1:
        raise ValueError(f"expected 1 or more, got {value!r}")
    return number(value)


def text(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, got {value!r}")
    return value


def texts(value: Any) -> list[str]:
    """A list of texts, or one."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values:
        raise ValueError(f"expected a list of strings, got {value!r}")
    return [text(item) for item in values]


def letter(value: Any) -> str:
    """One character, in lower case."""
    if len(text(value).strip()) != 1:
        raise ValueError(f"expected a single character, got {value!r}")
    return str(value).strip().lower()


def relation(value: Any) -> str:
    """One of the relations between a count and a bound."""
    if value not in _RELATIONS:
        raise ValueError(f"expected one of {', '.join(_RELATIONS)}; got {value!r}")
    return str(value)


def parse_kwargs(kwargs: Mapping[str, Any] | None, parameters: Mapping[str, Kind]) -> dict[str, Any]:
    """Parse the arguments of an instruction. Raises ValueError for the first that is missing or invalid."""
    arguments: dict[str, Any] = {}
    for name, kind in parameters.items():
        value = (kwargs or {}).get(name)
        if value is None:
            raise ValueError(f"needs '{name}' in its kwargs")
        try:
            arguments[name] = kind(value)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"'{name}' in its kwargs: {error}") from error
    return arguments
