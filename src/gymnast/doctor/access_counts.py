"""Counts the statuses in access logs, and keeps the first line of each error."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import AccessLog, Quote
from gymnast.doctor.findings import quote_line
from gymnast.doctor.log_markers import ACCESS, JSON_ACCESS

if TYPE_CHECKING:
    from gymnast.doctor.facts import LogFacts

_FIRST_ERROR: Final = 400
_MAX_LINE: Final = 2000


def count_requests(facts: LogFacts, name: str, block: bytes, before: int) -> None:
    """Count the requests in a block of a log. `before`: the number of lines before it."""
    pattern = ACCESS if b"HTTP/" in block or b"TCP_" in block else JSON_ACCESS if b"status" in block else None
    replies = pattern.findall(block) if pattern is not None else []
    if pattern is None or not replies:
        return
    statuses = Counter(replies)
    if not facts.access or facts.access[-1].file != name:
        facts.access.append(AccessLog(name))
    log = facts.access[-1]
    log.ok_at_end = _count_ok_at_end(replies, log.ok_at_end)
    for status in statuses:
        if int(status) >= _FIRST_ERROR and int(status) not in log.first:
            match = next(match for match in pattern.finditer(block) if match[1] == status)
            log.before[int(status)] = log.requests + replies.index(status)
            start, end = block.rfind(b"\n", 0, match.start()) + 1, block.find(b"\n", match.end())
            text = quote_line(block[start:end][:_MAX_LINE].decode(errors="replace"))
            log.first[int(status)] = Quote(name, before + block.count(b"\n", 0, start) + 1, text)
    log.statuses.update({int(status): count for status, count in statuses.items()})


def _count_ok_at_end(replies: list[bytes], before: int) -> int:
    """The requests since the last one that was answered with an error."""
    since = next((count for count, status in enumerate(reversed(replies)) if int(status) >= _FIRST_ERROR), None)
    return before + len(replies) if since is None else since
