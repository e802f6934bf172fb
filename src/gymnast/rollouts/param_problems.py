"""Says what is wrong with the create params of a row, in the words of its author.

A validator's error names its own unions (`input.list.0.easy_message.role`); here the path is the one in the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import suggest
from gymnast.types.items import CreateParams
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.types.json import JsonObject
    from gymnast.wire.validate import InvalidBody

_MAX_SHOWN: Final = 40


def describe_bad_params(error: InvalidBody, params: JsonObject) -> str:
    """The first problem of create params that `validate_params` rejected, with its path in them."""
    first, more = error.detail[0], len(error.detail) - 1
    steps = list(_steps_in(params, first["loc"][1:], is_missing=first["type"] == "missing"))
    where = ".".join([PARAMS, *map(str, steps)])
    return f"{where}: {_describe(first, steps)}" + (f" (and {more} more)" if more else "")


def _describe(problem: JsonObject, steps: list[str | int]) -> str:
    if steps == ["input"] and problem["type"] == "list_type":
        return f"expected a text or a list of messages, got {str(problem['input'])[:_MAX_SHOWN]}"
    if problem["type"] == "extra_forbidden":
        hint = suggest(str(steps[-1]), list(CreateParams.__annotations__)) if len(steps) == 1 else None
        return "unknown parameter" + (f"; {hint}" if hint else "")
    return str(problem["msg"])


def _steps_in(value: Any, loc: Iterable[str | int], *, is_missing: bool) -> Iterable[str | int]:
    """The steps of `loc` that exist in the value; the others name the validator's unions."""
    *others, last = loc
    for step in others:
        if _has(value, step):
            yield step
            value = value[step]
    if is_missing or _has(value, last):
        yield last


def _has(value: Any, step: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and step < len(value)
    return isinstance(value, dict) and step in value
