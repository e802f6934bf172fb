"""Reads log files in one streaming pass with bounded memory: signatures, exceptions and our own messages.

Few lines of a gigabyte of logs matter. Lines that differ only in numbers have the same shape and are classified once;
only shapes that contain a keyword are inspected at all.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import AccessLog, Hit, LogEnd, LogEvent, LogFacts, LoggedUserError, Quote
from gymnast.doctor.findings import quote_ends, quote_line
from gymnast.doctor.line_roles import announces
from gymnast.doctor.log_ends import MAX_TAIL, end_of, has_newline
from gymnast.doctor.log_lines import Level, hints_at_failure, level_of, reports_failure, time_at
from gymnast.doctor.log_markers import (
    ACCESS,
    BOUNDARY,
    COUNT,
    FAILURE_NOTICE,
    JOB_CANCELLED,
    JSON_ACCESS,
    KEYWORDS,
    REQUEUED,
    RESULT,
    SATURATED,
    SETTINGS,
    SHUTDOWN,
    SOURCE,
    STARTED,
    VERIFY_500,
    ZERO_COUNT,
    death_at,
    without_advice,
    without_hedges,
)
from gymnast.doctor.outcomes import OutcomeTracker
from gymnast.doctor.provenance import own_words
from gymnast.doctor.signatures import BROAD, SIGNATURES
from gymnast.doctor.tracebacks import Tracebacks, without_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from gymnast.doctor.facts import LoggedException

BLOCK_BYTES: Final = 1 << 22
_MAX_LINE: Final = 2000
_MAX_CACHED: Final = 20_000
_MAX_USER_ERRORS: Final = 20
_MAX_DEATHS: Final = 50
_MAX_MESSAGE_LINES: Final = 60
_RELEVANT_NUMBERS: Final = (b"137", b"code 75", b"422", b"401", b"-9", b"status=4", b"status=5")
_DIGITS: Final = bytes.maketrans(b"0123456789", b"0000000000")
_COLOR: Final = re.compile(rb"\x1b\[[\d;]*[A-Za-z]")
_ADDRESS: Final = re.compile(rb"0x[0-9a-f]{4,}")
_PATH: Final = re.compile(rb"(?:/[\w.%+-]+){2,}/?")
_MAX_EVENTS: Final = 200
_MAX_JOINED: Final = 4
_CONTEXT: Final = 2
_CONTEXT_CHARS: Final = 140
_FIRST_ERROR: Final = 400
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
SATURATED_ID: Final = "saturated"
BOUNDARY_ID: Final = "boundary"
REQUEUED_ID: Final = "requeued"
JOB_CANCELLED_ID: Final = "whole_job_cancelled"
VERIFY_500_ID: Final = "verify_500"
_SHUTDOWN_ID: Final = "shutdown"
_STARTED_ID: Final = "started"
_SHUTDOWN_MARKS: Final = frozenset({_SHUTDOWN_ID, _STARTED_ID})
_OFTEN_NORMAL: Final = frozenset(name for name, signature in SIGNATURES.items() if signature.min_lines > 1)
_MARKERS: Final = (
    *((STARTED, _STARTED_ID), (SHUTDOWN, _SHUTDOWN_ID), (SATURATED, SATURATED_ID)),
    *((BOUNDARY, BOUNDARY_ID), (REQUEUED, REQUEUED_ID), (JOB_CANCELLED, JOB_CANCELLED_ID)),
    (VERIFY_500, VERIFY_500_ID),
)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a line says: the signatures it matches, and whether it reports a failure."""

    ids: tuple[str, ...]
    level: Level
    is_failure: bool
    is_hint: bool


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
        self._has_records = has_records
        self._irrelevant: set[bytes] = set()
        self._relevant: set[bytes] = set()
        self._readings: dict[tuple[bytes, tuple[bool, ...]], _Reading] = {}
        self._events: dict[bytes, LogEvent] = {}
        self._has_counts: dict[bytes, bool] = {}
        self._outcomes = OutcomeTracker()

    def read(self, name: str, stream: BinaryIO) -> None:
        self.tracebacks.start_file(name, self._facts.lines)
        is_shutting_down = False
        before = 0
        end: LogEnd | None = None
        earlier = b""
        for block in _blocks(stream):
            if not before and any(words in block for words in _MODEL_SERVERS):
                self._facts.model_servers.add(name)
            if any(words in block for words in _TRAINERS):
                self._facts.trainers.add(name)
            self._facts.size_bytes += len(block)
            self._count_requests(name, block, before)
            shapes = block.translate(_DIGITS).split(b"\n")
            relevant = self._select_relevant(set(shapes))
            end = end_of(name, earlier, block, before + len(shapes) - 1) or end
            earlier = block[-MAX_TAIL:]
            if relevant or self.tracebacks.is_open:
                lines = block.split(b"\n")
                self._mark(self.tracebacks.continue_in(lines, before, is_noise=is_shutting_down), before)
                for index, shape in enumerate(shapes):
                    if shape in relevant:
                        reading = self._read_line(shape, lines[index])
                        at = Quote(name, before + index + 1, "")
                        self._inspect(at, lines, index, reading, noise=is_shutting_down)
                        ids = reading.ids
                        is_asked = _SHUTDOWN_ID in ids and reading.level is not Level.ERROR
                        is_shutting_down = (is_shutting_down or is_asked) and _STARTED_ID not in ids
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

    def _count_requests(self, name: str, block: bytes, before: int) -> None:
        """Count the statuses in an access log, and keep the first line of each error."""
        pattern = ACCESS if b"HTTP/" in block or b"TCP_" in block else JSON_ACCESS if b"status" in block else None
        replies = pattern.findall(block) if pattern is not None else []
        if pattern is None or not replies:
            return
        statuses = Counter(replies)
        if not self._facts.access or self._facts.access[-1].file != name:
            self._facts.access.append(AccessLog(name))
        log = self._facts.access[-1]
        log.ok_at_end = _count_ok_at_end(replies, log.ok_at_end)
        for status in statuses:
            if int(status) >= _FIRST_ERROR and int(status) not in log.first:
                match = next(match for match in pattern.finditer(block) if match[1] == status)
                log.before[int(status)] = log.requests + replies.index(status)
                start, end = block.rfind(b"\n", 0, match.start()) + 1, block.find(b"\n", match.end())
                text = quote_line(block[start:end][:_MAX_LINE].decode(errors="replace"))
                log.first[int(status)] = Quote(name, before + block.count(b"\n", 0, start) + 1, text)
        log.statuses.update({int(status): count for status, count in statuses.items()})

    def _select_relevant(self, shapes: set[bytes]) -> set[bytes]:
        """The shapes that contain a keyword. Lines that differ only in numbers have the same shape."""
        known = shapes & self._relevant
        fresh = list(shapes - known - self._irrelevant)
        matching = set(_filter_by_keyword(fresh))
        if self._has_records:
            matching = {shape for shape in matching if FAILURE_NOTICE.match(shape) is None}
        if len(self._relevant) < _MAX_CACHED:
            self._relevant |= matching
        if len(self._irrelevant) < _MAX_CACHED:
            self._irrelevant.update(shape for shape in fresh if shape not in matching and len(shape) <= _MAX_LINE)
        return known | matching

    def _read_line(self, shape: bytes, line: bytes) -> _Reading:
        """What a line says: the same for all lines with its shape and its relevant numbers."""
        short = shape[:_MAX_LINE]
        has_counts = self._has_counts.get(short)
        if has_counts is None:
            has_counts = COUNT.search(short) is not None
            if len(self._has_counts) < _MAX_CACHED:
                self._has_counts[short] = has_counts
        is_zero = has_counts and ZERO_COUNT.search(line[:_MAX_LINE]) is not None
        cache_key = (short, (is_zero, *(number in line for number in _RELEVANT_NUMBERS)))
        known = self._readings.get(cache_key)
        if known is None:
            known = _classify(line[:_MAX_LINE])
            if len(self._readings) < _MAX_CACHED:
                self._readings[cache_key] = known
        return known

    def _inspect(self, at: Quote, lines: list[bytes], index: int, reading: _Reading, *, noise: bool) -> None:
        line, ids = lines[index], reading.ids
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
        is_known = any(name not in _SHUTDOWN_MARKS and name not in _OFTEN_NORMAL for name in ids)
        if b"raceback (most recent" in line:
            return
        if (reading.is_failure or reading.is_hint) and not noise and not is_known:
            self._count_event(at, lines, index, is_certain=reading.is_failure)
        elif reading.level is Level.WARNING and not noise and not ids:
            self._count_event(at, lines, index, is_certain=False, is_warning=True)

    def _count_event(
        self, at: Quote, lines: list[bytes], index: int, *, is_certain: bool, is_warning: bool = False
    ) -> None:
        shape = _ADDRESS.sub(b"0x", lines[index][:_MAX_LINE]).translate(_DIGITS)
        shape = _PATH.sub(b"/", shape) if is_warning else shape
        event = self._events.get(shape)
        if event is not None:
            event.count += 1
            event.last_line = at.line if at.file == event.first.file else event.last_line
        elif len(self._events) < _MAX_EVENTS:
            line = _with_next(lines[index], lines, index)
            text = quote_ends(line[:_MAX_LINE].decode(errors="replace"))
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

    def _count_hits(
        self, reading: _Reading, at: Quote, line: bytes, lines: list[bytes], index: int, *, after_shutdown: bool
    ) -> None:
        is_warning = reading.level is Level.WARNING
        for name in reading.ids:
            if name in {_SHUTDOWN_ID, _STARTED_ID}:
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
            quote = Quote(at.file, at.line, quote_ends(line[:_MAX_LINE].decode(errors="replace")))
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
    has_frames = start + 1 < index and without_prefix(lines[start + 1]).startswith('  File "')
    return start if has_frames and b"raceback (most recent" not in lines[start] else None


