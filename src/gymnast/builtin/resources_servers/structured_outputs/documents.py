"""Parses JSON, YAML and TOML into JSON values, strictly: ambiguous documents are rejected.

Duplicate keys, numbers that are not finite, YAML aliases and keys that are not text are errors. Dates become text.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

import yaml

MAX_DEPTH: Final = 200
_FENCE: Final = re.compile(r"\A```[\w+-]*[ \t]*\n(.*?)\n?```\Z", re.DOTALL)
_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class DocumentError(Exception):
    """A text that is not a valid document. `kind` is the reply's `error_type`."""

    def __init__(self, text: str, kind: str = "parse_error") -> None:
        super().__init__(text)
        self.kind = kind


def strip_fence(text: str) -> str:
    """The content of a code fence around the whole text."""
    match = _FENCE.match(text.strip())
    return match[1] if match else text


def read_json(text: str) -> Any:
    """Parse a JSON document."""
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite, parse_int=int
        )
    except RecursionError as error:
        raise DocumentError("the document is nested too deeply", "too_deep") from error
    except ValueError as error:
        raise DocumentError(f"no JSON: {error}") from error


def read_yaml(text: str) -> Any:
    """Parse a single YAML document without aliases. Dates stay text; other plain values are read as PyYAML does."""
    try:
        _check_structure(text)
        return to_json(yaml.load(text, Loader=_StrictLoader))  # noqa: S506 - a subclass of the safe loader
    except RecursionError as error:
        raise DocumentError("the document is nested too deeply", "too_deep") from error
    except (yaml.YAMLError, ValueError) as error:
        raise DocumentError(f"not valid YAML: {_one_line(error)}") from error


def read_toml(text: str) -> Any:
    """Parse a TOML document."""
    try:
        return to_json(tomllib.loads(text))
    except RecursionError as error:
        raise DocumentError("the document is nested too deeply", "too_deep") from error
    except ValueError as error:
        raise DocumentError(f"no TOML: {error}") from error


def to_json(value: Any) -> Any:
    """Convert a value to JSON types."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise DocumentError(f"the key {key!r} is not a string")
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        raise DocumentError(f"{value} is not a valid JSON number")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise DocumentError(f"JSON has no value of type {type(value).__name__}")


class _StrictLoader(_BaseLoader):  # type: ignore[misc]
    """The safe loader without dates and duplicate keys."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in _BaseLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's signature
        if isinstance(node, yaml.MappingNode):
            _object((str(key.value), None) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        return super().construct_mapping(node, deep=deep)


def _check_structure(text: str) -> None:
    """Reject documents that would expand to a huge value, before building one."""
    depth = 0
    for event in yaml.parse(text, Loader=_BaseLoader):
        if isinstance(event, yaml.AliasEvent):
            raise DocumentError("YAML aliases are not accepted")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise DocumentError(f"the document is nested more than {MAX_DEPTH} deep", "too_deep")


def _object(pairs: Iterator[tuple[str, Any]] | list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DocumentError(f"the key {key[:200]!r} occurs twice")
        result[key] = value
    return result


def _no_constant(name: str) -> Any:
    raise DocumentError(f"{name} is not a valid JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise DocumentError(f"{text[:40]} is too large for a number")
    return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
