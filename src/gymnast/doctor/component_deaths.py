"""Components of a job that ended before its work did: what their companions and the job's script print of it."""

from __future__ import annotations

import re
from typing import Final

from gymnast.doctor.facts import ComponentDeath, Quote
from gymnast.doctor.findings import quoted

_COMPANION: Final = re.compile(
    rb"^\[(?P<name>[^\]\s]+)\.\d+\] (?P=name)(?: \((?:part|replica) \d+\))? "
    rb"(?:(?:exited with code \d+|was killed by \S+) while starting"
    rb"|was not ready within .*\)|cannot be started: .*)(?: after \d+ restarts)?$"
)
_LATER: Final = re.compile(
    rb"^\[(?P<name>(?!worker\.)[^\]\s]+)\.\d+\] (?P=name)(?: \((?:part|replica) \d+\))? "
    rb"(?:exited with code \d+|was killed by \w+)(?: after \d+ restarts)?$"
)
"""A worker may well end with a code of its own; what serves it may not."""
_SCRIPT: Final = re.compile(rb"gymnast: component (?P<name>\S+) ended \(exit code (?!70\))\d+\) before \S+ did")
"""70: it was never started because another one died, which says so itself."""
_OWN_LOG: Final = re.compile(r"last lines of (.+):$")
_ERROR: Final = re.compile(r"\b\w*(?:Error|Exception)\b(?:: |$)|out of memory|No space left")
_TAIL_LINES: Final = 120


def death_at(at: Quote, lines: list[bytes], index: int) -> ComponentDeath | None:
    """The death that a line tells of, with what follows it in the log: the end of the component's own."""
    line = lines[index]
    match = _COMPANION.search(line) or _LATER.search(line) or _SCRIPT.search(line)
    if match is None:
        return None
    name = match["name"].decode(errors="replace")
    death = ComponentDeath(name, Quote(at.file, at.line, quoted(line.decode(errors="replace"))))
    front, words = f"[{name}.", []
    for further in range(index + 1, min(index + _TAIL_LINES, len(lines))):
        text = lines[further].decode(errors="replace")
        told = text.partition("] ")[2] if text.startswith(front) else ""
        if found := _OWN_LOG.match(told):
            death.log = found[1]
        if told.startswith("  | ") and (said := told[4:].strip()):
            words.append(Quote(at.file, at.line + further - index, said))
    errors = [said for said in words if _ERROR.search(said.text)]
    if words:
        last = (errors or words)[-1]
        death.last_words = Quote(last.file, last.line, quoted(last.text))
    return death
