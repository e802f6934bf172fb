"""Run a `gym` command line: help, version or a command; exit codes are those of the `ng_` commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gymnast import __version__
from gymnast.compat.gym_parser import describe_command, list_commands, translate
from gymnast.compat.ng import run_work
from gymnast.config import read_environ
from gymnast.config.roots import Roots

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_gym(words: Sequence[str]) -> int:
    """Run a command line. Returns the exit code."""
    if not words or words[0] in {"-h", "--help"}:
        print("\n".join(list_commands()))
        return 0
    if words[0] == "--version":
        print(json.dumps({"gymnast": __version__}) if "--json" in words else f"gymnast {__version__}")
        return 0
    return run_work(lambda: _run(words))


def main() -> None:
    """The commands `gym` and `ng`, which the distribution of the name `nemo_gym` installs."""
    sys.exit(run_gym(sys.argv[1:]))


def _run(words: Sequence[str]) -> int:
    if any(word in {"-h", "--help"} for word in words):
        print("\n".join(describe_command(words)))
        return 0
    command, arguments = translate(words, _roots)
    return command.work(arguments)


def _roots(search_dirs: tuple[Path, ...]) -> Roots:
    return Roots((*search_dirs, *read_environ().extra_roots), Path.cwd())
