"""Recognizes components of a job that ended before its work, from what sidecars and the job script print."""

from __future__ import annotations

import re
from typing import Final

from gymnast.doctor.facts import ComponentDeath, Quote
from gymnast.doctor.findings import quote_line

_WHILE_STARTING: Final = re.compile(
    rb"^\[(?P<name>[^\]\s]+)\.\d+\] (?P=name)(?: \((?:part|replica) \d+\))? "
    rb"(?:(?:exited with code \d+|was killed by \S+) while starting"
    rb"|was not ready within .*\)|cannot be started: .*)(?: after \d+ restarts)?$"
)
_WHILE_RUNNING: Final = re.compile(
    rb"^\[(?P<name>(?!worker\.)[^\]\s]+)\.\d+\] (?P=name)(?: \((?:part|replica) \d+\))? "
    rb"(?:exited with code \d+|was killed by \w+)(?: after \d+ restarts)?$"
)
"""Excludes workers, which may end with any exit code."""
_BY_SCRIPT: Final = re.compile(rb"gymnast: component (?P<name>\S+) ended \(exit code (?!70\))\d+\) before \S+ did")
"""Excludes 70: it was not started because another component died, which is reported itself."""
_OWN_LOG: Final = re.compile(r"last lines of (.+):$")
_ERROR: Final = re.compile(r"\b\w*(?:Error|Exception)\b(?:: |$)|out of memory|No space left")
_TAIL_LINES: Final = 120


def death_at(at: Quote, lines: list[bytes], index: int) -> ComponentDeath | None:
    """The death that a line reports, with the end of the component's own log, which follows it."""
    line = lines[index]
    match = _WHILE_STARTING.search(line) or _WHILE_RUNNING.search(line) or _BY_SCRIPT.search(line)
    if match is None:
        return None
    name = match["name"].decode(errors="replace")
    death = ComponentDeath(name, Quote(at.file, at.line, quote_line(line.decode(errors="replace"))))
    prefix, output = f"[{name}.", []
    for further in range(index + 1, min(index + _TAIL_LINES, len(lines))):
        text = lines[further].decode(errors="replace")
        message = text.partition("] ")[2] if text.startswith(prefix) else ""
        if log := _OWN_LOG.match(message):
            death.log = log[1]
        if message.startswith("  | ") and (tail := message[4:].strip()):
            output.append(Quote(at.file, at.line + further - index, tail))
    errors = [quote for quote in output if _ERROR.search(quote.text)]
    if output:
        last = (errors or output)[-1]
        death.last_output = Quote(last.file, last.line, quote_line(last.text))
    return death
