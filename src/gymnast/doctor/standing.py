"""Which errors still stand at the end of their log, and which of them its program got over.

A log is judged by how it ends before any of its errors is blamed: if work went on after every one of them, none of them
is a fault.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import Hit, LogEvent, LoggedException
from gymnast.doctor.line_roles import Role, message_of, role_of
from gymnast.doctor.log_lines import Level, level_of, reports_failure, speaks_of_failure
from gymnast.doctor.log_markers import SHUTDOWN
from gymnast.doctor.outcomes import NO_WORK
from gymnast.doctor.signatures import BROAD, REFUSALS, SIGNATURES
from gymnast.doctor.system_errors import ENDS, HARD, classify

if TYPE_CHECKING:
    from gymnast.doctor.facts import LogEnd, LogFacts
    from gymnast.doctor.outcomes import Traced

_SUSTAINED: Final = 20
"""Lines of work after which an error no longer matters."""
_MUCH_PROGRESS: Final = 40
"""Lines of normal operation of any process after which an error no longer matters."""
_SOME: Final = 3
_SOME_PROGRESS: Final = 10
_FEW: Final = 5
_FEW_AFTER_HINT: Final = 1
_NEAR_END: Final = 100
"""Lines after which words of failure without a level do not count, whatever follows."""
_LONG: Final = 400
"""Lines after which a log is not about an error any more, if it ends in normal operation."""
_PRELUDE: Final = 10
"""Lines between an error and a failure that it belongs to."""
_MIN_STORM: Final = 20
_STORM_SHARE: Final = 0.2
"""An error in so many of the lines of a log matters, whatever follows."""
_MIN_BACKGROUND: Final = 4
_BACKGROUND_SHARE: Final = 0.1
"""An error in so few of the lines between its first and its last occurrence does not stop the work."""
_HANDLED: Final = re.compile(
    r"(?i)\bfall(?:ing|s)? ?back\b|: ignored\b|\bignor(?:ed|ing)\b|\boptional\b|\bnot fatal\b|non-fatal|\bharmless\b"
    r"|\bretry(?:ing)?\b|will (?:retry|continue|be skipped)|\bgoing to \S+ instead|\bcontinuing\b"
    r"|, using \S+ instead|\busing /\S+$"
    r"|\bprobe failed\b|\battempt \d|\(errno: 97 "
)
"""An error that says itself what is done about it."""
_SET_ASIDE: Final = re.compile(
    r"(?i)\b(?:ignor(?:ed|ing)|skipp(?:ed|ing)|fall(?:ing|s)? ?back|harmless|non-fatal|not fatal)\b"
)
_LASTING: Final = HARD | ENDS | {"node_broken"}
"""What no program works on after, unless its log says so."""
_SOFT: Final = frozenset({None, "resource_busy", "bad_setting", "command_missing"})
"""What an error message may be about that its program goes on from."""
_ENDED: Final = re.compile(r"(?i)\b(?:killed|cancell?ed|terminated|aborted|evicted)\b")
_EXCEPTION: Final = re.compile(r"(?:\w+\.)*[A-Z]\w+(?:Error|Exception)(?:: |$)")
_WON: Final = re.compile(
    r"(?i)^\W*(?:\S+ )?(?:success(?:fully)?\b|build (?:succeeded|successful)|all tests passed|pass(?:ed)?:? )"
    r"|(?:exit|return)[ _]?(?:code|status)\W{0,3}0\b"
)
"""The verdict of a program about its whole work."""
_SIDE_SERVICE: Final = re.compile(
    r"(?i)^\W*(?:wandb|mlflow|comet\w*|neptune|swanlab|tensorboard|telemetry|usage[ _]stats|sentry|opentelemetry)\b"
    r"|\bexport\w* (?:of )?(?:spans?|traces?|metrics?|telemetry)\b"
    r"|\bgit root error\b|Cmd\('git'\)|\bdubious ownership\b|not a git repository"
    r"|\b(?:otlp|langfuse|langsmith|posthog|zipkin|jaeger)\b|/(?:api/v\d/spans|v1/traces)\b"
)
"""What reports about the work to others: the work does not need it."""
_PYTHON_WARNING: Final = re.compile(r"\.py:\d+: (?:Future|User|Deprecation)Warning: (?!resource_tracker)")
"""What libraries print while a program uses them: it works."""
_SYSTEM_LOG: Final = re.compile(r"\bkernel: |^<\d>\[|^\[ *\d+\.\d+\] |\b(?:systemd|slurm\w+|kubelet|dockerd)\[")
_CERTAIN: Final = frozenset({"job_cancelled", "node_lost", "time_limit", "preempted"})
"""Faults that end the work by their nature: lines after them are of others."""


def without_incidental(logs: LogFacts) -> tuple[LogFacts, list[Traced]]:
    """The facts without errors that their programs got over, and these errors."""
    ends = {end.last.file: end for end in logs.ends if end.last is not None}
    named: list[tuple[str, Traced]] = [
        *((name, hit) for name, hit in logs.hits.items() if name in SIGNATURES),
        *(("", event) for event in logs.events if not event.is_warning),
        *(("", error) for error in logs.real_exceptions),
    ]
    failing = {first_line(traced)[0] for name, traced in named if _stands(traced, ends, name)}
    overcome = [traced for name, traced in named if _is_overcome(traced, ends, name)]
    overcome = _without_preludes(_without_named(overcome, named), logs)
    overcome = _without_announced(overcome, logs)
    overcome += [traced for _, traced in named if first_line(traced)[0] not in failing]
    if not overcome:
        return logs, []
    overcome += _hits_of_events(named, overcome)
    dropped = {id(traced) for traced in overcome}
    kept = replace(
        logs,
        hits={name: hit for name, hit in logs.hits.items() if id(hit) not in dropped},
        events=[event for event in logs.events if id(event) not in dropped],
        exceptions=[error for error in logs.exceptions if id(error) not in dropped],
    )
    has_failures = any(event.is_certain for event in kept.events) or any(
        name in SIGNATURES and not hit.is_warning for name, hit in kept.hits.items()
    )
    return (kept if has_failures else replace(kept, failure_lines=0)), overcome


def _hits_of_events(named: list[tuple[str, Traced]], overcome: list[Traced]) -> list[Traced]:
    """The hits of broad signatures whose first line was overcome: their other lines are events of their own."""
    places = {first_line(traced)[:2] for traced in overcome if isinstance(traced, LogEvent)}
    caught = {first_line(error)[:2] for error in overcome if isinstance(error, LoggedException) and error.is_logged_low}
    return [
        hit
        for name, hit in named
        if isinstance(hit, Hit)
        and (
            (name in BROAD and hit.count > 1 and first_line(hit)[:2] in places)
            or (hit.is_warning and hit.count == 1 and first_line(hit)[:2] in caught)
        )
    ]


def _stands(traced: Traced, ends: dict[str, LogEnd], signature: str) -> bool:
    """True for an error after which its log does not go on in normal operation."""
    end, outcome = ends.get(first_line(traced)[0]), traced.outcome
    if outcome is None or _is_by_rate(signature) or _is_of_system(traced, signature):
        return True
    if ends_by_nature(traced, signature):
        return not _is_of_earlier_job(traced, end)
    is_warning = isinstance(traced, Hit) and traced.is_warning
    if is_warning or (end is not None and end.has_failed_items):
        return not (is_warning and _is_long_past(traced, end))
    if _is_background(traced, signature):
        return False
    if signature in _LASTING and not (ends_well(end, _last_line(traced)) or outcome.is_recovered):
        return True
    after = end.last.line - _last_line(traced) if end is not None and end.last is not None else 0
    is_hint = isinstance(traced, LogEvent) and not traced.is_certain
    is_left_behind = after >= (_NEAR_END if is_hint else _LONG) and (is_hint or (end is not None and end.is_normal))
    return not is_left_behind and outcome.progress <= _max_progress(traced, end, signature)


def _is_long_past(traced: Traced, end: LogEnd | None) -> bool:
    """True for what was said long before a log that ends in normal operation."""
    if end is None or end.last is None or not end.is_normal or end.is_warning or end.is_cut or end.has_failed_items:
        return False
    return end.last.line - _last_line(traced) > _LONG


def _max_progress(traced: Traced, end: LogEnd | None, signature: str) -> int:
    """How many lines of normal operation may follow an error with which a log ends."""
    if signature in _LASTING or _is_storm(traced, end):
        return _SUSTAINED
    return _FEW_AFTER_HINT if isinstance(traced, LogEvent) and not traced.is_certain else _FEW


def ends_by_nature(traced: Traced, signature: str = "") -> bool:
    """True for what ends the work by its nature, by a signature or by the words of a line."""
    if signature or not isinstance(traced, LogEvent) or traced.is_warning:
        return signature in _CERTAIN
    message = message_of(traced.first.text)
    return _ENDED.search(message) is not None and classify(message) in _CERTAIN


def _is_of_earlier_job(traced: Traced, end: LogEnd | None) -> bool:
    """True for the end of a job after which its log goes on for long: later jobs were appended to it."""
    return end is not None and end.last is not None and end.last.line - _last_line(traced) > _LONG


def _is_of_system(traced: Traced, signature: str) -> bool:
    """True for a fault of the machine that its kernel or a daemon reports: these go on, whatever it ended."""
    return signature in HARD and _SYSTEM_LOG.search(first_line(traced)[2]) is not None


def _is_background(traced: Traced, signature: str) -> bool:
    """True for an error that comes again and again while a log goes on: it did not stop the work before either."""
    span = _last_line(traced) - first_line(traced)[1]
    if ends_by_nature(traced, signature):
        return False
    if traced.count < _MIN_BACKGROUND or signature in _LASTING or isinstance(traced, LoggedException):
        return False
    return traced.count <= _BACKGROUND_SHARE * span and traced.progress_between >= _SOME_PROGRESS


def _without_named(overcome: list[Traced], named: list[tuple[str, Traced]]) -> list[Traced]:
    """Without the signatures of lines that stand as events: the two are about the same failure."""
    dropped = {id(traced) for traced in overcome}
    standing = {
        first_line(traced)[:2] for _, traced in named if isinstance(traced, LogEvent) and id(traced) not in dropped
    }
    return [traced for traced in overcome if not isinstance(traced, Hit) or first_line(traced)[:2] not in standing]


def _without_preludes(overcome: list[Traced], logs: LogFacts) -> list[Traced]:
    """Without errors shortly before one that the program did not get over: they are part of the same failure.

    A request that a server refuses is a matter of its own: the next request may fail for another reason.
    """
    dropped = {id(traced) for traced in overcome}
    refusals = {id(logs.hits.get(name)) for name in REFUSALS}
    traced_lines: list[Traced] = [
        *(hit for name, hit in logs.hits.items() if name in SIGNATURES and not hit.is_warning),
        *(event for event in logs.events if event.is_certain),
        *logs.real_exceptions,
    ]
    lasting = [first_line(traced)[:2] for traced in traced_lines if id(traced) not in dropped]
    return [
        traced
        for traced in overcome
        if id(traced) in refusals or not any(_precedes(traced, *place) for place in lasting)
    ]


def _precedes(traced: Traced, file: str, line: int) -> bool:
    return first_line(traced)[0] == file and 0 < line - _last_line(traced) <= _PRELUDE


def _without_announced(overcome: list[Traced], logs: LogFacts) -> list[Traced]:
    """Without the exceptions that messages which stand announce: the traceback of a message is a part of it."""
    dropped = {id(traced) for traced in overcome}
    kept = set()
    for event in logs.events:
        if not event.is_announcement or not event.is_certain or id(event) in dropped:
            continue
        file, line, _ = first_line(event)
        following = [error for error in logs.real_exceptions if error.end.file == file and error.end.line > line]
        error = min(following, key=lambda error: error.end.line, default=None)
        if error is not None and error.end.line - line <= _LONG:
            kept.add(id(error))
    return [traced for traced in overcome if id(traced) not in kept]


def first_line(traced: Traced) -> tuple[str, int, str]:
    """Where an error is first reported, and its line."""
    quote = traced.end if isinstance(traced, LoggedException) else traced.first
    return quote.file, quote.line, quote.text


def ends_well(end: LogEnd | None, after_line: int) -> bool:
    """True if a log says in its last lines, after this one, that the work is done."""
    if end is None or end.last is None or end.is_cut:
        return False
    return end.is_done and end.last.line - len(end.tail) >= after_line


def _is_overcome(traced: Traced, ends: dict[str, LogEnd], signature: str = "") -> bool:
    file, _, text = first_line(traced)
    outcome, end = traced.outcome, ends.get(file)
    is_old = outcome is not None and ends_by_nature(traced, signature) and _is_of_earlier_job(traced, end)
    if is_old or _is_caught(traced, end):
        return True
    if _is_aside(traced, text, end, signature) or _is_background(traced, signature) or _is_set_aside(traced, text):
        return True
    if outcome is None or _is_lasting(traced, end, signature):
        return False
    if signature in _LASTING:
        is_over = ends_well(end, _last_line(traced)) or outcome.is_recovered
        return _is_incidental(traced, end, signature) or (is_over and outcome.work >= _SUSTAINED)
    if _is_incidental(traced, end, signature) or _goes_on(traced, text, end) or outcome.progress >= _MUCH_PROGRESS:
        return True
    return outcome.work >= (_SOME if signature in REFUSALS else _SUSTAINED) or _is_handled(traced, text, end)


def _is_caught(traced: Traced, end: LogEnd | None) -> bool:
    """True for an exception that a program logged as a warning and worked on after."""
    if not isinstance(traced, LoggedException) or not traced.is_logged_low or end is None or end.last is None:
        return False
    return end.is_normal and not end.is_cut and end.last.line - _last_line(traced) > _FEW


def _is_lasting(traced: Traced, end: LogEnd | None, signature: str) -> bool:
    """True for what is a fault whatever follows, or comes until a log ends, or makes items fail."""
    if ends_by_nature(traced, signature) and not _is_of_earlier_job(traced, end):
        return True
    if _is_by_rate(signature) or _is_of_system(traced, signature):
        return True
    is_storm = _is_storm(traced, end) and traced.outcome is not None and traced.outcome.progress < _MUCH_PROGRESS
    return is_storm or (end is not None and end.has_failed_items)


def _is_handled(traced: Traced, text: str, end: LogEnd | None) -> bool:
    """True for an error that was dealt with, by its own words or those that follow, in a log that ends well."""
    outcome = traced.outcome
    if outcome is None:
        return False
    is_handled = outcome.is_recovered or _HANDLED.search(text) is not None
    is_done = end is not None and end.is_done
    is_good = ends_well(end, _last_line(traced)) and outcome.work >= _SOME
    return is_good or (is_handled and (is_done or outcome.work >= _SOME or outcome.is_recovered))


def _is_set_aside(traced: Traced, text: str) -> bool:
    """True for words of failure, without a level, that say themselves that they do not matter."""
    if isinstance(traced, LoggedException) or not _SET_ASIDE.search(text):
        return False
    return not (traced.is_certain if isinstance(traced, LogEvent) else reports_failure(text.encode()))


def _is_aside(traced: Traced, text: str, end: LogEnd | None, signature: str) -> bool:
    """True for an error of a side service in a log that goes on after it."""
    if isinstance(traced, LoggedException) or signature in HARD | ENDS or not _SIDE_SERVICE.search(message_of(text)):
        return False
    return end is not None and end.last is not None and end.last.line - first_line(traced)[1] >= _PRELUDE


def _is_incidental(traced: Traced, end: LogEnd | None, signature: str) -> bool:
    """True for an error message that the program's last word takes back."""
    if end is None or end.last is None or isinstance(traced, LoggedException) or signature in HARD | ENDS:
        return False
    after = end.last.line - _last_line(traced)
    if after <= 0 or end.is_cut:
        return False
    won = [place for place, line in enumerate(end.tail) if _WON.search(line)]
    if not won:
        return _WON.search(end.last.text) is not None
    return len(end.tail) - won[-1] <= after and not any(
        speaks_of_failure(line.encode()) for line in end.tail[won[-1] + 1 :]
    )


