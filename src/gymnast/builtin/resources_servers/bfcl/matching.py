"""Compares tool calls with the possible answers of the Berkeley Function Calling Leaderboard. Pure functions.

A possible answer lists the values that each argument may have; an empty text among them makes the argument optional.
Values must have the type that the function declares. Texts are compared without case, spaces and `,./-_*^`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymnast.kit import ToolCall

Function = Mapping[str, Any]
Answer = Mapping[str, Mapping[str, list[Any]]]
"""One function by name, with the accepted values of its arguments."""

_TYPES: Final[Mapping[str, type]] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_NESTED: Final = frozenset({"array", "tuple"})
_IGNORED: Final = re.compile(r"[ ,./\-_*^]")
_OPTIONAL: Final = ""


def find_mismatch(category: str, functions: Sequence[Function], calls: Sequence[ToolCall], truth: Any) -> str | None:
    """Why the calls do not answer a task, or None if they do."""
    if category.endswith("irrelevance"):
        return "no function fits, but one was called" if calls else None
    if category.endswith("relevance"):
        return None if calls else "a function fits, but none was called"
    if len(calls) != len(truth):
        return f"expected {len(truth)} calls, got {len(calls)}"
    if "parallel" in category:
        return _match_in_any_order(functions, calls, truth)
    return check_call(_describe(functions, truth[0]), calls[0], truth[0])


def _match_in_any_order(
    functions: Sequence[Function], calls: Sequence[ToolCall], truth: Sequence[Answer]
) -> str | None:
    """Each answer, in order, takes the first call that fits it and was not taken."""
    left = list(calls)
    for answer in truth:
        function = _describe(functions, answer)
        fitting = next((call for call in left if check_call(function, call, answer) is None), None)
        if fitting is None:
            return f"no call fits the expected call of {_name(answer)}"
        left.remove(fitting)
    return None


def check_call(function: Function, call: ToolCall, answer: Answer) -> str | None:
    """Why a call is not the expected one, or None."""
    accepted = answer[_name(answer)]
    parameters = function["parameters"]["properties"]
    if call.name != function["name"].replace(".", "_"):
        return f"expected a call of {function['name']}, got {call.name}"
    if call.arguments is None:
        return "the arguments are not a JSON object"
    missing = [name for name in function["parameters"].get("required", ()) if name not in call.arguments]
    missing += [name for name, values in accepted.items() if name not in call.arguments and _OPTIONAL not in values]
    if missing:
        return f"the argument {missing[0]} is missing"
    for name, value in call.arguments.items():
        if name not in parameters or name not in accepted:
            return f"the argument {name} is not expected"
        if not _is_accepted(value, parameters[name], accepted[name]):
            return f"the argument {name} has an unexpected value or type"
    return None


def _name(answer: Answer) -> str:
    return next(iter(answer))


def _describe(functions: Sequence[Function], answer: Answer) -> Function:
    if len(functions) == 1:
        return functions[0]
    return next(function for function in functions if function["name"] == _name(answer))


def _is_accepted(value: Any, parameter: Mapping[str, Any], accepted: Sequence[Any]) -> bool:
    kind = parameter["type"]
    wanted = _TYPES.get(kind, str)
    nested = _TYPES.get(parameter.get("items", {}).get("type", ""), str) if kind in _NESTED else None
    if kind == "float" and type(value) is int:
        value = float(value)
    if not _has_type(value, accepted, wanted, nested):
        return False
    answer_type = _answer_type(accepted)
    is_variable = type(value) is not wanted or (answer_type is not None and answer_type is not wanted)
    if is_variable and not (nested is not None and type(value) is wanted and answer_type is wanted):
        return value in accepted  # the answer names a variable instead of a value of the declared type
    return _has_value(value, accepted, wanted, nested)


def _has_value(value: Any, accepted: Sequence[Any], wanted: type, nested: type | None) -> bool:
    if wanted is dict:
        return _fits_object(value, accepted)
    if wanted is list and nested is dict:
        return any(_fits_objects(value, option) for option in accepted)
    if wanted is str:
        return _plain(value) in [_plain(option) for option in accepted if isinstance(option, str)]
    if wanted is list:
        return _plain_all(value) in [_plain_all(option) for option in accepted]
    return value in accepted


def _has_type(value: Any, accepted: Sequence[Any], wanted: type, nested: type | None) -> bool:
    """Whether a value has the declared type, or the type of the answer where that is a variable's name."""
    items: Any = value
    if type(value) is wanted:
        return nested is None or any(
            not isinstance(option, list) or all(_has_type(item, option, nested, None) for item in items)
            for option in accepted
        )
    return type(value) is _answer_type(accepted)


def _answer_type(accepted: Sequence[Any]) -> type | None:
    return next((type(option) for option in accepted if option != _OPTIONAL), None)


def _fits_objects(values: Sequence[Any], option: Any) -> bool:
    return len(values) == len(option) and all(
        isinstance(value, dict) and _fits_object(value, [wanted]) for value, wanted in zip(values, option, strict=True)
    )


def _fits_object(value: Mapping[str, Any], accepted: Sequence[Any]) -> bool:
    """Whether one of the options has all keys of the value, with its values, and no other key that is required."""
    return any(
        all(key in option and _plain(part) in _plain_all(option[key]) for key, part in value.items())
        and all(key in value or _OPTIONAL in parts for key, parts in option.items())
        for option in accepted
        if option != _OPTIONAL
    )


def _plain_all(values: Sequence[Any]) -> list[Any]:
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value
