"""GPQA: four answers in an order that depends only on the question's record ID."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from gymnast.benchmarks.rows import read_rows as read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.types.json import JsonObject

_ANSWERS: Final = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def read_rows(files: Mapping[str, Path]) -> Iterator[JsonObject]:
    for name, path in files.items():
        for row in read_file(path, name):
            order = shuffle_by_key(_ANSWERS, row["Record ID"])
            yield {
                "question": row["Question"].strip(),
                "options": [{letter: row[answer].strip()} for letter, answer in zip("ABCD", order, strict=True)],
                "expected_answer": "ABCD"[order.index(_ANSWERS[0])],
                "domain": row["High-level domain"],
                "record_id": row["Record ID"],
            }


def shuffle_by_key(names: tuple[str, ...], key: str) -> list[str]:
    """The names in an order that is random over keys, and the same for one key on every machine."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{key}\n{name}".encode()).digest())