def _is_followed_by_next(lines: list[bytes], index: int) -> bool:
    return index + 1 < len(lines) and lines[index + 1].startswith(b"  next:")


def _classify(line: bytes) -> _Reading:
    level = level_of(line)
    markers = tuple(name for marker, name in _MARKERS if marker.search(line))
    line = without_advice(line)
    if not line.strip() or SOURCE.search(line) or (ACCESS.search(line) and level is Level.NONE):
        return _Reading(markers, level, is_failure=False, is_hint=False)
    own = without_hedges(own_words(line.decode(errors="replace")).encode())
    if level is not Level.ERROR and SETTINGS.search(own):
        return _Reading(markers, level, is_failure=False, is_hint=False)
    ids = [name for name, known in SIGNATURES.items() if known.pattern.search(own)]
    if level is Level.INFO:
        ids = [name for name in ids if SIGNATURES[name].at_any_level]
    ids = _innermost(ids, own) if len(ids) > 1 and all(name in BROAD for name in ids) else _heaviest(ids)
    if not ids and level is not Level.ERROR and RESULT.search(own):
        return _Reading(markers, level, is_failure=False, is_hint=False)
    return _Reading((*ids, *markers), level, reports_failure(own), hints_at_failure(own))


def _heaviest(ids: list[str]) -> list[str]:
    heaviest = max((SIGNATURES[name].weight for name in ids), default=0)
    return [name for name in ids if SIGNATURES[name].weight == heaviest]


