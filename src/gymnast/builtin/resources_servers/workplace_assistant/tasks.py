"""Requests to the office assistant from a seed, with the calls that fulfil them, in five levels.

python -m gymnast.builtin.resources_servers.workplace_assistant.tasks --count 500 --seed 1 --level 1-5 > tasks.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from gymnast.builtin.graded_tasks import Generator, Row, level_range, rows

from .app import SHIPPED_TABLES, SHIPPED_TIME
from .tables import OfficeData, load_tables, make_office_data
from .task_writing import TaskWriter
from .templates import LEVELS
from .toolbox import declarations

ENVIRONMENT = "workplace_assistant"


def make_generator(office_data: OfficeData) -> Generator:
    """Make a generator of tasks about an office."""
    tools, system = declarations(), _system_text(office_data.now)

    def make(rng: random.Random, level: int) -> Row:
        request = rng.choice(LEVELS[level])(TaskWriter(rng, office_data))
        messages = [{"role": "system", "content": system}, {"role": "user", "content": request.text}]
        calls = [{"name": call.name, "arguments": json.dumps(call.arguments)} for call in request.calls]
        return {
            "responses_create_params": {"input": messages, "tools": tools, "parallel_tool_calls": False},
            "ground_truth": calls,
            "category": request.category,
            "environment_name": ENVIRONMENT,
            "level": level,
        }

    return Generator(ENVIRONMENT, len(LEVELS), make)


def task_rows(office_data: OfficeData, *, count: int, seed: int, levels: Sequence[int]) -> Iterator[Row]:
    """Dataset rows, numbered from 0."""
    for number, row in enumerate(rows(make_generator(office_data), count=count, seed=seed, levels=levels)):
        yield {**row, "id": number}


def _system_text(now: str) -> str:
    day = datetime.fromisoformat(now)
    return (
        f"You are the office assistant of Robin. It is {day:%A}, {now[:16]}. Use the tools to do what you are asked, "
        "all of it and nothing else; look up whatever you need instead of asking back. Names are looked up in the "
        "company directory. Times are written as YYYY-MM-DD HH:MM:SS, dates as YYYY-MM-DD. When you are done, say so "
        "in one sentence."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: prints rows as JSON lines."""
    parser = argparse.ArgumentParser(description="Write tasks of workplace_assistant as dataset rows.")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--level", default=f"1-{len(LEVELS)}", help="one level, or a range such as 2-4")
    parser.add_argument(
        "--data-dir", type=Path, default=SHIPPED_TABLES, help="tables to use (default: the built-in ones)"
    )
    options = parser.parse_args(arguments)
    levels = level_range(options.level, len(LEVELS))
    if not levels:
        parser.error(f"--level {options.level}: expected 1 to {len(LEVELS)}, or a range such as 1-3")
    office_data = make_office_data(load_tables(options.data_dir), SHIPPED_TIME)
    for row in task_rows(office_data, count=options.count, seed=options.seed, levels=levels):
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
