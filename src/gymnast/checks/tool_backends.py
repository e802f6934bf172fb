"""What constrained-decoding backends do with a tool's JSON Schema: refuse it, drop part of it, or take very long.

The rules say what XGrammar 0.1.18 to 0.2.8, Outlines (outlines-core 0.1.14 to 0.2.14) and llguidance 1.7 did when they
were given each of these schemas; tests/vllm/test_tool_grammars.py asks the installed ones again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from gymnast.checks.schema_shape import cyclic_refs, depth
from gymnast.data.tool_schema import schema_nodes, schema_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject

Backend = Literal["any", "xgrammar", "outlines", "guidance"]
Effect = Literal["refused", "loosened", "slow"]
BACKENDS: Final[tuple[Backend, ...]] = ("any", "xgrammar", "outlines", "guidance")
"""`any` is what every endpoint may refuse: schemas that are none, and names that no API takes."""

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
MOST_BYTES: Final = 120_000
MOST_LEVELS: Final = 10
MOST_ENUM: Final = 1000
MOST_OPTIONAL: Final = 100


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that one backend does with a schema."""

    backend: Backend
    rule: str
    effect: Effect
    where: str
    what: str
    next: str


def schema_complaints(root: Any) -> Iterator[Complaint]:
    """Everything that any backend does not take as it stands."""
    if not isinstance(root, dict):
        yield _any("not_an_object", "parameters", "the parameters are no JSON object", "write a schema of type object")
        return
    for problem in schema_problems(root):
        harmless = problem.endswith("which is no property")
        yield Complaint(
            "any", "invalid", "loosened" if harmless else "refused", "parameters", problem, "correct the schema"
        )
    if root.get("type", "object") != "object":
        text = f"the parameters are of type {_brief(root['type'])}, not object"
        yield _any("top_level", "parameters", text, "put the value into a property of an object")
    for where, schema in schema_nodes(root):
        if isinstance(schema, bool):
            yield from _boolean(where, allows=schema)
        elif isinstance(schema, dict):
            for rule in _NODE_RULES:
                yield from rule(where, schema)
    yield from _recursion(root)
    yield from _size(root)


def _any(rule: str, where: str, what: str, next_step: str) -> Complaint:
    return Complaint("any", rule, "refused", where, what, next_step)


def _boolean(where: str, *, allows: bool) -> Iterator[Complaint]:
    """`additionalProperties: false` beside properties is taken by all; `_additional` has the case without."""
    if where.endswith(".additionalProperties"):
        return
    text = f"the schema is {str(allows).lower()}"
    yield Complaint("outlines", "boolean_schema", "refused", where, text, "write a schema with a type, or leave it out")
    if not allows and not where.endswith(".items"):
        yield Complaint("xgrammar", "boolean_schema", "refused", where, text, "leave the property out")


def _additional(where: str, schema: JsonObject) -> Iterator[Complaint]:
    given = schema.get("additionalProperties")
    if given is False and "properties" not in schema and _is("object", schema):
        text = "additionalProperties: false on an object without properties"
        step = "add properties: {}, or drop additionalProperties"
        yield Complaint("outlines", "boolean_schema", "refused", where, text, step)


def _untyped(where: str, schema: JsonObject) -> Iterator[Complaint]:
    if schema and not _TYPED_BY & schema.keys():
        yield Complaint("outlines", "missing_type", "refused", where, "the schema has no type", "say which type it is")


def _formats(where: str, schema: JsonObject) -> Iterator[Complaint]:
    found = schema.get("format")
    if not isinstance(found, str) or not ("type" not in schema or _is("string", schema)):
        return
    text, step = f"format '{found}' is not known", "drop the format, or describe it with a pattern"
    if found not in _FORMATS["outlines"]:
        yield Complaint("outlines", "format", "refused", where, text, step)
    if found not in _FORMATS["guidance"]:
        yield Complaint("guidance", "format", "refused", where, text, step)
    if found not in _FORMATS["xgrammar"]:
        more = f"{text}: ignored, and refused by vLLM where xgrammar is named as backend"
        yield Complaint("xgrammar", "format", "loosened", where, more, step)


def _patterns(where: str, schema: JsonObject) -> Iterator[Complaint]:
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return
    step = "write the pattern without it"
    three: tuple[Backend, ...] = ("xgrammar", "outlines", "guidance")
    for expression, said, who in (
        (_LOOKAROUND, "looks around", three),
        (_BACKREFERENCE, "refers back", three),
        (_BOUNDARY, "asks for a word boundary", three),
        (_UNICODE_CLASS, "uses a Unicode class", ("xgrammar", "outlines")),
    ):
        if expression.search(pattern):
            text = f"the pattern {_brief(pattern)} {said}"
            yield from (Complaint(backend, "pattern", "refused", where, text, step) for backend in who)
    if "minLength" in schema or "maxLength" in schema:
        text = "pattern together with minLength or maxLength: the lengths are ignored"
        yield Complaint("xgrammar", "pattern_length", "loosened", where, text, "put the length into the pattern")


