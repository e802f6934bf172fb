"""Checks the instructions of IFBench with the benchmark's own package, `ifbench`. Called in another process.

Loose scoring also accepts an answer without its first line, its last line, both, or its asterisks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any


def check_all(text: str, prompt: str, ids: Sequence[str], kwargs: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """For each instruction, whether the answer follows it by strict and by loose scoring."""
    registry = import_module("ifbench.instructions_registry").INSTRUCTION_DICT
    checks = [_make_check(registry, name, arguments, prompt) for name, arguments in zip(ids, kwargs, strict=True)]
    return {
        "strict": [_follows(check, text) for check in checks],
        "loose": [any(_follows(check, variant) for variant in loose_variants(text)) for check in checks],
    }


def _make_check(registry: Mapping[str, Any], name: str, arguments: Mapping[str, Any] | None, prompt: str) -> Any:
    if name not in registry:
        raise ValueError(f"IFBench has no instruction '{name}'")
    check = registry[name](name)
    check.build_description(
        **{key: _restore_integer(value) for key, value in (arguments or {}).items() if value is not None}
    )
    if "prompt" in (check.get_instruction_args() or {}):
        check.build_description(prompt=prompt)
    return check


def _restore_integer(value: Any) -> Any:
    """A whole number as an integer. In the dataset's Parquet file all numbers are floats, and some are indices."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _follows(check: Any, text: str) -> bool:
    return bool(text.strip()) and bool(check.check_following(text))


def loose_variants(text: str) -> Iterator[str]:
    """The text, and what is left of it without lines that often frame an answer, each also without asterisks."""
    lines = text.split("\n")
    for variant in (text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))):
        yield variant
        yield variant.replace("*", "")
