"""A line of a dataset as a row that could be run, or the reason why it could not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import orjson

from gymnast.types.task import PARAMS
from gymnast.wire.validate import InvalidBody, validate_params

if TYPE_CHECKING:
    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.types.json import JsonObject


_MAX_DEPTH: Final = 254
"""Deeper rows can be read but not written: the limit of the JSON encoder."""


class BadRow(ValueError):  # noqa: N818 - collected and reported together, not raised to callers
    """A line that is no row. `kind` is `json` or `schema`."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


class Row(NamedTuple):
    """A good row."""

    data: JsonObject
    """As it stands in the file, its input made from the template where there is one."""
    params: JsonObject
    """Its create params as a server would see them: validated, unknown keys of items dropped."""


def read_row(line: bytes, template: PromptTemplate | None = None) -> Row:
    """Parse and validate a line. Raises BadRow."""
    data = parse_line(line)
    if not isinstance(data.get(PARAMS, {}), dict):
        raise BadRow("schema", f"'{PARAMS}' is not an object")
    if template is not None:
        try:
            data = template.applied(data)
        except ValueError as error:
            raise BadRow("schema", str(error)) from error
    if PARAMS not in data:
        raise BadRow("schema", f"the row has no '{PARAMS}'")
    try:
        return Row(data, cast("JsonObject", validate_params(data[PARAMS], loc=(PARAMS,))))
    except InvalidBody as error:
        raise BadRow("schema", str(error)) from error


def parse_line(line: bytes) -> JsonObject:
    """A line as the object it holds, whatever that says. Raises BadRow."""
    if not line.strip():
        raise BadRow("json", "the line is blank")
    try:
        data: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadRow("json", f"not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(data, dict):
        raise BadRow("json", "the row is not a JSON object")
    if line.count(b"{") + line.count(b"[") > _MAX_DEPTH:  # only then can it be deep
        try:
            orjson.dumps(data)
        except TypeError as error:
            raise BadRow("json", f"the row is nested deeper than {_MAX_DEPTH} levels") from error
    return data
