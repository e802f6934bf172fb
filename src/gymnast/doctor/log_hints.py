"""Lines that count because nothing says more: words of failure without a level, and warnings before a failure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gymnast.doctor.failure_lines import BROADEST, is_followed, line_of_text
from gymnast.doctor.line_roles import Role, message_of
from gymnast.doctor.log_lines import speaks_of_failure
from gymnast.doctor.standing import ends_by_nature
from gymnast.doctor.system_errors import EVEN_WARNINGS, HARD, classify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.doctor.facts import LogEvent, LogFacts
    from gymnast.doctor.failure_lines import FailureLine

_STORM: Final = 20
_MANY_SENTENCES: Final = 25
_WIDE: Final = 1000
"""Lines over which sentences with words of failure are spread in a log that records what a model said."""
_MANY: Final = 10
_NEAR: Final = 60
"""Lines between a hint or a warning and the failure that it explains."""
_SOON: Final = 20


def find_hints(logs: LogFacts, failures: list[FailureLine]) -> Iterator[FailureLine]:
    """Lines that count because nothing says more: words of failure without a level, and warnings before a failure."""
    best = min((failure.role for failure in failures), default=None)
    transcripts = set(_find_transcripts(logs))
    for event in logs.events:
        if event.is_certain or (event.first.file in transcripts and not event.is_warning):
            continue
        line = line_of_text(event.first, "words of failure", event.position, event.at, count=event.count)
        if event.is_warning:
            counts = _is_storm(event, logs) if best is None else _explains(line, best, failures)
        elif best is None:
            counts = ends_by_nature(event) or not (
                _ends_well(event, logs) or _goes_on(event, logs) or _is_passed_over(line, event, logs)
            )
        else:
            counts = best > Role.CAUSE and line.role is Role.CAUSE
            counts = counts or any(0 < other.position - line.position <= 5 for other in failures)
        if counts and (best is None or _is_near(line, failures)):
            yield line


def _find_transcripts(logs: LogFacts) -> Iterator[str]:
    """The logs in which many different lines without a level, far apart, have words of failure: they quote texts."""
    lines: dict[str, list[int]] = {}
    for event in logs.events:
        if not event.is_certain and not event.is_warning:
            lines.setdefault(event.first.file, []).append(event.first.line)
    for file, numbers in lines.items():
        if len(numbers) >= _MANY_SENTENCES and max(numbers) - min(numbers) >= _WIDE:
            yield file


def _ends_well(event: LogEvent, logs: LogFacts) -> bool:
    """True if a log says at its end that the work is done: words of failure in it were not the last word."""
    ends = [end.last.text for end in logs.ends if end.last is not None and end.last.file == event.first.file]
    return any(_SUCCESS.search(text) and text != event.first.text for text in ends)


def _is_passed_over(line: FailureLine, event: LogEvent, logs: LogFacts) -> bool:
    """True for words of failure that say themselves that they are ignored, or that a start or a result follows."""
    if _IGNORED.search(line.message):
        return True
    ends = [end.last for end in logs.ends if end.last is not None and end.last.file == event.first.file]
    is_soft = (line.failure_class or "bad_setting") in BROADEST
    return is_soft and any(last.line > event.last_line and _STARTING.search(message_of(last.text)) for last in ends)


_IGNORED: Final = re.compile(
    r"(?i)\b(?:ignored|ignoring|harmless|not fatal|non-fatal|can be ignored"
    r"|using (?:the )?(?:best|last|previous|default))\b"
)
_STARTING: Final = re.compile(r"(?i)\b(?:start(?:ing|ed)|listening|ready|running|loaded|enabled|connected)\b")


def _goes_on(event: LogEvent, logs: LogFacts) -> bool:
    """True if a log goes on for a while and ends in normal operation: what has only words of failure ended nothing."""
    ends = [end for end in logs.ends if end.last is not None and end.last.file == event.first.file]
    return any(end.is_normal and end.last is not None and end.last.line - event.last_line >= _SOON for end in ends)


_SUCCESS: Final = re.compile(
    r"(?i)\b(?:done|completed?|finished|success\w*|all passed|saved|summari[sz]ed)\b(?!.{0,20}\b0 )"
)


def _explains(line: FailureLine, best: Role, failures: list[FailureLine]) -> bool:
    """True for a warning that says why something failed afterwards."""
    return (
        line.failure_class in HARD
        if best > Role.CAUSE
        else line.failure_class in EVEN_WARNINGS and is_followed(line, failures)
    )


def _is_near(line: FailureLine, failures: list[FailureLine]) -> bool:
    return any(
        other.quote.file == line.quote.file and abs(other.quote.line - line.quote.line) <= _NEAR for other in failures
    )


def _is_storm(event: LogEvent, logs: LogFacts) -> bool:
    """True for a warning that repeats until the end of its log, or that is the end and speaks of a failure."""
    ends = [end for end in logs.ends if end.last is not None and end.last.file == event.first.file]
    if event.count >= _MANY and any(end.has_failed_items for end in ends):
        return speaks_of_failure(_WARNING_LEVEL.sub("", event.first.text, count=1).encode())
    if not any(end.is_warning for end in ends):
        return False
    is_last = any(end.last is not None and end.last.text == event.first.text for end in ends)
    message = _WARNING_LEVEL.sub("", event.first.text, count=1)
    is_about_failure = speaks_of_failure(message.encode()) or classify(message_of(message)) is not None
    return (event.count >= _STORM or is_last) and is_about_failure


_WARNING_LEVEL: Final = re.compile(r"(?i)\bwarning: ")
