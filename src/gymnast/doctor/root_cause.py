"""Finds the line of all logs that says why a program failed: causes before consequences, then the first in time.

Lines of several processes and files tell about one failure. Their roles (`line_roles`) and classes (`system_errors`)
order them; neither needs to know the program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.line_roles import Role, message_of, role_of, role_of_exception
from gymnast.doctor.log_lines import speaks_of_failure
from gymnast.doctor.log_markers import without_hedges
from gymnast.doctor.provenance import own_words
from gymnast.doctor.signatures import BROAD, SIGNATURES
from gymnast.doctor.system_errors import BETWEEN_PROCESSES, ENDS, EVEN_WARNINGS, HARD, ORDER, classify, classify_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.doctor.facts import Hit, LogEvent, LogFacts, LoggedException, Quote

_STORM: Final = 20
_NEAR: Final = 60
"""Lines between a hint or a warning and the failure that it explains."""
_SOON: Final = 20
_REPEATED: Final = re.compile(r"\(x(?:[1-9]\d{1,}) over \w+\)")
"""An event of Kubernetes that came again at least ten times."""
_EVENT: Final = re.compile(r"\s*(?:Warning|Normal)\s")
_LONG: Final = 400
"""Lines after which an error that does not come again is over."""
_MAX_DELAY_S: Final = 7200.0
"""Time until a fault of the machine shows in the logs of others."""
_MESSAGE_LINES: Final = 2
_AT_END: Final = 2
_BURST: Final = 6
"""Lines that tell about the same moment."""
_OVERRIDDEN: Final = frozenset(
    {"bad_setting", "install_mismatch", "command_missing", "resource_busy", "module_missing"}
)
"""Classes with broad vocabulary: a line that reports an end is not their cause."""


_BROADEST: Final = frozenset({"bad_setting", "command_missing", "resource_busy"})
_OF_MACHINE: Final = HARD | {"shared_memory"}
"""What is missing or taken is a part of the machine: that says more than that something is."""
_REFUSED: Final = frozenset({"model_name_wrong", "key_refused", "context_overflow"})
"""What a server refuses to do: its own reason."""
_TRANSPORT: Final = re.compile(
    r"(?i)NET/(?:IB|Socket|OFI)\b|\bibv_\w+|vendor err|no socket interface|socket\w*Connect\b|Connect to \S+ failed"
    r"|\bmlx5\w*|link (?:is |went )?down|\bport error"
)
"""A line of a collective that names the connection that failed: why, not only that the ranks lost each other."""
_UNHANDLED: Final = re.compile(r"(?i)unhandled (?:cuda|system) error")
"""A collective passes on an error of the GPU or the system, and does not say which."""
_NOTICED: Final = frozenset({"peer_lost", "clients_gone"})
"""What the other end of a connection notices of a failure."""


@dataclass(frozen=True, slots=True)
class FailureLine:
    """A line that reports a failure, and what it is about."""

    quote: Quote
    what: str
    position: float
    at: float | None
    failure_class: str | None
    """The id of its class: of a signature or of `system_errors`."""
    role: Role
    is_known: bool = False
    """A signature of one fault matches, not only words that programs share."""
    exception: LoggedException | None = None
    count: int = 1
    is_warning: bool = False
    before: str = ""
    """The line that the program printed just before."""
    last_line: int = 0
    """Where it was reported last."""

    @property
    def message(self) -> str:
        return message_of(self.quote.text)


def find_failures(logs: LogFacts, hits: Iterable[tuple[str, Hit]]) -> list[FailureLine]:
    """The lines that report failures, the cause first. `hits`: the signatures that count."""
    raised = {(error.end.file, error.end.line): error for error in logs.real_exceptions}
    lines = {(line.quote.file, line.quote.line): line for line in _known_lines(logs, hits)}
    for place, error in raised.items():
        line = lines.get(place)
        lines[place] = _with_exception(line, error) if line is not None else _of_exception(error)
    certain = [line for line in lines.values() if not line.is_warning]
    failures = [*certain, *(_weigh_warning(line, certain) for line in lines.values() if line.is_warning)]
    failures += _hints(logs, failures)
    failures = [_weigh_duration(line, failures, logs) for line in failures]
    has_times = all(failure.at is not None for failure in failures)
    failures.sort(key=lambda line: (_rank(line), (has_times and line.at) or 0.0, line.position))
    return _prefer_class(failures)


def _weigh_warning(line: FailureLine, certain: list[FailureLine]) -> FailureLine:
    """A warning is a cause only if something failed soon afterwards."""
    if line.failure_class in EVEN_WARNINGS and _is_followed(line, certain):
        return line
    return replace(line, role=max(line.role, Role.REPORT))


def _weigh_duration(line: FailureLine, failures: list[FailureLine], logs: LogFacts) -> FailureLine:
    """What stopped long before the end is not why a program is still in trouble there, unless nothing else could be."""
    if _EVENT.match(line.quote.text) and not _REPEATED.search(line.quote.text) and _has_repeated(failures, line):
        return replace(line, role=Role.END)
    last = next((end.last.line for end in logs.ends if end.last and end.last.file == line.quote.file), 0)
    if line.exception is not None and last - line.last_line <= _AT_END and line.failure_class in _NOTICED:
        return replace(line, role=Role.REPORT)  # not caught: it ended the program
    if line.exception is None and line.failure_class in _OVERRIDDEN and _is_outlived(line, failures, last):
        return replace(line, role=max(line.role, Role.ANNOUNCEMENT))
    if line.exception is not None or line.is_known or (line.failure_class or "bad_setting") not in _BROADEST:
        return line
    lasting = [other for other in failures if other.quote.file == line.quote.file and last - other.last_line <= _SOON]
    if last - line.last_line <= _LONG or line in lasting or not lasting:
        return line
    return replace(line, role=max(line.role, Role.ANNOUNCEMENT))


def _has_repeated(failures: list[FailureLine], line: FailureLine) -> bool:
    """True if another event in the same log came again and again."""
    return any(other.quote.file == line.quote.file and _REPEATED.search(other.quote.text) for other in failures)


def _is_outlived(line: FailureLine, failures: list[FailureLine], last: int) -> bool:
    """True for a message after which the program went on to an exception about something else that ended it."""
    return any(
        other.exception is not None
        and other.quote.file == line.quote.file
        and last - other.last_line <= _AT_END
        and other.quote.line - line.last_line > _BURST
        and other.failure_class in BETWEEN_PROCESSES | HARD | _NOTICED
        for other in failures
    )


def _is_followed(line: FailureLine, certain: list[FailureLine]) -> bool:
    return any(
        0 < other.quote.line - line.quote.line <= _SOON
        if other.quote.file == line.quote.file
        else line.failure_class in HARD and _seconds_after(line, other) <= _MAX_DELAY_S
        for other in certain
    )


def _seconds_after(line: FailureLine, other: FailureLine) -> float:
    if line.at is None or other.at is None or other.at < line.at:
        return float("inf")
    return other.at - line.at


def _rank(line: FailureLine) -> float:
    """How far a line is from the cause. How a process ended says more than that something failed."""
    if line.role is Role.ANNOUNCEMENT and line.failure_class is None:
        return Role.END - 0.5
    if line.exception is None:
        if line.role is Role.REPORT and line.failure_class is None:
            return Role.REPORT + 0.5  # an exception says more
        if line.role is Role.CAUSE and line.failure_class in _BROADEST:
            return Role.REPORT  # many lines have such words: what is specific or earlier says more
    return Role.ANNOUNCEMENT if line.role is Role.END and line.failure_class in ENDS else line.role


def _prefer_class(failures: list[FailureLine]) -> list[FailureLine]:
    """Of lines about the same moment, the most specific about the class of failure comes first."""
    if not failures or _TRANSPORT.search(failures[0].message):
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
        first.failure_class in _BROADEST
        and first.exception is None
        and line.quote.file == first.quote.file
        and 0 < line.quote.line - first.quote.line <= _NEAR
        and _SEGFAULT.search(line.quote.text) is not None
    )


def _is_more_specific(line: FailureLine, first: FailureLine) -> bool:
    """True for a known fault in the message of the first line, unless its words are in many messages."""
    is_same_message = abs(line.quote.line - first.quote.line) <= _MESSAGE_LINES
    return line.is_known and is_same_message and line.failure_class not in _BROADEST


def _known_lines(logs: LogFacts, hits: Iterable[tuple[str, Hit]]) -> Iterator[FailureLine]:
    for event in logs.events:
        if event.is_certain:
            line = _of_text(event.first, "an error", event.position, event.at, count=event.count)
            line = replace(line, before=event.before, last_line=event.last_line)
            is_vague = event.is_announcement and line.role is Role.REPORT
            yield replace(line, role=Role.ANNOUNCEMENT) if is_vague else line
    for name, hit in hits:
        line = _of_text(hit.first, "an error", hit.position, hit.at, signature=name, count=hit.count)
        yield replace(line, is_warning=hit.is_warning, before=hit.before, last_line=hit.last.line)


def _of_text(
    quote: Quote, what: str, position: float, at: float | None, *, signature: str | None = None, count: int = 1
) -> FailureLine:
    message = without_hedges(_without_fields(own_words(message_of(quote.text))).encode()).decode()
    failure_class, is_known = _class_of_line(message, signature)
    return FailureLine(quote, what, position, at, failure_class, _role(message, failure_class), is_known, count=count)


_FIELD_NAME: Final = re.compile(r"\b\w+=(?=[\w'\"\[{(.-])")
_MIN_FIELDS: Final = 6


def _without_fields(message: str) -> str:
    """A message that prints the state of something, without the names of its fields: a name is not an observation."""
    return _FIELD_NAME.sub("", message) if len(_FIELD_NAME.findall(message)) >= _MIN_FIELDS else message


def _class_of_line(message: str, signature: str | None) -> tuple[str | None, bool]:
    """The class of a line, and whether a signature of one fault says so."""
    shared = classify(message)
    is_wrapper = signature == "server_assert" and shared == "collective_failed"  # it quotes the error that it wraps
    is_plain = (signature in BROAD and classify_plain(message) is not None) or (
        signature in _BROADEST and shared in _OF_MACHINE
    )
    if signature is None or is_wrapper or is_plain:
        return shared, False
    if signature == "key_refused" and not _API.search(message):
        return "access_denied", False
    if signature not in BROAD and signature not in BETWEEN_PROCESSES:
        return signature, True
    if shared is None or shared in BETWEEN_PROCESSES or shared in ENDS or shared in _BROADEST:
        return signature, False
    if ORDER[shared] < ORDER.get(signature, ORDER["bad_setting"]):
        return shared, False
    return signature, False


_API: Final = re.compile(r"(?i)api[ _-]?key|/v1/|endpoint|openai|refuses our key")


def _role(message: str, failure_class: str | None) -> Role:
    known = SIGNATURES.get(failure_class or "")
    is_cause = failure_class is not None and failure_class not in BETWEEN_PROCESSES and failure_class not in ENDS
    if known is not None and failure_class not in ORDER and failure_class not in _REFUSED:
        is_cause = is_cause and known.is_root
    if failure_class == "collective_failed" and _TRANSPORT.search(message):
        return Role.CAUSE
    if _UNHANDLED.search(message):
        return Role.REPORT
    role = role_of(message, is_cause=is_cause and failure_class not in _OVERRIDDEN)
    if failure_class in ENDS or failure_class in _NOTICED:
        return Role.END
    return Role.CAUSE if role is Role.REPORT and is_cause else role


def _of_exception(error: LoggedException) -> FailureLine:
    line = _of_text(error.end, "an exception", error.position, error.at, count=error.count)
    return _with_exception(line, error)


def _with_exception(line: FailureLine, error: LoggedException) -> FailureLine:
    where = error.own_frame or error.frame
    what = f"an exception, raised at {where}" if where else "an exception"
    failure_class, role = line.failure_class, role_of_exception(line.role, line.message)
    if failure_class == "weights_mismatch" and error.own_frame == error.frame and not _loads_weights(error):
        failure_class = "code_exception"
    is_open = failure_class is None or (failure_class in _OVERRIDDEN and failure_class != "install_mismatch")
    if is_open and not line.is_known and (own := class_of_bug(error)):
        failure_class, role = own, Role.CAUSE if role is not Role.END else role
    return replace(line, exception=error, what=what, failure_class=failure_class, role=role, last_line=error.last_line)


_TABLE_FRAME: Final = re.compile(r"/(?:pandas|datasets|pyarrow|polars)/")
"""Code of libraries for tables: what is missing there is missing in the data."""
_SEGFAULT: Final = re.compile(r"(?i)signal 11\b|SIGSEGV|SEGV_|segfault|segmentation fault|SIGBUS|bus error|SIGILL")
"""A crash that no missing file and no setting explains, unlike an abort."""
_LOADING: Final = re.compile(r"(?i)state_?dict|checkpoint|load|weights|vocab|tokenizer|embed|param")


def _loads_weights(error: LoggedException) -> bool:
    return _LOADING.search(f"{error.message} {error.frame} {error.source}") is not None


_ROW_ACCESS: Final = (
    r"\b(?:rows?|examples?|samples?|records?|items?|entry|entries|docs?|datum|data|instances?|problems?|questions?|tasks?"
    r"|features?|conversations?|ex|line)(?:_?\d+)?(?:\[[^\[\]]{{1,20}}\])?\[\s*f?['\"]{key}['\"]\s*\]"
)
"""Code that reads a field of a row."""
_LIBRARY_FRAME: Final = re.compile(r"/(?:site-packages|dist-packages|lib/python3[^/]*|lib64/python3[^/]*)/")
_VERSION_BUG: Final = re.compile(r"has no attribute|unexpected keyword argument|positional argument|cannot import name")
_SHAPES: Final = re.compile(r"could not be broadcast|shapes .{1,80}not aligned|cannot reshape array")
BUGS: Final = frozenset(
    {
        *("IndexError", "KeyError", "TypeError", "AttributeError", "NameError", "UnboundLocalError", "RecursionError"),
        *("ZeroDivisionError", "UnicodeDecodeError", "JSONDecodeError", "StopIteration", "NotImplementedError"),
        *("SyntaxError", "IndentationError", "AssertionError"),
    }
)
"""Exceptions of Python itself: faults of the code that raised them."""


def class_of_bug(error: LoggedException) -> str | None:
    """The class of one of Python's own exceptions, by where it was raised."""
    if error.type == "KeyError" and re.search(r"<frozen os>|/os\.py:", error.frame):
        return "variable_unset"
    if error.type == "TypeError" and "__init__() got an unexpected keyword" in error.message:
        return "bad_setting"
    if error.type == "KeyError" and (reads_row(error) or _TABLE_FRAME.search(error.frame)):
        return "data_unreadable"
    if error.type not in BUGS:
        is_own = error.type == "ValueError" and error.own_frame and _SHAPES.search(error.message)
        return "code_exception" if is_own else None
    if not error.own_frame or _LIBRARY_FRAME.search(error.frame):
        return "install_mismatch" if _VERSION_BUG.search(error.message) else None
    return None if error.type in {"JSONDecodeError", "UnicodeDecodeError"} else "code_exception"


