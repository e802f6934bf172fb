"""What a line of any log says about itself: its level, its time, whether it reports a failure or normal operation.

Knows the conventions of loggers, not the messages of programs: those are in `signatures`.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final


class Level(IntEnum):
    INFO = 0
    """Also debug and trace."""
    WARNING = 1
    NONE = 2
    """The line has no level: its words decide."""
    ERROR = 3


_NAMES: Final = {
    **dict.fromkeys((b"trace", b"debug", b"info", b"information", b"note", b"notice"), Level.INFO),
    **dict.fromkeys((b"normal", b"verbose"), Level.INFO),
    **dict.fromkeys((b"warn", b"warning"), Level.WARNING),
    **dict.fromkeys((b"err", b"error", b"erro", b"fatal", b"critical", b"crit", b"severe", b"alert"), Level.ERROR),
    **dict.fromkeys((b"emerg", b"panic", b"fehler", b"erreur"), Level.ERROR),
}
_LONGEST_FIRST: Final[list[bytes]] = sorted(_NAMES, key=len, reverse=True)
_WORDS: Final = b"|".join(_LONGEST_FIRST)
_LEVEL: Final = re.compile(
    rb"(?:^|[\s\[(|>:\-\]])(" + _WORDS.upper() + rb")(?=[\s:\]|)\[!-])"
    rb"|(?i:[\"']?\b(?:level|severity|lvl|levelname)[\"']?\s*[=:]\s*[\"']?(" + _WORDS + rb")\b)"
    rb"|\[(?i:(" + _WORDS + rb"))\s*\]"
    rb"|^(?i:(" + _WORDS + rb"))(?=[:\[])"
    rb"|^(info|warning|error|notice|verbose|debug) (?=[\w@\"'])"
    rb"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? +(?i:(" + _WORDS + rb"))(?= +(?:\d|\[|\())"
)
_EVENT: Final = re.compile(rb"^\s*(Normal|Warning)\s{2,}\w")
"""An event of Kubernetes: all its failures are called warnings."""
_LETTER: Final = re.compile(
    rb"(?:^|\[|\]:? ?|\d:? )([IWEFC])"
    rb"(?=\d{3,4} \d\d:\d\d| \d+ \d+\]|[ \]]+[\w./-]*\w\.(?:cc|cpp|cu|go)\b|(?<=\[[IWEFC])\])"
)
"""The one-letter levels of glog, klog, torch and Ray."""
_LETTERS: Final = {b"I": Level.INFO, b"W": Level.WARNING, b"E": Level.ERROR, b"F": Level.ERROR, b"C": Level.ERROR}
_NUMBER_LEVEL: Final = re.compile(rb"^<([0-7])>\[|^\{[^\n]{0,80}?\"level\":\s*([1-6])0\b")
"""The levels of a kernel, 0 to 7, and those of loggers of JavaScript, 10 to 60."""
_KERNEL_ERROR: Final = 3
_SCRIPT_WARNING: Final = 4
_HEAD: Final = 160
"""A level is at the start of a line."""
_CAPTURED: Final = re.compile(rb"\b(?:ERROR|WARNING|INFO)\b\W{1,4}(?:stderr|stdout)\b\W{1,4}")
"""A logger that captures another program's output: it gives every line the same level."""
_VERDICT: Final = re.compile(
    rb"(?i)^\W*(?:(?:case|test|item|sample|question|task|example|problem|row|trial|seed)s?\b[ #]*\w*"
    rb"|(?:final |overall )?(?:result|verdict))\W{1,3}"
    rb"(?-i:ERROR|FAIL(?:ED)?|PASS(?:ED)?)\b"
)
"""The verdict about one of many items: a result of the work."""
_HEADING: Final = re.compile(rb"[=*#_~-]{4,}\s[^=*#~]{1,80}\s[=*#_~-]{4,}\s*$")
_PROSE: Final = re.compile(
    rb"(?:(?:^|\s)I(?:'\w+)? |\b(?i:let's|let us|in conclusion|therefore|this suggests|however),? ).{20,}[.?!:]\W*$"
)
"""A sentence in the first person, or an argument: programs write neither."""
_SENTENCE: Final = 14
_PARAGRAPH: Final = 45
_SIGNS: Final = re.compile(rb"[:/_(\[{\"'`\\]")
_FORMULA: Final = re.compile("[¬∧∨↔⊕⊻∀∃∴⇒≠≤≥√]")
"""Signs of mathematics: a model or a person writes them."""
_PYTHON_WARNING: Final = re.compile(rb":\d+: \w*Warning: ")
_STRONG: Final = re.compile(
    rb"(?:^|[\s\]|])(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failure|Exhausted|Interrupt|Panic)\b(?::|$|\()"
    rb"|(?i:(?:^|[\s\]:])(?:fatal |internal )?error: |(?:^|\s)fatal: )|: error [A-Z]{1,4}\d{2,5}: "
    rb"|^(?:[A-Za-z_]\w*\.)+[A-Z]\w*(?:Error|Exception)[A-Z]\w*: "
    rb"|^\W*Error (?:\w+ing|in|while|during|from) [^:\n]{1,80}: |^make(?:\[\d+\])?: \*\*\* "
    rb"|(?:^|: )panic: |panicked at|Unhandled exception|Exception in thread|Assertion .{1,200}failed|core dumped"
    rb"|terminate called|(?:^|\W)(?:Killed|Aborted|Segmentation fault|Illegal instruction|Bus error)\s*$"
    rb"|\b(?:got|received|caught|by) signal[ =:]{0,2}(?:4|6|7|8|9|11)\b"
    rb"|\bBUG: |\bOops: \d|Kernel panic|general protection fault|\b(?:soft|hard) (?i:lockup)"
    rb"|^\s*(?i:caused by): ?|\*\*\* .{0,200}\bError \d|CRASH REPORT|LustreError|MPI_ABORT"
    rb"|(?i:exit(?:ed|s|ing)?(?: with)?(?: exit)? (?:code|status):? -?[1-9]|status=[1-9]\d*/)"
)
_UNEXPECTED_END: Final = re.compile(
    rb"(?i:\b(?:terminat\w+|died|exit\w*|crash\w*|killed|stopped)\b.{0,120}\bunexpected(?:ly)?\b"
    rb"|\bunexpected(?:ly)? (?:terminat|exit|died|crash|stopp)\w*)"
)
"""That something ended that should not have: a failure, whatever its level."""
_RELAYED: Final = re.compile(rb": panic: |: fatal error: |SIGSEGV: segmentation violation")
"""The crash of another program whose output a line passes on: a failure, whatever the level of the line."""
_CANCELLED: Final = re.compile(rb"\b(?:CancelledError|GeneratorExit|KeyboardInterrupt|SystemExit(?:: 0)?)\s*$")
"""How Python's own code says that it was asked to stop."""
_WEAK: Final = re.compile(
    rb"(?i:(?<![\w-])(?:NXDOMAIN|SERVFAIL|EAI_\w+|E(?:NOTFOUND|CONN\w+|NOSPC|MFILE|NOMEM|ACCES|PIPE|TIMEDOUT|HOSTUNREACH)"
    rb"|fail(?:ed|ure|s|ing)?|cannot|can't|could not|couldn't|unable to|refused|denied|not found|no such"
    rb"|invalid"
    rb"|abort(?:ed|ing)?|crash(?:ed)?|exceptions?|errors?|fatal|panic|undefined|unbound|rejected|attempt to"
    rb"|no solution|unsatisfiable|not permitted|expired|reached .{0,30}limit|unreachable|incompatible"
    rb"|unhandled|killed|exceeded|insufficient|mismatch|timed out|evicted|died|is dead|missing|doesn't exist|unknown "
    rb"(?:option|argument)|call ?stack|back ?trace|stack trace)(?![\w-]))"
)
_FILE_NAME: Final = re.compile(rb"(?i:-W\S*error\S*|[\w-]*(?:error|fail|exception|crash)[\w-]*\.[a-z]{1,4}(?![\w.]))")
_NAMES_IN_LIST: Final = re.compile(rb"""\[(?:\s*(?:'[^'\n]*'|"[^"\n]*")\s*(?:,|(?=\])))+\]?""")
"""A list of quoted names: the words in it are data."""
_NO_FAILURE: Final = re.compile(
    rb"(?i:(?<!rank )(?<!worker )(?<!gpu )(?<!node )(?<!process )(?<!device )(?<!task )\b0 (?:errors?|fail\w*"
    rb"|exceptions?)|(?:^|[,;:(|]) *0 (?:of \d+ )?(?:\w+ ){1,3}(?:errors?|fail\w*)\b"
    rb"|\b(?:errors?|fail\w*|killed)\s*[=:]\s*0\b|\bno (?:errors?|failures?)\b"
    rb"|\b(?:missing|not found|lost|dropped|expired|exceeded|invalid|rejected|unreachable|aborted)\W{0,3}0\b"
    rb"|\bnone \w+ed\b|\bexceptions? out of \d"
    rb"|\bon 0 of\b|\bexit(?:ed)?(?: with)?(?: exit)? code 75\b|\bretry\w*|\bstarting again\b|\brecover(?:ed"
    rb"|ing)\b|\b(?:error"
    rb"|fail\w*)_\w+"
    rb"|\b(?:errors?|fail\w*)/\w|\w_(?:error|failed)\b|\.warn\(|Warning: )"
)
"""Words of failure in a line that reports none."""
_NORMAL: Final = re.compile(
    rb"(?i:\b(?:steps?|epoch|iter\w*|loss|done|complete[d]?|finish\w*|success\w*|ok|ready|listening|running"
    rb"|starting|started"
    rb"|processing|writing|setting up|installed|added|created|built|updated|written|wrote|saved"
    rb"|scored|collected|collecting|passed|served|stopped|shut ?down|exiting|bye|healthy|idle|warning)\b"
    rb"|it/s|\d+%|\" [23]\d\d\b|^(?:wandb|mlflow|swanlab|neptune): "
    rb"|\b\w+ ?[=:] ?[\d.]+ ?\w*, \w+ ?[=:] ?[\d.]+)"
)
_STAMP: Final = re.compile(rb"\d\d:\d\d:\d\d")
_TIME: Final = re.compile(
    rb"(?:(?:\d{4}[-/])?(\d\d)[-/](\d\d)|(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2})"
    rb"|[IWEF](\d?\d)(\d\d))"
    rb"[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?"
)
_MONTHS: Final = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")


