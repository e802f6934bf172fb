"""Parses tracebacks in logs: the exception, where it was raised, and whether it is only shutdown noise."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from gymnast.doctor.facts import LoggedException, Quote
from gymnast.doctor.findings import quote_line
from gymnast.doctor.line_roles import announces
from gymnast.doctor.log_lines import Level, level_of, time_at

_MAX_KINDS: Final = 200
_MAX_LINES: Final = 400
_PREFIX: Final = re.compile(
    r"^(?:\s+\| )?(?:\w{3} +\d+ [\d:]{8} \S+ \S+\[\d+\]: )?(?:\[rank\d+\]: ?)?(?:\([^)\n]{1,80}\) ?)*"
    r"(?:(?:ERROR|WARNING|INFO|CRITICAL):? +(?:\d\d-\d\d [\d:.]+ (?:\[[^\]]+\]|[\w./-]+:\d+\]) ?)?)?"
)
"""The prefixes that loggers add to each line: `(instance) `, `(EngineCore pid=7) ERROR 01-01 10:00:00 [core.py:1] `."""
_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+), in (\S+)')
_END: Final = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*))?$")
_INSTALLED: Final = re.compile(r"/(?:site-packages|dist-packages|lib/python3[^/]*|lib64/python3[^/]*)/|^<frozen ")
_PACKAGE: Final = re.compile(r"/(?:site|dist)-packages/(\w+)")
_NOISE: Final = frozenset(
    {"CancelledError", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "BrokenPipeError", "ClientDisconnect"}
)
_GROUPS: Final = frozenset({"ExceptionGroup", "BaseExceptionGroup"})
"""Exceptions that only hold others, whose tracebacks follow."""
_CHAIN_MARKS: Final = (b"direct cause of the following", b"During handling of the above")
_MARK_LINES: Final = 3
_MAX_DETAILS: Final = 10
_DETAIL_CHARS: Final = 300
_OTHER_MESSAGE: Final = re.compile(
    r"^\s*(?:Traceback \(most|File \"|During handling|The above exception|[\[(]?\w+ ?pid=)|\d+%\|"
)
"""What cannot be the next line of an exception's message."""


@dataclass(frozen=True, slots=True)
class _Frames:
    """The innermost frames of a traceback so far."""

    last: str = ""
    last_own: str = ""
    """Outside installed packages."""
    source: str = ""
    """The code of the innermost frame."""
    is_of_program: bool = False
    """The outermost frame is a program's first level."""
    packages: tuple[str, ...] = ()

    def enter(self, file: str, frame: str) -> _Frames:
        path = file.replace("\\", "/")
        if not _INSTALLED.search(path):
            return _Frames(frame, frame, packages=self.packages, is_of_program=self.is_of_program)
        package = _PACKAGE.search(path)
        names = (package[1],) if package is not None and package[1] not in self.packages else ()
        return _Frames(frame, self.last_own, packages=(*self.packages, *names), is_of_program=self.is_of_program)


