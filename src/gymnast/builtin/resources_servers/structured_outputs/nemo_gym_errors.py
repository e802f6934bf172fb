"""Parses JSON and CSV with the error texts of Python 3.13, the oldest version that NeMo Gym runs on.

Only two of these parsers' texts are different in Python 3.11 and 3.12: those of a comma before a closing bracket, and
of a carriage return in a field. Both are common in replies, and users count what a verdict says.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Final

_CLOSED: Final = {
    ("Expecting property name enclosed in double quotes", "}"): "object",
    ("Expecting value", "]"): "array",
}
_JSON_SPACE: Final = " \t\n\r"
_UNQUOTED_RETURN: Final = "new-line character seen in unquoted field - do you need to open the file "


def read_json(text: str) -> Any:
    """Parse JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        before = error.doc[: error.pos].rstrip(_JSON_SPACE)
        closed = _CLOSED.get((error.msg, error.doc[error.pos : error.pos + 1]))
        if closed is None or not before.endswith(","):
            raise
        problem = f"Illegal trailing comma before end of {closed}"
        raise json.JSONDecodeError(problem, error.doc, len(before) - 1) from error


def read_csv(text: str) -> list[dict[str | Any, Any]]:
    """Parse a table with a header: a list of objects with text."""
    try:
        return list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        if not str(error).startswith(_UNQUOTED_RETURN):
            raise
        raise csv.Error(f"{_UNQUOTED_RETURN}with newline=''?") from error
