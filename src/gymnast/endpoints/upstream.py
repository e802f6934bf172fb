"""Calls to the HTTP APIs of models, with retries and classified failures.

`endpoints.replicas` chooses the replica. The number of tries is limited, and Retry-After is honoured. Invariants:

- Every try chooses a replica again, so that a retry may go to another one. A replica counts the calls that it was
  chosen for, including those that wait for a slot.
- A failed connection marks a replica down, a reply below 500 marks it up; a timeout does neither.
- Timeouts, rate limits and overload are reported as rejections, which lower the concurrency of the run.
- What an error means is decided by `wire.endpoint_errors`; an error in a reply with status 200 is an error as well.
- What leaves this module is an answer or a CallError, with the API key removed from its text.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from gymnast.config.secrets import Scrubber
from gymnast.endpoints.health import HealthMonitor
from gymnast.endpoints.replicas import Replica, ReplicaChoice, Replicas
from gymnast.endpoints.usage import ModelSettings
from gymnast.errors import CallError
from gymnast.types.failure import FailureDetail, FailureKind, Stage, bounded
from gymnast.wire.addresses import are_published, expand_base_urls, make_url_reader
from gymnast.wire.classify import retry_after_s
from gymnast.wire.deadline import Deadline
from gymnast.wire.dialects.chat_chunks import BrokenStream, StreamedError, arrival_ms, parse_completion_stream
from gymnast.wire.endpoint_errors import Cause, Certainty, Diagnosis, diagnose, diagnose_transport, find_error
from gymnast.wire.http_client import header_items
from gymnast.wire.http_connection import ReplyTooLargeError, TransportError
from gymnast.wire.message import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.tokens.backend import Caller
    from gymnast.types.items import Response
    from gymnast.types.json import JsonObject
    from gymnast.wire.http_connection import HttpReply
    from gymnast.wire.server import ServerContext
    from gymnast.wire.spans import SpanRecorder

_BUSY: Final = frozenset({FailureKind.MODEL_RATE_LIMITED, FailureKind.MODEL_OVERLOADED})
_ERROR_FIELD: Final = re.compile(rb'"error"\s*+:\s*+(?!null)')
"""Possessive: without, `"error": null` would match with the space given back, and every answer be parsed twice."""

_CUT_OFF: Final = Diagnosis(Cause.CONNECTION_LOST, FailureKind.MODEL_BAD_REPLY, Certainty.KNOWN)
_NOT_AN_ANSWER: Final = Diagnosis(Cause.NOT_AN_ANSWER, FailureKind.MODEL_BAD_REPLY, Certainty.KNOWN)
_NO_ANSWER_IN_TIME: Final = Diagnosis(Cause.TIMEOUT, FailureKind.MODEL_TIMEOUT, Certainty.KNOWN)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Whether to retry, and after how long. Pure: the caller sleeps."""

    busy_tries: int = 6
    """Tries in total while the endpoint is busy or unreachable."""
    error_tries: int = 3
    """Tries in total after an internal error."""
    first_delay_s: float = 0.5
    max_delay_s: float = 20.0

    def delay_s(self, detail: FailureDetail, tries: int, jitter: float) -> float | None:
        """Seconds until the next try after `tries` failed, or None to give up. `jitter` is in [0, 1)."""
        if tries >= self._max_tries(detail):
            return None
        if detail.retry_after_s is not None:
            return min(detail.retry_after_s, self.max_delay_s)
        return float(min(self.first_delay_s * 2 ** (tries - 1), self.max_delay_s) * (0.5 + jitter))

    def _max_tries(self, detail: FailureDetail) -> int:
        if detail.kind in {FailureKind.MODEL_UNREACHABLE, *_BUSY}:
            return self.busy_tries
        return self.error_tries if detail.kind is FailureKind.MODEL_ERROR else 1


