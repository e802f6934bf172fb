"""What part a line plays in a failure: it says why, it announces, or it reports what happened afterwards.

Knows how programs tell about failures in general: wrappers around an error, the end of a process after one, a peer that
notices, the noise of a shutdown.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final


class Role(IntEnum):
    """The closer to the cause, the smaller."""

    CAUSE = 0
    """A reason that is usually not caused by another failure."""
    REPORT = 1
    """A failure, but perhaps seen from afar."""
    ANNOUNCEMENT = 2
    """That something failed; the reason is in another line."""
    END = 3
    """What happened afterwards."""


_END: Final = re.compile(
    r"(?i)see (?:the )?(?:root cause|stack ?trace|traceback|logs?|error|message)s?\b.{0,20}\babove|root cause above"
    r"|failed core proc|ChildFailedError|EngineDead|(?:worker|process|proc|child|engine|actor|shard|task|rank"
    r"|subprocess"
    r"|server|job step|executor|runner|replica|pod|container|unit)\b[^:]{0,60}\b(?:died|is (?:already )?dead"
    r"|exited|ended|"
    r"terminated|was killed|has failed|failed to start|crashed|stopped|aborted)\b(?!.{0,20}(?:because|due to"
    r"|since|: \w))"
    r"|exited with|exit(?:ed)?(?: with)?(?: exit)? (?:code|status)|return(?:ed)? code|non-zero exit|Exited with "
    r"exit code"
    r"|closing signal|job step aborted|giving up|shutting down|will be (?:killed|restarted)|back-?off restarting"
    r"|event loop is closed|exception ignored in|leaked (?:semaphore|shared)|destroy_process_group|never (?:awaited"
    r"|retrieved)|received sig(?:quit|term|int|abrt)|SystemExit|KeyboardInterrupt|CancelledError|resource_tracker"
    r"|main process exited|failed with result|start request repeated|exiting due to|leaving|dropped"
    r"|plugin stack|failed with rc=|MPI_ABORT|taking the entire process down|NoneType: None|^\s*\[?Process "
    r"(?:completed|ended)|waiting for other|core dump(?:ed)?\b"
    r"|^Aborted|terminate called after throwing an instance of '[^']*'\s*$|unhandled error \(suppress|"
    r"\bend of (?:the )?(?:error|stack|crash) |"
    r"lost connection to|node\.js v\d|npm ERR! (?:code|errno)|make: \*\*\*|ninja: build stopped"
)
_ANNOUNCEMENT: Final = re.compile(
    r"(?i):\s*$|\bfail(?:ed|ure) to (?:start|initiali[sz]e|launch|create|load|boot)(?: \S+){0,4}\.?\s*$"
    r"|hit an exception|error when initiali[sz]ing|initiali[sz]ation failed\.?\s*$|printing .{0,40}log file"
    r"|job failed|(?:run|step|task|stage|request|call|verify|build|request) failed\.?\s*$|an error (?:has "
    r")?occurred\.?\s*$"
    r"|exception in (?:asgi application|thread|callback)|error executing job|error handling request"
    r"|^\W*error:?\s*$|^error: \w+$"
    r"|^(?:\S+ +){0,3}\d+ (?:errors?|failures?)(?:\(s\))?(?: generated| found| occurred)?\W*$"
    r"|\bbuild failed\W*$"
    r"|RayTaskError\(|CalledProcessError|subprocess-exited-with-error|unhandled exception\.?\s*$"
    r"|complete standard error|ray::\S+\(|error loading model: \S+: failed to load model|couldn't start container"
    r"|container start failed with error code"
)
_WRAPPER: Final = re.compile(r"RayTaskError\(|CalledProcessError|subprocess-exited-with-error")
"""Exceptions that only pass on another one."""
_NAMED: Final = re.compile(r"(?i)^\W*(?:caused by|root cause)\b(?! \()[ :=]")


_REASON_AFTER: Final = re.compile(r": (?=[A-Za-z][\w-]*[ :]\S+ \S+)")
"""A wrapped error continues after the end that it reports."""


def role_of(message: str, *, is_cause: bool) -> Role:
    """The role of a failure line. `is_cause`: its class is one that usually has no other cause."""
    ends = list(_END.finditer(message))
    if ends and not is_cause and not _REASON_AFTER.search(message, ends[-1].end()):
        return Role.END
    if _ANNOUNCEMENT.search(message) and not is_cause:
        return Role.ANNOUNCEMENT
    return Role.CAUSE if is_cause or _NAMED.search(message) else Role.REPORT


def role_of_exception(role: Role, message: str) -> Role:
    """The role of the last line of a traceback: unlike other lines, it is the reason even if it is short."""
    return Role.REPORT if role is Role.ANNOUNCEMENT and not _WRAPPER.search(message) else role


def announces(line: bytes) -> bool:
    """True if the next lines say what this one is about."""
    text = line.rstrip()
    is_open = text.endswith((b":", b": {", b": (", b"= {"))
    return is_open or b"validation error" in text or text.startswith(b"terminate called after")


_STAMP: Final = (
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T _]?(?:\d\d:\d\d:\d\d(?:[.,]\d+)?)?(?: ?[+-]\d\d:?\d\d|Z)?[^\s\]]{0,6}\]?"
    r"|\w{3} +\d+ \d\d:\d\d:\d\d \S+(?: [\w.-]+\[\d+\]:)?|\d\d:\d\d:\d\d(?:[.,]\d+)?Z?"
    r"|\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"|\d\d/\d\d \d\d:\d\d:\d\d|\[ *\d+\.\d+\]"
)
_LEVELS: Final = r"(?:ERROR|ERR|FATAL|CRITICAL|WARN(?:ING)?|SEVERE|INFO|E|F)(?=[\s:\]|])[:\]|]?"
_PREFIX: Final = re.compile(
    rf"^\s*(?:{_STAMP}|[EFWCI]\d{{4}} \d\d:\d\d:\d\d\.\d+ +\d+ [\w./-]+:\d+\]"
    rf"|[EFWCI] [\w./-]+:\d+\]|\[(?:[^\]\[]|\[[^\]]*\]){{1,60}}\]:?"
    rf"|[A-Za-z_][\w.]*:[\w<>]+:\d+ - "
    rf"|[A-Za-z][\w.]*(?: [A-Z]\w*)?:(?:ERROR|WARNING|CRITICAL|FATAL):(?: [\w./-]+\.py:\d+ - )?"
    rf"|\((?!os error)[^()]{{1,60}}\)|{_LEVELS}|[-|:>*=]+(?=\s))\s*"
)
_BAR: Final = re.compile(
    rb"^[^\n]{0,160}?(?:(?:\xe2[\x94-\x97].){5,}|[#=]{5,})[^\n]{0,40}?\d{1,3}%(?:\|[^\n|]*\|)?\s+(?:\d+/\d+ )?"
    rb"(?:[-\d]+:)?[-\d]+:[-\d]{2}(?:[<\d:,. ]*\])?\s*(?=[A-Za-z])"
)
"""A progress bar that a message was printed behind."""
_FIELD: Final = re.compile(r"""\b(?:msg|message|error|err|text)["']?\s*[=:]\s*"((?:[^"\\]|\\.)+)(?:"|$)""")
_ADVICE: Final = re.compile(
    r"(?i)(?:^|[.;,:(!] |\) |: )((?:please|try|set|use|run|install|increase|decrease|reduce|raise|lower|upgrade"
    r"|update|rebuild"
    r"|make sure|ensure|check(?! fail)|add|pass|specify|enable|disable|remove|"
    r"you (?:must|need to|should|can))\b[^.;)\n]{6,140})"
)
_MAX_PREFIXES: Final = 8
_MAX_HEADLINE: Final = 220
_WRAPPED: Final = 4
"""Colons in an error that wraps others: its end says why."""


def without_bar(line: bytes) -> bytes:
    """A line without the progress bar that its message was printed behind."""
    bar = _BAR.match(line) if b"%" in line else None
    return line[bar.end() :] if bar is not None else line


def message_of(line: str) -> str:
    """What a line says, without time, level and process."""
    fields = _FIELD.findall(line) if ("level" in line or "severity" in line) else []
    if fields:
        return ": ".join(dict.fromkeys(field.replace('\\"', '"') for field in fields))
    line = without_bar(line.encode()).decode(errors="replace") if "%" in line else line
    for _ in range(_MAX_PREFIXES):
        rest = _PREFIX.sub("", line, count=1)
        if rest == line or not rest.strip():
            break
        line = rest
    return line.strip()


def advice_in(line: str) -> str:
    """What a line itself advises to do, or an empty string."""
    match = _ADVICE.search(message_of(line))
    return match[1].strip(" `'\"") if match is not None else ""


def headline_of(line: str) -> str:
    """What a line says, cut for a headline."""
    text = message_of(line)
    if len(text) <= _MAX_HEADLINE:
        return text
    if text.count(": ") < _WRAPPED:
        return text[: _MAX_HEADLINE - 1] + "…"
    half = _MAX_HEADLINE // 2
    return f"{text[: half - 2]} … {text[-half:]}"