def _keywords(where: str, schema: JsonObject) -> Iterator[Complaint]:
    for name in _GUIDANCE_LACKS:
        if name in schema:
            yield Complaint("guidance", "keyword", "refused", where, f"'{name}' is not implemented", f"drop '{name}'")
    if "not" in schema:
        yield Complaint("outlines", "keyword", "refused", where, "'not' is not implemented", "say what it is instead")
    for name in _XGRAMMAR_DROPS:
        if name in schema:
            text = f"'{name}' is ignored, and refused by vLLM where xgrammar is named as backend"
            yield Complaint("xgrammar", "keyword", "loosened", where, text, f"drop '{name}'")
    if "multipleOf" in schema:
        text = "'multipleOf' is ignored, and refused by vLLM where xgrammar is named as backend"
        yield Complaint("xgrammar", "keyword", "loosened", where, text, "drop it, and check the value in the tool")
    if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) > 1:
        text = "'allOf' of several schemas is not joined, and refused by vLLM where xgrammar is named as backend"
        yield Complaint("xgrammar", "keyword", "loosened", where, text, "write one schema")
    if isinstance(schema.get("items"), list):
        for backend in ("xgrammar", "outlines"):
            yield Complaint(backend, "tuple_items", "refused", where, "'items' is a list of schemas", "use prefixItems")


def _counts(where: str, schema: JsonObject) -> Iterator[Complaint]:
    properties, least = schema.get("properties"), schema.get("minProperties")
    known = len(properties) if isinstance(properties, dict) else 0
    if isinstance(least, int) and least > known and not schema.get("additionalProperties"):
        text = f"minProperties {least} with {known} properties and none besides"
        yield Complaint("xgrammar", "properties", "refused", where, text, "require the properties that must be there")
    required = schema["required"] if isinstance(schema.get("required"), list) else []
    if ("minProperties" in schema or "maxProperties" in schema) and known > len(required):
        text = "minProperties or maxProperties beside optional properties"
        yield Complaint("guidance", "properties", "refused", where, text, "drop them")


def _branches(where: str, schema: JsonObject) -> Iterator[Complaint]:
    listed = schema["oneOf"] if isinstance(schema.get("oneOf"), list) else []
    branches = [branch for branch in listed if isinstance(branch, dict)]
    kinds = [branch.get("type") for branch in branches if "const" not in branch and "enum" not in branch]
    if any(kinds.count(kind) > 1 for kind in kinds):
        text = "branches of oneOf may hold for the same value"
        yield Complaint("guidance", "one_of", "refused", where, text, "write anyOf")


def _references(where: str, schema: JsonObject) -> Iterator[Complaint]:
    ref = schema.get("$ref")
    if isinstance(ref, str) and not ref.startswith("#"):
        text = f"$ref {_brief(ref)} leads out of the schema"
        yield _any("reference", where, text, "put what it refers to into $defs")


def _bounds(where: str, schema: JsonObject) -> Iterator[Complaint]:
    for low, high in _BOUNDS:
        least, most = schema.get(low), schema.get(high)
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            yield _any("empty_range", where, f"{low} {least} is more than {high} {most}", "correct the bounds")


def _enums(where: str, schema: JsonObject) -> Iterator[Complaint]:
    values = schema.get("enum")
    if not isinstance(values, list):
        return
    if any(isinstance(value, dict | list) for value in values):
        text = "an enum of objects or lists: Outlines before 0.2.3 refuses it"
        yield Complaint("outlines", "enum", "loosened", where, text, "use texts or numbers")
    named = schema.get("type")
    if isinstance(named, str) and any(not _fits(value, named) for value in values):
        text = f"the enum {_brief(values)} holds values that are no {named}; backends let them through all the same"
        yield Complaint("any", "enum", "loosened", where, text, "make type and enum agree")
    if len(values) > MOST_ENUM:
        text = f"an enum of {len(values)} values"
        yield Complaint("any", "size", "slow", where, text, f"offer at most {MOST_ENUM}, or check them in the tool")


_NODE_RULES: Final = (
    _additional,
    _untyped,
    _formats,
    _patterns,
    _keywords,
    _counts,
    _branches,
    _references,
    _bounds,
    _enums,
)


def _recursion(root: JsonObject) -> Iterator[Complaint]:
    for ref in sorted(cyclic_refs(root)):
        text = f"$ref {ref} leads back to itself"
        step = "unroll it to the depth that is needed"
        yield Complaint("outlines", "recursion", "loosened", "parameters", f"{text}: cut off after a few levels", step)
        yield Complaint("any", "recursion", "loosened", "parameters", f"{text}: some endpoints refuse that", step)


def _size(root: JsonObject) -> Iterator[Complaint]:
    size = len(orjson.dumps(root))
    if size > MOST_BYTES:
        text = f"the schema has {size} bytes"
        yield Complaint("any", "size", "slow", "parameters", text, f"keep it under {MOST_BYTES}: shorten descriptions")
    levels = depth(root)
    if levels > MOST_LEVELS:
        text = f"values are nested {levels} levels deep"
        yield Complaint("any", "size", "slow", "parameters", text, f"keep to {MOST_LEVELS} levels")
    for where, schema in schema_nodes(root):
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if isinstance(properties, dict):
            required = schema.get("required")
            optional = len(properties) - (len(required) if isinstance(required, list) else 0)
            if optional > MOST_OPTIONAL:
                text = f"{optional} optional properties: compiling takes time that grows with their square"
                yield Complaint("outlines", "size", "slow", where, text, "require those that are always there")


def _is(name: str, schema: JsonObject) -> bool:
    given = schema.get("type")
    return name in given if isinstance(given, list) else given == name


def _fits(value: Any, name: str) -> bool:
    if name == "null":
        return value is None
    if name == "boolean":
        return isinstance(value, bool)
    if name in {"integer", "number"}:
        return isinstance(value, int | float) and not isinstance(value, bool)
    known: dict[str, type] = {"string": str, "object": dict, "array": list}
    return name not in known or isinstance(value, known[name])


def _brief(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 60 else text[:57] + "…"
