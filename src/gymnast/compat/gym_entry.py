"""Run a `gym` command line: help, version or a command; exit codes are those of the `ng_` commands."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.compat.gym_parser import (
    PROGRAM,
    VERBOSE,
    describe_command,
    is_group,
    list_commands,
    search_roots,
    translate,
)
from gymnast.compat.ng import run_work
from gymnast.compat.ng_version import print_version

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT_OPTIONS: Final = frozenset({*VERBOSE, "--version", "--json"})
"""Options that need no command."""


def run_gym(words: Sequence[str], program: str = PROGRAM) -> int:
    """Run a command line. Returns the exit code; without a command it is 1, as NeMo Gym's, and help is printed.

    `program` is what help shows before a command.
    """
    command = [word for word in words if word not in ROOT_OPTIONS]
    if "--version" in words and not command:
        print_version(as_json="--json" in words)
        return 0
    if not command or set(command) <= {"--help", "-h"}:
        print("\n".join(list_commands(program=program)))
        return 0 if command else 1
    if is_group(command):
        print("\n".join(list_commands(command[0], program)))
        return 1
    return run_work(lambda: _run(words, program))


def main() -> None:
    """The commands `gym` and `ng`, which the distribution of the name `nemo_gym` installs."""
    sys.exit(run_gym(sys.argv[1:], Path(sys.argv[0]).stem))


def _run(words: Sequence[str], program: str) -> int:
    if any(word in {"-h", "--help"} for word in words):
        print("\n".join(describe_command(words, program)))
        return 0
    command, arguments = translate(words, search_roots, program)
    if arguments.values.get("verbose"):
        logging.basicConfig(level=logging.DEBUG)
    return command.work(arguments)
