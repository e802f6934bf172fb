"""Help that costs little more than starting Python, because it builds no command.

What `gymnast` and `gymnast --help` print, and the help of every command as docs/generate.py stored it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.cli.command_list import ABOUT, COMMANDS, PANELS

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULT_WIDTH: Final = 80
_MAX_WIDTH: Final = 100
_OPTIONS: Final = (("-h, --help", "Show this message and exit."), ("-V, --version", "Show the version and exit."))
_EPILOG: Final = (
    "gymnast COMMAND --help explains a command; gymnast completion --help sets up completion in your shell."
)


def root_help() -> str:
    """The help of `gymnast`, as wide as the terminal."""
    return "\n".join(help_lines(_terminal_width()))


def help_lines(width: int) -> Iterator[str]:
    """The help; descriptions are wrapped, never cut."""
    yield "Usage: gymnast COMMAND [OPTIONS] [ARGUMENTS]"
    yield ""
    yield from (f"  {line}" for line in wrap(ABOUT, width - 2))
    column = max(map(len, COMMANDS))
    yield from _section("Options", _OPTIONS, column, width)
    for panel in PANELS:
        rows = tuple((name, command.summary) for name, command in COMMANDS.items() if command.panel == panel)
        yield from _section(panel, rows, column, width)
    yield ""
    yield from wrap(_EPILOG, width)


def _section(title: str, rows: tuple[tuple[str, str], ...], column: int, width: int) -> Iterator[str]:
    yield ""
    yield f"{title}:"
    for name, text in rows:
        first, *rest = wrap(text, width - column - 4)
        yield f"  {name:<{column}}  {first}"
        yield from (f"{'':<{column + 4}}{line}" for line in rest)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, unless a word is longer. `textwrap` would double the cost of the help."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


def _terminal_width() -> int:
    try:
        return min(os.get_terminal_size(1).columns or _DEFAULT_WIDTH, _MAX_WIDTH)
    except OSError:
        return _DEFAULT_WIDTH


HELP_FILE: Final = Path(__file__).with_name("help.json")
_WIDTH: Final = 80
"""The help is wrapped for this width, the widest that typer uses."""


def stored_help(words: list[str]) -> str | None:
    """The help that a command line asks for; None if it asks for something else, or the terminal is too narrow."""
    if words[-1] not in {"-h", "--help"} or _is_narrow():
        return None
    try:
        texts = json.loads(HELP_FILE.read_bytes())
    except (OSError, ValueError):
        return None
    text = texts.get(" ".join(words[:-1]))
    return text if isinstance(text, str) else None


def _is_narrow() -> bool:
    try:
        return 0 < os.get_terminal_size(1).columns < _WIDTH
    except OSError:
        return False
