"""The help of every command as docs/generate.py wrote it down: printing it takes a tenth of building the command."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

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
