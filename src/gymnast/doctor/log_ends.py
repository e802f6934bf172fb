"""How a log ends: its last lines, whether they report normal operation or that the work is done, or break off."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import LogEnd, Quote
from gymnast.doctor.findings import LONG_QUOTE, quote_line
from gymnast.doctor.log_lines import Level, is_normal, level_of, seconds_of
from gymnast.doctor.log_markers import ZERO_COUNT
from gymnast.doctor.outcomes import count_work, says_done, template_of, work_templates

if TYPE_CHECKING:
    from typing import BinaryIO

MAX_TAIL: Final = 8000
"""Bytes at the end of a log that are examined."""
_MAX_LINE: Final = 2000
_TAIL_LINES: Final = 3
_WORK_LINES: Final = 40
_MIN_WORK: Final = 10
_LAST_LINES: Final = 5
_MIN_CUT: Final = 12
_MIN_REPORTS: Final = 2
_ALIKE: Final = 3
_TALLY: Final = re.compile(rb"(?i)(?<![\w.:/-])([1-9]\d{0,8}) (?:failed|errors?|failures)\b|\bfailed=([1-9]\d{0,8})\b")
_COUNT: Final = re.compile(rb"(?<![\w.:/-])(\d{1,9}) (?=[a-z])")
_FAILED_SHARE: Final = 0.1
_MEASURE: Final = re.compile(
    rb"(?i)\b((?:\w+[/_ ])?(?:loss|grad(?:ient)?[_ ]norm|perplexity))[\"']?\s*[:=]\s*"
    rb"(-?(?:nan|inf(?:inity)?)\b|-?[\d.])"
)
"""A measure of a training, and the beginning of its value."""
_NUMBER: Final = re.compile(rb"\d+")
_WAITING: Final = re.compile(
    rb"(?i)\b(?:waiting (?:for|on|until)|hang(?:ing|s)?|hung|stuck|blocked|not (?:yet )?ready|retrying in|retry \d)\b"
)
_IDLE: Final = re.compile(
    rb"(?i)\bwaiting (?:for|on) (?:[\w-]+ ){0,2}(?:work|requests?|connections?|messages?|jobs?|tasks?|inputs?|events?"
    rb"|commands?|changes?|clients?|data|leader|application|finish|shut ?down|init|user|next)\b|\bWaiting: \d"
)
"""What a program waits for that has nothing to do."""
_MIN_WAITS: Final = 6
_MIN_WAIT_S: Final = 120.0


def end_of(name: str, earlier: bytes, block: bytes, lines: int) -> LogEnd | None:
    """The last line of a block that is not blank, if there is one. `earlier`: the end of the block before."""
    text = block.rstrip()
    if not text:
        return None
    ending = (earlier + text[-MAX_TAIL:])[-MAX_TAIL:].split(b"\n")[-_WORK_LINES:]
    tail = ending[-_TAIL_LINES:]
    last = tail[-1][:_MAX_LINE]
    is_warning = level_of(last) is Level.WARNING
    is_working = is_normal(last) or (level_of(last) is Level.NONE and _ends_working(ending))
    is_done = says_done(ending)
    shown = tuple(quote_line(line.decode(errors="replace"), 200) for line in tail if line.strip())
    number = lines - block[len(text) :].count(b"\n") + 1
    quote = Quote(name, max(1, number), quote_line(last.decode(errors="replace")))
    return LogEnd(
        quote,
        is_working or is_done,
        is_warning,
        shown,
        is_done=is_done,
        is_cut=_breaks_off(ending),
        has_failed_items=_counts_failures(ending),
        not_finite=_not_finite(ending, name, number),
        stall=_stall(ending, name, number),
    )


def _stall(lines: list[bytes], name: str, last: int) -> Quote | None:
    """The first of the last lines, if they all say that a program waits for the same, for minutes."""
    first = len(lines)
    while first > 0 and _WAITING.search(lines[first - 1]) and not _IDLE.search(lines[first - 1]):
        first -= 1
    waits = lines[first:]
    if len(waits) < _MIN_WAITS or len({template_of(line) for line in waits}) > _ALIKE:
        return None
    times = [seconds_of(waits[place].decode(errors="replace")) for place in (0, -1)]
    if times[0] is None or times[1] is None or times[1] - times[0] < _MIN_WAIT_S:
        return None
    return Quote(name, last - len(waits) + 1, quote_line(waits[0].decode(errors="replace"), LONG_QUOTE))


def _not_finite(lines: list[bytes], name: str, last: int) -> Quote | None:
    """The last report of a training, if one of its measures is not finite there and in a report before it."""
    reports = [(place, dict(_MEASURE.findall(line))) for place, line in enumerate(lines) if _MEASURE.search(line)]
    if len(reports) < _MIN_REPORTS:
        return None
    place, values = reports[-1]
    if not any(_is_odd(value) and _is_odd(reports[-2][1].get(measure, b"0")) for measure, value in values.items()):
        return None
    text = quote_line(lines[place].decode(errors="replace"), LONG_QUOTE)
    return Quote(name, last - len(lines) + 1 + place, text)


def _is_odd(value: bytes) -> bool:
    return value.lstrip(b"-")[:1].isalpha()


def _counts_failures(lines: list[bytes]) -> bool:
    """True if a log ends with a count of items of which many failed."""
    for line in lines:
        tally = _TALLY.search(line)
        if tally is None:
            continue
        failed = int(tally[1] or tally[2])
        others = sum(map(int, _COUNT.findall(line))) - failed
        if tally[2] or failed >= _FAILED_SHARE * max(1, others):
            return True
    return False


def _ends_working(lines: list[bytes]) -> bool:
    """True if the last lines report progress, or that a count is zero."""
    work = work_templates(lines)
    is_last = count_work(lines[-_LAST_LINES:]) > 0 or any(template_of(line) in work for line in lines[-_ALIKE:])
    is_progress = sum(work.values()) >= _MIN_WORK and is_last
    return is_progress or ZERO_COUNT.search(lines[-1]) is not None


def _breaks_off(lines: list[bytes]) -> bool:
    """True if the last line is only the beginning of one: of a JSON object, or of a line like others before it."""
    *others, last = (_NUMBER.sub(b"0", line.rstrip(b"\r")) for line in lines)
    if last.endswith(b"\0"):
        return True
    if last.startswith(b"{"):
        return (
            not last.endswith(b"}") and sum(line.startswith(b"{") and line.endswith(b"}") for line in others) >= _ALIKE
        )
    if last in others:
        return False
    longer = [line for line in others if len(line) > len(last) and line.startswith(last.rstrip(b"0"))]
    return len(last) >= _MIN_CUT and len(longer) >= _ALIKE


def has_newline(stream: BinaryIO) -> bool:
    """True if a file ends with a complete line."""
    if not stream.seekable() or (size := stream.seek(0, os.SEEK_END)) == 0:
        return True
    stream.seek(-min(2, size), os.SEEK_END)
    last = stream.read(2)
    return last.endswith(b"\n") or last == b"\n\0"  # in UTF-16
