"""Maps the fields of a row onto those that an environment and a model read: `--map expected_answer=answer`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.errors import UserError, suggest
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gymnast.types.json import JsonObject

ANSWER_FIELDS: Final = (
    *("expected_answer", "ground_truth", "answer", "target", "label", "solution", "output", "gold"),
    *("reference", "final_answer", "correct_answer"),
)
"""What data sets call the expected answer."""
INPUT: Final = "input"
"""A target that stands for the model's input, `responses_create_params.input`."""
_FIELD: Final = re.compile(r"\{\{|\}\}|\{([^\W\d](?:[^{}\n\"':,]*[^\s{}\"':,])?)\}")
"""`{name}`; other braces are text."""
_ABSENT: Final = object()
_MAX_NAMED: Final = 12


@dataclass(frozen=True, slots=True)
class RowMap:
    """Targets and the fields that they are copied from. Both may be paths: `meta.answer`, `choices.0`. A source with
    fields in braces is a text: `{answer}` makes a text of a number."""

    fields: tuple[tuple[str, str], ...]

    def apply(self, row: JsonObject) -> JsonObject:
        """The row with the mapped fields added. Raises ValueError that names the mapping."""
        mapped = dict(row)
        sources = {name for _, source in self.fields for name in field_names(source) or [source]}
        for target, source in self.fields:
            value = self._read(target, source, row)
            self._check_free(target, source, value, row, sources)
            _set(mapped, _path(target), str(value) if target == INPUT and isinstance(value, (int, float)) else value)
        return mapped

    def _read(self, target: str, source: str, row: JsonObject) -> Any:
        value = find_value(row, source)
        if value is not _ABSENT:
            return value
        if not field_names(source):
            raise ValueError(self._describe_missing(target, source, row))
        try:
            return fill_fields(source, row)
        except ValueError as error:
            raise ValueError(f"--map {target}={source}: {error}") from error

    def _describe_missing(self, target: str, source: str, row: JsonObject) -> str:
        text = f"--map {target}={source}: the row has no '{source}'"
        if find_value(row, target) is not _ABSENT:
            return f"{text}, but '{target}'; did you mean --map {source}={target}?"
        hint = suggest(source, row)
        return f"{text}; {hint}" if hint else text

    def _check_free(self, target: str, source: str, value: Any, row: JsonObject, sources: set[str]) -> None:
        """A field is replaced only if it holds nothing, or is mapped to another name itself."""
        old = find_value(row, ".".join(_path(target)))
        if old is _ABSENT or old in (None, "", value) or target in sources:
            return
        raise ValueError(
            f"--map {target}={source}: the row already has '{target}'; map it to another name too, or leave the map out"
        )


def parse_map(entries: Mapping[str, str] | Iterable[str] | None) -> RowMap | None:
    """`TARGET=SOURCE` texts, or a mapping of targets to sources. Raises UserError."""
    if not entries:
        return None
    pairs = list(entries.items()) if hasattr(entries, "items") else [_parse(text) for text in entries]
    seen: dict[str, str] = {}
    for target, source in pairs:
        if target in seen and seen[target] != source:
            raise UserError(
                f"two maps of '{target}': from '{seen[target]}' and from '{source}'", next="use one of them"
            )
        seen[target] = source
    return RowMap(tuple(seen.items()))


def find_value(row: Any, path: str) -> Any:
    """The value of a field, or below it: names with dots are found, too. `_ABSENT` if there is none."""
    if isinstance(row, dict):
        if path in row:
            return row[path]
        for index in (index for index, letter in enumerate(path) if letter == "."):
            if path[:index] in row:
                value = find_value(row[path[:index]], path[index + 1 :])
                if value is not _ABSENT:
                    return value
    elif isinstance(row, list):
        head, _, rest = path.partition(".")
        if head.isdigit() and int(head) < len(row):
            return find_value(row[int(head)], rest) if rest else row[int(head)]
    return _ABSENT


def field_names(text: str) -> list[str]:
    """The fields that a text uses: `{question}`, `{meta.question}`."""
    return [match[1] for match in _FIELD.finditer(text) if match[1]] if "{" in text else []


def fill_fields(text: str, row: JsonObject) -> str:
    """The text with fields of the row in it; `{{` and `}}` are braces. Raises ValueError naming the field."""

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        value = find_value(row, name)
        if value is _ABSENT:
            hint = suggest(name, row)
            raise ValueError(f"'{{{name}}}' is used, but the row has no '{name}'" + (f"; {hint}" if hint else ""))
        if value is None:
            raise ValueError(f"'{{{name}}}' is used, but it is null in the row")
        return value if isinstance(value, str) else orjson.dumps(value).decode()

    return _FIELD.sub(fill, text)


def name_fields(row: JsonObject) -> str:
    names = list(row)
    return ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")


def _parse(text: str) -> tuple[str, str]:
    target, equals, source = (part.strip() for part in text.partition("="))
    if not (target and equals and source):
        raise UserError(f"--map: expected TARGET=SOURCE, got '{text}'", next="e.g. --map expected_answer=answer")
    return target, source


def _path(target: str) -> list[str]:
    return [PARAMS, INPUT] if target == INPUT else target.split(".")


def _set(row: JsonObject, path: list[str], value: Any) -> None:
    for step in path[:-1]:
        inner = row.get(step)
        if inner is not None and not isinstance(inner, dict):
            raise ValueError(f"--map {'.'.join(path)}=…: '{step}' is not an object")
        row[step] = dict(inner or {})  # the original row is not touched
        row = row[step]
    row[path[-1]] = value
