"""Parses a line of a dataset into a runnable row, or says why it is not one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import orjson

from gymnast.rollouts.param_problems import describe_bad_params
from gymnast.rollouts.plan import missing_params
from gymnast.store.row_files import describe_bad_json
from gymnast.types.task import PARAMS
from gymnast.wire.validate import InvalidBody, validate_params

if TYPE_CHECKING:
    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.rollouts.row_map import RowMap
    from gymnast.types.json import JsonObject


_MAX_DEPTH: Final = 254
"""The JSON encoder's limit: deeper rows can be read but not written."""


class BadRow(ValueError):  # noqa: N818 - collected and reported together, not raised to callers
    """A line that is not a valid row. `kind` is `json` or `schema`."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


class Row(NamedTuple):
    data: JsonObject
    """The row as in the file, with its input rendered if there is a template."""
    params: JsonObject
    """Its create params as a server sees them: validated, without unknown item keys."""


def preview(value: Any, limit: int = 60) -> str:
    """A value as JSON, cut to `limit` characters, for messages."""
    text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    return truncate(text, limit)


def truncate(text: str, limit: int) -> str:
    """The text, cut to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "…"


def read_row(line: bytes, template: PromptTemplate | None = None, row_map: RowMap | None = None) -> Row:
    """Parse, map and validate a line. Raises BadRow."""
    data = parse_line(line)
    if row_map is not None:
        try:
            data = row_map.apply(data)
        except ValueError as error:
            raise BadRow("schema", str(error)) from error
    if not isinstance(data.get(PARAMS, {}), dict):
        raise BadRow("schema", f"'{PARAMS}' is not an object")
    if template is not None:
        try:
            data = template.apply(data)
        except ValueError as error:
            raise BadRow("schema", str(error)) from error
    if PARAMS not in data:
        raise BadRow("schema", missing_params(data))
    try:
        return Row(data, cast("JsonObject", validate_params(data[PARAMS], loc=(PARAMS,))))
    except InvalidBody as error:
        raise BadRow("schema", describe_bad_params(error, data[PARAMS])) from error


def parse_line(line: bytes) -> JsonObject:
    """Parse a line into a JSON object without validating its content. Raises BadRow."""
    if not line.strip():
        raise BadRow("json", "the line is blank")
    try:
        data: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadRow("json", describe_bad_json(line, error)) from error
    if not isinstance(data, dict):
        raise BadRow("json", "the row is not a JSON object")
    if line.count(b"{") + line.count(b"[") > _MAX_DEPTH:  # cheap test first: only then can it be too deep
        try:
            orjson.dumps(data)
        except TypeError as error:
            raise BadRow("json", f"the row is nested deeper than {_MAX_DEPTH} levels") from error
    return data
