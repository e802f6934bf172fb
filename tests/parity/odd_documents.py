"""Schemas, and documents that fit them or nearly do: JSON, YAML, XML, TOML and CSV with each format's odd spellings."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

Value = Any
_FORMATS: Final = ("json", "yaml", "xml", "toml", "csv")
_NAMES: Final = (
    "x",
    "label",
    "properties",
    "type",
    "items",
    "on",
    "a b",
    "é",
    "required",
    "1",
    "$ref",
    "x-y",
    "n",
    "@id",
    "#text",
)
_LEAVES: Final[tuple[tuple[dict[str, Any], tuple[Any, ...]], ...]] = (
    ({"type": "integer"}, (1, 0, -7, 10**20, 1.0, "1", True, 1.5)),
    ({"type": "number"}, (1, 1.5, -0.0, 1e300, "1.5", None)),
    ({"type": "string"}, ("a", "", "é", "1", "true", "2024-05-01", " a ", "a,b", 'say "a"', "a\nb", None, 3)),
    ({"type": "boolean"}, (True, False, 1, "true", "TRUE")),
    ({"type": "string", "nullable": True}, ("a", None)),
    ({"type": ["string", "null"]}, ("a", None, 1)),
    ({"type": ["integer", "string"]}, (1, "a", "1", 1.5)),
    ({"type": "null"}, (None, "null", "")),
    ({"enum": [1, "a", None, True]}, (1, "a", None, True, 1.0, "b")),
    ({"const": 1}, (1, 1.0, True, "1")),
    ({"type": "string", "enum": ["a", "b"]}, ("a", "b", "A")),
    ({"type": "string", "format": "date"}, ("2024-05-01", "2024-13-01", "today")),
    ({"type": "string", "format": "date-time"}, ("2024-05-01T10:00:00Z", "2024-05-01")),
    ({"type": "string", "format": "uuid"}, ("123e4567-e89b-12d3-a456-426614174000", "x")),
    ({"type": "string", "format": "byte"}, ("YQ==", "a")),
    ({"type": "string", "format": "password"}, ("a",)),
    ({"type": "integer", "format": "int32"}, (1, 2**31, 2**63)),
    ({"type": "number", "format": "float"}, (1, 1.5)),
    ({"type": "string", "pattern": "^[a-z]+$"}, ("a", "A", "a\n")),
    ({"type": "string", "pattern": "("}, ("a",)),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ("ab", "a", "abcd", "👩‍👩‍👧")),
    ({"type": "integer", "minimum": 1, "maximum": 5}, (1, 5, 0, 6)),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, (1, 2)),
    ({"type": "number", "exclusiveMaximum": 5}, (4.9, 5)),
    ({"type": "number", "multipleOf": 0.1}, (0.3, 1, 0.35)),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, (1, "a", None)),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, (1, 1.5)),
    ({"allOf": [{"type": "string"}, {"minLength": 2}]}, ("ab", "a")),
    ({"not": {"type": "string"}}, (1, "a")),
    ({"type": "string", "readOnly": True}, ("a",)),
    ({"type": "string", "writeOnly": True}, ("a",)),
    ({}, (1, "a", None, [])),
    ({"type": "any"}, (1, "a")),
    ({"$ref": "#/properties/x"}, (1, "a")),
    ({"type": "array", "items": {"type": "integer"}}, ([1], [], [1, "a"], [1.0], 1)),
    ({"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}, (["a"], ["a", "a"], [])),
    ({"type": "array"}, ([1, "a"], [])),
    ({"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}, ([1, "a"], ["a", 1])),
    ({"type": "object"}, ({}, {"a": 1})),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, ({"a": 1}, {"a": "b"})),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": []}, ({"a": 1}, {}, {"a": 1, "b": 2})),
    ({"type": "object", "properties": {}, "minProperties": 1}, ({}, {"a": 1})),
)
"""Schemas with values that fit, or nearly do."""


def make_document(chance: random.Random) -> tuple[dict[str, Any], str]:
    """The fields of a row, and a reply to it."""
    kind = chance.choice(_FORMATS)
    schema, value = _make_table(chance) if kind == "csv" else _make_object(chance)
    if kind == "xml" and chance.random() < 0.7:
        root = chance.choice(("r", "Root", "ns:r"))
        schema = {"type": "object", "properties": {root: schema}}
        value = {root: value}
    row = {"schema_str": json.dumps(schema), "schema_type": kind}
    return row, _WRITERS[kind](value, chance)


def _make_object(chance: random.Random, depth: int = 2) -> tuple[dict[str, Any], dict[str, Any]]:
    properties, value = {}, {}
    for name in chance.sample(_NAMES, chance.randint(1, 3)):
        if depth and chance.random() < 0.25:
            properties[name], value[name] = _make_object(chance, depth - 1)
        else:
            properties[name], values = chance.choice(_LEAVES)
            value[name] = values[0] if chance.random() < 0.6 else chance.choice(values)
    return {"type": "object", "properties": properties, **_extra(properties, chance)}, value


def _extra(properties: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    extra: tuple[dict[str, Any], ...] = (
        *(
            {"required": list(properties)},
            {"required": []},
            {"additionalProperties": True},
            {"additionalProperties": False},
        ),
        *(
            {"title": "T", "description": "d"},
            {"$schema": "http://json-schema.org/draft-07/schema#"},
            {"nullable": True},
        ),
        *(
            {"patternProperties": {"^x": {"type": "string"}}},
            {"dependencies": {"x": ["label"]}},
            {"required": ["missing"]},
        ),
        {"discriminator": {"propertyName": "type"}},
    )
    return chance.choice(extra) if chance.random() < 0.4 else {}


def _make_table(chance: random.Random) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    names = chance.sample(_NAMES, chance.randint(1, 4))
    leaves = {name: chance.choice(_LEAVES[:14]) for name in names}
    rows = [
        {name: values[0] if chance.random() < 0.7 else chance.choice(values) for name, (_, values) in leaves.items()}
        for _ in range(chance.choice((0, 1, 1, 2, 3)))
    ]
    items = {"type": "object", "properties": {name: schema for name, (schema, _) in leaves.items()}}
    return chance.choice(({"type": "array", "items": items}, {"type": "array", "items": items}, items)), rows


def _write_json(value: Value, chance: random.Random) -> str:
    text = json.dumps(value, indent=chance.choice((None, 2)), ensure_ascii=chance.random() < 0.5)
    return _change(text, chance, _JSON)


_JSON: Final = (
    *(
        ("1.5", "15e-1"),
        ("1", "1E0"),
        ("1", "1.0"),
        ("1", "01"),
        ("1", "+1"),
        ("0", "-0"),
        ("true", "TRUE"),
        ("null", "undefined"),
    ),
    *(
        ('"a"', "'a'"),
        ('"a"', '"\\u0061"'),
        ('"a"', '"a\tb"'),
        ('"a"', '"\\ud800"'),
        ('"a"', '"\\x61"'),
        ("{", "{,"),
        ("}", "} {}"),
    ),
    *(
        ("}", ",}"),
        ("]", "] // x"),
        ("{", "\ufeff{"),
        ("}", "}\x00"),
        ("}", "}\u00a0"),
        (":", "\u00a0:"),
        (",", "，"),
        ("1", "1e999"),
    ),
    *(
        ("1", "NaN"),
        ("1", "-Infinity"),
        ("{", '{"x": 0, '),
        ("1", "9" * 4400),
        ('"', '"\u200b'),
        ("{", "\n\n{"),
        ("}", "}\x0c"),
        ('"a"', '"a\x00"'),
    ),
)
_YAML: Final = (
    *(
        ("true", "yes"),
        ("true", "on"),
        ("false", "No"),
        ("1", "0o7"),
        ("1", "1_000"),
        ("1", "12:30:00"),
        ("1.5", ".inf"),
        ("1.5", ".nan"),
    ),
    *(
        ("null", "~"),
        ("null", ""),
        ("a", "&x a"),
        ("a", "*x"),
        ("a", "!!str a"),
        ("1", "!!str 1"),
        ("a", "!x a"),
        ("1", "!!int '1'"),
    ),
    *(
        ("a", "!!python/object:x.y a"),
        ("a", "|\n  a"),
        ("a", ">-\n  a"),
        ("a", "a # b"),
        ("a", "a: b"),
        ("a", "'a'"),
        ("a", '"\\x61"'),
    ),
    *(
        ("1", "1e3"),
        ("1", "1.e+3"),
        ("1", "0x1F"),
        ("1", "0b11"),
        ("1", "01"),
        ("1", "+1"),
        ("1", "1."),
        ("a", "2024-05-01"),
        ("a", "="),
    ),
    *(
        ("1.5", "1,5"),
        ("a", "2024-05-01 10:00:00"),
        ("a", "@a"),
        ("a", "`a`"),
        ("a", "\ta"),
        ("a", "- a"),
        ("a", "%a"),
        ("a", "<<"),
    ),
)
_TOML: Final = (
    *(
        ("1", "0x1F"),
        ("1", "1_000"),
        ("1", "01"),
        ("1", "+1"),
        ("1.5", "inf"),
        ("1.5", "+nan"),
        ("1.5", "1.5e3"),
        ("1.5", "1."),
    ),
    *(
        ('"a"', "'a'"),
        ('"a"', "'''a'''"),
        ('"a"', '"""\na"""'),
        ('"a"', "2024-05-01"),
        ('"a"', "2024-05-01T10:00:00Z"),
        ('"a"', "10:00:00"),
    ),
    *(
        ("true", "True"),
        (" = ", "="),
        (" = ", ": "),
        ('"a"', '"\\u0061"'),
        ('"a"', '"a" # b'),
        ("\n", "\r\n"),
        ("\n", "\r"),
        ('"a"', "a"),
    ),
    *(
        ('"a"', '"\\q"'),
        ("[", "[\n"),
        ("]", ",]"),
        ("1", "1979-05-27 07:32:00"),
        ("1", "9" * 30),
        ('"a"', '"a\x7f"'),
        ('"a"', '"\ufeff"'),
    ),
)
_XML: Final = (
    *(
        (">a<", "><![CDATA[a]]><"),
        (">a<", ">&#97;<"),
        (">a<", "> a <"),
        (">a<", "><!-- x -->a<"),
        (">a<", ">a<b/>c<"),
        (">a<", ">&amp;<"),
    ),
    *(
        (">1<", "> 1 <"),
        (">1<", ">1_0<"),
        (">1<", ">٣<"),
        (">1<", ">1.0<"),
        (">1<", ">+1<"),
        (">true<", ">1<"),
        (">true<", ">True <"),
        (">1<", ' k="v">1<'),
    ),
    *(
        (">1<", ' xmlns="u">1<'),
        ("</", "</ "),
        ("<", '<?xml version="1.0" encoding="latin-1"?>\n<'),
        ("<", "\n<"),
        (">a<", ">&x;<"),
        (">a<", ' xsi:nil="true"><'),
    ),
    *(
        ("<", '<!DOCTYPE r [<!ENTITY x "a">]><'),
        (">a<", ">\x0b<"),
        (">a<", ">a&nbsp;<"),
        ("<", "<?pi x?><"),
        (">1.5<", ">inf<"),
        (">a<", ">\n\ta\n<"),
        (">a<", ">]]><"),
    ),
)
_CSV: Final = (
    *(
        (",", ";"),
        (",", ", "),
        (",", "\t"),
        ("\n", "\r\n"),
        ("\n", "\n\n"),
        ("\n", ",\n"),
        ("\n", "\r"),
        ("a", '"a"'),
        ("a", '"a\nb"'),
        ("a", '"a""b"'),
    ),
    *(
        ("a", '"a'),
        ("a", "'a'"),
        ("1", " 1"),
        ("1", "1.0"),
        ("1", "1_0"),
        ("1", "٣"),
        ("1", '"1"'),
        ("1.5", '"1,5"'),
        ("true", "TRUE"),
        ("true", " true"),
    ),
    *(
        ("true", "0"),
        ("a", "\ufeffa"),
        ("a", "a\x00"),
        ("1", "nan"),
        ("1", "1e3"),
        ("a", '"a"b'),
        ("\n", "\n,,,,,\n"),
        ("a", "\u2028"),
        ("1", ""),
        ("a", "#a"),
    ),
)


def _change(text: str, chance: random.Random, changes: tuple[tuple[str, str], ...]) -> str:
    """The text with up to two of its format's odd spellings, if it has a place for them."""
    for _ in range(chance.choice((0, 1, 1, 2))):
        possible = [change for change in changes if change[0] in text]
        if possible:
            old, new = chance.choice(possible)
            text = text.replace(old, new, 1)
    return text


