"""The rule about access logs: many requests that a server or proxy answered with an error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.doctor.failure_classes import subject_of
from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.line_roles import headline_of
from gymnast.doctor.rules.rule import rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import AccessLog, Facts

ID: Final = "requests_rejected"
_MIN_COUNT: Final = 10
_MIN_SHARE: Final = 0.2
_MANY: Final = 100
_SERVER_SHARE: Final = 0.05
_OWN: Final = frozenset({500, 502, 504})
_MIN_OK: Final = 50
_OK_SHARE: Final = 0.3
_FIRST_ERROR: Final = 400
_ROOT: Final = re.compile(r"POST /+(?:index\.\w+)?(?:\?\S*)? HTTP/")


@dataclass(frozen=True, slots=True)
class _Reason:
    layer: Layer | None
    """None: that of the server, by the paths."""
    cause: str
    action: str


_DENIED: Final = _Reason(
    Layer.CONFIG,
    "the server or proxy denies these requests: by its access rules, or for lack of a key or login",
    "allow the client or the host in its access rules, pass the key or login, or bypass a proxy with NO_PROXY",
)
_NO_CAPACITY: Final = _Reason(
    Layer.THROUGHPUT,
    "the server has no capacity, a limit of the proxy (connections, pending requests, circuit breaker) rejects "
    "requests, "
    "or no backend is healthy; flags after the status say which",
    "raise that limit or lower --concurrency, and check that the backends are healthy",
)
_REASONS: Final = {
    **dict.fromkeys((401, 403, 407), _DENIED),
    **dict.fromkeys(
        (404, 405),
        _Reason(
            Layer.CONFIG,
            "the server has no such path or model, or not for this method: the URL or the model's name is wrong",
            "compare the path with the server's own (curl URL/v1/models); a base URL usually ends with /v1",
        ),
    ),
    413: _Reason(
        Layer.CONFIG,
        "requests are larger than the server or proxy allows",
        "raise its limit of the body size (nginx: client_max_body_size)",
    ),
    429: _Reason(
        Layer.THROUGHPUT,
        "more requests are sent than the server or proxy allows",
        "lower --concurrency or raise the rate limit",
    ),
    500: _Reason(None, "the server fails on these requests", "read the server's own log at these times"),
    502: _Reason(
        None,
        "the proxy cannot reach the server behind it, or that closes connections",
        "check that the server behind the proxy runs; its own log says why it does not answer",
    ),
    503: _NO_CAPACITY,
    504: _Reason(
        Layer.THROUGHPUT,
        "the proxy gives up before the server behind it has answered",
        "raise the proxy's timeout above the longest request, or lower --concurrency",
    ),
}
"""What a status means if many requests got it."""


@rule(Layer.THROUGHPUT, 1, "Read what that status means for the server or proxy.", name=ID)
def requests_rejected(facts: Facts) -> Finding | None:
    """Many requests in an access log were answered with the same error."""
    if facts.run is not None or facts.is_complete:
        return None
    worst = max(
        (
            (log, status, log.statuses[status])
            for log in facts.logs.access
            if not _is_over(log)
            for status in _REASONS
            if not _is_lookup(log, status)
        ),
        key=lambda entry: entry[2],
        default=None,
    )
    return _finding(*worst) if worst is not None and _is_frequent(*worst) else None


def _is_frequent(log: AccessLog, status: int, count: int) -> bool:
    """True for a share of the requests that is not chance. A server seldom fails on its own: a smaller one counts."""
    share = count / max(1, _since_first(log, status))
    return count >= _MIN_COUNT and (
        share >= _MIN_SHARE or (count >= _MANY and share >= _SERVER_SHARE and status in _OWN)
    )


def _is_over(log: AccessLog) -> bool:
    """True if so many requests succeeded since the last error that it is over."""
    return log.ok_at_end >= max(_MIN_OK, _OK_SHARE * log.requests)


def _is_lookup(log: AccessLog, status: int) -> bool:
    """True for a client that looks whether something exists: a GET that is answered with 404 is an answer.

    So is a request for the root of a server that answers others: that is how strangers scan the network.
    """
    if status not in {404, 405} or status not in log.first:
        return False
    text = log.first[status].text
    return "POST" not in text or (_ROOT.search(text) is not None and any(code < _FIRST_ERROR for code in log.statuses))


def _since_first(log: AccessLog, status: int) -> int:
    """The requests since the first one with this status."""
    return log.requests - log.before.get(status, 0)


def _course(log: AccessLog, status: int, count: int) -> str:
    """When it began and how much of the traffic it has been since."""
    before, since = log.before.get(status, 0), _since_first(log, status)
    began = f"after {before} requests without it" if before else "from the first request on"
    end = f"; the last {log.ok_at_end} succeeded" if log.ok_at_end else "; it lasts until the end of the log"
    return f"it began {began}, and is {count / since:.0%} of the {since} since{end}"


def _finding(log: AccessLog, status: int, count: int) -> Finding:
    reason, first = _REASONS[status], log.first[status]
    return Finding(
        ID,
        reason.layer or subject_of(first.text) or Layer.INFRA,
        f"{count} of {log.requests} requests were answered with status {status}: {headline_of(first.text)}",
        reason.cause,
        reason.action,
        (
            Evidence("the first of them", first.file, first.line, count=count, quote=first.text),
            Evidence(_course(log, status, count)),
        ),
        Confidence.MEDIUM,
        weight=50,
    )


RULES: Final = (requests_rejected,)