def _innermost(ids: list[str], line: bytes) -> list[str]:
    """Of classes of faults, the one whose words come last: an error that wraps another names the reason at its end."""
    statement = line.partition(b" while ")[0]
    ends = {name: max((m.end() for m in SIGNATURES[name].pattern.finditer(statement)), default=0) for name in ids}
    return _heaviest([name for name in ids if ends[name] == max(ends.values())])


def _lines_before(lines: list[bytes], index: int) -> str:
    """The line that the program printed just before."""
    before = [line for line in lines[max(0, index - _CONTEXT) : index] if line.strip() and not SOURCE.search(line)]
    return " ⏎ ".join(quote_line(line[:_MAX_LINE].decode(errors="replace"), _CONTEXT_CHARS) for line in before)


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


def _count_ok_at_end(replies: list[bytes], before: int) -> int:
    """The requests since the last one that was answered with an error."""
    since = next((count for count, status in enumerate(reversed(replies)) if int(status) >= _FIRST_ERROR), None)
    return before + len(replies) if since is None else since


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of complete lines without colors, a few megabytes each."""
    return (_COLOR.sub(b"", block) if b"\x1b[" in block else block for block in _raw_blocks(stream))


def _raw_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of complete lines; completes the last line."""
    rest = b""
    chunk = stream.read(BLOCK_BYTES)
    while chunk:
        following = stream.read(BLOCK_BYTES)
        if not following and not chunk.endswith(b"\n"):
            chunk += b"\n"
        end = chunk.rfind(b"\n") + 1
        if end:
            yield rest + chunk[:end]
            rest = chunk[end:]
        else:
            rest = (rest + chunk)[-BLOCK_BYTES:]  # a line of this length is not a log line
        chunk = following


