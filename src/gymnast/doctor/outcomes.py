"""What followed an error in its log: sustained work, a recovery or a good end; and which errors are incidental then.

An error says that something failed, not that it mattered. A program that goes on working after it, or that says at its
end that the work is done, got over it. Only the lines after the last occurrence of an error count.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import Hit, LogEvent, LoggedException, Outcome
from gymnast.doctor.line_roles import Role, message_of, role_of
from gymnast.doctor.log_lines import Level, level_of, reports_failure, speaks_of_failure
from gymnast.doctor.log_markers import ACCESS, SHUTDOWN, SOURCE, STARTED
from gymnast.doctor.provenance import own_words
from gymnast.doctor.signatures import SIGNATURES
from gymnast.doctor.system_errors import ENDS, HARD, classify

if TYPE_CHECKING:
    from gymnast.doctor.facts import LogEnd, LogFacts

    Traced = Hit | LogEvent | LoggedException

_WINDOW: Final = 150
"""Lines after an error that are examined."""
_SUSTAINED: Final = 20
"""Lines of work after which an error no longer matters."""
_SOME: Final = 3
_REPEATED: Final = 3
_PRELUDE: Final = 10
"""Lines between an error and a failure that it belongs to."""
_MIN_STORM: Final = 20
_STORM_SHARE: Final = 0.2
"""An error in so many of the lines of a log matters, whatever follows."""
_FIRST_ERROR: Final = 400
_MAX_LINE: Final = 400
_ANSWERED: Final = b" "
"""Stands for requests that were answered."""
_LAST_LINES: Final = 3
_VARIABLE: Final = re.compile(rb"https?://\S+|[\w./:+-]*\d[\w./:,+-]*")
_RECOVERED: Final = re.compile(
    rb"\bNormal\s+Started\s(?!.*\(x\d)|(?i:\bserver \S+ ok\b|\b(?:is|are) (?:back|available again)\b"
    rb"|\b(?:reconnected|recovered|re-?established|connection restored|resum(?:ed|ing)|back online"
    rb"|succeeded (?:after|on (?:attempt|retry|try))|(?:retry|attempt|try)\b.{0,40}\b(?:succeeded|ok)\b))"
)
_FALLBACK: Final = re.compile(rb"(?i:\bfall(?:ing|s)? ?back (?:to|on)\b)")
_NEXT_LINES: Final = 2
_HANDLED: Final = re.compile(
    r"(?i)\bfall(?:ing|s)? ?back\b|: ignored\b|\bignor(?:ed|ing)\b|\boptional\b|\bnot fatal\b|non-fatal|\bharmless\b"
    r"|\bretry(?:ing)?\b|will (?:retry|continue|be skipped)|\bgoing to \S+ instead|\bcontinuing\b"
    r"|, using \S+ instead|\busing /\S+$"
    r"|\bprobe failed\b|\battempt \d|\(errno: 97 "
)
"""An error that says itself what is done about it."""
_NO_WORK: Final = re.compile(
    rb"(?i:\b(?:wait(?:ing)?|retr(?:y|ies|ying)|attempts?|polling|still|sleep\w*|queued|pending|idle|keep-?alive"
    rb"|heartbeat|back(?:ing)?[- ]?off|thread|frame|stack|skipp\w+|lost|shut\w*|clos(?:ed|ing)|terminat\w+|stopp\w+"
    rb"|Extension modules)\b|throughput: 0\.0|throughput \(token/s\): 0\.0|/(?:healthz?|metrics|readyz?|livez?|ping)\b"
    rb"|^\s*(?:at |#?\d+[: ]+0x|File \"|\.{3}|[|+]))"
)
"""Lines that repeat although nothing is done."""
_PROCESS: Final = re.compile(rb"^(?:[\w.-]+\s+\| |\([^()\n]{1,60}pid=\d+[^()\n]*\) |\[rank\d+\]:? )")
_SUCCESS: Final = re.compile(
    r"(?i)^\W*pass(?:ed)?\b|\b(?:done|completed?|finished|succe(?:ss|eded)\w*|all passed|saved|summari[sz]ed"
    r"|exit(?:ed)?(?: with)? ?(?:code|status):? 0"
    r"|0 failed|0 errors)\b|\b0:0\b|build finished"
)
_TOTALS: Final = re.compile(r"(?i)\b[1-9]\d* (?:\w+ )?(?:fail\w*|errors?|lost|missing|dropped)\b")
_LASTING: Final = HARD | ENDS | {"node_broken"}
"""What no program works on after, unless its log says so."""
_SOFT: Final = frozenset({None, "resource_busy", "bad_setting", "command_missing"})
"""What an error message may be about that its program goes on from."""
_REQUESTS: Final = frozenset({"model_name_wrong", "key_refused", "context_overflow"})
"""What a server refuses to one request: the next ones may be fine."""
_WON: Final = re.compile(
    r"(?i)^\W*(?:\S+ )?(?:success(?:fully)?\b|build (?:succeeded|successful)|all tests passed|pass(?:ed)?:? )"
    r"|exit[ _]?(?:code|status)\W{0,3}0\b"
)
"""The verdict of a program about its whole work."""
_SIDE_SERVICE: Final = re.compile(
    r"(?i)^\W*(?:wandb|mlflow|comet\w*|neptune|swanlab|tensorboard|telemetry|usage[ _]stats|sentry|opentelemetry)\b"
    r"|\bexport\w* (?:of )?(?:spans?|traces?|metrics?|telemetry)\b|\b(?:otlp|langfuse|langsmith|posthog)\b"
)
"""What reports about the work to others: the work does not need it."""
_CERTAIN: Final = frozenset({"job_cancelled", "node_lost", "time_limit", "preempted"})
"""Faults that end the work by their nature: lines after them are of others."""


class OutcomeTracker:
    """Keeps the lines after the last occurrence of each error, and judges them when the file is read."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[Traced, int]] = {}
        self._windows: dict[int, tuple[Traced, bytes, list[bytes]]] = {}
        self._open: set[int] = set()
        """Errors so close to the end of the last block that the next one continues what followed."""

    @property
    def is_open(self) -> bool:
        """True if the next block continues what followed an error."""
        return bool(self._open)

    def mark(self, traced: Traced, index: int) -> None:
        """Note that an error occurred in this line of the block."""
        self._marks[id(traced)] = (traced, index)

    def finish_block(self, lines: list[bytes]) -> None:
        """Keep what followed the errors of this block. The last line is an empty one after the last newline."""
        for key in self._open - self._marks.keys():
            following = self._windows[key][2]
            following += lines[: _WINDOW - len(following)]
        self._open = set()
        for key, (traced, index) in self._marks.items():
            following = lines[index + 1 : min(index + 1 + _WINDOW, len(lines) - 1)]
            self._windows[key] = (traced, lines[index], following)
            if len(following) < _WINDOW:
                self._open.add(key)
        self._marks = {}

    def finish_file(self) -> None:
        for traced, error, following in self._windows.values():
            traced.outcome = _outcome(error, following)
        self._windows, self._open = {}, set()


