"""Compares a row with what an environment expects, field by field."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import ValidationError

from gymnast.doctor.findings import quote_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

_MAX_FIELDS: Final = 30
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One field: the expected type, the row's value, and the problem."""

    field: str
    expected: str
    actual: str
    problem: str
    """Empty if the value is valid."""

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}, the row has {self.actual}: {self.problem or 'fits'}"


def compare(row: Mapping[str, Any], model: type[BaseModel]) -> list[FieldDiff]:
    """The model's fields, invalid ones first."""
    problems = _problems(row, model)
    fields = [
        FieldDiff(name, _expected_type(model, name), _preview(row.get(name, _ABSENT)), problems.pop(name, ""))
        for name in model.model_fields
    ]
    fields += [FieldDiff(name, "?", _preview(_at(row, name)), problem) for name, problem in problems.items()]
    return sorted(fields, key=lambda field: not field.problem)[:_MAX_FIELDS]


def parse_refusal(body: str, row: Mapping[str, Any] | None = None) -> list[FieldDiff]:
    """Parse the `detail` of a 422 reply, which names the fields; also if only its Python repr is available."""
    fields: list[FieldDiff] = []
    for entry in _details(body)[:_MAX_FIELDS]:
        location = [str(part) for part in entry.get("loc", ()) if part != "body"]
        name = ".".join(location) or "(the body)"
        kind = str(entry.get("type", ""))
        actual = _ABSENT if kind == "missing" else entry.get("input", _at(row or {}, name))
        expected = "a value" if kind == "missing" else kind.replace("_", " ")
        fields.append(FieldDiff(name, expected, _preview(actual), str(entry.get("msg", "does not fit"))))
    return fields


def _details(body: str) -> list[dict[str, Any]]:
    start, end = body.find("["), body.rfind("]")
    if start < 0 or end < start:
        return []
    text = body[start : end + 1]
    try:
        entries = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            entries = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return []
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict) and "loc" in entry]


def _problems(row: Mapping[str, Any], model: type[BaseModel]) -> dict[str, str]:
    try:
        model.model_validate(row)
    except ValidationError as error:
        problems: dict[str, str] = {}
        for entry in error.errors(include_url=False, include_context=False):
            location = entry["loc"]
            name = str(location[0]) if location else "(the row)"
            inner = ".".join(map(str, location[1:]))
            problems.setdefault(name, f"{entry['msg']}" + (f" (at {inner})" if inner else ""))
        return problems
    return {}


def _expected_type(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    kind = getattr(field.annotation, "__name__", None)
    text = kind if kind and not getattr(field.annotation, "__args__", None) else str(field.annotation)
    return text.replace("typing.", "") + ("" if field.is_required() else " (optional)")


def _at(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value


def _preview(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    return quote_line(orjson.dumps(value, default=str).decode(), 60)
