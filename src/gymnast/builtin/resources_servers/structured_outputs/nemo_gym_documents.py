"""Reads documents with the parsers that NeMo Gym uses, and gives the text of XML and CSV the types of a schema.

Whatever a parser accepts is a document: duplicate keys, NaN, aliases. XML becomes a value as xmltodict makes it: the
root element is the only field, attributes are `@name`, text next to other content is `#text`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final
from xml.parsers import expat

import yaml

from .nemo_gym_errors import read_csv, read_json


class _XmlBuilder:
    """Collects the events of a parser; `value` is the document."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self._open: list[tuple[dict[str, Any], list[str]]] = [(self.value, [])]

    def start(self, _: str, attributes: Mapping[str, str]) -> None:
        self._open.append(({f"@{name}": value for name, value in attributes.items()}, []))

    def end(self, name: str) -> None:
        fields, texts = self._open.pop()
        text = "".join(texts).strip() or None
        if fields and text:
            fields["#text"] = text
        _add(self._open[-1][0], name, fields or text)

    def characters(self, text: str) -> None:
        self._open[-1][1].append(text)


def _add(fields: dict[str, Any], name: str, value: Any) -> None:
    """Add a field; fields of the same name become a list."""
    if name not in fields:
        fields[name] = value
    elif isinstance(fields[name], list):
        fields[name].append(value)
    else:
        fields[name] = [fields[name], value]


def read_xml(text: str) -> dict[str, Any]:
    """Parse an XML document. Declarations of entities are rejected; nothing is fetched."""
    builder = _XmlBuilder()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.EntityDeclHandler = _refuse_entity
    parser.Parse(text.encode("utf-8"), True)  # noqa: FBT003 - expat's signature
    return builder.value


def _refuse_entity(*_: object) -> None:
    raise ValueError("entities are disabled")


PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "json": read_json,
    "yaml": yaml.safe_load,
    "toml": tomllib.loads,
    "xml": read_xml,
    "csv": read_csv,
}


def coerce_xml(value: Any, schema: Any) -> Any:
    """Convert the text of XML to the types of a schema, where the text is such a value."""
    if not isinstance(schema, dict) or "type" not in schema:
        return value
    kind = schema["type"]
    if kind == "object" and isinstance(value, dict):
        properties = schema.get("properties", {})
        return {
            name: coerce_xml(item, properties[name]) if name in properties else item for name, item in value.items()
        }
    if kind == "array":
        return [coerce_xml(item, schema.get("items", {})) for item in _xml_items(value)]
    if value is None and kind == "string":
        return ""
    return _scalar(value, kind) if isinstance(value, str) else value


def _xml_items(value: Any) -> list[Any]:
    """The items of an element that is a list: repeated, the only children of a name, or a single one."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if isinstance(value, list):
        return value
    return [value] if value is not None else []


def coerce_csv(rows: list[dict[str | Any, Any]], schema: Any) -> list[dict[str | Any, Any]]:
    """Convert the cells of a table to the types that the schema of its rows declares."""
    properties = schema.get("items", schema).get("properties", {})
    return [
        {name: _cell(cell, properties.get(name, {}).get("type", "string")) for name, cell in row.items()}
        for row in rows
    ]


def _cell(cell: Any, kind: Any) -> Any:
    if not isinstance(kind, list):
        return cell if cell is None or cell == "" else _scalar(cell, kind)
    if (cell is None or cell == "") and "null" in kind:
        return None
    for each in kind:
        value = _cell(cell, each) if each != "null" else cell
        if each != "null" and (not isinstance(value, str) or each == "string"):
            return value
    return cell


def _scalar(text: Any, kind: Any) -> Any:
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
        if kind == "boolean":
            return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    except (ValueError, AttributeError):
        pass
    return text