class EndpointSettings(ModelSettings):
    """Settings of every model server with endpoints behind it."""

    max_concurrent_requests: PositiveInt | None = None
    """Maximum number of calls in flight."""
    max_concurrent_requests_per_endpoint: PositiveInt | None = None
    """Maximum number of calls in flight at each base URL."""
    timeout_s: PositiveFloat = 1800.0
    """Timeout of one call."""
    max_attempts: PositiveInt = 6
    """Maximum tries of one call while the endpoint is busy or unreachable; at most three after an internal error."""
    replica_choice: ReplicaChoice = "least_loaded"
    """The base URL of a new session, if there are several: the least loaded, or by a hash of its id (`hash`)."""
    health_interval_s: NonNegativeFloat = 5.0
    """Seconds between health checks of each of several base URLs; 0 disables them."""
    health_timeout_s: PositiveFloat = 5.0
    """Timeout of a health check."""


class Upstream:
    """The HTTP API of a model behind one or more replicas."""

    def __init__(
        self,
        instance: str,
        base_url: str | Sequence[str],
        context: ServerContext,
        settings: EndpointSettings,
        *,
        api_key: str,
        headers: Mapping[str, str],
        key_header: str = "authorization",
        api_headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`headers` may hold secrets, `api_headers` do not: they say which version of an API is meant."""
        self.replicas = Replicas(
            expand_base_urls(base_url),
            limit_each=settings.max_concurrent_requests_per_endpoint,
            choice=settings.replica_choice,
            are_external=not are_published(base_url),
        )
        self._instance = instance
        self._context = context
        self._clock = context.calls.clock
        key = {key_header: f"Bearer {api_key}" if key_header == "authorization" else api_key} if api_key else {}
        self._headers = header_items({"content-type": "application/json", **api_headers, **headers, **key})
        self._scrubber = Scrubber({"api_key": api_key, "secret": list(headers.values())})
        self._timeout_s = settings.timeout_s
        self._slots = asyncio.Semaphore(settings.max_concurrent_requests) if settings.max_concurrent_requests else None
        self.policy = RetryPolicy(busy_tries=settings.max_attempts, error_tries=min(3, settings.max_attempts))
        self.health = HealthMonitor(
            self.replicas,
            context.http,
            self._headers,
            interval_s=settings.health_interval_s,
            timeout_s=settings.health_timeout_s,
            reads_load=settings.replica_choice == "least_loaded",
            refresh=make_url_reader(base_url),
        )

    async def stop(self) -> None:
        """Stop background health checks. Later calls still work."""
        await self.health.stop()

    async def post(self, path: str, body: JsonObject, caller: Caller) -> JsonObject:
        """POST to an endpoint and parse its JSON reply. Raises CallError once retries are exhausted or pointless."""
        replica, reply = await self._request(path, orjson.dumps(body), caller)
        return self._parse_object(reply.body, replica, path)

    async def post_timed(self, path: str, body: JsonObject, caller: Caller) -> tuple[JsonObject, float | None]:
        """Like `post`, for a chat completion; also the time to its first token (ms). The reply is streamed and
        reassembled.

        The time is None if the endpoint replies without streaming.
        """
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        replica, reply = await self._request(path, orjson.dumps(streamed), caller, record_arrivals=True)
        if not (reply.header("content-type") or "").startswith("text/event-stream"):
            return self._parse_object(reply.body, replica, path), None
        try:
            completion, offset = parse_completion_stream(reply.body)
        except StreamedError as error:
            diagnosis = diagnose(error.status or 500, error.body, path=path, request=streamed)
            raise CallError(self._failure(diagnosis, replica, path, error.body, status=error.status)) from error
        except BrokenStream as error:
            raise CallError(self._failure(_CUT_OFF, replica, path, str(error), status=200)) from error
        return completion, None if offset is None else arrival_ms(reply.arrivals, offset)

    async def _request(
        self, path: str, data: bytes, caller: Caller, *, record_arrivals: bool = False
    ) -> tuple[Replica, HttpReply]:
        """The first good reply, and its replica. With `record_arrivals`, the reply has the arrival time of each
        part."""
        self.health.start()
        tries = 0
        progress = caller.progress
        spans: SpanRecorder | None = None
        while True:
            tries += 1
            replica = self.replicas.choose(caller)
            replica.in_flight += 1
            if progress is not None:
                progress.endpoint = replica.base_url
                spans = progress.spans
            try:
                send = partial(
                    self._request_once, replica, path, data, caller.rollout_id, spans, record_arrivals=record_arrivals
                )
                if self._slots is None and replica.slots is None:
                    return replica, await send()
                async with self._slots or nullcontext(), replica.slots or nullcontext():
                    return replica, await send()
            except CallError as error:
                delay = self.policy.delay_s(error.detail, tries, random.random())  # noqa: S311 - jitter
                if delay is None:
                    raise
                self._context.signals.record_retry(error.detail.kind.value)
                if spans is not None:
                    spans.record_retry(error.detail.kind.value, tries)
            finally:
                replica.in_flight -= 1
            await asyncio.sleep(delay)

    async def _request_once(
        self,
        replica: Replica,
        path: str,
        data: bytes,
        rollout_id: str | None,
        spans: SpanRecorder | None,
        *,
        record_arrivals: bool,
    ) -> HttpReply:
        started = time.perf_counter()
        signals = self._context.signals
        signals.record_call()
        try:
            with Deadline(self._clock, self._timeout_s):
                reply = await self._context.http.request(
                    "POST",
                    replica.target(path),
                    self._headers,
                    data,
                    extra_headers=() if spans is None else (("traceparent", spans.traceparent()),),
                    idempotent=True,
                    record_arrivals=record_arrivals,
                )
        except (TimeoutError, TransportError) as error:
            if isinstance(error, ReplyTooLargeError):
                raise CallError(self._failure(_NOT_AN_ANSWER, replica, path, str(error))) from error
            timed_out = isinstance(error, TimeoutError)
            if timed_out:
                signals.record_rejection(time.perf_counter() - started)
            else:
                self.replicas.report_down(replica)
                if self.replicas.are_all_down:
                    signals.record_outage(self._instance, f"{replica.base_url}: {error}", time.monotonic())
            text = f"no answer within {self._timeout_s:g} s" if timed_out else str(error)
            raise CallError(self._failure(_no_reply(text, timed_out=timed_out), replica, path, text)) from error
        signals.record_answer(self._instance)
        if reply.status < 500:
            replica.mark_up()
        if self._context.boundary is not None:
            self._log_boundary(replica, path, reply.status, reply.body, rollout_id, started)
        status = reply.status if reply.status != 200 else _error_status(reply)
        if status is None:
            return reply
        detail = self._error_reply(reply, status, replica, path, data)
        if detail.kind in _BUSY:
            signals.record_rejection(time.perf_counter() - started)
        raise CallError(detail)

    def _error_reply(self, reply: HttpReply, status: int, replica: Replica, path: str, data: bytes) -> FailureDetail:
        """The failure behind an error reply; `status` is the one that its body names, if it came as a 200."""
        text = reply.body.decode("utf-8", errors="replace")
        location = reply.header("location") if 300 <= reply.status < 400 else None
        diagnosis = diagnose(status, text, path=path, request=orjson.loads(data))
        if location is not None:
            text = f"redirect to {location}\n{text}"
        retry_after = retry_after_s(reply.header("retry-after"))
        return self._failure(diagnosis, replica, path, text, status=reply.status, retry_after=retry_after)

    def _parse_object(self, raw: bytes, replica: Replica, path: str) -> JsonObject:
        try:
            parsed: Any = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            body = raw.decode("utf-8", errors="replace")
            diagnosis = diagnose(200, body)
            if diagnosis.cause not in {Cause.EMPTY_BODY, Cause.HTML_BODY}:
                diagnosis = _CUT_OFF if _is_cut_off(raw, error) else _NOT_AN_ANSWER
            text = f"not JSON ({error}): {body}"
            raise CallError(self._failure(diagnosis, replica, path, text, status=200)) from error
        if not isinstance(parsed, dict):
            text = f"not a JSON object: {raw.decode('utf-8', errors='replace')}"
            raise CallError(self._failure(_NOT_AN_ANSWER, replica, path, text, status=200))
        return parsed

    def failure(self, kind: FailureKind, path: str, text: str, *, cause: Cause | None = None) -> CallError:
        """A failure that the server detected itself, e.g. a reply it cannot use."""
        diagnosis = Diagnosis(cause or Cause.NOT_AN_ANSWER, kind, Certainty.KNOWN)
        return CallError(self._failure(diagnosis, self.replicas.all[0], path, text))

    def require_answer(self, response: Response, path: str) -> None:
        """Raise if a content filter left nothing of a reply: that is not an answer, so it must not be scored."""
        reason = (response.get("incomplete_details") or {}).get("reason")
        if reason != "content_filter" or any(_has_content(dict(item)) for item in response["output"]):
            return
        text = "a content filter ended the reply before there was any text or tool call"
        raise self.failure(FailureKind.MODEL_REJECTED, path, text, cause=Cause.CONTENT_FILTER)

    def _failure(
        self,
        diagnosis: Diagnosis,
        replica: Replica,
        path: str,
        text: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> FailureDetail:
        text = self._scrubber.scrub(text)  # some endpoints repeat the key they refuse
        outcome = f"answered {status}" if status is not None else "failed"
        if diagnosis.certainty is not Certainty.STATUS:
            outcome += f" ({diagnosis.cause})"
        return FailureDetail(
            diagnosis.kind,
            Stage.MODEL,
            f"{self._instance}: {replica.url(path)} {outcome}: {bounded(text, 300)}",
            instance=self._instance,
            endpoint=replica.base_url,
            status=status,
            body=bounded(text),
            retry_after_s=retry_after,
            chain=(replica.url(path) + (f" {status}" if status is not None else ""),),
            cause=diagnosis.cause.value,
            certainty=diagnosis.certainty.value,
        )

    def _log_boundary(
        self, replica: Replica, path: str, status: int, body: bytes, rollout_id: str | None, started: float
    ) -> None:
        assert self._context.boundary is not None
        request = Request("POST", path, rollout_id=rollout_id)
        reply = Reply(status, raw=body)
        took_s = time.perf_counter() - started
        self._context.boundary.log_reply(f"{self._instance} upstream", replica.base_url, request, reply, took_s)


def _no_reply(text: str, *, timed_out: bool) -> Diagnosis:
    return _NO_ANSWER_IN_TIME if timed_out else diagnose_transport(text)


def _is_cut_off(reply: bytes, error: orjson.JSONDecodeError) -> bool:
    """Whether a reply that is not JSON ends in the middle of it, perhaps of a character."""
    if "unexpected end" in error.msg:
        return True
    return "UTF-8" in error.msg and reply.startswith(b"{") and not reply.rstrip().endswith(b"}")


def _has_content(item: JsonObject) -> bool:
    if item.get("type", "message") != "message":
        return True
    content = item.get("content")
    return any(
        (part.get("text") or part.get("refusal") or "").strip() for part in content or () if isinstance(part, dict)
    )


def _error_status(reply: HttpReply) -> int | None:
    """The status that an error in a reply with status 200 names, 200 if it names none, or None if it is an answer."""
    if _ERROR_FIELD.search(reply.body) is None:
        return None
    try:
        status, is_error = find_error(orjson.loads(reply.body))
    except orjson.JSONDecodeError:
        return None  # a stream, or broken: said where it is parsed
    return (status or 200) if is_error else None
