"""Finds the line of all logs that says why a program failed: causes before consequences, then the first in time.

Lines of several processes and files tell about one failure. Their roles (`line_roles`) and classes (`system_errors`)
order them; neither needs to know the program.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.failure_lines import (
    BROADEST,
    NOTICED,
    OVERRIDDEN,
    TRANSPORT,
    FailureLine,
    is_followed,
    line_of_exception,
    line_of_text,
    names_bug,
    with_exception,
)
from gymnast.doctor.line_roles import Role
from gymnast.doctor.log_hints import find_hints
from gymnast.doctor.signatures import BROAD
from gymnast.doctor.system_errors import BETWEEN_PROCESSES, DEATHS, ENDS, EVEN_WARNINGS, HARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gymnast.doctor.facts import Hit, LogFacts

_SEES_DEATH: Final = frozenset({"endpoint_down", "upstream_failed", "peer_lost"})
"""What a client reports of a server whose death is in the same log."""
_NEAR: Final = 60
"""Lines between a hint or a warning and the failure that it explains."""
_SOON: Final = 20
_REPEATED: Final = re.compile(r"\(x(?:[1-9]\d{1,}) over \w+\)")
"""An event of Kubernetes that came again at least ten times."""
_SEGFAULT: Final = re.compile(r"(?i)signal 11\b|SIGSEGV|SEGV_|segfault|segmentation fault|SIGBUS|bus error|SIGILL")
"""A crash that no missing file and no setting explains, unlike an abort."""
_CAUSED_BY: Final = re.compile(r"(?i)\s*caused by: ")
_BACK_OFF: Final = re.compile(r"(?i)\bback-?off\b")
"""That a container is restarted again and again: a consequence of why it fails."""
_BARE: Final = re.compile(
    r"(?:Error|Exception): (?:[\w-]+ ){0,4}(?:failed|returned (?:an )?error|crashed)(?: to \w+)?[.!]?\s*$"
)
"""An exception that only says that something failed."""
_ERROR_MESSAGE: Final = re.compile(r"\W*(?:[\w.]+\.)?\w*(?:Error|Exception): \w")
_EVENT: Final = re.compile(r"\s*(?:Warning|Normal)\s")
_UNSCHEDULED: Final = re.compile(r"\bFailedScheduling\b")
_LONG: Final = 400
"""Lines after which an error that does not come again is over."""
_NAMES_SOMETHING: Final = re.compile(r"[\d/'\"=_`<\[]|\w\.\w|(?:\w+\W+){5}")
"""A message about a certain thing: a number, a path, a name in quotes, or several words."""
_MESSAGE_LINES: Final = 2
_OFTEN: Final = 5
_FAR_MORE: Final = 10
_ANOTHER_RUN: Final = 300
_SHARE_OF_GAP: Final = 10
"""An exception ends a log if far fewer lines follow it than lie between it and an earlier one."""
_SAME_TIME_S: Final = 900.0
_AT_END: Final = 2
_BURST: Final = 6
"""Lines that tell about the same moment."""


def find_failures(logs: LogFacts, hits: Iterable[tuple[str, Hit]]) -> list[FailureLine]:
    """The lines that report failures, the cause first. `hits`: the signatures that count."""
    raised = {(error.end.file, error.end.line): error for error in logs.real_exceptions}
    lines = {(line.quote.file, line.quote.line): line for line in _known_lines(logs, hits)}
    for place, error in raised.items():
        line = lines.get(place)
        lines[place] = with_exception(line, error) if line is not None else line_of_exception(error)
    lines = {place: _weigh_chain(line, lines) for place, line in lines.items()}
    lines = {place: _weigh_bare(_weigh_wrapper(line, lines), lines) for place, line in lines.items()}
    certain = [line for line in lines.values() if not line.is_warning]
    failures = [*certain, *(_weigh_warning(line, certain) for line in lines.values() if line.is_warning)]
    failures += find_hints(logs, failures)
    failures = [_weigh_duration(line, failures, logs) for line in failures]
    has_times = all(failure.at is not None for failure in failures)
    failures.sort(key=lambda line: (_rank(line), (has_times and line.at) or 0.0, line.position))
    return _prefer_class(failures)


def _weigh_chain(line: FailureLine, lines: Mapping[tuple[str, int], FailureLine]) -> FailureLine:
    """Of chained exceptions the innermost is the cause, unless it names nothing and one that it led to does."""
    if line.exception is None or _NAMES_SOMETHING.search(line.exception.message):
        return line
    outer = next(
        (
            other
            for (file, _), other in lines.items()
            if other.exception is not None and file == line.quote.file and other.exception.inner_line == line.quote.line
        ),
        None,
    )
    if outer is None or outer.exception is None or not _NAMES_SOMETHING.search(outer.exception.message):
        return line
    return replace(line, role=max(line.role, Role.ANNOUNCEMENT))


def _weigh_bare(line: FailureLine, lines: Mapping[tuple[str, int], FailureLine]) -> FailureLine:
    """An exception that only says that something failed passes on what another program printed shortly before."""
    if line.exception is None or not _BARE.search(line.message):
        return line
    is_told = any(
        file == line.quote.file
        and 0 < line.quote.line - number <= _NEAR
        and _ERROR_MESSAGE.match(other.message)
        and not _BARE.search(other.message)
        for (file, number), other in lines.items()
    )
    return replace(line, role=max(line.role, Role.ANNOUNCEMENT)) if is_told else line


def _weigh_wrapper(line: FailureLine, lines: Mapping[tuple[str, int], FailureLine]) -> FailureLine:
    """Of the exceptions of one stack trace that name each other as their cause, the last is the reason."""
    if not _CAUSED_BY.match(line.message):
        return line
    is_wrapper = any(
        file == line.quote.file and 0 < number - line.quote.line <= _NEAR and _CAUSED_BY.match(other.message)
        for (file, number), other in lines.items()
    )
    return replace(line, role=max(line.role, Role.ANNOUNCEMENT)) if is_wrapper else line


def _weigh_warning(line: FailureLine, certain: list[FailureLine]) -> FailureLine:
    """A warning is a cause only if something failed soon afterwards."""
    if line.failure_class in EVEN_WARNINGS and is_followed(line, certain):
        return line
    return replace(line, role=max(line.role, Role.REPORT))


def _weigh_duration(line: FailureLine, failures: list[FailureLine], logs: LogFacts) -> FailureLine:
    """What stopped long before the end is not why a program is still in trouble there, unless nothing else could be."""
    if _EVENT.match(line.quote.text) and not _REPEATED.search(line.quote.text) and _has_repeated(failures, line):
        return replace(line, role=Role.END)
    if _is_scheduled_since(line, failures):
        return replace(line, role=Role.END, is_aftermath=True)
    if line.exception is None and line.failure_class in _SEES_DEATH and _follows_death(line, failures):
        return replace(line, role=Role.END, is_aftermath=True)
    last = next((end.last.line for end in logs.ends if end.last and end.last.file == line.quote.file), 0)
    if line.exception is not None and line.failure_class in NOTICED:
        return _weigh_noticed(line, failures, is_last=last - line.last_line <= _AT_END)
    is_over = any(test(line, failures, last) for test in (_is_outlived, _is_passing, _is_of_earlier_run, _is_forgotten))
    return replace(line, role=max(line.role, Role.ANNOUNCEMENT)) if is_over else line


def _is_forgotten(line: FailureLine, failures: list[FailureLine], last: int) -> bool:
    """True for words that many messages have, long before the end, in a log that ends with another failure."""
    if line.exception is not None or line.is_known or (line.failure_class or "bad_setting") not in BROADEST:
        return False
    lasting = [other for other in failures if other.quote.file == line.quote.file and last - other.last_line <= _SOON]
    return last - line.last_line > _LONG and line not in lasting and bool(lasting)


def _is_passing(line: FailureLine, failures: list[FailureLine], last: int) -> bool:
    """True for a message that came once, while another failure came again and again until the end of the log."""
    if line.exception is not None or last - line.last_line <= _SOON:
        return False
    if line.failure_class not in HARD and any(_surrounds(other, line, last) for other in failures):
        return True
    if line.is_known or line.count > 1:
        return False
    return any(
        other.count >= _OFTEN
        and other.failure_class is not None
        and other.role < Role.ANNOUNCEMENT
        and other.quote.file == line.quote.file
        and other.quote.line <= line.quote.line + _SOON
        and last - other.last_line <= _SOON
        for other in failures
    )


def _surrounds(other: FailureLine, line: FailureLine, last: int) -> bool:
    """True for a failure that began before another one, came far more often, and lasts to the end of the log."""
    return (
        other.count >= max(_OFTEN, _FAR_MORE * line.count)
        and other.failure_class is not None
        and other.role < Role.ANNOUNCEMENT
        and other.quote.file == line.quote.file
        and other.quote.line < line.quote.line
        and last - other.last_line <= _AT_END
    )


def _is_of_earlier_run(line: FailureLine, failures: list[FailureLine], last: int) -> bool:
    """True for an exception long before another one that ended the log: the program ran again since."""
    error = line.exception
    if error is None:
        return False
    return any(
        other.exception is not None
        and other.exception.type != error.type
        and other.role < Role.ANNOUNCEMENT
        and other.failure_class not in BETWEEN_PROCESSES - {"data_unreadable"} | ENDS | NOTICED
        and other.quote.file == line.quote.file
        and last - other.last_line <= max(_NEAR, (other.quote.line - line.last_line) // _SHARE_OF_GAP)
        and _is_long_after(line, other)
        for other in failures
    )


def _is_long_after(line: FailureLine, other: FailureLine) -> bool:
    """True if a later exception must be of another run: far below, or both went through all of their program."""
    if line.exception is None or other.exception is None or _is_same_time(line, other):
        return False
    if other.quote.line - line.last_line > _ANOTHER_RUN:
        return line.failure_class not in HARD
    are_programs = line.exception.ends_program and other.exception.ends_program
    return are_programs and not other.exception.inner_line and other.quote.line > line.last_line


def _is_same_time(line: FailureLine, other: FailureLine) -> bool:
    """True if two lines with times were written within a quarter of an hour."""
    return line.at is not None and other.at is not None and abs(other.at - line.at) <= _SAME_TIME_S


def _weigh_noticed(line: FailureLine, failures: list[FailureLine], *, is_last: bool) -> FailureLine:
    """An exception about the other end of a connection: a reason if it was not caught and nothing says who died."""
    if _follows_death(line, failures):
        return replace(line, role=Role.END, is_aftermath=True)
    return replace(line, role=Role.REPORT) if is_last else line


def _follows_death(line: FailureLine, failures: list[FailureLine]) -> bool:
    """True for what the other end of a connection notices after a process is said to have died."""
    return any(
        other.failure_class in DEATHS
        and other.quote.file == line.quote.file
        and 0 < line.quote.line - other.quote.line <= _NEAR
        for other in failures
    )


def _has_repeated(failures: list[FailureLine], line: FailureLine) -> bool:
    """True if another event in the same log came again and again."""
    return any(
        other.quote.file == line.quote.file
        and _REPEATED.search(other.quote.text)
        and (other.quote.line < line.quote.line or not _BACK_OFF.search(other.quote.text))
        for other in failures
    )


def _is_scheduled_since(line: FailureLine, failures: list[FailureLine]) -> bool:
    """True for a pod that found no node at first, and of which later events come from its node."""
    if not (_EVENT.match(line.quote.text) and _UNSCHEDULED.search(line.quote.text)):
        return False
    return any(
        other.quote.file == line.quote.file
        and other.quote.line > line.last_line
        and _EVENT.match(other.quote.text)
        and not _UNSCHEDULED.search(other.quote.text)
        for other in failures
    )


def _is_outlived(line: FailureLine, failures: list[FailureLine], last: int) -> bool:
    """True for a message after which the program went on to an exception about something else that ended it."""
    if line.exception is not None or line.failure_class not in OVERRIDDEN:
        return False
    return any(
        other.exception is not None
        and other.quote.file == line.quote.file
        and _ends_log(other, failures, last)
        and other.quote.line - line.last_line > _BURST
        and other.failure_class in BETWEEN_PROCESSES | HARD | NOTICED
        for other in failures
    )


def _ends_log(line: FailureLine, failures: list[FailureLine], last: int) -> bool:
    """True for a failure with which a log ends, but for what only passes it on."""
    if last - line.last_line <= _AT_END:
        return True
    later = [other for other in failures if other.quote.file == line.quote.file and other.quote.line > line.last_line]
    passes_on = all(other.role >= Role.ANNOUNCEMENT for other in later)
    return passes_on and any(last - other.last_line <= _AT_END for other in later)


def _rank(line: FailureLine) -> float:
    """How far a line is from the cause. How a process ended says more than that something failed."""
    if line.is_aftermath:
        return Role.END
    if line.role is Role.ANNOUNCEMENT and line.failure_class is None:
        return Role.END - 0.5
    if line.exception is not None and line.role is Role.END and line.failure_class is not None:
        return Role.ANNOUNCEMENT  # it names what it waited for
    if line.exception is not None and line.failure_class in NOTICED:
        return Role.REPORT  # raised, not only noted while others end
    if line.exception is None and (rank := _rank_of_text(line)) is not None:
        return rank
    return Role.ANNOUNCEMENT if line.role is Role.END and line.failure_class in ENDS else line.role


def _rank_of_text(line: FailureLine) -> float | None:
    """How far a line is from the cause that is not the end of a traceback, if its role does not say so already."""
    if line.is_warning and line.failure_class not in EVEN_WARNINGS and line.role is Role.REPORT:
        return Role.REPORT + 0.75  # what the program itself calls an error says more
    if line.role is Role.REPORT and line.failure_class is None:
        return Role.REPORT + (0.25 if names_bug(line.message) else 0.5)  # an exception says more
    if line.role is Role.CAUSE and line.failure_class in BROADEST:
        return Role.REPORT  # many lines have such words: what is specific or earlier says more
    return None


def _prefer_class(failures: list[FailureLine]) -> list[FailureLine]:
    """Of lines about the same moment, the most specific about the class of failure comes first."""
    if not failures or TRANSPORT.search(failures[0].message):
        return failures
    first = failures[0]
    same = [
        line
        for line in failures
        if _rank(line) == _rank(first)
        and line.quote.file == first.quote.file
        and abs(line.quote.line - first.quote.line) <= _BURST
    ]
    hard = [
        line
        for line in failures
        if line.role is Role.CAUSE
        and line.is_known
        and line.failure_class in HARD
        and line.quote.file == first.quote.file
        and 0 < line.quote.line - first.quote.line <= _NEAR
    ]
    if hard and first.failure_class in BROAD:
        return [hard[0], *(line for line in failures if line is not hard[0])]
    crash = next((line for line in failures if _is_crash_after(line, first)), None)
    if crash is not None:
        return [crash, *(line for line in failures if line is not crash)]
    best = max(same, key=lambda line: (line.failure_class is not None, _is_more_specific(line, first)))
    return [best, *(line for line in failures if line is not best)]


def _is_crash_after(line: FailureLine, first: FailureLine) -> bool:
    """True for a crash in native code after an error that the program went on from."""
    return (
        first.failure_class in BROADEST
        and first.exception is None
        and line.quote.file == first.quote.file
        and 0 < line.quote.line - first.quote.line <= _NEAR
        and _SEGFAULT.search(line.quote.text) is not None
    )


def _is_more_specific(line: FailureLine, first: FailureLine) -> bool:
    """True for a known fault in the message of the first line, unless its words are in many messages."""
    is_same_message = abs(line.quote.line - first.quote.line) <= _MESSAGE_LINES
    return line.is_known and is_same_message and line.failure_class not in BROADEST


def _known_lines(logs: LogFacts, hits: Iterable[tuple[str, Hit]]) -> Iterator[FailureLine]:
    for event in logs.events:
        if event.is_certain:
            line = line_of_text(event.first, "an error", event.position, event.at, count=event.count)
            line = replace(line, before=event.before, last_line=event.last_line)
            is_vague = event.is_announcement and line.role is Role.REPORT
            yield replace(line, role=Role.ANNOUNCEMENT) if is_vague else line
    for name, hit in hits:
        line = line_of_text(hit.first, "an error", hit.position, hit.at, signature=name, count=hit.count)
        yield replace(line, is_warning=hit.is_warning, before=hit.before, last_line=hit.last.line)