class Tracebacks:
    """Collects the exceptions of tracebacks, grouped, in order of first appearance."""

    def __init__(self) -> None:
        self._kinds: dict[str, LoggedException] = {}
        self._file = ""
        self._open: tuple[_Frames, int] | None = None
        """For a traceback that continues in the next block: its frames and how many lines it may still have."""
        self._lines_before = 0
        self._inner = 0
        """The line of the exception that the open traceback wraps."""
        self._last = 0

    def start_file(self, file: str, lines_before: int = 0) -> None:
        """Start a file. `lines_before`: the number of lines in the files before it."""
        self._file, self._open, self._lines_before = file, None, lines_before
        self._inner = self._last = 0

    def exceptions(self) -> list[LoggedException]:
        return list(self._kinds.values())

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def open_at(self, lines: list[bytes], index: int, line_number: int, *, is_noise: bool) -> LoggedException | None:
        """Parse the traceback that starts in the line with this index. Returns its exception if it ends here."""
        self._inner = self._last if _is_chained(lines, index) else 0
        return self._parse(lines, index + 1, line_number + 1, _Frames(), _MAX_LINES, is_noise=is_noise)

    def continue_in(self, lines: list[bytes], before: int, *, is_noise: bool) -> LoggedException | None:
        """Continue a traceback of the last block. `before`: the number of lines before this block."""
        if self._open is None:
            return None
        frames, remaining = self._open
        return self._parse(lines, 0, before + 1, frames, remaining, is_noise=is_noise)

    def _parse(
        self, lines: list[bytes], start: int, line_number: int, frames: _Frames, remaining: int, *, is_noise: bool
    ) -> LoggedException | None:
        self._open = None
        for offset in range(remaining):
            if start + offset >= len(lines) - 1:  # the text after the last newline is not a line
                self._open = (frames, remaining - offset)
                return None
            line = without_prefix(lines[start + offset])
            at = _FRAME.match(line)
            if at is not None:
                is_bare = line == lines[start + offset].decode(errors="replace").rstrip("\r")
                is_of_program = frames.is_of_program if frames.last else is_bare and at[3] == "<module>"
                frames = replace(frames.enter(at[1], f"{at[1]}:{at[2]} in {at[3]}"), is_of_program=is_of_program)
            elif line and not line[0].isspace() and line[0] not in "|+":
                at_index = start + offset
                if announces(line.encode()):
                    line = " ".join((line, *(without_prefix(more) for more in lines[at_index + 1 : at_index + 3])))
                error = self._add(line, frames, line_number + offset, time_at(lines, at_index), is_noise=is_noise)
                if error is not None and error.count == 1:
                    error.details = _details_after(lines, at_index)
                    error.ends_program = frames.is_of_program
                    error.is_logged_low = level_of(lines[at_index]) in {Level.INFO, Level.WARNING}
                return error
            elif frames.last and not frames.source and line.strip(" ^~"):
                frames = replace(frames, source=line.strip())
        return None

    def _add(
        self, line: str, frames: _Frames, line_number: int, at: float | None, *, is_noise: bool
    ) -> LoggedException | None:
        match = _END.match(line)
        if match is None:
            return None
        name, message = match[1].rpartition(".")[2], match[2] or ""
        self._last = line_number
        group = f"{self._file}/{name}/{re.sub(r'[0-9]+', '0', message)[:80]}"
        known = self._kinds.get(group)
        if known is not None:
            known.count += 1
            known.is_noise = known.is_noise and (is_noise or name in _GROUPS)
            known.last_line = line_number
        elif len(self._kinds) < _MAX_KINDS:
            quote = Quote(self._file, line_number, quote_line(line))
            noise = is_noise or name in _NOISE or (name in _GROUPS and "sub-exception" in message)
            known = self._kinds[group] = LoggedException(
                name,
                message,
                quote,
                frames.last,
                is_noise=noise,
                own_frame=frames.last_own,
                position=self._lines_before + line_number,
                at=at,
                source=frames.source,
                last_line=line_number,
                packages=frames.packages,
                inner_line=self._inner,
            )
        return known


def _details_after(lines: list[bytes], index: int) -> tuple[str, ...]:
    """The lines of a message that follow its first one, until a blank line or another record."""
    details: list[str] = []
    for line in lines[index + 1 : index + 1 + _MAX_DETAILS]:
        text = without_prefix(line).strip()
        if not text or level_of(line) is not Level.NONE or _OTHER_MESSAGE.search(text):
            break
        details.append(text[:_DETAIL_CHARS])
    return tuple(details)


def is_frame(line: bytes) -> bool:
    """True for a line of a traceback that names a place in code."""
    return b'File "' in line and b'", line ' in line


def _is_chained(lines: list[bytes], index: int) -> bool:
    """True if the traceback in this line belongs to an exception that was raised because of the one before it."""
    return any(mark in line for line in lines[max(0, index - _MARK_LINES) : max(0, index)] for mark in _CHAIN_MARKS)


def without_prefix(line: bytes) -> str:
    """A line of a traceback without what its logger writes before it."""
    return _PREFIX.sub("", line.decode(errors="replace").rstrip("\r"), count=1)