def _write_yaml(value: Value, chance: random.Random) -> str:
    """In block style, with a prefix now and then."""
    text = _block(value, 0) if isinstance(value, dict) and chance.random() < 0.8 else json.dumps(value)
    prefix = chance.choice(
        ("", "", "", "---\n", "%YAML 1.1\n---\n", "%YAML 1.2\n---\n", "\ufeff", "# c\n", "? x\n: 1\n", "<<: {n: 1}\n")
    )
    suffix = chance.choice(("", "", "", "\n---\n", "\n...\n", "\n---\na: 1\n", "\nx: 1\nx: 2", "\n\t"))
    return prefix + _change(text, chance, _YAML) + suffix


def _block(value: Value, depth: int) -> str:
    indent = "  " * depth
    if isinstance(value, dict) and value:
        return "".join(
            f"{indent}{name}:\n{_block(item, depth + 1)}"
            if isinstance(item, dict | list) and item
            else f"{indent}{name}: {_plain(item)}\n"
            for name, item in value.items()
        )
    if isinstance(value, list) and value:
        return "".join(f"{indent}- {_plain(item)}\n" for item in value)
    return f"{indent}{_plain(value)}\n"


def _plain(value: Value) -> str:
    return value if isinstance(value, str) and value.isalnum() else json.dumps(value, ensure_ascii=False)


