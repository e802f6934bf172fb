"""Writes values in the grammar of overrides, so that parsing gives the same values."""

from __future__ import annotations

import re
from typing import Any, Final

_UNQUOTED: Final = re.compile(r"[A-Za-z/][A-Za-z0-9/_.:-]*")
_LITERALS: Final = frozenset({"true", "false", "null", "nan", "inf"})
_BEFORE_QUOTE: Final = re.compile(r"(\\*)('|$)")


def quote_override(text: str) -> str:
    """Quote a value for the grammar of overrides, whatever it contains."""
    if _UNQUOTED.fullmatch(text) and text.lower() not in _LITERALS:
        return text
    # A backslash is special only before a quote and at the end.
    return "'" + _BEFORE_QUOTE.sub(lambda match: 2 * match[1] + ("\\'" if match[2] else ""), text) + "'"


def write_value(value: Any) -> str:
    """A value of a YAML file as an override has it."""
    match value:
        case None:
            return "null"
        case str():
            return quote_override(value)
        case list():
            return f"[{','.join(map(write_value, value))}]"
        case dict():
            return f"{{{','.join(f'{key}:{write_value(each)}' for key, each in value.items())}}}"
    return str(value)