def _filter_by_keyword(shapes: list[bytes]) -> list[bytes]:
    text = b"\n".join(shapes).lower()
    starts: set[int] = set()
    for keyword in KEYWORDS:
        at = text.find(keyword)
        while at >= 0:
            starts.add(text.rfind(b"\n", 0, at) + 1)
            line_end = text.find(b"\n", at)
            at = text.find(keyword, line_end) if line_end >= 0 else -1
    offsets = accumulate((len(shape) + 1 for shape in shapes), initial=0)
    return [shape for shape, offset in zip(shapes, offsets, strict=False) if offset in starts]


LOG_NAME: Final = re.compile(r"\.(?:log|out|err|txt)(?:\.\d+)?$")


_SKIPPED_FOLDERS: Final = frozenset({"node_modules", "site-packages", "__pycache__"})


_OTHER_LOG_NAME: Final = re.compile(
    r"^[^.]+$|(?i:\.(?:stdout|stderr|nohup|journal|kubelet|dmesg|events|trace|logs?[-_.]\S+|[oe]\d+)$"
    r"|^(?:log|stdout|stderr|journal|dmesg|messages|syslog|console)\b)"
)
"""Names that logs have elsewhere: no suffix at all, those of schedulers, journals and redirected output."""
_NOT_LOGS: Final = re.compile(r"(?i)\.(?:jsonl?|ya?ml|toml|py|md|sh|csv|lock|cfg|ini|html|pid|png|svg)$")
_TEXT_BYTES: Final = 4096


def find_logs(folder: Path) -> list[Path]:
    """The log files in a folder, recursively, sorted by name. Skips installed packages."""
    logs: list[Path] = []
    others: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS]
        paths = [path for name in names if not name.startswith(".") and (path := Path(root, name)).is_file()]
        logs += [path for path in paths if LOG_NAME.search(path.name)]
        others += [path for path in paths if not LOG_NAME.search(path.name) and not _NOT_LOGS.search(path.name)]
    named = [path for path in others if _OTHER_LOG_NAME.search(path.name)]
    return sorted((*logs, *(path for path in (named if logs or named else others) if _is_text(path))))


def _is_text(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(_TEXT_BYTES)
    except OSError:
        return False
    return b"\n" in head and b"\0" not in head
