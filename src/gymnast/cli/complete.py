"""Completes a command line for a shell, from a table of all commands. Imports no command: it runs at every Tab."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gymnast.cli import complete_values as values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.cli.complete_values import Candidates

TABLE: Final = Path(__file__).with_name("completion.json")
"""Commands, options and the kinds of their values; docs/generate.py writes it."""


class _Line(NamedTuple):
    """A command line up to the cursor: the command, its entry in the table, the words after it, the current word."""

    name: str
    entry: dict[str, Any]
    rest: list[str]
    current: str


def print_candidates(arguments: list[str]) -> None:
    """Print how to insert the candidates, then one per line: `__complete bash LINE BREAKS` or `… zsh|fish WORD…`.

    What goes wrong here must never disturb the line that is being typed.
    """
    shell, *words = arguments or ["bash"]
    breaks = ""
    if shell == "bash":
        line, breaks = (*words, "", "")[:2]
        words = split_line(line)[1:] or [""]
    try:
        candidates = complete(words or [""])
    except (OSError, ValueError, RecursionError):
        return
    if shell == "bash":
        start = _break_position(words[-1] if words else "", breaks)
        lines = [candidate[start:] for candidate, _ in candidates.rows]
    else:
        lines = [f"{candidate}\t{text}" if text else candidate for candidate, text in candidates.rows]
    sys.stdout.write("\n".join([candidates.mode, *lines]) + "\n")


def complete(words: Sequence[str]) -> Candidates:
    """The candidates for the last word of a command line without the program's name."""
    table = json.loads(TABLE.read_bytes())
    line = _find_command(table, list(words))
    if "commands" in line.entry and not line.rest:
        return values.among(
            {child: table[f"{line.name} {child}".strip()]["about"] for child in line.entry["commands"]}, line.current
        )
    if "options" not in line.entry:
        return values.NOTHING
    return _complete_arguments(line, values.Context.of(words))


def split_line(line: str) -> list[str]:
    """The words of a shell command line; the last is the one being typed, perhaps empty. Quotes may be open."""
    words, current, quote, escaped, started = [], "", "", False, False
    for sign in line:
        if escaped:
            current, escaped = current + sign, False
        elif sign == "\\" and quote != "'":
            escaped = started = True
        elif quote:
            quote, current = ("", current) if sign == quote else (quote, current + sign)
        elif sign in "\"'":
            quote, started = sign, True
        elif sign in " \t":
            if current or started:
                words.append(current)
            current, started = "", False
        else:
            current, started = current + sign, True
    return [*words, current]


def _break_position(word: str, breaks: str) -> int:
    """How much of the word bash regards as complete: it inserts only what follows the last break."""
    return max((word.rfind(sign) + 1 for sign in "=:@" if sign in breaks), default=0)


def _find_command(table: dict[str, Any], words: list[str]) -> _Line:
    name, position = "", 0
    while position < len(words) - 1:
        inner = f"{name} {words[position]}".strip()
        if inner not in table:
            break
        name, position = inner, position + 1
    return _Line(name, table.get(name, {}), words[position:-1], words[-1])


def _complete_arguments(line: _Line, context: values.Context) -> Candidates:
    options: dict[str, list[Any]] = line.entry["options"]
    positionals, pending = 0, None
    literal = False
    for word in line.rest:
        if pending is not None:
            pending = None
        elif literal or not word.startswith("-") or word == "-":
            positionals += 1
        elif word == "--":
            literal = True
        else:
            kind = options.get(word, [None])[0]
            pending = kind if kind is not None and "=" not in word else None
    if pending is not None:
        return values.of_kind(pending, line.current, context)
    option, equals, value = line.current.partition("=")
    if equals and option in options and not literal:
        return values.of_kind(options[option][0] or "value", value, context).add_prefix(f"{option}=")
    if line.current.startswith("-") and not literal:
        long = {name: about for name, (_, about) in options.items() if name.startswith("--") or line.current == name}
        return values.among(long, line.current)
    return _complete_positional(line, positionals, context)


def _complete_positional(line: _Line, position: int, context: values.Context) -> Candidates:
    kinds: list[Any] = line.entry["arguments"]
    if not kinds:
        return values.NOTHING
    kind, repeatable = kinds[min(position, len(kinds) - 1)]
    if position >= len(kinds) and not repeatable:
        return values.NOTHING
    return values.of_kind(kind, line.current, context)
