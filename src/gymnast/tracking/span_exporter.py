"""Sends spans to an OTLP/HTTP collector from a background thread. A run never waits for it, except briefly at its end.

The queue is bounded: a collector that is slow or down costs spans, never time. The first problem is reported, and at
the end how many spans were lost.

Invariants: a span is in the queue (`_queued`), being sent (`_sending`), delivered or lost (`_lost`). These change only
while `_changed` is held. The thread starts with the first spans and ends by `_deadline`, which only the exit sets.
"""

from __future__ import annotations

import random
import re
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from contextlib import suppress
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from gymnast.errors import UserError
from gymnast.tracking.otlp import encode_traces

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.config.environ import TelemetryEnviron
    from gymnast.types.span import AttemptSpans, Attribute

FLUSH_S: Final = 10.0
"""How long the end of a run waits for the last spans."""
_INTERVAL_S: Final = 2.0
_MAX_SPANS_QUEUED: Final = 20_000
_MAX_SPANS_SENT: Final = 1_000
_TIMEOUT_S: Final = 10.0
_MAX_PAUSE_S: Final = 30.0
_MAX_TRIES: Final = 5
_PARTIAL_SUCCESS: Final = re.compile(rb"\x0a[\x80-\xff]*[\x00-\x7f]\x08([\x80-\xff]{0,8}[\x00-\x7f])", re.DOTALL)
"""The encoded message: field 1, its length, and in it field 1, a number."""
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Not reached through a proxy."""
_RETRYABLE: Final = frozenset({408, 429, 502, 503, 504})


def traces_url(text: str) -> str:
    """The URL that spans are posted to: `/v1/traces` of a collector, unless the URL has a path."""
    try:
        parts = urlsplit(text.strip())
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = False
    if not is_valid or any(character.isspace() for character in text.strip()):
        example = "http://localhost:4318"
        raise UserError(
            f"expected the URL of an OTLP/HTTP collector, got '{text}'", next=f"for example --trace {example}"
        )
    path = parts.path if parts.path.strip("/") else "/v1/traces"
    return parts._replace(path=path, fragment="").geturl()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST becomes a GET whose answer means nothing: the redirect is an error instead."""

    def redirect_request(self, *_: object) -> None:
        return None


