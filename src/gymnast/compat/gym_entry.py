"""Run a `gym` command line: help, version or a command; exit codes are those of the `ng_` commands."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

from gymnast.compat.gym_parser import VERBOSE, describe_command, is_group, list_commands, search_roots, translate
from gymnast.compat.ng import run_work
from gymnast.compat.ng_version import print_version

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT_OPTIONS: Final = frozenset({*VERBOSE, "--version", "--json"})
"""Options that need no command."""


def run_gym(words: Sequence[str]) -> int:
    """Run a command line. Returns the exit code; without a command it is 1, as NeMo Gym's, and help is printed."""
    command = [word for word in words if word not in ROOT_OPTIONS]
    if "--version" in words and not command:
        print_version(as_json="--json" in words)
        return 0
    if not command or set(command) <= {"--help", "-h"}:
        print("\n".join(list_commands()))
        return 0 if command else 1
    if is_group(command):
        print("\n".join(list_commands(command[0])))
        return 1
    return run_work(lambda: _run(words))


def main() -> None:
    """The commands `gym` and `ng`, which the distribution of the name `nemo_gym` installs."""
    sys.exit(run_gym(sys.argv[1:]))


def _run(words: Sequence[str]) -> int:
    if any(word in {"-h", "--help"} for word in words):
        print("\n".join(describe_command(words)))
        return 0
    command, arguments = translate(words, search_roots)
    if arguments.values.get("verbose"):
        logging.basicConfig(level=logging.DEBUG)
    return command.work(arguments)
