"""Validates the tools of a row: callable names, and parameters that are a JSON Schema.

Looks for what makes an endpoint reject a request or a model guess; not a full JSON Schema validator.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.data.row import preview

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
    """The problems of a row's tools."""
    seen: set[str] = set()
    for tool in tools:
        if tool.get("type", "function") != "function":
            continue  # hosted tools belong to the endpoint
        name = tool["name"]
        if name in seen:
            yield f"tool '{name}' is defined twice"
        seen.add(name)
        yield from _function_problems(orjson.dumps(tool))


def is_tool_name(name: str) -> bool:
    """True if endpoints accept this as a function name."""
    return _NAME.fullmatch(name) is not None


@lru_cache(maxsize=1024)  # most rows of a dataset share a few tools
def _function_problems(text: bytes) -> tuple[str, ...]:
    tool = orjson.loads(text)
    name, parameters = tool["name"], tool.get("parameters")
    problems = []
    if not is_tool_name(name):
        problems.append(f"tool '{name}': a name must be 1 to 64 characters of A-Z a-z 0-9 _ -")
    if parameters is not None:
        if parameters.get("type", "object") != "object":
            problems.append(f"tool '{name}': parameters must be of type object, not {parameters['type']!r}")
        problems += [f"tool '{name}': {problem}" for problem in schema_problems(parameters)]
    return tuple(problems)


def schema_problems(root: JsonObject) -> Iterator[str]:
    for where, schema in schema_nodes(root):
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            yield f"{where} is not a schema but {preview(schema)}"
            continue
        for problem in _own_problems(schema, root):
            yield f"{where}{problem}"


def schema_nodes(root: Any) -> Iterator[tuple[str, Any]]:
    """Every subschema with its path, the root first. Yields also non-schemas found in a schema's position."""
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
    """The problems of a schema's own keywords."""
    yield from _type_problems(schema)
    for key in _SCHEMA_MAPS:
        if key in schema and not isinstance(schema[key], dict):
            yield f".{key} must be an object, not {preview(schema[key])}"
    for key in _SCHEMA_LISTS:
        if key in schema and not (isinstance(schema[key], list) and schema[key]):
            yield f".{key} must be a list of schemas, not {preview(schema[key])}"
    yield from _required_problems(schema)
    yield from _value_problems(schema)
    if "$ref" in schema and not _resolves(schema["$ref"], root):
        yield f".$ref {preview(schema['$ref'])} cannot be resolved"


def _type_problems(schema: JsonObject) -> Iterator[str]:
    if "type" not in schema:
        return
    types = schema["type"]
    names = types if isinstance(types, list) and types else [types]
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            yield f".type {preview(name)} is not a JSON type"


def _required_problems(schema: JsonObject) -> Iterator[str]:
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield f".required must be a list of names, not {preview(required)}"
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from (f".required names '{name}', which is not a property" for name in required if name not in properties)


def _value_problems(schema: JsonObject) -> Iterator[str]:
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        yield f".enum must be a list of values, not {preview(schema['enum'])}"
    for key in _NUMBERS:
        if key in schema and (not isinstance(schema[key], int | float) or isinstance(schema[key], bool)):
            yield f".{key} must be a number, not {preview(schema[key])}"
    for key in _COUNTS:
        value = schema.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield f".{key} must be a non-negative integer, not {preview(value)}"
    if "pattern" in schema:
        try:
            re.compile(schema["pattern"])
        except (re.error, TypeError) as error:
            yield f".pattern {preview(schema['pattern'])} is not a regular expression: {error}"


def _resolves(ref: Any, root: JsonObject) -> bool:
    """True if a reference into the schema resolves; external references are not followed."""
    if not isinstance(ref, str):
        return False
    if ref.startswith("#/"):
        try:
            resolve_ref(ref, root)
        except LookupError:
            return False
    return True


def resolve_ref(ref: str, root: JsonObject) -> Any:
    """The node that a local reference (`#` or `#/…`) points to. Raises LookupError."""
    node: Any = root
    for step in ref[2:].split("/") if len(ref) > 1 else ():
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or name not in node:
            raise LookupError(ref)
        node = node[name]
    return node
