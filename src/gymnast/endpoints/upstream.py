"""Calls to the HTTP APIs of models, with retries and classified failures.

`endpoints.replicas` chooses the replica. The number of tries is limited, and Retry-After is honoured. Invariants:

- Every try chooses a replica again, so that a retry may go to another one. A replica counts the calls that it was
  chosen for, including those that wait for a slot.
- A failed connection marks a replica down, a reply below 500 marks it up; a timeout does neither.
- Timeouts and busy replies (429, 503 …) are reported as rejections, which lower the concurrency of the run.
- What leaves this module is a reply with status 200 or a CallError, with the API key removed from its text.
"""

from __future__ import annotations

import asyncio
import random
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
from gymnast.wire.classify import kind_of_exception, kind_of_reply, retry_after_s
from gymnast.wire.dialects.chat_chunks import BrokenStream, StreamedError, arrival_ms, parse_completion_stream
from gymnast.wire.http_client import header_items
from gymnast.wire.http_connection import TransportError
from gymnast.wire.message import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.tokens.backend import Caller
    from gymnast.types.json import JsonObject
    from gymnast.wire.http_connection import HttpReply
    from gymnast.wire.server import ServerContext

_BUSY: Final = frozenset({429, 502, 503, 504, 520, 529})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Whether to retry, and after how long. Pure: the caller sleeps."""

    busy_tries: int = 6
    """Tries in total while the endpoint is busy (429, 502, 503, 504, 520, 529) or unreachable."""
    error_tries: int = 3
    """Tries in total when it answers 500."""
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
        if detail.kind in {FailureKind.MODEL_UNREACHABLE, FailureKind.MODEL_RATE_LIMITED, FailureKind.MODEL_OVERLOADED}:
            return self.busy_tries
        return self.error_tries if detail.status == 500 else 1


class EndpointSettings(ModelSettings):
    """Settings of every model server with endpoints behind it."""

    max_concurrent_requests: PositiveInt | None = None
    """Maximum number of calls in flight."""
    max_concurrent_requests_per_endpoint: PositiveInt | None = None
    """Maximum number of calls in flight at each base URL."""
    timeout_s: PositiveFloat = 1800.0
    """Timeout of one call."""
    max_attempts: PositiveInt = 6
    """Maximum tries of one call while the endpoint is busy or unreachable; at most three after a 500."""
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
            kind = kind_of_reply(Stage.MODEL, error.status or 500)
            raise CallError(self._failure(kind, replica, path, error.body, status=error.status)) from error
        except BrokenStream as error:
            raise CallError(
                self._failure(FailureKind.MODEL_BAD_REPLY, replica, path, str(error), status=200)
            ) from error
        return completion, None if offset is None else arrival_ms(reply.arrivals, offset)

    async def _request(
        self, path: str, data: bytes, caller: Caller, *, record_arrivals: bool = False
    ) -> tuple[Replica, HttpReply]:
        """The first good reply, and its replica. With `record_arrivals`, the reply has the arrival time of each
        part."""
        self.health.start()
        tries = 0
        while True:
            tries += 1
            replica = self.replicas.choose(caller)
            replica.in_flight += 1
            if caller.progress is not None:
                caller.progress.endpoint = replica.base_url
            try:
                send = partial(
                    self._request_once, replica, path, data, caller.rollout_id, record_arrivals=record_arrivals
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
            finally:
                replica.in_flight -= 1
            await asyncio.sleep(delay)

    async def _request_once(
        self, replica: Replica, path: str, data: bytes, rollout_id: str | None, *, record_arrivals: bool
    ) -> HttpReply:
        started = time.perf_counter()
        signals = self._context.signals
        signals.record_call()
        try:
            with self._clock.deadline(self._timeout_s):
                reply = await self._context.http.request(
                    "POST", replica.target(path), self._headers, data, idempotent=True, record_arrivals=record_arrivals
                )
        except (TimeoutError, TransportError) as error:
            timed_out = isinstance(error, TimeoutError)
            if timed_out:
                signals.record_rejection(time.perf_counter() - started)
            else:
                self.replicas.report_down(replica)
            text = f"no answer within {self._timeout_s:g} s" if timed_out else str(error)
            detail = self._failure(kind_of_exception(Stage.MODEL, timed_out=timed_out), replica, path, text)
            raise CallError(detail) from error
        if reply.status < 500:
            replica.mark_up()
        if self._context.boundary is not None:
            self._log_boundary(replica, path, reply.status, reply.body, rollout_id, started)
        if reply.status == 200:
            return reply
        retry_after = retry_after_s(reply.header("retry-after"))
        text = reply.body.decode("utf-8", errors="replace")
        kind = kind_of_reply(Stage.MODEL, reply.status)
        if reply.status in _BUSY:
            signals.record_rejection(time.perf_counter() - started)
        raise CallError(self._failure(kind, replica, path, text, status=reply.status, retry_after=retry_after))

    def _parse_object(self, raw: bytes, replica: Replica, path: str) -> JsonObject:
        try:
            parsed: Any = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            text = f"status 200 but not JSON ({error}): {raw[:200].decode(errors='replace')}"
            raise CallError(self._failure(FailureKind.MODEL_BAD_REPLY, replica, path, text, status=200)) from error
        if not isinstance(parsed, dict):
            raise CallError(
                self._failure(
                    FailureKind.MODEL_BAD_REPLY, replica, path, "status 200 but not a JSON object", status=200
                )
            )
        return parsed

    def failure(self, kind: FailureKind, path: str, text: str) -> CallError:
        """A failure that the server detected itself, e.g. a reply it cannot use."""
        return CallError(self._failure(kind, self.replicas.all[0], path, text))

    def _failure(
        self,
        kind: FailureKind,
        replica: Replica,
        path: str,
        text: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> FailureDetail:
        text = self._scrubber.scrub(text)  # some endpoints repeat the key they refuse
        outcome = f"answered {status}" if status is not None else "failed"
        return FailureDetail(
            kind,
            Stage.MODEL,
            f"{self._instance}: {replica.url(path)} {outcome}: {bounded(text, 300)}",
            instance=self._instance,
            endpoint=replica.base_url,
            status=status,
            body=bounded(text),
            retry_after_s=retry_after,
            chain=(replica.url(path) + (f" {status}" if status is not None else ""),),
        )

    def _log_boundary(
        self, replica: Replica, path: str, status: int, body: bytes, rollout_id: str | None, started: float
    ) -> None:
        assert self._context.boundary is not None
        request = Request("POST", path, rollout_id=rollout_id)
        reply = Reply(status, raw=body)
        took_s = time.perf_counter() - started
        self._context.boundary.log_reply(f"{self._instance} upstream", replica.base_url, request, reply, took_s)