def _goes_on(traced: Traced, text: str, end: LogEnd | None) -> bool:
    """True for a message of an error, without an exception, of nothing that ends a program: it logs on as before."""
    if end is None or end.last is None or end.is_cut or not isinstance(traced, LogEvent) or traced.is_announcement:
        return False
    last, about = end.last.text.encode(), classify(message_of(text))
    is_working = level_of(last) is Level.INFO or _PYTHON_WARNING.search(" ".join(end.tail)) is not None
    if not is_working or end.last.line <= _last_line(traced) or speaks_of_failure(last):
        return False
    if about == "terminated":
        return SHUTDOWN.search(last) is not None
    is_stopping = NO_WORK.search(last) is not None
    if is_stopping and (end.last.line - _last_line(traced) <= _PRELUDE or not SHUTDOWN.search(last)):
        return False
    if not traced.is_certain or about not in _SOFT or role_of(text, is_cause=False) is Role.END:
        return False
    return _EXCEPTION.match(message_of(text)) is None


def _is_by_rate(signature: str) -> bool:
    """True for what is only a fault if there is much of it: it happens while the work goes on."""
    known = SIGNATURES.get(signature)
    return known is not None and known.min_lines > 1


def _last_line(traced: Traced) -> int:
    if isinstance(traced, Hit):
        return traced.last.line
    return max(traced.last_line, first_line(traced)[1])


def _is_storm(traced: Traced, end: LogEnd | None) -> bool:
    lines = end.last.line if end is not None and end.last is not None else 0
    return traced.count >= _MIN_STORM and traced.count >= _STORM_SHARE * lines
