"""How constrained-decoding backends treat a tool's JSON Schema: refuse it, loosen it, or compile it slowly.

The rules describe the observed behaviour of XGrammar 0.1.18 to 0.2.8, Outlines (outlines-core 0.1.14 to 0.2.14) and
llguidance 1.7; tests/vllm/test_tool_grammars.py repeats the observations with the installed versions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from gymnast.checks.schema_shape import cyclic_refs, depth
from gymnast.data.row import preview
from gymnast.data.tool_schema import schema_nodes, schema_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject

Backend = Literal["any", "xgrammar", "outlines", "guidance"]
Effect = Literal["refused", "loosened", "slow"]
BACKENDS: Final[tuple[Backend, ...]] = ("any", "xgrammar", "outlines", "guidance")
"""`any`: what every endpoint may refuse, such as invalid schemas and names."""

_COMMON_FORMATS: Final = frozenset({"date-time", "date", "time", "email", "uri", "uuid"})
_MORE_FORMATS: Final = _COMMON_FORMATS | {"duration", "hostname", "ipv4", "ipv6"}
_POINTERS: Final = frozenset({"uri-reference", "uri-template", "json-pointer", "relative-json-pointer"})
_FORMATS: Final[dict[str, frozenset[str]]] = {
    "xgrammar": _MORE_FORMATS | _POINTERS,
    "outlines": _COMMON_FORMATS,
    "guidance": _MORE_FORMATS,
}
_TYPED_BY: Final = frozenset({"type", "properties", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"})
_XGRAMMAR_DROPS: Final = ("uniqueItems", "contains", "minContains", "maxContains")
_GUIDANCE_LACKS: Final = (
    *_XGRAMMAR_DROPS,
    *("not", "if", "then", "else", "propertyNames", "unevaluatedProperties", "unevaluatedItems"),
    *("dependentRequired", "dependentSchemas", "dependencies"),
)
_BOUNDS: Final = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))
_BOUNDARY: Final = re.compile(r"\\[bB]")
_LOOKAROUND: Final = re.compile(r"\(\?<?[=!]")
_BACKREFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=|\\k<")
_UNICODE_CLASS: Final = re.compile(r"\\[pP]\{")
_IGNORED_BY_XGRAMMAR: Final = "ignored, and refused by vLLM if the backend is set to xgrammar"
MAX_BYTES: Final = 120_000
MAX_LEVELS: Final = 10
MAX_ENUM_VALUES: Final = 1000
MAX_OPTIONAL: Final = 100


@dataclass(frozen=True, slots=True)
class BackendProblem:
    """What one backend does with a schema."""

    backend: Backend
    rule: str
    effect: Effect
    where: str
    what: str
    next: str


def backend_problems(root: Any) -> Iterator[BackendProblem]:
    """Everything in a schema that a backend does not fully support."""
    if not isinstance(root, dict):
        yield _refused_problem(
            "any",
            "not_an_object",
            "parameters",
            "the parameters are not a JSON object",
            "write a schema of type object",
        )
        return
    for problem in schema_problems(root):
        harmless = problem.endswith("which is not a property")
        yield BackendProblem(
            "any", "invalid", "loosened" if harmless else "refused", "parameters", problem, "correct the schema"
        )
    if root.get("type", "object") != "object":
        text = f"the parameters are of type {preview(root['type'])}, not object"
        yield _refused_problem("any", "top_level", "parameters", text, "put the value into a property of an object")
    for where, schema in schema_nodes(root):
        if isinstance(schema, bool):
            yield from _boolean(where, allows=schema)
        elif isinstance(schema, dict):
            for rule in _NODE_RULES:
                yield from rule(where, schema)
    yield from _recursion(root)
    yield from _size(root)


def _refused_problem(backend: Backend, rule: str, where: str, what: str, next_step: str) -> BackendProblem:
    return BackendProblem(backend, rule, "refused", where, what, next_step)


def _loosened_problem(backend: Backend, rule: str, where: str, what: str, next_step: str) -> BackendProblem:
    return BackendProblem(backend, rule, "loosened", where, what, next_step)


def _slow_problem(backend: Backend, rule: str, where: str, what: str, next_step: str) -> BackendProblem:
    return BackendProblem(backend, rule, "slow", where, what, next_step)


def _boolean(where: str, *, allows: bool) -> Iterator[BackendProblem]:
    """All accept `additionalProperties: false` next to properties; `_additional` handles it without them."""
    if where.endswith(".additionalProperties"):
        return
    text = f"the schema is {str(allows).lower()}"
    yield _refused_problem("outlines", "boolean_schema", where, text, "write a schema with a type, or leave it out")
    if not allows and not where.endswith(".items"):
        yield _refused_problem("xgrammar", "boolean_schema", where, text, "leave the property out")


def _additional(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    if schema.get("additionalProperties") is False and "properties" not in schema and _is("object", schema):
        text = "additionalProperties: false on an object without properties"
        step = "add properties: {}, or drop additionalProperties"
        yield _refused_problem("outlines", "boolean_schema", where, text, step)


def _types(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    if schema and not _TYPED_BY & schema.keys():
        yield _refused_problem("outlines", "missing_type", where, "the schema has no type", "add a type")


def _formats(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    name = schema.get("format")
    if not isinstance(name, str) or not ("type" not in schema or _is("string", schema)):
        return
    text, step = f"unknown format '{name}'", "drop the format, or replace it with a pattern"
    if name not in _FORMATS["outlines"]:
        yield _refused_problem("outlines", "format", where, text, step)
    if name not in _FORMATS["guidance"]:
        yield _refused_problem("guidance", "format", where, text, step)
    if name not in _FORMATS["xgrammar"]:
        yield _loosened_problem("xgrammar", "format", where, f"{text}: {_IGNORED_BY_XGRAMMAR}", step)


def _patterns(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return
    step = "rewrite the pattern without it"
    three: tuple[Backend, ...] = ("xgrammar", "outlines", "guidance")
    for expression, feature, backends in (
        (_LOOKAROUND, "lookaround", three),
        (_BACKREFERENCE, "a backreference", three),
        (_BOUNDARY, "a word boundary", three),
        (_UNICODE_CLASS, "a Unicode class", ("xgrammar", "outlines")),
    ):
        if expression.search(pattern):
            text = f"the pattern {preview(pattern)} uses {feature}"
            yield from (_refused_problem(backend, "pattern", where, text, step) for backend in backends)
    if "minLength" in schema or "maxLength" in schema:
        text = "minLength and maxLength are ignored next to a pattern"
        yield _loosened_problem("xgrammar", "pattern_length", where, text, "express the length in the pattern")


def _keywords(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    for name in _GUIDANCE_LACKS:
        if name in schema:
            yield _refused_problem("guidance", "keyword", where, f"'{name}' is not implemented", f"drop '{name}'")
    if "not" in schema:
        yield _refused_problem(
            "outlines", "keyword", where, "'not' is not implemented", "describe the allowed values instead"
        )
    for name in _XGRAMMAR_DROPS:
        if name in schema:
            text = f"'{name}' is {_IGNORED_BY_XGRAMMAR}"
            yield _loosened_problem("xgrammar", "keyword", where, text, f"drop '{name}'")
    if "multipleOf" in schema:
        text = f"'multipleOf' is {_IGNORED_BY_XGRAMMAR}"
        yield _loosened_problem("xgrammar", "keyword", where, text, "drop it and validate the value in the tool")
    if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) > 1:
        text = f"'allOf' of several schemas is {_IGNORED_BY_XGRAMMAR}"
        yield _loosened_problem("xgrammar", "keyword", where, text, "merge them into one schema")
    if isinstance(schema.get("items"), list):
        for backend in ("xgrammar", "outlines"):
            yield _refused_problem(backend, "tuple_items", where, "'items' is a list of schemas", "use prefixItems")


def _counts(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    properties, minimum = schema.get("properties"), schema.get("minProperties")
    known = len(properties) if isinstance(properties, dict) else 0
    if isinstance(minimum, int) and minimum > known and not schema.get("additionalProperties"):
        text = f"minProperties {minimum} with only {known} properties"
        yield _refused_problem("xgrammar", "properties", where, text, "list the mandatory properties in required")
    required = schema["required"] if isinstance(schema.get("required"), list) else []
    if ("minProperties" in schema or "maxProperties" in schema) and known > len(required):
        text = "minProperties or maxProperties with optional properties"
        yield _refused_problem("guidance", "properties", where, text, "drop them")


def _branches(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    schemas = schema["oneOf"] if isinstance(schema.get("oneOf"), list) else []
    branches = [branch for branch in schemas if isinstance(branch, dict)]
    kinds = [branch.get("type") for branch in branches if "const" not in branch and "enum" not in branch]
    if any(kinds.count(kind) > 1 for kind in kinds):
        text = "branches of oneOf may match the same value"
        yield _refused_problem("guidance", "one_of", where, text, "use anyOf")


def _references(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    ref = schema.get("$ref")
    if isinstance(ref, str) and not ref.startswith("#"):
        text = f"$ref {preview(ref)} is external to the schema"
        yield _refused_problem("any", "reference", where, text, "copy its target into $defs")


def _bounds(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    for low, high in _BOUNDS:
        lower, upper = schema.get(low), schema.get(high)
        if isinstance(lower, int | float) and isinstance(upper, int | float) and lower > upper:
            yield _refused_problem(
                "any", "empty_range", where, f"{low} {lower} is greater than {high} {upper}", "correct the bounds"
            )


def _enums(where: str, schema: JsonObject) -> Iterator[BackendProblem]:
    values = schema.get("enum")
    if not isinstance(values, list):
        return
    if any(isinstance(value, dict | list) for value in values):
        text = "an enum of objects or lists is refused by Outlines before 0.2.3"
        yield _loosened_problem("outlines", "enum", where, text, "use strings or numbers")
    kind = schema.get("type")
    if isinstance(kind, str) and any(not _fits(value, kind) for value in values):
        text = f"the enum {preview(values)} has values that are not of type {kind}; backends accept them anyway"
        yield _loosened_problem("any", "enum", where, text, "make type and enum agree")
    if len(values) > MAX_ENUM_VALUES:
        text = f"an enum of {len(values)} values"
        yield _slow_problem("any", "size", where, text, f"use at most {MAX_ENUM_VALUES}, or validate them in the tool")


_NODE_RULES: Final = (
    _additional,
    _types,
    _formats,
    _patterns,
    _keywords,
    _counts,
    _branches,
    _references,
    _bounds,
    _enums,
)


def _recursion(root: JsonObject) -> Iterator[BackendProblem]:
    for ref in sorted(cyclic_refs(root)):
        text = f"$ref {ref} is recursive"
        step = "unroll it to the depth you need"
        yield _loosened_problem(
            "outlines", "recursion", "parameters", f"{text} and is cut off after a few levels", step
        )
        yield _loosened_problem("any", "recursion", "parameters", f"{text}; some endpoints refuse that", step)


def _size(root: JsonObject) -> Iterator[BackendProblem]:
    size = len(orjson.dumps(root))
    if size > MAX_BYTES:
        text = f"the schema has {size} bytes"
        yield _slow_problem("any", "size", "parameters", text, f"keep it under {MAX_BYTES}; shorten descriptions")
    levels = depth(root)
    if levels > MAX_LEVELS:
        text = f"values nest {levels} levels deep"
        yield _slow_problem("any", "size", "parameters", text, f"use at most {MAX_LEVELS} levels")
    for where, schema in schema_nodes(root):
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if isinstance(properties, dict):
            required = schema.get("required")
            optional = len(properties) - (len(required) if isinstance(required, list) else 0)
            if optional > MAX_OPTIONAL:
                text = f"{optional} optional properties; compile time grows quadratically"
                yield _slow_problem("outlines", "size", where, text, "require those that are always present")


def _is(name: str, schema: JsonObject) -> bool:
    kind = schema.get("type")
    return name in kind if isinstance(kind, list) else kind == name


def _fits(value: Any, name: str) -> bool:
    if name == "null":
        return value is None
    if name == "boolean":
        return isinstance(value, bool)
    if name in {"integer", "number"}:
        return isinstance(value, int | float) and not isinstance(value, bool)
    known: dict[str, type] = {"string": str, "object": dict, "array": list}
    return name not in known or isinstance(value, known[name])