def count_work(lines: list[bytes], process: bytes = b"") -> int:
    """The lines that report progress: they repeat with other numbers, and speak of no failure and no waiting."""
    counts: Counter[bytes] = Counter()
    examples: dict[bytes, bytes] = {}
    for line in lines:
        access = ACCESS.search(line)
        if access is not None and (int(access[1]) >= _FIRST_ERROR or _NO_WORK.search(line)):
            continue
        if access is not None or line.startswith(process):
            template = _ANSWERED if access is not None else _template(line)
            counts[template] += 1
            examples[template] = line
    return sum(
        count
        for template, count in counts.items()
        if count >= _REPEATED and (template == _ANSWERED or (b"#" in template and _is_work(examples[template])))
    )


def says_done(lines: list[bytes]) -> bool:
    """True if one of the last lines says that the work is done, and not only one item of it."""
    templates = Counter(_template(line) for line in lines)
    last = [line for line in lines[-_LAST_LINES:] if templates[_template(line)] < _REPEATED]
    texts = [line.decode(errors="replace") for line in last]
    return any(_SUCCESS.search(text) for text in texts) and not any(_TOTALS.search(text) for text in texts)


def _template(line: bytes) -> bytes:
    return _VARIABLE.sub(b"#", line[:_MAX_LINE])


def _is_work(line: bytes) -> bool:
    if SOURCE.search(line) or level_of(line) in {Level.WARNING, Level.ERROR}:
        return False
    own = own_words(line.decode(errors="replace")).encode()
    return not (_NO_WORK.search(own) or reports_failure(own) or speaks_of_failure(own))