def _write_toml(value: Value, chance: random.Random) -> str:
    text = _change(_table(value, ""), chance, _TOML)
    return (
        chance.choice(("", "", "", "\ufeff", "# c\n"))
        + text
        + chance.choice(("", "", "", "[n]\nx = 1\n", "[[n]]\nx = 1\n", "x.y = 1\n"))
    )


def _table(value: dict[str, Any], path: str) -> str:
    lines, tables = "", ""
    for name, item in value.items():
        key = name if name.isascii() and name.replace("-", "").isalnum() else json.dumps(name, ensure_ascii=False)
        if isinstance(item, dict):
            tables += f"\n[{path}{key}]\n" + _table(item, f"{path}{key}.")
        elif item is not None:
            lines += f"{key} = {json.dumps(item, ensure_ascii=False)}\n"
    return lines + tables


def _write_xml(value: Value, chance: random.Random) -> str:
    return _change(_elements(value), chance, _XML)


def _elements(value: Value) -> str:
    if isinstance(value, dict):
        return "".join(
            "".join(f"<{name}>{_elements(one)}</{name}>" for one in item)
            if isinstance(item, list) and len(item) > 1
            else f"<{name}>{_elements(item)}</{name}>"
            for name, item in value.items()
        )
    if isinstance(value, list):
        return "".join(f"<item>{_elements(item)}</item>" for item in value)
    return "" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)


def _write_csv(rows: Value, chance: random.Random) -> str:
    names = list(rows[0]) if rows else ["x", "label"]
    lines = [names, *([_cell(row[name]) for name in names] for row in rows)]
    if chance.random() < 0.15:
        lines[0] = [*names, chance.choice((names[0], "extra", ""))]
    if chance.random() < 0.15:
        lines[-1] = chance.choice((lines[-1][:-1], [*lines[-1], "extra", "more"]))
    return _change("\n".join(",".join(line) for line in lines) + chance.choice(("", "\n")), chance, _CSV)


def _cell(value: Value) -> str:
    text = "" if value is None else json.dumps(value) if isinstance(value, bool | list) else str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


_WRITERS: Final[dict[str, Callable[[Value, random.Random], str]]] = {
    "json": _write_json,
    "yaml": _write_yaml,
    "toml": _write_toml,
    "xml": _write_xml,
    "csv": _write_csv,
}
