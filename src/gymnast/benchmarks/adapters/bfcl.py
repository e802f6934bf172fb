"""BFCL: questions and functions of each category, joined with their possible answers by ID.

Functions become tools: their types are those of JSON Schema, and a dot in a name, which APIs refuse, an underscore.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from gymnast.benchmarks.rows import read_rows as read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.types.json import JsonObject

_TYPES: Final = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
_ANSWERS: Final = "possible_answer"
_WITHOUT_ANSWERS: Final = ("irrelevance", "relevance")


def read_rows(files: Mapping[str, Path]) -> Iterator[JsonObject]:
    answers = {
        row["id"]: row["ground_truth"]
        for name, path in files.items()
        if _ANSWERS in PurePosixPath(name).parts
        for row in read_file(path, name)
    }
    for name, path in files.items():
        if _ANSWERS in PurePosixPath(name).parts:
            continue
        category = re.sub(r"^BFCL_v\d+_", "", PurePosixPath(name).stem)
        for row in read_file(path, name):
            yield make_task(row, category, None if category.endswith(_WITHOUT_ANSWERS) else answers[row["id"]])


def make_task(row: JsonObject, category: str, ground_truth: list[Any] | None) -> JsonObject:
    """A task of the environment `bfcl`."""
    functions = row["function"] if isinstance(row["function"], list) else [row["function"]]
    return {
        "responses_create_params": {"input": row["question"][0], "tools": [_tool(function) for function in functions]},
        "id": row["id"],
        "category": category,
        "functions": functions,
        "ground_truth": ground_truth,
    }


def _tool(function: JsonObject) -> JsonObject:
    return {
        "type": "function",
        "name": function["name"].replace(".", "_"),
        "description": function.get("description", ""),
        "parameters": _schema(function["parameters"]),
        "strict": False,
    }


def _schema(value: Any) -> Any:
    """A parameter's description as JSON Schema. `properties` are names, all other keys belong to the description."""
    if not isinstance(value, dict):
        return value
    schema = {key: part for key, part in value.items() if key not in {"properties", "items", "optional"}}
    if isinstance(kind := value.get("type"), str):
        schema["type"] = _TYPES.get(kind, kind)
    if isinstance(properties := value.get("properties"), dict):
        schema["properties"] = {name: _schema(part) for name, part in properties.items()}
    if "items" in value:
        schema["items"] = _schema(value["items"])
    return schema
