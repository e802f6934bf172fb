"""LiveCodeBench: public and private tests as one list. Private ones are JSON, or a compressed pickle of JSON text."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from typing import TYPE_CHECKING, Any

from gymnast.benchmarks.rows import read_rows as read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.types.json import JsonObject


def read_rows(files: Mapping[str, Path]) -> Iterator[JsonObject]:
    for name, path in files.items():
        for row in read_file(path, name):
            yield _task(row)


def _task(row: JsonObject) -> JsonObject:
    tests = [*json.loads(row["public_test_cases"]), *_private_tests(row["private_test_cases"])]
    function = json.loads(row["metadata"] or "{}").get("func_name")
    starter = row["starter_code"] or ""
    return {
        "question": row["question_content"],
        "format": _format(starter),
        "difficulty": row["difficulty"],
        "platform": row["platform"],
        "contest_date": row["contest_date"],
        "question_id": row["question_id"],
        "verifier_metadata": {
            "unit_tests": {
                "inputs": [test["input"] for test in tests],
                "outputs": [test["output"] for test in tests],
                "fn_name": function,
            },
            "difficulty": row["difficulty"],
        },
    }


def _format(starter: str) -> str:
    if not starter.strip():
        return "Write a Python program that reads the input from standard input and prints the answer."
    return f"Complete this Python code, and keep its names:\n\n```python\n{starter}\n```"


def _private_tests(text: str) -> list[Any]:
    try:
        tests = json.loads(text)
    except ValueError:
        tests = json.loads(_Texts(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load())
    return list(tests)


class _Texts(pickle.Unpickler):
    """Unpickles texts only: a pickle that names a class or function is refused instead of run."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"the private tests are not plain text: they name {module}.{name}")