def reads_row(error: LoggedException) -> bool:
    """True if the code that raised a KeyError reads this field of a row."""
    key = re.escape(error.message.strip("'\""))
    return bool(key) and re.search(_ROW_ACCESS.format(key=key), error.source, re.IGNORECASE) is not None


def _hints(logs: LogFacts, failures: list[FailureLine]) -> Iterator[FailureLine]:
    """Lines that count because nothing says more: words of failure without a level, and warnings before a failure."""
    best = min((failure.role for failure in failures), default=None)
    for event in logs.events:
        if event.is_certain:
            continue
        line = _of_text(event.first, "words of failure", event.position, event.at, count=event.count)
        if event.is_warning:
            counts = _is_storm(event, logs) if best is None else _explains(line, best, failures)
        elif best is None:
            counts = not (_ends_well(event, logs) or _goes_on(event, logs) or _is_passed_over(line, event, logs))
        else:
            counts = best > Role.CAUSE and line.role is Role.CAUSE
            counts = counts or any(0 < other.position - line.position <= 5 for other in failures)
        if counts and (best is None or _is_near(line, failures)):
            yield line


def _ends_well(event: LogEvent, logs: LogFacts) -> bool:
    """True if a log says at its end that the work is done: words of failure in it were not the last word."""
    ends = [end.last.text for end in logs.ends if end.last is not None and end.last.file == event.first.file]
    return any(_SUCCESS.search(text) and text != event.first.text for text in ends)


