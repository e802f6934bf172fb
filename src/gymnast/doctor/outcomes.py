"""What followed an error in its log: sustained work, a recovery or a good end; and which errors are incidental then.

An error says that something failed, not that it mattered. A program that goes on working after it, or that says at its
end that the work is done, got over it. Only the lines after the last occurrence of an error count.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import Hit, LogEvent, LoggedException, Outcome
from gymnast.doctor.log_lines import Level, is_normal, level_of, reports_failure, speaks_of_failure
from gymnast.doctor.log_markers import ACCESS, SHUTDOWN, SOURCE, STARTED
from gymnast.doctor.provenance import own_words

if TYPE_CHECKING:
    Traced = Hit | LogEvent | LoggedException
    _Key = tuple[int, bool]
    """An error, and whether it is about its first occurrence."""

_WINDOW: Final = 150
"""Lines after an error that are examined."""
_REPEATED: Final = 3
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
NO_WORK: Final = re.compile(
    rb"(?i:\b(?:wait(?:ing)?|retr(?:y|ies|ying)|attempts?|polling|still|sleep\w*|queued|pending|idle|keep-?alive"
    rb"|heartbeat|back(?:ing)?[- ]?off|thread|frame|stack|skipp\w+|lost|shut\w*|clos(?:ed|ing)|terminat\w+|stopp\w+"
    rb"|Extension modules)\b|throughput: 0\.0|throughput \(token/s\): 0\.0|/(?:healthz?|metrics|readyz?|livez?|ping)\b"
    rb"|^\s*(?:at |#?\d+[: ]+0x|File \"|\.{3}|[|+]))"
)
"""Lines that repeat although nothing is done."""
_TABLE_ROW: Final = re.compile(rb"\|(?:[^|]*\|){4,}\s*$")
"""A row of a table: results that a program shows."""
_IDLE: Final = re.compile(
    rb"(?i:\b(?:wait(?:ing)?|retr(?:y|ies|ying)|attempts?|polling|still|sleep\w*|pending|back(?:ing)?[- ]?off|lost"
    rb"|terminat\w+|stopp\w+|exit\w*)\b)"
)
"""Messages of a program that goes on without getting further, or ends."""
_PROCESS: Final = re.compile(rb"^(?:[\w.-]+\s+\| |\([^()\n]{1,60}pid=\d+[^()\n]*\) |\[rank\d+\]:? )")
_SUCCESS: Final = re.compile(
    r"(?i)^\W*pass(?:ed)?\b|\b(?:done|completed?|finished|succe(?:ss|eded)\w*|all passed|saved|summari[sz]ed"
    r"|exit(?:ed)?(?: with)? ?(?:code|status):? 0"
    r"|0 failed|0 errors)\b|\b0:0\b|build finished"
)
_TOTALS: Final = re.compile(r"(?i)\b[1-9]\d* (?:\w+ )?(?:fail\w*|errors?|lost|missing|dropped)\b")


class OutcomeTracker:
    """Keeps the lines after the first and the last occurrence of each error, and judges them when the file is read."""

    def __init__(self) -> None:
        self._marks: dict[_Key, tuple[Traced, int]] = {}
        self._windows: dict[_Key, tuple[Traced, bytes, list[bytes]]] = {}
        self._open: set[_Key] = set()
        """Errors so close to the end of the last block that the next one continues what followed."""

    @property
    def is_open(self) -> bool:
        """True if the next block continues what followed an error."""
        return bool(self._open)

    def mark(self, traced: Traced, index: int) -> None:
        """Note that an error occurred in this line of the block."""
        first = (id(traced), True)
        if first not in self._windows and first not in self._marks:
            self._marks[first] = (traced, index)
        self._marks[id(traced), False] = (traced, index)

    def finish_block(self, lines: list[bytes]) -> None:
        """Keep what followed the errors of this block. The last line is an empty one after the last newline."""
        for key in self._open - self._marks.keys():
            following = self._windows[key][2]
            following += lines[: _WINDOW - len(following)]
        self._open = {key for key in self._open if key[1] and len(self._windows[key][2]) < _WINDOW}
        for key, (traced, index) in self._marks.items():
            following = lines[index + 1 : min(index + 1 + _WINDOW, len(lines) - 1)]
            self._windows[key] = (traced, lines[index], following)
            if len(following) < _WINDOW:
                self._open.add(key)
        self._marks = {}

    def finish_file(self) -> None:
        data: dict[int, set[bytes]] = {}
        for (known, is_first), (traced, error, following) in self._windows.items():
            if is_first and traced.count > 1:
                data[known] = _data_below(error, following)
                traced.progress_between = sum(map(reports_progress, _without(data[known], following)))
        for (known, is_first), (traced, error, following) in self._windows.items():
            if not is_first:
                traced.outcome = _outcome(error, _without(data.get(known, set()), following))
        self._windows, self._open = {}, set()


def _data_below(error: bytes, following: list[bytes]) -> set[bytes]:
    """The templates of lines without a level between errors that have one, unless they show work: the errors' data."""
    if level_of(error) is not Level.ERROR or count_work([line for line in following if not line[:1].isspace()]):
        return set()
    return {template_of(line) for line in following if level_of(line) is Level.NONE and not ACCESS.search(line)}


