"""Names for JSON data. Shapes that matter are TypedDicts in other modules; the rest is author's data."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
Json: TypeAlias = JsonObject | list[Any] | str | int | float | bool | None


def can_be_struct_field(name: str) -> bool:
    """Whether a field of a msgspec struct can have this name in JSON."""
    return not any(character in '\\"' or character < " " for character in name)
