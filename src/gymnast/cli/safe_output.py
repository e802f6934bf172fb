"""Standard output and standard error of a terminal, without control sequences from elsewhere.

Names of agents, replies of models and error bodies of servers are printed, and must not reach the terminal as commands
(clipboard, title, cursor, colours). Our own views use `make_safe_console`.
"""

from __future__ import annotations

import re
import sys
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_CONTROL: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)"  # OSC, DCS, SOS, PM, APC: clipboard, title
    r"|\x1b."  # other escapes
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]",
    re.DOTALL,
)


def without_controls(text: str) -> str:
    """The text without control sequences and control characters, except for tabs and line breaks."""
    return text if text.isprintable() else _CONTROL.sub("", text)


def protect_terminal() -> None:
    """Filter what is printed from now on, where it goes to a terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, _SafeStream):
            setattr(sys, name, _SafeStream(stream))


def make_safe_console(*, stderr: bool = False, **options: Any) -> Console:
    """A console whose own control sequences reach the terminal, but none of the texts that it shows."""
    from rich.console import Console

    class SafeConsole(Console):
        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(without_controls(text), **how)

    stream = sys.stderr if stderr else sys.stdout
    return SafeConsole(file=stream.unfiltered if isinstance(stream, _SafeStream) else None, stderr=stderr, **options)


class _SafeStream:
    """A text stream that filters what is written to it."""

    def __init__(self, unfiltered: IO[str]) -> None:
        self.unfiltered = unfiltered

    def write(self, text: str) -> int:
        self.unfiltered.write(without_controls(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)