def level_of(line: bytes) -> Level:
    head = line[:_HEAD]
    captured = _CAPTURED.search(head)
    if captured is not None:
        return level_of(head[captured.end() :])
    by_form = _level_by_form(head)
    if by_form is not None:
        return by_form
    match = _LEVEL.search(head)
    if match is not None:
        return _NAMES[next(group for group in match.groups() if group).lower()]
    letter = _LETTER.search(head)
    if letter is not None:
        return _LETTERS[letter[1]]
    return Level.WARNING if b"Warning: " in line and _PYTHON_WARNING.search(line) else Level.NONE


def _level_by_form(head: bytes) -> Level | None:
    """The level of a line whose form says more than the words in it."""
    if _VERDICT.match(head) or _HEADING.search(head):
        return Level.INFO
    number = _NUMBER_LEVEL.match(head)
    if number is not None:
        return _level_of_number(number)
    event = _EVENT.match(head)
    if event is not None:
        return Level.INFO if event[1] == b"Normal" else Level.ERROR
    return Level.ERROR if b"NCCL WARN" in head else None  # the highest level that NCCL has


def _level_of_number(match: re.Match[bytes]) -> Level:
    if match[1] is not None:
        excess = int(match[1]) - _KERNEL_ERROR
        return Level.ERROR if excess <= 0 else Level.WARNING if excess == 1 else Level.INFO
    excess = int(match[2]) - _SCRIPT_WARNING
    return Level.ERROR if excess > 0 else Level.WARNING if excess == 0 else Level.INFO


