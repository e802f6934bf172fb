"""The tools of a row: names that can be called, parameters that are a JSON Schema.

Checks what makes an endpoint refuse a request or a model guess; it is no full JSON Schema validator.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_SCHEMA_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties")
_SCHEMA_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def tool_problems(tools: list[JsonObject]) -> Iterator[str]:
    """Everything wrong with the tools of a row."""
    seen: set[str] = set()
    for tool in tools:
        if tool.get("type", "function") != "function":
            continue  # hosted tools are the endpoint's own
        name = tool["name"]
        if name in seen:
            yield f"tool '{name}' is there twice"
        seen.add(name)
        yield from _function_problems(orjson.dumps(tool))


def is_tool_name(name: str) -> bool:
    """Whether endpoints take this as the name of a function."""
    return _NAME.fullmatch(name) is not None


@lru_cache(maxsize=1024)  # most rows of a dataset have the same few tools
def _function_problems(text: bytes) -> tuple[str, ...]:
    tool = orjson.loads(text)
    name, parameters = tool["name"], tool.get("parameters")
    found = []
    if not is_tool_name(name):
        found.append(f"tool '{name}': a name has 1 to 64 of A-Z a-z 0-9 _ -")
    if parameters is not None:
        if parameters.get("type", "object") != "object":
            found.append(f"tool '{name}': parameters must be of type object, not {parameters['type']!r}")
        found += [f"tool '{name}': {problem}" for problem in schema_problems(parameters)]
    return tuple(found)


def schema_problems(root: JsonObject) -> Iterator[str]:
    """What is wrong with a JSON Schema, with the place of each problem."""
    for where, schema in schema_nodes(root):
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            yield f"{where} is no schema but {_shown(schema)}"
            continue
        for problem in _own_problems(schema, root):
            yield f"{where}{problem}"


def schema_nodes(root: Any) -> Iterator[tuple[str, Any]]:
    """Every schema in a schema, itself first, with its place. What stands where a schema should is given as it is."""
    waiting: list[tuple[str, Any]] = [("parameters", root)]
    while waiting:  # not recursive: a schema may be nested deeper than Python's stack
        where, schema = waiting.pop()
        yield where, schema
        if isinstance(schema, dict):
            waiting += reversed(list(_inner_schemas(where, schema)))


def _inner_schemas(where: str, schema: JsonObject) -> Iterator[tuple[str, Any]]:
    for key in _SCHEMA_MAPS:
        if isinstance(schema.get(key), dict):
            yield from ((f"{where}.{key}.{name}", inner) for name, inner in schema[key].items())
    for key in _SCHEMA_LISTS:
        if isinstance(schema.get(key), list):
            yield from ((f"{where}.{key}[{index}]", inner) for index, inner in enumerate(schema[key]))
    for key in _SCHEMAS:
        if key in schema:
            yield f"{where}.{key}", schema[key]


def _own_problems(schema: JsonObject, root: JsonObject) -> Iterator[str]:
    """What is wrong with a schema's own keywords."""
    yield from _type_problems(schema)
    for key in _SCHEMA_MAPS:
        if key in schema and not isinstance(schema[key], dict):
            yield f".{key} must be an object, not {_shown(schema[key])}"
    for key in _SCHEMA_LISTS:
        if key in schema and not (isinstance(schema[key], list) and schema[key]):
            yield f".{key} must be a list of schemas, not {_shown(schema[key])}"
    yield from _required_problems(schema)
    yield from _value_problems(schema)
    if "$ref" in schema and not _resolves(schema["$ref"], root):
        yield f".$ref {_shown(schema['$ref'])} leads nowhere"


def _type_problems(schema: JsonObject) -> Iterator[str]:
    if "type" not in schema:
        return
    given = schema["type"]
    names = given if isinstance(given, list) and given else [given]
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            yield f".type {_shown(name)} is no JSON type"


def _required_problems(schema: JsonObject) -> Iterator[str]:
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield f".required must be a list of names, not {_shown(required)}"
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from (f".required names '{name}', which is no property" for name in required if name not in properties)


def _value_problems(schema: JsonObject) -> Iterator[str]:
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        yield f".enum must be a list of values, not {_shown(schema['enum'])}"
    for key in _NUMBERS:
        if key in schema and (not isinstance(schema[key], int | float) or isinstance(schema[key], bool)):
            yield f".{key} must be a number, not {_shown(schema[key])}"
    for key in _COUNTS:
        value = schema.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield f".{key} must be a whole number from 0, not {_shown(value)}"
    if "pattern" in schema:
        try:
            re.compile(schema["pattern"])
        except (re.error, TypeError) as error:
            yield f".pattern {_shown(schema['pattern'])} is no regular expression: {error}"


def _resolves(ref: Any, root: JsonObject) -> bool:
    """A reference into the schema itself must lead somewhere; others are not followed."""
    if not isinstance(ref, str):
        return False
    if not ref.startswith("#/"):
        return True
    found: Any = root
    for step in ref[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            return False
        found = found[name]
    return True


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 60 else text[:57] + "…"