class SpanExporter:
    """A queue of spans and the thread that sends them. Open as a context."""

    def __init__(
        self, url: str, environ: TelemetryEnviron, say: Callable[[str], None], *, flush_s: float = FLUSH_S
    ) -> None:
        self._url = traces_url(url)
        self._headers = {"content-type": "application/x-protobuf", "user-agent": "gymnast", **dict(environ.headers)}
        self._resource: dict[str, Attribute] = {**dict(environ.resource), "service.name": environ.service_name}
        is_local = urlsplit(self._url).hostname in _LOCAL
        self._opener = urllib.request.build_opener(
            _NoRedirects, *([urllib.request.ProxyHandler({})] if is_local else [])
        )
        self._say = say
        self._flush_s = flush_s
        self._version = _version()
        self._queue: deque[AttemptSpans] = deque()
        self._queued = self._sending = self._lost = 0
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._is_reported = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._deadline = time.monotonic() + self._flush_s
            self._changed.notify()
        if self._thread is not None:
            with suppress(KeyboardInterrupt):  # the user does not want to wait
                self._ended.wait(self._flush_s + 0.5)
        self._lost += self._queued + self._sending
        if self._lost:
            self._say(f"warning: --trace: {self._lost:,} spans were not delivered to {_mask_credentials(self._url)}")

    def put(self, attempt: AttemptSpans) -> None:
        """Queue the spans of an attempt. Never blocks; the oldest are dropped if the queue is full."""
        with self._changed:
            self._queue.append(attempt)
            self._queued += len(attempt.spans)
            while self._queued > _MAX_SPANS_QUEUED and len(self._queue) > 1:
                dropped = len(self._queue.popleft().spans)
                self._queued -= dropped
                self._lost += dropped
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="span-exporter", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is free: tried again with the next spans
            return
        self._thread = thread

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._deadline is None:
                    self._changed.wait(_INTERVAL_S)
                elif not self._queue:
                    self._ended.set()
                    return
                batch = self._take()
            if batch:
                self._deliver(batch)

    def _take(self) -> list[AttemptSpans]:
        batch: list[AttemptSpans] = []
        number = 0
        while self._queue and (not batch or number + len(self._queue[0].spans) <= _MAX_SPANS_SENT):
            batch.append(self._queue.popleft())
            number += len(batch[-1].spans)
        self._queued -= number
        return batch

    def _deliver(self, batch: list[AttemptSpans]) -> None:
        """Send a batch, with retries for what may pass. What cannot be delivered is counted as lost."""
        number = self._sending = sum(len(attempt.spans) for attempt in batch)
        try:
            body = encode_traces(batch, self._resource, self._version)
            for tries in range(1, _MAX_TRIES + 1):
                problem, pause_s = self._post(body, tries)
                if problem is None:
                    self._sending = 0
                    return
                self._report(problem)
                if pause_s is None or not self._pause(pause_s):
                    break
        except Exception as error:  # noqa: BLE001 - the boundary: this thread must go on
            self._report(f"{type(error).__name__}: {error}")
        with self._changed:
            self._lost += number
            self._sending = 0

    def _post(self, body: bytes, tries: int) -> tuple[str | None, float | None]:
        """What went wrong, if anything, and after how many seconds to try again, if that may help."""
        request = urllib.request.Request(self._url, data=body, headers=self._headers, method="POST")  # noqa: S310 - http(s) only
        pause_s = min(2.0**tries, _MAX_PAUSE_S) * (0.5 + random.random() / 2)  # noqa: S311 - jitter
        left_s = _TIMEOUT_S if self._deadline is None else max(0.1, self._deadline - time.monotonic())
        try:
            with self._opener.open(request, timeout=min(_TIMEOUT_S, left_s)) as reply:
                rejected = _rejected_spans(reply.read(65536))
        except urllib.error.HTTPError as error:
            with error:
                text = " ".join(error.read(300).decode("utf-8", errors="replace").split())
            problem = f"the collector answered {error.code}: {text or error.reason}"
            if error.code not in _RETRYABLE:
                return problem, None
            return problem, _retry_after_s(error.headers.get("retry-after"), pause_s)
        except (OSError, HTTPException) as error:
            return f"the collector cannot be reached: {getattr(error, 'reason', None) or error}", pause_s
        if rejected:
            with self._changed:
                self._lost += rejected
            self._report(f"the collector rejected {rejected} spans")
        return None, None

    def _pause(self, seconds: float) -> bool:
        """Wait before the next try. False if the run ends before that."""
        with self._changed:
            until = time.monotonic() + seconds
            while (left_s := until - time.monotonic()) > 0:
                if self._deadline is not None and until > self._deadline:
                    return False
                self._changed.wait(left_s)
        return True

    def _report(self, problem: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._say(
                f"warning: --trace: {problem}; the run is not affected "
                f"(is {_mask_credentials(self._url)} an OTLP/HTTP collector? its usual port is 4318)"
            )


def _mask_credentials(url: str) -> str:
    """The URL without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _retry_after_s(value: str | None, default: float) -> float:
    return min(float(value), _MAX_PAUSE_S) if value is not None and value.isdigit() else default


def _rejected_spans(body: bytes) -> int:
    """How many spans a collector refused although it answered 200 (`partial_success.rejected_spans`)."""
    match = _PARTIAL_SUCCESS.match(body)
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(match[1])) if match is not None else 0


def _version() -> str:
    try:
        return version("gymnast")
    except PackageNotFoundError:
        return "0"
