"""Whether a text is a document of a schema. Runs in worker processes; the reply says what is wrong, in JSON.

The schema is the row's: if it cannot be used the reply is a `row_error`, which is no fault of the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from gymnast.hub.resources_servers.structured_outputs import documents
from gymnast.hub.resources_servers.structured_outputs.documents import DocumentError
from gymnast.hub.resources_servers.structured_outputs.xml_documents import Reader, read_xml

Outcome = dict[str, str | None]
_MOST_SAID: Final = 1000
_VALUES: Final = frozenset({"enum", "const", "default", "examples", "required"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class RowError(Exception):
    """A schema that cannot be used."""


def check(schema_text: str, schema_type: str, text: str, options: Mapping[str, Any]) -> Outcome:
    """What is wrong with a document, `{"error_type": …, "error_message": …}`; both null if nothing is.

    `text` is the document in the format of `schema_type` or, with `is_arguments`, the arguments of a tool call, of
    which `payload_key` may name the one that holds the document. Other options are settings of the environment.
    """
    try:
        validator = _validator(schema_text, strict=bool(options.get("strict_schema")))
        problem: str | None = None
        for value in _readings(schema_type, text, validator.schema, options):
            found = _first_problem(validator, value)
            if found is None:
                return {"error_type": None, "error_message": None}
            problem = problem or found
    except RowError as error:
        return {"row_error": str(error)[:_MOST_SAID]}
    except DocumentError as error:
        return {"error_type": error.kind, "error_message": str(error)[:_MOST_SAID]}
    except RecursionError:
        return {"error_type": "too_deep", "error_message": "the document is nested too deeply"}
    return {"error_type": "validation_error", "error_message": (problem or "")[:_MOST_SAID]}


def _readings(schema_type: str, text: str, schema: Any, options: Mapping[str, Any]) -> Iterator[Any]:
    if options.get("is_arguments"):
        value = payload(text, options.get("payload_key"))
        if not isinstance(value, str):
            yield value
            return
        text = value
    elif options.get("allow_code_fence"):
        text = documents.without_fence(text)
    if not text.strip():
        raise DocumentError("there is no text", "empty_response")
    if schema_type == "xml":
        led = schema if isinstance(schema, dict) else {}
        yield from Reader(led, coerce=bool(options.get("xml_coerce_types", True))).readings(read_xml(text))
        return
    yield {"json": documents.read_json, "yaml": documents.read_yaml, "toml": documents.read_toml}[schema_type](text)


def payload(arguments: str, key: str | None) -> Any:
    """What a call hands over: its arguments, or the one of them that holds the document, as a text or as a value."""
    given = documents.read_json(arguments or "{}")
    if not isinstance(given, dict):
        raise DocumentError("the arguments are no object")
    if key is None:
        return given
    if key not in given:
        raise DocumentError(f"the arguments have no '{key}'", "missing_payload")
    return given[key]


def _first_problem(validator: Any, value: Any) -> str | None:
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - an extra
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - comes with it

    try:
        error = best_match(validator.iter_errors(value))
    except Unresolvable as problem:
        raise RowError(f"the schema refers to something that is not there: {problem}") from problem
    except re.error as problem:
        raise RowError(f"a pattern of the schema is no regular expression: {problem}") from problem
    except ArithmeticError as problem:
        return f"a number cannot be compared: {problem}"
    return f"{error.json_path}: {error.message}" if error is not None else None


@lru_cache(maxsize=512)  # rows of a dataset share few schemas, and rollouts of a task share one
def _validator(schema_text: str, *, strict: bool) -> Any:
    import jsonschema  # noqa: PLC0415 - an extra
    from referencing import Registry  # noqa: PLC0415 - comes with it

    schema = _schema_of(schema_text)
    if strict:
        schema = closed(schema)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise RowError(f"schema_str is no JSON Schema: {error.json_path}: {error.message}") from error
    return kind(schema, registry=Registry())  # an empty registry: nothing is ever fetched


def _schema_of(text: str) -> Any:
    try:
        schema = json.loads(text)
    except ValueError:
        try:
            schema = documents.read_yaml(text)
        except DocumentError as error:
            raise RowError(f"schema_str is neither JSON nor YAML: {error}") from error
    if not isinstance(schema, (dict, bool)):
        raise RowError(f"schema_str is no JSON Schema but a {type(schema).__name__}")
    return schema


def closed(schema: Any) -> Any:
    """The schema with every object closed: all its properties are required and there are no others."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed_part(key, value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict) and "object" in found.get("type", "object"):
        found["required"] = sorted(found["properties"])
        found["additionalProperties"] = False
    return found


def _closed_part(key: str, value: Any) -> Any:
    if key in _VALUES:
        return value
    if key in _NAMED and isinstance(value, dict):
        return {name: closed(part) for name, part in value.items()}
    return closed(value)
