"""Benchmarks for tests: a definition that guesses numbers, and rows of our own in the exact shapes of real datasets."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Final

GUESSING: Final = "tests.helpers.guessing_policy:answer"
DEFINITION: Final[dict[str, Any]] = {
    "description": "guesses",
    "data": {"path": "rows.jsonl"},
    "environment": "arithmetic",
    "fields": {
        "expected_answer": {"json": "{{ truth }}"},
        "kind": {"from": "kind"},
        "question": "{{ q }}",
    },
    "prompt": {"user": "{question} End with 'Answer: ' and the number."},
    "metrics": {"answer": "extracted_answer", "subset": "kind"},
    "protocol": {"num_repeats": 2, "temperature": 0.5, "source": "https://example.org/paper"},
}


def write_benchmark(folder: Path, name: str = "guess", **changes: Any) -> Path:
    """A benchmark's file; None removes a key."""
    definition = {key: value for key, value in {**copy.deepcopy(DEFINITION), **changes}.items() if value is not None}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(definition))  # JSON is YAML
    return path


def guess_rows(count: int, guesses: str = "3 4") -> list[dict[str, Any]]:
    """Rows whose right answer is 3."""
    return [{"q": f"Number {n}? [{guesses}]", "truth": 3, "kind": "ab"[n % 2]} for n in range(count)]


def aime_rows() -> list[dict[str, Any]]:
    """Thirty rows of our own in the shape of AIME's dataset."""
    return [
        {"ID": f"2024-{exam}-{n}", "Problem": f"What is ${n}+{n}$?", "Solution": "Add.", "Answer": 2 * n}
        for exam in ("I", "II")
        for n in range(1, 16)
    ]


def gsm8k_rows(count: int = 1319) -> list[dict[str, Any]]:
    """Rows of our own in the shape of GSM8K's dataset."""
    return [
        {"question": f"Ann has {n} pens and buys 1,000 more. How many?", "answer": f"{n}+1000\n#### {n + 1000:,}"}
        for n in range(count)
    ]
