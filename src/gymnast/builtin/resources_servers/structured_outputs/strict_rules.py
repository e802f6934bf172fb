"""Validates a document against a schema strictly: ambiguous documents are rejected, and so are invalid schemas.

The schema comes from the row: if it is invalid the reply is a `row_error`, which is not the answer's fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from . import documents
from .csv_documents import read_csv
from .documents import DocumentError
from .xml_documents import Reader, read_xml

Outcome = dict[str, str | None]
_MAX_MESSAGE_CHARS: Final = 1000
_VALUES: Final = frozenset({"enum", "const", "default", "examples", "required"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class RowError(Exception):
    """An invalid schema."""


def check(schema_text: str, schema_type: str, text: str, options: Mapping[str, Any]) -> Outcome:
    """Judge a document; the options are those of `checking.check`."""
    try:
        validator = _validator(schema_text, closed=bool(options.get("strict_schema", True)))
        problem: str | None = None
        for value in _readings(schema_type, text, validator.schema, options):
            message = _first_problem(validator, value)
            if message is None:
                return {"error_type": None, "error_message": None}
            problem = problem or message
    except RowError as error:
        return {"row_error": str(error)[:_MAX_MESSAGE_CHARS]}
    except DocumentError as error:
        return {"error_type": error.kind, "error_message": str(error)[:_MAX_MESSAGE_CHARS]}
    except RecursionError:
        return {"error_type": "too_deep", "error_message": "the document is nested too deeply"}
    return {"error_type": "validation_error", "error_message": (problem or "")[:_MAX_MESSAGE_CHARS]}


def _readings(schema_type: str, text: str, schema: Any, options: Mapping[str, Any]) -> Iterator[Any]:
    if options.get("is_arguments"):
        value = read_payload(text, options.get("payload_key"))
        if not isinstance(value, str):
            yield value
            return
        text = value
    elif options.get("allow_code_fence"):
        text = documents.strip_fence(text)
    if not text.strip():
        raise DocumentError("there is no text", "empty_response")
    if schema_type == "xml":
        guide = schema if isinstance(schema, dict) else {}
        yield from Reader(guide, coerce=bool(options.get("xml_coerce_types", True))).readings(read_xml(text))
        return
    if schema_type == "csv":
        yield read_csv(text, schema)
        return
    yield {"json": documents.read_json, "yaml": documents.read_yaml, "toml": documents.read_toml}[schema_type](text)


def read_payload(arguments: str, key: str | None) -> Any:
    """The document of a call: its arguments, or the one named `key`, as text or as a value."""
    try:
        values = documents.read_json(arguments or "{}")
    except DocumentError as error:
        raise DocumentError(str(error), "tool_arguments_parse_error") from error
    if not isinstance(values, dict):
        raise DocumentError("the arguments are not an object", "tool_arguments_parse_error")
    if not key:
        return values
    if key not in values:
        raise DocumentError(f"the arguments have no '{key}'", "missing_tool_payload_key")
    return values[key]


def _first_problem(validator: Any, value: Any) -> str | None:
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - an extra
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - comes with it

    try:
        error = best_match(validator.iter_errors(value))
    except Unresolvable as problem:
        raise RowError(f"the schema has an unresolvable reference: {problem}") from problem
    except re.error as problem:
        raise RowError(f"the schema has an invalid regular expression: {problem}") from problem
    except ArithmeticError as problem:
        return f"a number cannot be compared: {problem}"
    return f"{error.json_path}: {error.message}" if error is not None else None


@lru_cache(maxsize=512)  # rows of a dataset share few schemas, and rollouts of a task share one
def _validator(schema_text: str, *, closed: bool) -> Any:
    import jsonschema  # noqa: PLC0415 - an extra
    from referencing import Registry  # noqa: PLC0415 - comes with it

    schema = _parse_schema(schema_text)
    if closed:
        schema = close_objects(schema)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise RowError(f"schema_str is not a valid JSON Schema: {error.json_path}: {error.message}") from error
    return kind(schema, registry=Registry())  # an empty registry: nothing is ever fetched


def _parse_schema(text: str) -> Any:
    try:
        schema = json.loads(text)
    except ValueError:
        try:
            schema = documents.read_yaml(text)
        except DocumentError as error:
            raise RowError(f"schema_str is neither JSON nor YAML: {error}") from error
    if not isinstance(schema, (dict, bool)):
        raise RowError(f"schema_str must be a JSON Schema, not a {type(schema).__name__}")
    return schema


def close_objects(schema: Any) -> Any:
    """Close every object of a schema: all its properties are required and no others allowed."""
    if isinstance(schema, list):
        return [close_objects(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _close_part(key, value) for key, value in schema.items()}
    if isinstance(closed.get("properties"), dict) and "object" in closed.get("type", "object"):
        closed["required"] = sorted(closed["properties"])
        closed["additionalProperties"] = False
    return closed


def _close_part(key: str, value: Any) -> Any:
    if key in _VALUES:
        return value
    if key in _NAMED and isinstance(value, dict):
        return {name: close_objects(part) for name, part in value.items()}
    return close_objects(value)
