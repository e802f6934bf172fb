"""Classes of Python's own exceptions, by where they were raised: in the program, in a library, while reading a row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gymnast.doctor.facts import LoggedException

_TABLE_FRAME: Final = re.compile(r"/(?:pandas|datasets|pyarrow|polars)/")
"""Code of libraries for tables: what is missing there is missing in the data."""
_LOADING: Final = re.compile(r"(?i)state_?dict|checkpoint|load|weights|vocab|tokenizer|embed|param")


def loads_weights(error: LoggedException) -> bool:
    return _LOADING.search(f"{error.message} {error.frame} {error.source}") is not None


_ROW_ACCESS: Final = (
    r"\b(?:rows?|examples?|samples?|records?|items?|entry|entries|docs?|datum|data|instances?|problems?|questions?|tasks?"
    r"|features?|conversations?|ex|line)(?:_?\d+)?(?:\[[^\[\]]{{1,20}}\])?\[\s*f?['\"]{key}['\"]\s*\]"
)
"""Code that reads a field of a row."""
_LIBRARY_FRAME: Final = re.compile(r"/(?:site-packages|dist-packages|lib/python3[^/]*|lib64/python3[^/]*)/")
_VERSION_BUG: Final = re.compile(r"has no attribute|unexpected keyword argument|positional argument|cannot import name")
_NO_ATTRIBUTE: Final = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
_BUILTINS: Final = (str, bytes, list, dict, tuple, set, int, float, type(None))
_SHAPES: Final = re.compile(r"could not be broadcast|shapes .{1,80}not aligned|cannot reshape array")
BUGS: Final = frozenset(
    {
        *("IndexError", "KeyError", "TypeError", "AttributeError", "NameError", "UnboundLocalError", "RecursionError"),
        *("ZeroDivisionError", "UnicodeDecodeError", "JSONDecodeError", "StopIteration", "NotImplementedError"),
        *("SyntaxError", "IndentationError", "TabError", "AssertionError"),
    }
)
"""Exceptions of Python itself: faults of the code that raised them."""


_SENTENCE: Final = 3


def _is_refusal(error: LoggedException) -> bool:
    """True for a check that says what it does not accept."""
    return error.type == "AssertionError" and len(error.message.split()) >= _SENTENCE


def class_of_bug(error: LoggedException) -> str | None:
    """The class of one of Python's own exceptions, by where it was raised."""
    if error.type == "KeyError" and re.search(r"<frozen os>|/os\.py:", error.frame):
        return "variable_unset"
    if error.type == "TypeError" and "__init__() got an unexpected keyword" in error.message:
        return "bad_setting"
    if error.type == "KeyError" and (reads_row(error) or _TABLE_FRAME.search(error.frame)):
        return "data_unreadable"
    if error.type not in BUGS or _is_refusal(error):
        is_own = error.type == "ValueError" and error.own_frame and _SHAPES.search(error.message)
        return "code_exception" if is_own else None
    is_library = not error.own_frame or _LIBRARY_FRAME.search(error.frame) is not None
    if is_library and not _expects_other_type(error.message):
        return "install_mismatch" if _VERSION_BUG.search(error.message) else None
    return None if error.type in {"JSONDecodeError", "UnicodeDecodeError"} else "code_exception"


def _expects_other_type(message: str) -> bool:
    """True if the code expected text, a list or another built-in type: a different version would not help."""
    match = _NO_ATTRIBUTE.search(message)
    if match is None or match[1] in {kind.__name__ for kind in _BUILTINS}:
        return False
    return any(hasattr(kind, match[2]) for kind in _BUILTINS)


def reads_row(error: LoggedException) -> bool:
    """True if the code that raised a KeyError reads this field of a row."""
    key = re.escape(error.message.strip("'\""))
    return bool(key) and re.search(_ROW_ACCESS.format(key=key), error.source, re.IGNORECASE) is not None