def _outcome(error: bytes, following: list[bytes]) -> Outcome:
    process = _PROCESS.match(error)
    is_recovered = any(_RECOVERED.search(line) or STARTED.search(line) for line in following)
    is_recovered = is_recovered or any(_FALLBACK.search(line) for line in following[:_NEXT_LINES])
    return Outcome(count_work(following, process[0] if process is not None else b""), is_recovered)


def without_incidental(logs: LogFacts) -> tuple[LogFacts, list[Traced]]:
    """The facts without errors that their programs got over, and these errors."""
    ends = {end.last.file: end for end in logs.ends if end.last is not None}
    overcome: list[Traced] = [
        *(hit for name, hit in logs.hits.items() if name in SIGNATURES and _is_overcome(hit, ends, name)),
        *(event for event in logs.events if not event.is_warning and _is_overcome(event, ends)),
        *(error for error in logs.real_exceptions if _is_overcome(error, ends)),
    ]
    overcome = _without_preludes(overcome, logs)
    if not overcome:
        return logs, []
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


def _without_preludes(overcome: list[Traced], logs: LogFacts) -> list[Traced]:
    """Without errors shortly before one that the program did not get over: they are part of the same failure."""
    dropped = {id(traced) for traced in overcome}
    traced_lines: list[Traced] = [
        *(hit for name, hit in logs.hits.items() if name in SIGNATURES and not hit.is_warning),
        *(event for event in logs.events if event.is_certain),
        *logs.real_exceptions,
    ]
    lasting = [first_line(traced)[:2] for traced in traced_lines if id(traced) not in dropped]
    return [traced for traced in overcome if not any(_precedes(traced, *place) for place in lasting)]


def _precedes(traced: Traced, file: str, line: int) -> bool:
    return first_line(traced)[0] == file and 0 < line - _last_line(traced) <= _PRELUDE


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
    if _is_aside(traced, text, end, signature):
        return True
    if outcome is None or signature in _CERTAIN or _is_by_rate(signature) or _is_storm(traced, end):
        return False
    is_good = ends_well(end, _last_line(traced))
    if _is_incidental(traced, end, signature) or _goes_on(traced, text, end):
        return True
    if signature in _LASTING:
        return (is_good or outcome.is_recovered) and outcome.work >= _SUSTAINED
    if outcome.work >= (_SOME if signature in _REQUESTS else _SUSTAINED):
        return True
    is_handled = outcome.is_recovered or _HANDLED.search(text) is not None
    is_done = end is not None and end.is_done
    return (is_handled and (is_done or outcome.work >= _SOME or outcome.is_recovered)) or (
        is_good and outcome.work >= _SOME
    )


def _is_aside(traced: Traced, text: str, end: LogEnd | None, signature: str) -> bool:
    """True for an error of a side service in a log that goes on after it."""
    if isinstance(traced, LoggedException) or signature in HARD | ENDS or not _SIDE_SERVICE.search(message_of(text)):
        return False
    return end is not None and end.last is not None and end.last.line - first_line(traced)[1] >= _SUSTAINED


def _is_incidental(traced: Traced, end: LogEnd | None, signature: str) -> bool:
    """True for an error message that the program's last word takes back."""
    if end is None or end.last is None or isinstance(traced, LoggedException) or signature in HARD | ENDS:
        return False
    after = end.last.line - _last_line(traced)
    return after > 0 and not end.is_cut and _WON.search(end.last.text) is not None


def _goes_on(traced: Traced, text: str, end: LogEnd | None) -> bool:
    """True for a message of an error, without an exception, of nothing that ends a program: it logs on as before."""
    if end is None or end.last is None or end.is_cut or not isinstance(traced, LogEvent) or traced.is_announcement:
        return False
    last, after = end.last.text.encode(), end.last.line - _last_line(traced)
    about = classify(message_of(text))
    if about == "terminated" and after > 0 and level_of(last) is Level.INFO and SHUTDOWN.search(last):
        return True
    if not traced.is_certain or about not in _SOFT or role_of(text, is_cause=False) is Role.END:
        return False
    if after <= 0 or level_of(last) is not Level.INFO or speaks_of_failure(last):
        return False
    return not _NO_WORK.search(last) or (after > _PRELUDE and SHUTDOWN.search(last) is not None)


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
