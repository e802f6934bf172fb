"""Reads log files in one streaming pass with bounded memory: signatures, exceptions and our own messages.

Few lines of a gigabyte of logs matter. Lines that differ only in numbers have the same shape and are classified once;
only shapes that contain a keyword are inspected at all.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.access_counts import count_requests
from gymnast.doctor.facts import Hit, LogEnd, LogEvent, LogFacts, LoggedUserError, Quote
from gymnast.doctor.findings import quote_ends, quote_line
from gymnast.doctor.line_readings import MAX_LINE, SATURATED_ID, SHUTDOWN_ID, SHUTDOWN_MARKS, STARTED_ID, LineReader
from gymnast.doctor.line_roles import announces
from gymnast.doctor.log_ends import MAX_TAIL, end_of, has_newline
from gymnast.doctor.log_files import read_blocks
from gymnast.doctor.log_lines import Level, level_of, time_at
from gymnast.doctor.log_markers import SOURCE, death_at
from gymnast.doctor.outcomes import OutcomeTracker, template_of
from gymnast.doctor.signatures import BROAD, SIGNATURES
from gymnast.doctor.tracebacks import Tracebacks, is_frame, without_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from gymnast.doctor.facts import LoggedException
    from gymnast.doctor.line_readings import LineReading

_MAX_USER_ERRORS: Final = 20
_MAX_DEATHS: Final = 50
_MAX_MESSAGE_LINES: Final = 60
_DIGITS: Final = bytes.maketrans(b"0123456789", b"0000000000")
_ADDRESS: Final = re.compile(rb"0x[0-9a-f]{4,}")
_PATH: Final = re.compile(rb"(?:/[\w.%+-]+){2,}/?")
_MAX_EVENTS: Final = 200
_MAX_TEMPLATES: Final = 5000
_MAX_JOINED: Final = 4
_CONTEXT: Final = 2
_CONTEXT_CHARS: Final = 140
_MODEL_SERVERS: Final = (
    *(b"vLLM API server", b"(EngineCore", b"ServerArgs(", b"Decode batch", b"[TensorRT-LLM]", b"[TRT-LLM]"),
    *(b"AsyncLLM", b"EngineCore", b"ollama[", b"model_lifecycle.cc"),
    *(b"llama_model_load", b"text_generation_router", b"vllm.entrypoints", b"sglang.launch_server"),
)
"""What only the logs of model servers contain."""
_TRAINERS: Final = (
    *(b"'loss':", b"grad_norm", b"train_loss", b"TrainingArguments", b".backward(", b"optimizer.step", b"deepspeed"),
    *(b"trainer.py", b"TRL_SFT", b"tensorflow/core", b"torch.distributed.run", b"Trainer("),
)
"""What the logs of training programs contain."""
_SHARED: Final = BROAD | {name for name, signature in SIGNATURES.items() if signature.min_lines > 1}
"""Signatures that different messages have in common: each of these is kept on its own as well."""


def read_logs(paths: Iterable[Path], *, has_records: bool = False) -> LogFacts:
    """Read these files. An unreadable file is listed and skipped.

    `has_records`: the run's failure records are known, so that the collector's lines about them are not evidence of
    their own. Only a record has its kind checked against what else happened, e.g. to the process that was called.
    """
    facts = LogFacts()
    reader = _Reader(facts, has_records=has_records)
    for path in paths:
        try:
            with path.open("rb", buffering=0) as stream:
                reader.read(str(path), stream)
        except OSError as error:
            facts.unreadable.append(f"{path}: {error.strerror or error}")
            continue
        facts.files.append(str(path))
    facts.exceptions = reader.tracebacks.exceptions()
    return facts


class _Reader:
    """Reads files one after the other."""

    def __init__(self, facts: LogFacts, *, has_records: bool = False) -> None:
        self.tracebacks = Tracebacks()
        self._facts = facts
        self._lines = LineReader(has_records=has_records)
        self._events: dict[bytes, LogEvent] = {}
        self._outcomes = OutcomeTracker()
        self._templates: dict[bytes, bytes] = {}

    def read(self, name: str, stream: BinaryIO) -> None:
        self.tracebacks.start_file(name, self._facts.lines)
        is_shutting_down = False
        before = 0
        end: LogEnd | None = None
        earlier = b""
        for block in read_blocks(stream):
            if not before and any(words in block for words in _MODEL_SERVERS):
                self._facts.model_servers.add(name)
            if any(words in block for words in _TRAINERS):
                self._facts.trainers.add(name)
            self._facts.size_bytes += len(block)
            count_requests(self._facts, name, block, before)
            shapes = block.translate(_DIGITS).split(b"\n")
            relevant = self._lines.select_relevant(set(shapes))
            end = end_of(name, earlier, block, before + len(shapes) - 1) or end
            earlier = block[-MAX_TAIL:]
            if relevant or self.tracebacks.is_open:
                lines = block.split(b"\n")
                self._mark(self.tracebacks.continue_in(lines, before, is_noise=is_shutting_down), before)
                for index, shape in enumerate(shapes):
                    if shape in relevant:
                        reading = self._lines.read(shape, lines[index])
                        at = Quote(name, before + index + 1, "")
                        self._inspect(at, lines, index, reading, noise=is_shutting_down)
                        ids = reading.ids
                        is_asked = SHUTDOWN_ID in ids and reading.level is not Level.ERROR
                        is_shutting_down = (is_shutting_down or is_asked) and STARTED_ID not in ids
                self._outcomes.finish_block(lines)
            elif self._outcomes.is_open:
                self._outcomes.finish_block(block.split(b"\n"))
            before += len(shapes) - 1
        self._outcomes.finish_file()
        self._facts.lines += before
        end = end or LogEnd(None, is_normal=False)
        end = replace(end, is_normal=end.is_normal or is_shutting_down, is_cut=end.is_cut and not has_newline(stream))
        self._facts.ends.append(end)

    def _mark(self, exception: LoggedException | None, before: int) -> None:
        if exception is not None:
            self._outcomes.mark(exception, exception.last_line - before - 1)

    def _inspect(self, at: Quote, lines: list[bytes], index: int, reading: LineReading, *, noise: bool) -> None:
        line, ids = lines[index], reading.ids
        if index and is_frame(lines[index - 1]) and without_prefix(line)[:1].isspace():
            return  # the code of a frame
        if b"raceback (most recent" in line or b"RayTaskError(" in line or line.startswith(b"ray::"):
            self._mark(self.tracebacks.open_at(lines, index, at.line, is_noise=noise), at.line - index - 1)
        elif reading.is_failure and (start := _headless_traceback(lines, index)) is not None:
            first = at.line - (index - start)
            self._mark(self.tracebacks.open_at(lines, start, first, is_noise=noise), at.line - index - 1)
        elif line.startswith(b"  next:") or (line.startswith(b"  where:") and not _is_followed_by_next(lines, index)):
            self._add_user_error(at, lines, index)
        elif not noise and len(self._facts.deaths) < _MAX_DEATHS and (death := death_at(at, lines, index)):
            self._facts.deaths.append(death)
        if SATURATED_ID in ids and b"Waiting: 0 " in line:
            return
        self._facts.failure_lines += reading.is_failure and not noise
        text = _with_next(line, lines, index) if ids else line
        self._count_hits(reading, at, text, lines, index, after_shutdown=noise)
        is_known = any(name not in SHUTDOWN_MARKS and name not in _SHARED for name in ids)
        if b"raceback (most recent" in line:
            return
        if (reading.is_failure or reading.is_hint) and not noise and not is_known:
            self._count_event(at, lines, index, is_certain=reading.is_failure)
        elif reading.level is Level.WARNING and not noise and not ids:
            self._count_event(at, lines, index, is_certain=False, is_warning=True)

    def _count_event(
        self, at: Quote, lines: list[bytes], index: int, *, is_certain: bool, is_warning: bool = False
    ) -> None:
        shape = self._template(lines[index], is_warning=is_warning)
        event = self._events.get(shape)
        if event is not None:
            event.count += 1
            event.last_line = at.line if at.file == event.first.file else event.last_line
        elif len(self._events) < _MAX_EVENTS:
            line = _with_next(lines[index], lines, index)
            text = quote_ends(line[:MAX_LINE].decode(errors="replace"))
            position = self._facts.lines + at.line
            event = LogEvent(
                Quote(at.file, at.line, text),
                is_certain,
                position,
                time_at(lines, index),
                is_warning=is_warning,
                last_line=at.line,
                before=_lines_before(lines, index),
                is_announcement=index + 1 < len(lines) and b"raceback (most recent" in lines[index + 1],
            )
            self._events[shape] = event
            self._facts.events.append(event)
        if event is not None:
            self._outcomes.mark(event, index)

    def _template(self, line: bytes, *, is_warning: bool) -> bytes:
        shape = line[:MAX_LINE].translate(_DIGITS)
        known = self._templates.get(shape)
        if known is None:
            known = template_of(_ADDRESS.sub(b"0x0", shape))
            if len(self._templates) < _MAX_TEMPLATES:
                self._templates[shape] = known
        return _PATH.sub(b"/", known) if is_warning else known

    def _count_hits(
        self, reading: LineReading, at: Quote, line: bytes, lines: list[bytes], index: int, *, after_shutdown: bool
    ) -> None:
        is_warning = reading.level is Level.WARNING
        for name in reading.ids:
            if name in {SHUTDOWN_ID, STARTED_ID}:
                continue
            hit = self._facts.hits.get(name)
            if hit is not None and (
                (hit.is_warning and not is_warning) or (hit.is_after_shutdown and not after_shutdown)
            ):
                count, hit = hit.count, None  # a stronger line: it is the first that counts
            else:
                count = 0
            if hit is not None:
                hit.count += 1
                self._outcomes.mark(hit, index)
                if hit.count > 3:
                    hit.last = Quote(at.file, at.line, hit.last.text)
                    continue
            quote = Quote(at.file, at.line, quote_ends(line[:MAX_LINE].decode(errors="replace")))
            if hit is None:
                position = self._facts.lines + at.line
                self._facts.hits[name] = Hit(
                    count + 1,
                    quote,
                    quote,
                    after_shutdown,
                    is_warning,
                    position,
                    time_at(lines, index),
                    _lines_before(lines, index),
                )
                self._outcomes.mark(self._facts.hits[name], index)
            else:
                hit.last = quote

    def _add_user_error(self, at: Quote, lines: list[bytes], index: int) -> None:
        """Parse one of our messages: what, `  where:`, `  next:`. The given line is its last one."""
        if len(self._facts.user_errors) >= _MAX_USER_ERRORS:
            return
        last = lines[index].decode(errors="replace").strip()
        where, first = last.removeprefix("where:").strip() if last.startswith("where:") else "", index
        what: list[str] = []
        while first > max(0, index - _MAX_MESSAGE_LINES):
            first -= 1
            text = lines[first].decode(errors="replace")
            if text.startswith("  where:"):
                where = text.removeprefix("  where:").strip()
            else:
                what.insert(0, text.strip())
            if not text.startswith(" "):
                break
        next_text = last.removeprefix("next:").strip() if last.startswith("next:") else ""
        quote = Quote(at.file, at.line - (index - first), quote_line(" ".join(what), 600))
        self._facts.user_errors.append(LoggedUserError(quote, where, next_text))


def _headless_traceback(lines: list[bytes], index: int) -> int | None:
    """The line before the frames that end in this line, if no line announces them as a traceback."""
    start = index - 1
    while start >= max(0, index - _MAX_MESSAGE_LINES) and without_prefix(lines[start]).startswith(('  File "', "    ")):
        start -= 1
    has_frames = any(without_prefix(line).startswith('  File "') for line in lines[start + 1 : index])
    is_announced = start >= 0 and b"raceback (most recent" in lines[start]
    return start if has_frames and not is_announced else None


def _is_followed_by_next(lines: list[bytes], index: int) -> bool:
    return index + 1 < len(lines) and lines[index + 1].startswith(b"  next:")


def _lines_before(lines: list[bytes], index: int) -> str:
    """The line that the program printed just before."""
    before = [line for line in lines[max(0, index - _CONTEXT) : index] if line.strip() and not SOURCE.search(line)]
    return " ⏎ ".join(quote_line(line[:MAX_LINE].decode(errors="replace"), _CONTEXT_CHARS) for line in before)


def _with_next(line: bytes, lines: list[bytes], index: int) -> bytes:
    """A line with the next ones, if it only announces the message."""
    if not announces(line):
        return line
    rest = lines[index + 1 : index + 1 + _MAX_JOINED]
    return b" ".join((line.rstrip(), *(further.strip() for further in _same_message(rest))))


def _same_message(lines: list[bytes]) -> Iterator[bytes]:
    """The lines until the next record or traceback."""
    started = False
    for line in lines:
        if not line.strip():
            if started:
                return
            continue
        if level_of(line) is not Level.NONE or line.startswith((b"Traceback", b'  File "')):
            if not started and not line.startswith((b"Traceback", b'  File "')):
                yield line
            return
        started = True
        yield line
        if b"what():" in line:
            return
