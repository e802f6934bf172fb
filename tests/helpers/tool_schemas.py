"""Tool schemas and which constrained-decoding backends refuse them. tests/vllm asks the real ones the same."""

from __future__ import annotations

from typing import Any, Final


def parameters(schema: Any, **more: Any) -> dict[str, Any]:
    """The parameters of a tool with one argument."""
    return {"type": "object", "properties": {"a": schema}, **more}


ALL: Final = ("xgrammar", "outlines", "guidance")
TEXT: Final = {"type": "string"}
YES: Final = True
NO: Final = False
"""Schemas, too."""

REFUSED: Final[dict[str, tuple[Any, tuple[str, ...]]]] = {
    "additionalProperties false without properties": (
        {"type": "object", "additionalProperties": False},
        ("outlines",),
    ),
    "the same, nested": (parameters({"type": "object", "additionalProperties": False}), ("outlines",)),
    "a property that is true": (parameters(YES), ("outlines",)),
    "a property that is false": (parameters(NO), ("xgrammar", "outlines")),
    "items true": (parameters({"type": "array", "items": True}), ("outlines",)),
    "a branch that is true": (parameters({"anyOf": [True, {"type": "null"}]}), ("outlines",)),
    "no type": (parameters({"description": "whatever"}), ("outlines",)),
    "not": (parameters({"not": TEXT}), ("outlines", "guidance")),
    "format duration": (parameters({**TEXT, "format": "duration"}), ("outlines",)),
    "format ipv4": (parameters({**TEXT, "format": "ipv4"}), ("outlines",)),
    "format int32": (parameters({**TEXT, "format": "int32"}), ("outlines", "guidance")),
    "format uri-reference": (parameters({**TEXT, "format": "uri-reference"}), ("outlines", "guidance")),
    "lookahead": (parameters({**TEXT, "pattern": "^(?=a).*$"}), ALL),
    "backreference": (parameters({**TEXT, "pattern": "(a)\\1"}), ALL),
    "word boundary": (parameters({**TEXT, "pattern": "\\bfoo\\b"}), ALL),
    "uniqueItems": (parameters({"type": "array", "items": TEXT, "uniqueItems": True}), ("guidance",)),
    "contains": (parameters({"type": "array", "contains": TEXT}), ("guidance",)),
    "if and then": (parameters(TEXT, **{"if": {"properties": {}}, "then": {}}), ("guidance",)),
    "dependentRequired": (parameters(TEXT, dependentRequired={"a": ["b"]}), ("guidance",)),
    "overlapping oneOf": (parameters({"oneOf": [TEXT, TEXT]}), ("guidance",)),
    "minProperties of none": ({"type": "object", "minProperties": 1}, ("xgrammar",)),
    # refused by some and nonsense to all: broken schemas
    "a property that is a text": (parameters("string"), ("any",)),
    "a property that is null": (parameters(None), ("any",)),
    "properties that are a list": ({"type": "object", "properties": []}, ("any",)),
    "a type of Python's": (parameters({"type": "dict"}), ("any",)),
    "a type that is anything": (parameters({"type": "any"}), ("any",)),
    "an enum that is empty": (parameters({**TEXT, "enum": []}), ("any",)),
    "an enum that is a text": (parameters({**TEXT, "enum": "x"}), ("any",)),
    "a reference to nothing": (parameters({"$ref": "#/$defs/y"}), ("any",)),
    "a reference to elsewhere": (parameters({"$ref": "http://example.com/y.json"}), ("any",)),
    "bounds that are a text": (parameters({"type": "integer", "minimum": "0"}), ("any",)),
    "bounds that exclude all": (parameters({"type": "integer", "minimum": 9, "maximum": 1}), ("any",)),
    "lengths that exclude all": (parameters({**TEXT, "minLength": 9, "maxLength": 1}), ("any",)),
    "required as a text": (parameters(TEXT, required="a"), ("any",)),
    "an array at the top": ({"type": "array", "items": TEXT}, ("any",)),
}

FINE: Final[dict[str, Any]] = {
    "plain": parameters(TEXT, required=["a"]),
    "additionalProperties false": parameters(TEXT, additionalProperties=False),
    "no properties": {"type": "object", "properties": {}},
    "empty": {},
    "or null": parameters({"type": ["string", "null"]}),
    "anyOf": parameters({"anyOf": [TEXT, {"type": "null"}]}),
    "enum": parameters({**TEXT, "enum": ["x", "y"]}),
    "const": parameters({"const": "x"}),
    "bounds": parameters({"type": "integer", "minimum": 0, "maximum": 10}),
    "lengths": parameters({**TEXT, "minLength": 1, "maxLength": 5}),
    "pattern": parameters({**TEXT, "pattern": "^[a-z]+$"}),
    "date": parameters({**TEXT, "format": "date"}),
    "list": parameters({"type": "array", "items": TEXT, "minItems": 1, "maxItems": 3}),
    "definition": {**parameters({"$ref": "#/$defs/x"}), "$defs": {"x": TEXT}},
    "recursive": {
        **parameters({"$ref": "#/$defs/n"}),
        "$defs": {"n": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}},
    },
    "allOf of one": parameters({"allOf": [TEXT]}),
    "mapping": parameters({"type": "object", "properties": {"b": TEXT}, "additionalProperties": TEXT}),
}
