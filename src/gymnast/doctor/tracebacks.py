"""Tracebacks in logs: the exception each ends with, where it was raised, and which of them are only shutdown noise."""

from __future__ import annotations

import re
from typing import Final

from gymnast.doctor.facts import LoggedException, Quote
from gymnast.doctor.findings import quoted

_MOST_KINDS: Final = 200
_MOST_LINES: Final = 400
_PREFIX: Final = re.compile(
    r"^(?:\([^)\n]{1,80}\) ?)*(?:(?:ERROR|WARNING|INFO|CRITICAL):? +(?:\d\d-\d\d [\d:.]+ \[[^\]]+\] ?)?)?"
)
"""What loggers put in front of each line: `(instance) `, `(EngineCore pid=7) ERROR 01-01 10:00:00 [core.py:1] `."""
_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+), in (\S+)')
_END: Final = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*))?$")
_NOISE: Final = frozenset(
    {"CancelledError", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "BrokenPipeError", "ClientDisconnect"}
)


class Tracebacks:
    """Collects what tracebacks end with, alike ones together, in the order of their first appearance."""

    def __init__(self) -> None:
        self._kinds: dict[str, LoggedException] = {}
        self._file = ""
        self._open: tuple[str, int] | None = None
        """The last frame seen, and how many lines may still come, of a traceback that goes on in the next block."""

    def begin(self, file: str) -> None:
        self._file, self._open = file, None

    def found(self) -> list[LoggedException]:
        return list(self._kinds.values())

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def open_at(self, lines: list[bytes], index: int, line_number: int, *, is_noise: bool) -> None:
        """A traceback begins in the line with this index."""
        self._follow(lines, index + 1, line_number + 1, "", _MOST_LINES, is_noise=is_noise)

    def continue_in(self, lines: list[bytes], before: int, *, is_noise: bool) -> None:
        """Go on with one that the last block did not end; `before` lines came before this block."""
        if self._open is not None:
            frame, left = self._open
            self._follow(lines, 0, before + 1, frame, left, is_noise=is_noise)

    def _follow(
        self, lines: list[bytes], start: int, line_number: int, frame: str, left: int, *, is_noise: bool
    ) -> None:
        self._open = None
        for offset in range(left):
            if start + offset >= len(lines) - 1:  # what follows the last newline is no line
                self._open = (frame, left - offset)
                return
            line = _PREFIX.sub("", lines[start + offset].decode(errors="replace").rstrip("\r"), count=1)
            at = _FRAME.match(line)
            if at is not None:
                frame = f"{at[1]}:{at[2]} in {at[3]}"
            elif line and not line[0].isspace() and line[0] not in "|+":
                self._end(line, frame, line_number + offset, is_noise=is_noise)
                return

    def _end(self, line: str, frame: str, line_number: int, *, is_noise: bool) -> None:
        match = _END.match(line)
        if match is None:
            return
        name, message = match[1].rpartition(".")[2], match[2] or ""
        alike = f"{self._file}/{name}/{re.sub(r'[0-9]+', '0', message)[:80]}"
        seen = self._kinds.get(alike)
        if seen is not None:
            seen.count += 1
            seen.is_noise = seen.is_noise and is_noise
        elif len(self._kinds) < _MOST_KINDS:
            quote = Quote(self._file, line_number, quoted(line))
            noise = is_noise or name in _NOISE
            self._kinds[alike] = LoggedException(name, message, quote, frame, is_noise=noise)
