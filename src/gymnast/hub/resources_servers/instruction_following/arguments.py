"""The arguments of an instruction, from a row's `kwargs`: typed, with nulls and other instructions' keys left out."""

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
    """Whether a count stands in that relation to a bound."""
    return _RELATIONS[relation](count, bound)


def number(value: Any) -> int:
    """A whole number, also written as 3.0 or "3"."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or float(value) != int(float(value)):
        raise ValueError(f"{value!r} is no whole number")
    return int(float(value))


def text(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is no text")
    return value


def texts(value: Any) -> list[str]:
    """A list of texts, or one."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values:
        raise ValueError(f"{value!r} is no list of texts")
    return [text(item) for item in values]


def letter(value: Any) -> str:
    """One character, in lower case."""
    if len(text(value).strip()) != 1:
        raise ValueError(f"{value!r} is no single character")
    return str(value).strip().lower()


def relation(value: Any) -> str:
    """One of the relations between a count and a bound."""
    if value not in _RELATIONS:
        raise ValueError(f"{value!r} is none of: {', '.join(_RELATIONS)}")
    return str(value)


def pick(given: Mapping[str, Any] | None, wanted: Mapping[str, Kind]) -> dict[str, Any]:
    """The arguments an instruction wants, each of its kind. Raises ValueError naming the first that does not fit."""
    found: dict[str, Any] = {}
    for name, kind in wanted.items():
        value = (given or {}).get(name)
        if value is None:
            raise ValueError(f"needs '{name}' in its kwargs")
        try:
            found[name] = kind(value)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"'{name}' in its kwargs: {error}") from error
    return found
