"""HumanEval+ and MBPP+: the function that the tests call, and what of the prompt an answer may leave out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gymnast.benchmarks.rows import read_rows as read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.types.json import JsonObject

_DEFINED: Final = re.compile(r"^def\s+(\w+)", re.MULTILINE)
_BROKEN_CHECK: Final = "_poly(*candidate(*inp), inp)"
_RIGHT_CHECK: Final = "abs(_poly(*inp, candidate(*inp)))"
"""Of HumanEval/32, `find_zero`: the dataset's own raises a TypeError for every program (evalplus issue 253)."""
_IMPORT: Final = re.compile(r"^(?:import|from)\s.+$", re.MULTILINE)


def read_rows(files: Mapping[str, Path]) -> Iterator[JsonObject]:
    for name, path in files.items():
        for row in read_file(path, name):
            yield _human_eval(row) if "entry_point" in row else _mbpp(row)


def _human_eval(row: JsonObject) -> JsonObject:
    return {
        "task_id": row["task_id"],
        "question": f"Complete this Python function:\n\n```python\n{row['prompt'].rstrip()}\n```",
        "entry_point": row["entry_point"],
        "prefix": "\n".join(_IMPORT.findall(row["prompt"])),
        "test": row["test"].replace(_BROKEN_CHECK, _RIGHT_CHECK),
    }


def _mbpp(row: JsonObject) -> JsonObject:
    example = row["test_list"][0]
    called = set(re.findall(r"\w+", example))
    names = [name for name in _DEFINED.findall(row["code"]) if name in called]
    if not names:
        raise ValueError(f"task {row['task_id']}: no function of its code is called in {example!r}")
    return {
        "task_id": str(row["task_id"]),
        "question": f"{row['prompt'].strip()}\n\nThis test must pass:\n\n```python\n{example}\n```",
        "entry_point": names[-1],
        "prefix": "\n".join(row.get("test_imports") or ()),
        "test": row["test"],
    }
