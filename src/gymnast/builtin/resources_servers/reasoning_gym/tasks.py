"""Tasks of every generator of the package reasoning_gym, as dataset rows.

python -m gymnast.builtin.resources_servers.reasoning_gym.tasks --task all --count 5 --seed 1 --level 1-3 > tasks.jsonl
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gymnast.builtin.graded_tasks import Row, level_range
from gymnast.kit import child_environ, suggest

from .scoring import factory, task_names

INSTRUCTION: Final = (
    "Think the problem through. Then give the final answer, and nothing else, between <answer> and </answer>, "
    "in the form that the question asks for."
)
_HIGHEST_LEVEL: Final = 99


class TooSlowError(Exception):
    """A generator takes too long for a task."""


def rows(task: str, *, count: int, seed: int, levels: Sequence[int] = (), timeout_s: int = 30) -> Iterator[Row]:
    """`count` rows of a task that cycle through the levels; without levels, rows with the package's default settings.

    The same seed gives the same rows. Raises TooSlowError if a row takes too long.
    """
    datasets = {level: make_dataset(task, seed, count, level) for level in dict.fromkeys(levels or (None,))}
    for index in range(count):
        level, dataset = datasets[levels[index % len(levels)] if levels else None]
        with _deadline(timeout_s, f"{task}, task {index}"):
            entry = dataset[index]
        yield make_row(entry, level)


def make_dataset(task: str, seed: int, size: int, level: int | None) -> tuple[int | None, Any]:
    """The actual level and the generator: of the requested level, or the next lower one that the package supports.

    Level 1 is the first of the task's curriculum. Generators without a curriculum have a single level, None.
    """
    package = factory()
    if level is not None and package.has_curriculum(task):
        curriculum = package.create_curriculum(task)
        highest = max((len(attribute.levels) for attribute in curriculum.attributes.values()), default=1)
        for tried in range(min(level, highest), 0, -1):
            curriculum.set_global_level(tried - 1)
            with contextlib.suppress(AssertionError, ValueError):  # some curricula end in invalid settings
                return tried, package.DATASETS[task][0](curriculum.generate_configuration({"seed": seed, "size": size}))
    return None, package.create_dataset(task, seed=seed, size=size)


def make_row(entry: Row, level: int | None) -> Row:
    """Convert an entry of the package to a dataset row."""
    messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": entry["question"]}]
    fields = json.loads(json.dumps({name: entry[name] for name in ("question", "answer", "metadata")}, default=str))
    return {"responses_create_params": {"input": messages}, **fields, "level": level}


@contextlib.contextmanager
def _deadline(seconds: int, what: str) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TooSlowError(f"{what}: took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def write_tasks(arguments: Sequence[str] | None = None) -> None:
    """The command: prints rows as JSON lines, and skipped ones to standard error."""
    parser = argparse.ArgumentParser(description="Write tasks of reasoning_gym as dataset rows.")
    parser.add_argument("--task", default="all", help="generator names, separated by commas, or all")
    parser.add_argument("--count", type=int, default=10, help="rows per task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--level", help="a level, or a range such as 1-3 (default: the package's settings)")
    parser.add_argument("--timeout-s", type=int, default=30, help="seconds a row may take")
    options = parser.parse_args(arguments)
    levels = level_range(options.level, _HIGHEST_LEVEL) if options.level else []
    if options.level and not levels:
        parser.error(f"--level {options.level}: expected a level from 1, or a range such as 1-3")
    known = task_names()
    names = known if options.task == "all" else options.task.split(",")
    for name in names:
        if name not in known:
            parser.error(f"--task {name}: unknown generator; {suggest(name, known)}")
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # generators print
        for name in names:
            try:
                for row in rows(
                    name, count=options.count, seed=options.seed, levels=levels, timeout_s=options.timeout_s
                ):
                    out.write(json.dumps(row) + "\n")
            except TooSlowError as error:
                sys.stderr.write(f"skipped the rest of {error}\n")


def _with_fixed_hashes() -> None:
    """Restart with a fixed hash seed: some generators iterate over sets, so that their tasks depend on it."""
    if sys.flags.hash_randomization:
        command = [sys.executable, "-m", "gymnast.builtin.resources_servers.reasoning_gym.tasks", *sys.argv[1:]]
        os.execve(sys.executable, command, child_environ({"PYTHONHASHSEED": "0"}))  # noqa: S606 - ourselves


if __name__ == "__main__":
    _with_fixed_hashes()
    write_tasks()
