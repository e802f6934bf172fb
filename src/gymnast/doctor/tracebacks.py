"""Parses tracebacks in logs: the exception, where it was raised, and whether it is only shutdown noise."""

from __future__ import annotations

import re
from typing import Final

from gymnast.doctor.facts import LoggedException, Quote
from gymnast.doctor.findings import quote_line

_MAX_KINDS: Final = 200
_MAX_LINES: Final = 400
_PREFIX: Final = re.compile(
    r"^(?:\([^)\n]{1,80}\) ?)*(?:(?:ERROR|WARNING|INFO|CRITICAL):? +(?:\d\d-\d\d [\d:.]+ \[[^\]]+\] ?)?)?"
)
"""The prefixes that loggers add to each line: `(instance) `, `(EngineCore pid=7) ERROR 01-01 10:00:00 [core.py:1] `."""
_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+), in (\S+)')
_END: Final = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*))?$")
_NOISE: Final = frozenset(
    {"CancelledError", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "BrokenPipeError", "ClientDisconnect"}
)


class Tracebacks:
    """Collects the exceptions of tracebacks, grouped, in order of first appearance."""

    def __init__(self) -> None:
        self._kinds: dict[str, LoggedException] = {}
        self._file = ""
        self._open: tuple[str, int] | None = None
        """For a traceback that continues in the next block: its last frame and how many lines it may still have."""

    def start_file(self, file: str) -> None:
        self._file, self._open = file, None

    def exceptions(self) -> list[LoggedException]:
        return list(self._kinds.values())

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def open_at(self, lines: list[bytes], index: int, line_number: int, *, is_noise: bool) -> None:
        """Parse the traceback that starts in the line with this index."""
        self._parse(lines, index + 1, line_number + 1, "", _MAX_LINES, is_noise=is_noise)

    def continue_in(self, lines: list[bytes], before: int, *, is_noise: bool) -> None:
        """Continue a traceback of the last block. `before`: the number of lines before this block."""
        if self._open is not None:
            frame, remaining = self._open
            self._parse(lines, 0, before + 1, frame, remaining, is_noise=is_noise)

    def _parse(
        self, lines: list[bytes], start: int, line_number: int, frame: str, remaining: int, *, is_noise: bool
    ) -> None:
        self._open = None
        for offset in range(remaining):
            if start + offset >= len(lines) - 1:  # the text after the last newline is not a line
                self._open = (frame, remaining - offset)
                return
            line = _PREFIX.sub("", lines[start + offset].decode(errors="replace").rstrip("\r"), count=1)
            at = _FRAME.match(line)
            if at is not None:
                frame = f"{at[1]}:{at[2]} in {at[3]}"
            elif line and not line[0].isspace() and line[0] not in "|+":
                self._add(line, frame, line_number + offset, is_noise=is_noise)
                return

    def _add(self, line: str, frame: str, line_number: int, *, is_noise: bool) -> None:
        match = _END.match(line)
        if match is None:
            return
        name, message = match[1].rpartition(".")[2], match[2] or ""
        group = f"{self._file}/{name}/{re.sub(r'[0-9]+', '0', message)[:80]}"
        known = self._kinds.get(group)
        if known is not None:
            known.count += 1
            known.is_noise = known.is_noise and is_noise
        elif len(self._kinds) < _MAX_KINDS:
            quote = Quote(self._file, line_number, quote_line(line))
            noise = is_noise or name in _NOISE
            self._kinds[group] = LoggedException(name, message, quote, frame, is_noise=noise)
