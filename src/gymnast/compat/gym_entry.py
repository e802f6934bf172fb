"""Running a `gym` command line: help, version, or the work that it asks for; exit codes are those of `ng_` commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gymnast import __version__
from gymnast.compat.gym_words import explained, overview, translate
from gymnast.compat.ng import ended
from gymnast.config import read_environ
from gymnast.config.roots import Roots

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_gym(words: Sequence[str]) -> int:
    """Run it. Returns the exit code."""
    if not words or words[0] in {"-h", "--help"}:
        print("\n".join(overview()))
        return 0
    if words[0] == "--version":
        print(f"gymnast {__version__}")
        return 0
    return ended(lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    if any(word in {"-h", "--help"} for word in words):
        print("\n".join(explained(words)))
        return 0
    command, asked = translate(words, _roots)
    return command.work(asked)


def _roots(search_dirs: tuple[Path, ...]) -> Roots:
    return Roots((*search_dirs, *read_environ().extra_roots), Path.cwd())
