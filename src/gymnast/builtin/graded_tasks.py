"""Datasets of graded tasks from a seed: rows over a range of levels, and the command that writes them.

Standard library only, so that task generators work where nothing else of Gymnast is installed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Row = dict[str, Any]
_TRIES: Final = 200
_ANSWER: Final = re.compile(r"answer\s*:\s*([^\n]*)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"-?\d+(,\d{3})*", re.ASCII)
_MAX_DIGITS: Final = 100
"""No task has a longer answer, and Python refuses to parse numbers with thousands of digits."""


@dataclass(frozen=True, slots=True)
class Generator:
    """Tasks of one environment, from level 1 (easy) to `levels` (hard)."""

    name: str
    levels: int
    make: Callable[[random.Random, int], Row]
    """Makes a random row of a level."""


def rows(generator: Generator, *, count: int, seed: int, levels: Sequence[int]) -> Iterator[Row]:
    """`count` rows that cycle through the levels; tasks are distinct as far as a level has enough of them.

    A longer dataset starts with the rows of a shorter one.
    """
    seen: set[str] = set()
    for index in range(count):
        level = levels[index % len(levels)]
        yield {"id": f"{generator.name}-{seed}-{index}", **_distinct(generator, f"{seed}/{index}", level, seen)}


def _distinct(generator: Generator, seed: str, level: int, seen: set[str]) -> Row:
    rng = random.Random(f"{generator.name}/{seed}/{level}")  # noqa: S311 - tasks, not secrets
    for _ in range(_TRIES):
        row = generator.make(rng, level)
        text = json.dumps(row)
        if text not in seen:
            seen.add(text)
            break
    return row


def user_row(text: str, tools: Sequence[Row] = (), **fields: Any) -> Row:
    """A dataset row with one user message."""
    params: Row = {"input": [{"role": "user", "content": text}]}
    if tools:
        params["tools"] = list(tools)
    return {"responses_create_params": params, **fields}


def function_tool(name: str, description: str, **arguments: tuple[str, str]) -> Row:
    """The declaration of a tool whose arguments, (type, description), are all required."""
    properties = {argument: {"description": text, "type": kind} for argument, (kind, text) in arguments.items()}
    parameters = {
        "properties": properties,
        "required": list(arguments),
        "type": "object",
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": True}


def last_answer(text: str) -> str | None:
    """The text after the last `Answer:`, without surrounding quotes, full stops and emphasis; None if there is none."""
    answers = _ANSWER.findall(text)
    return answers[-1].strip().strip("*_`'\".$").strip() or None if answers else None


def last_number(text: str) -> int | None:
    """The integer after the last `Answer:`."""
    answer = last_answer(text)
    is_number = answer is not None and len(answer) <= _MAX_DIGITS and _NUMBER.fullmatch(answer)
    return int(answer.replace(",", "")) if answer and is_number else None


def write_tasks(generator: Generator, arguments: Sequence[str] | None = None) -> None:
    """The command `python -m …tasks --count 200 --seed 1 --level 1-5`: rows as JSON lines on standard output."""
    parser = argparse.ArgumentParser(description=f"Write tasks of {generator.name} as dataset rows.")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--level", default=f"1-{generator.levels}", help="one level, or a range such as 2-4")
    options = parser.parse_args(arguments)
    levels = level_range(options.level, generator.levels)
    if not levels:
        parser.error(f"--level {options.level}: expected 1 to {generator.levels}, or a range such as 1-3")
    for row in rows(generator, count=options.count, seed=options.seed, levels=levels):
        sys.stdout.write(json.dumps(row) + "\n")


def level_range(text: str, highest: int) -> list[int]:
    """Parse `3` or `2-4`; empty if it is not a range of levels."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    return list(range(first, last + 1)) if 1 <= first <= last <= highest else []