def reports_failure(line: bytes) -> bool:
    """True if a line says that something failed: by its level, or by words that only failures are reported with."""
    level = level_of(line)
    if level is Level.WARNING and _UNEXPECTED_END.search(line):
        return True
    if level in {Level.INFO, Level.WARNING}:
        return _RELAYED.search(line) is not None
    if _CANCELLED.search(line):
        return False
    return level is Level.ERROR or (_STRONG.search(line) is not None and _NO_FAILURE.search(line) is None)


def hints_at_failure(line: bytes) -> bool:
    """True if a line without a level has words of failure, and is not the prose of a person or a model."""
    return level_of(line) is Level.NONE and speaks_of_failure(line) and not is_text(line)


def is_text(line: bytes) -> bool:
    """True for an argument, mathematics, a paragraph, or a long sentence without what programs write, such as paths."""
    words = len(line.split())
    if _PROSE.search(line):
        return True
    if not line.isascii() and _FORMULA.search(line.decode(errors="replace")):
        return True
    return words >= _PARAGRAPH or (words >= _SENTENCE and _SIGNS.search(line) is None)


def speaks_of_failure(line: bytes) -> bool:
    """True if a line has words of failure, and none that take them back."""
    if _CANCELLED.search(line):
        return False
    own = _FILE_NAME.sub(b"", _NAMES_IN_LIST.sub(b"", line) if b"['" in line or b'["' in line else line)
    return _WEAK.search(own) is not None and _NO_FAILURE.search(line) is None


def is_normal(line: bytes) -> bool:
    """True if a line reports normal operation."""
    level = level_of(line)
    if level is Level.ERROR:
        return False
    return level is not Level.NONE or _STAMP.search(line[:_HEAD]) is not None or _NORMAL.search(line) is not None


def seconds_of(line: str) -> float | None:
    """The time in a line, as seconds since the start of the year: many loggers write no year."""
    match = _TIME.search(line[:_HEAD].encode())
    if match is None:
        return None
    groups = match.groups()
    if groups[2]:
        month, day = _MONTHS.index(groups[2]) + 1, int(groups[3])
    else:
        month, day = int(groups[0] or groups[4]), int(groups[1] or groups[5])
    seconds = int(groups[6]) * 3600 + int(groups[7]) * 60 + int(groups[8])
    return (month * 31 + day) * 86400 + seconds + float(b"0." + (groups[9] or b"0"))


_MAX_BACK: Final = 60


def time_at(lines: list[bytes], index: int) -> float | None:
    """The time of a line: its own, else of the last line before it that has one."""
    for line in reversed(lines[max(0, index - _MAX_BACK) : index + 1]):
        seconds = seconds_of(line[:_HEAD].decode(errors="replace"))
        if seconds is not None:
            return seconds
    return None
