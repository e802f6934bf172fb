"""A row against what an environment asks of it, field by field."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import ValidationError

from gymnast.doctor.findings import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

_MOST: Final = 30
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field: what is asked, what the row has, and whether that fits."""

    field: str
    asked: str
    has: str
    problem: str
    """Empty if it fits."""

    def __str__(self) -> str:
        return f"{self.field}: asked {self.asked}, the row has {self.has}: {self.problem or 'fits'}"


def compare(row: Mapping[str, Any], model: type[BaseModel]) -> list[FieldDifference]:
    """The model's fields one by one, those that do not fit first."""
    problems = _problems(row, model)
    found = [
        FieldDifference(name, _asked(model, name), _shown(row.get(name, _ABSENT)), problems.pop(name, ""))
        for name in model.model_fields
    ]
    found += [FieldDifference(name, "?", _shown(_at(row, name)), said) for name, said in problems.items()]
    return sorted(found, key=lambda difference: not difference.problem)[:_MOST]


def from_refusal(body: str, row: Mapping[str, Any] | None = None) -> list[FieldDifference]:
    """What a 422 says itself: its `detail` names the fields. Also where only its text, as Python prints it, is left."""
    found: list[FieldDifference] = []
    for entry in _details(body)[:_MOST]:
        place = [str(part) for part in entry.get("loc", ()) if part != "body"]
        name = ".".join(place) or "(the body)"
        kind = str(entry.get("type", ""))
        has = _ABSENT if kind == "missing" else entry.get("input", _at(row or {}, name))
        asked = "a value" if kind == "missing" else kind.replace("_", " ")
        found.append(FieldDifference(name, asked, _shown(has), str(entry.get("msg", "does not fit"))))
    return found


def _details(body: str) -> list[dict[str, Any]]:
    start, end = body.find("["), body.rfind("]")
    if start < 0 or end < start:
        return []
    text = body[start : end + 1]
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return []
    return [entry for entry in found if isinstance(entry, dict) and "loc" in entry] if isinstance(found, list) else []


def _problems(row: Mapping[str, Any], model: type[BaseModel]) -> dict[str, str]:
    try:
        model.model_validate(row)
    except ValidationError as error:
        found: dict[str, str] = {}
        for entry in error.errors(include_url=False, include_context=False):
            place = entry["loc"]
            name = str(place[0]) if place else "(the row)"
            inner = ".".join(map(str, place[1:]))
            found.setdefault(name, f"{entry['msg']}" + (f" (at {inner})" if inner else ""))
        return found
    return {}


def _asked(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    kind = getattr(field.annotation, "__name__", None)
    text = kind if kind and not getattr(field.annotation, "__args__", None) else str(field.annotation)
    return text.replace("typing.", "") + ("" if field.is_required() else " (optional)")


def _at(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    return quoted(orjson.dumps(value, default=str).decode(), 60)
