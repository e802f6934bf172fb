"""Checks of the arguments that trainers pass: one sentence for a bad value, before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from numbers import Integral, Real
from os import PathLike
from typing import Any, TypeVar

from gymnast.errors import UserError, suggest

Choice = TypeVar("Choice", bound=StrEnum)


def require_count(name: str, value: Any, *, at_least: int = 1) -> None:
    """Raise UserError unless an option is a whole number of at least this."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < at_least:
        raise UserError(f"{name} must be a whole number of at least {at_least}, got {value!r}")


def require_seconds(name: str, value: Any) -> None:
    """Raise UserError unless an option is a duration."""
    if not is_number(value) or not float(value) > 0:  # also false for NaN
        raise UserError(f"{name} must be a number of seconds above 0, got {value!r}")


def require_switch(name: str, value: Any) -> None:
    """Raise UserError unless an option is True or False."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be true or false, got {value!r}")


def require_fraction(name: str, value: Any) -> None:
    """Raise UserError unless an option is above 0 and at most 1."""
    if not is_number(value) or not 0 < float(value) <= 1:
        raise UserError(f"{name} must be a number above 0 and at most 1, got {value!r}")


def require_type(name: str, value: Any, wanted: type) -> None:
    """Raise UserError unless an option is an object of a class."""
    if not isinstance(value, wanted):
        given = type(value).__name__ if type(value).__module__.startswith("gymnast.") else repr(value)
        raise UserError(f"{name} must be {wanted.__name__}(…), got {given}")


def require_function(name: str, value: Any) -> None:
    """Raise UserError unless an option can be called."""
    if not callable(value):
        raise UserError(f"{name} must be a function, got {value!r}")


def choose(name: str, value: Any, choices: type[Choice]) -> Choice:
    """The choice that an option names. Raises UserError if there is none of that name."""
    try:
        return choices(value)
    except ValueError as error:
        hint = suggest(str(value), list(choices))
        raise UserError(f"invalid value {value!r} for {name}", next=hint) from error


def require_rows(tasks: Any) -> None:
    """Raise UserError unless these can be the rows of a dataset: a single row and a path cannot."""
    if isinstance(tasks, Mapping):
        raise UserError("tasks is a single row", next="pass a list of rows")
    is_sequence = hasattr(tasks, "__iter__") or hasattr(tasks, "__getitem__")
    if isinstance(tasks, str | bytes | PathLike) or not is_sequence:
        raise UserError(f"tasks must be rows of a dataset, got {tasks!r}", next="read a file with JsonlRows(path)")


def require_row(task: Any, position: int) -> None:
    """Raise UserError unless a task is a row of a dataset."""
    if not isinstance(task, Mapping):
        raise UserError(
            f"task {position} is not a row of a dataset but {type(task).__name__}",
            next="pass an iterable of rows, each an object with responses_create_params",
        )


def is_number(value: Any) -> bool:
    """Whether a value is a number and not a truth value; infinity is one."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and not math.isnan(float(value))