def _without(templates: set[bytes], lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if template_of(line) not in templates] if templates else lines


def count_work(lines: list[bytes], process: bytes = b"") -> int:
    """The lines that report progress: they repeat with other numbers, and speak of no failure and no waiting."""
    return sum(work_templates(lines, process).values())


def work_templates(lines: list[bytes], process: bytes = b"") -> dict[bytes, int]:
    """The templates of the lines that report progress, and how many lines each has."""
    counts: Counter[bytes] = Counter()
    examples: dict[bytes, bytes] = {}
    for line in lines:
        access = ACCESS.search(line)
        if access is not None and (int(access[1]) >= _FIRST_ERROR or NO_WORK.search(line)):
            continue
        if access is not None or line.startswith(process):
            template = _ANSWERED if access is not None else template_of(line)
            counts[template] += 1
            examples[template] = line
    return {
        template: count
        for template, count in counts.items()
        if count >= _REPEATED and (template == _ANSWERED or (b"#" in template and _is_work(examples[template])))
    }


def says_done(lines: list[bytes]) -> bool:
    """True if one of the last lines says that the work is done, and not only one item of it."""
    templates = Counter(template_of(line) for line in lines)
    last = [line for line in lines[-_LAST_LINES:] if templates[template_of(line)] < _REPEATED]
    texts = [line.decode(errors="replace") for line in last]
    return any(_SUCCESS.search(text) for text in texts) and not any(_TOTALS.search(text) for text in texts)


def template_of(line: bytes) -> bytes:
    """A line without what changes from one line to the next: numbers, names with digits, addresses."""
    return _VARIABLE.sub(b"#", line[:_MAX_LINE])


def _is_work(line: bytes) -> bool:
    if SOURCE.search(line) or level_of(line) in {Level.WARNING, Level.ERROR}:
        return False
    own = own_words(line.decode(errors="replace")).encode()
    return not (NO_WORK.search(own) or reports_failure(own) or speaks_of_failure(own))


def reports_progress(line: bytes) -> bool:
    """True for a line of normal operation: not of waiting, closing or a failure, and not of a traceback."""
    line = line[:_MAX_LINE]
    access = ACCESS.search(line)
    if access is not None:
        return int(access[1]) < _FIRST_ERROR
    if SHUTDOWN.search(line):
        return False
    if _TABLE_ROW.match(line):
        return not speaks_of_failure(line)
    if level_of(line) is not Level.INFO:
        return is_normal(line) and _is_work(line)
    own = own_words(line.decode(errors="replace")).encode()
    return not (_IDLE.search(own) or speaks_of_failure(own) or SOURCE.search(line))


def _outcome(error: bytes, following: list[bytes]) -> Outcome:
    process = _PROCESS.match(error)
    is_recovered = any(_RECOVERED.search(line) or STARTED.search(line) for line in following)
    is_recovered = is_recovered or any(_FALLBACK.search(line) for line in following[:_NEXT_LINES])
    work = count_work(following, process[0] if process is not None else b"")
    return Outcome(work, is_recovered, sum(map(reports_progress, following)))