def _is_passed_over(line: FailureLine, event: LogEvent, logs: LogFacts) -> bool:
    """True for words of failure that say themselves that they are ignored, or that a start or a result follows."""
    if _IGNORED.search(line.message):
        return True
    ends = [end.last for end in logs.ends if end.last is not None and end.last.file == event.first.file]
    is_soft = (line.failure_class or "bad_setting") in _BROADEST
    return is_soft and any(last.line > event.last_line and _STARTING.search(message_of(last.text)) for last in ends)


_IGNORED: Final = re.compile(r"(?i)\b(?:ignored|ignoring|harmless|not fatal|non-fatal|can be ignored)\b")
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
        else line.failure_class in EVEN_WARNINGS and _is_followed(line, failures)
    )


def _is_near(line: FailureLine, failures: list[FailureLine]) -> bool:
    return any(
        other.quote.file == line.quote.file and abs(other.quote.line - line.quote.line) <= _NEAR for other in failures
    )


def _is_storm(event: LogEvent, logs: LogFacts) -> bool:
    """True for a warning that repeats until the end of its log, or that is the end and speaks of a failure."""
    ends = [end for end in logs.ends if end.last is not None and end.last.file == event.first.file]
    if not any(end.is_warning for end in ends):
        return False
    is_last = any(end.last is not None and end.last.text == event.first.text for end in ends)
    message = _WARNING_LEVEL.sub("", event.first.text, count=1)
    is_about_failure = speaks_of_failure(message.encode()) or classify(message_of(message)) is not None
    return (event.count >= _STORM or is_last) and is_about_failure


_WARNING_LEVEL: Final = re.compile(r"(?i)\bwarning: ")
