"""Converts XML to a JSON value guided by a schema: XML alone does not distinguish lists, numbers and objects.

The root element contains the value. An element with child elements is an object; siblings of the same name are a list,
and so is an element that the schema declares as one. Attributes are fields. Document type declarations are rejected, so
that there are no entities and nothing is fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from xml.parsers import expat

from .documents import MAX_DEPTH, DocumentError, to_json

_INTEGER: Final = re.compile(r"[+-]?\d{1,4000}")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_COMBINED: Final = ("allOf", "anyOf", "oneOf")
_MAX_REFERENCES: Final = 50
_ANYTHING: Final = {"$comment": "anything"}
Schema = Mapping[str, Any]


@dataclass(slots=True)
class Element:
    """An element: attributes, child elements and text."""

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def read_xml(text: str) -> Element:
    """Parse an XML document and return its root element."""
    builder = _Builder()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = builder.refuse_doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    try:
        parser.Parse(text.strip().encode("utf-8"), True)  # noqa: FBT003 - expat's signature
    except (expat.ExpatError, UnicodeEncodeError) as error:
        raise DocumentError(f"no XML: {error}") from error
    return builder.open[0].children[0]


class _Builder:
    def __init__(self) -> None:
        self.open = [Element("", {})]

    def refuse_doctype(self, *_: object) -> None:
        raise DocumentError("a document type declaration is not accepted")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.open) > MAX_DEPTH:
            raise DocumentError(f"the document is nested more than {MAX_DEPTH} deep", "too_deep")
        kept = {key: value for key, value in attributes.items() if not key.startswith(("xmlns", "xsi:schema"))}
        element = Element(name, kept)
        self.open[-1].children.append(element)
        self.open.append(element)

    def end(self, _: str) -> None:
        self.open.pop()

    def characters(self, text: str) -> None:
        self.open[-1].texts.append(text)


class Reader:
    """Reads elements as values of a schema."""

    def __init__(self, schema: Schema, *, coerce: bool) -> None:
        self._root = schema
        self._coerce = coerce

    def readings(self, root: Element) -> Iterator[Any]:
        """The possible values of a document: its root contains the value, or is the only field of it."""
        yield to_json(self._value(root, self._root))
        if self._property(self._root, root.name):
            yield to_json(self._fields([root], {}, self._root))

    def cell(self, name: str, text: str) -> Any:
        """The value of a field in a table whose rows are the items of the schema."""
        declared = self._property(self._item_schema(self._root), name)
        return to_json(self._scalar(text, declared, self._kinds(declared)))

    def _value(self, element: Element, schema: Schema) -> Any:
        kinds = self._kinds(schema)
        if "array" in kinds and not ("object" in kinds and self._is_object(element, schema)):
            return self._items(element, schema)
        if element.attributes.get("xsi:nil") == "true" and self._coerce:
            return None
        if element.children or element.attributes:
            value = self._fields(element.children, element.attributes, schema)
            return {**value, "#text": element.text.strip()} if element.text.strip() else value
        if kinds == {"object"} and not element.text.strip():
            return {}
        return self._scalar(element.text, schema, kinds)

    def _fields(self, children: list[Element], attributes: Mapping[str, str], schema: Schema) -> dict[str, Any]:
        by_name: dict[str, list[Element]] = {}
        for child in children:
            by_name.setdefault(child.name, []).append(child)
        value: dict[str, Any] = {}
        for name, text in attributes.items():
            declared = self._property(schema, name)
            value[name if declared else f"@{name}"] = self._scalar(text, declared, self._kinds(declared))
        for name, elements in by_name.items():
            declared = self._property(schema, name)
            is_list = "array" in self._kinds(declared)
            if len(elements) > 1:
                item_schema = self._item_schema(declared) if is_list else declared
                value[name] = [self._value(element, item_schema) for element in elements]
            else:
                value[name] = self._value(elements[0], declared)
        return value

    def _items(self, element: Element, schema: Schema) -> list[Any]:
        """The list that an element represents: its child elements, or itself as the only item."""
        item_schema = self._item_schema(schema)
        if not element.children and not element.text.strip() and not element.attributes:
            return []
        if not element.children or self._is_object(element, item_schema):
            return [self._value(element, item_schema)]
        return [self._value(child, item_schema) for child in element.children]

    def _is_object(self, element: Element, schema: Schema) -> bool:
        names = {child.name for child in element.children} | set(element.attributes)
        return bool(names) and all(self._property(schema, name) for name in names)

    def _scalar(self, text: str, schema: Schema, kinds: set[str]) -> Any:
        if not self._coerce:
            return text
        bare = text.strip()
        for value in self._enum_values(schema):
            if not isinstance(value, str) and json.dumps(value) == bare:
                return value
        if "integer" in kinds and _INTEGER.fullmatch(bare):
            return int(bare)
        if "number" in kinds and _NUMBER.fullmatch(bare):
            return float(bare)
        if "boolean" in kinds and bare in {"true", "false"}:
            return bare == "true"
        return None if "null" in kinds and bare in {"", "null"} else text

    def _property(self, schema: Schema, name: str) -> Schema:
        """The schema of a field; empty if the schema does not declare it."""
        for part in self._parts(schema):
            declared = (part.get("properties") or {}).get(name, False)
            if declared is not False:
                return declared if isinstance(declared, dict) and declared else _ANYTHING
        return {}

    def _item_schema(self, schema: Schema) -> Schema:
        return next((part["items"] for part in self._parts(schema) if isinstance(part.get("items"), dict)), {})

    def _enum_values(self, schema: Schema) -> list[Any]:
        values: list[Any] = []
        for part in self._parts(schema):
            values += part.get("enum") or ()
            values += [part["const"]] if "const" in part else []
        return values

    def _kinds(self, schema: Schema) -> set[str]:
        """The types that a schema allows, as far as it declares them."""
        kinds: set[str] = set()
        for part in self._parts(schema):
            declared = part.get("type", "object" if "properties" in part else "array" if "items" in part else [])
            kinds.update([declared] if isinstance(declared, str) else declared)
        return kinds

    def _parts(self, schema: Schema) -> list[Schema]:
        """A schema together with those that it references or combines."""
        parts: list[Schema] = []
        waiting: list[Any] = [schema]
        while waiting and len(parts) < _MAX_REFERENCES:
            part = waiting.pop(0)
            if not isinstance(part, dict):
                continue
            parts.append(part)
            if isinstance(part.get("$ref"), str):
                waiting.append(self._resolve(part["$ref"]))
            for name in _COMBINED:
                waiting += part.get(name) or ()
        return parts

    def _resolve(self, pointer: str) -> Any:
        schema: Any = self._root
        for step in pointer.removeprefix("#").split("/")[1:]:
            schema = schema.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(schema, dict) else None
        return schema
