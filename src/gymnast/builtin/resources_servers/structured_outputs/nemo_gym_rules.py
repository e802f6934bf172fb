"""Judges a document as NeMo Gym does: with its error types and texts, and everything that its parsers let pass.

Every object of a schema is closed, except those within lists (`anyOf` …). An invalid schema fails the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from . import nemo_gym_documents
from .documents import DocumentError, strip_fence
from .nemo_gym_errors import read_json
from .openapi_validator import first_error

Outcome = dict[str, str | None]
_MAX_MESSAGE_CHARS: Final = 200


def check(schema_text: str, schema_type: str, text: str, options: Mapping[str, Any]) -> Outcome:
    """Judge a document; the options are those of `checking.check`."""
    try:
        return _check(schema_text, schema_type, text, options)
    except DocumentError as error:
        return {"error_type": error.kind, "error_message": str(error)}


def _check(schema_text: str, schema_type: str, text: str, options: Mapping[str, Any]) -> Outcome:
    is_arguments = bool(options.get("is_arguments"))
    if is_arguments:
        value = read_payload(text, options.get("payload_key"))
    elif not text.strip():
        raise DocumentError("No assistant response text", "empty_response")
    try:
        schema = read_json(schema_text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(str(error)[:_MAX_MESSAGE_CHARS], "schema_error") from error
    if options.get("strict_schema", True):
        try:
            close_objects(schema)
        except (TypeError, RecursionError) as error:
            return {"row_error": f"schema_str has 'properties' that are not an object, or is too deep: {error}"}
    if not is_arguments:
        value = _parse(schema_type, strip_fence(text) if options.get("allow_code_fence") else text)
    _validate(value, schema, schema_type if not is_arguments else "json", coerce_xml=options["xml_coerce_types"])
    return {"error_type": None, "error_message": None}


def read_payload(arguments: str, key: str | None) -> Any:
    """The document of a call: its arguments, or the one named `key`."""
    try:
        values = read_json(arguments)
    except (ValueError, RecursionError) as error:
        raise DocumentError(_describe(error), "tool_arguments_parse_error") from error
    if not key:
        return values
    if not isinstance(values, dict) or key not in values:
        raise DocumentError(f"Missing tool payload key: {key}", "missing_tool_payload_key")
    return values[key]


def close_objects(schema: Any) -> None:
    """Require all properties of every object and allow no others, in place; objects within lists stay open."""
    if not isinstance(schema, dict):
        return
    if "properties" in schema:
        schema["required"] = list(schema["properties"])
        schema["additionalProperties"] = False
    for part in schema.values():
        close_objects(part)


def _parse(schema_type: str, text: str) -> Any:
    try:
        return nemo_gym_documents.PARSERS[schema_type](text)
    except Exception as error:  # whatever a parser raises is about the text, and the message says what it was
        raise DocumentError(_describe(error)) from error


def _validate(value: Any, schema: Any, schema_type: str, *, coerce_xml: bool) -> None:
    try:
        if schema_type == "xml" and coerce_xml:
            value = nemo_gym_documents.coerce_xml(value, schema)
        if schema_type == "csv":
            value = nemo_gym_documents.coerce_csv(value, schema)
        problem = first_error(value, schema)
    except Exception as error:  # noqa: BLE001 - an invalid schema, in as many ways as the validator has of failing
        problem = error
    if problem is not None:
        raise DocumentError(_describe(problem), "validation_error") from problem


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:_MAX_MESSAGE_CHARS]}"
