"""Calls to OpenAI-compatible endpoints: how often again, and what a failure is called.

Which replica is asked is decided in `kit.replicas`. Retries are bounded in number and honour Retry-After.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from gymnast.config.secrets import Scrubber
from gymnast.errors import CallError
from gymnast.kit.accounting import ModelSettings
from gymnast.kit.health import HealthWatch
from gymnast.kit.replicas import Replica, ReplicaChoice, Replicas
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.wire.addresses import expanded, refresher
from gymnast.wire.classify import kind_of_exception, kind_of_reply, retry_after_s
from gymnast.wire.dialects.chat_chunks import BrokenStream, StreamedError, arrived_ms, completion_of_stream
from gymnast.wire.http_client import header_items
from gymnast.wire.http_connection import TransportError
from gymnast.wire.message import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.tokens.engine import Asker
    from gymnast.types.json import JsonObject
    from gymnast.wire.http_connection import HttpReply
    from gymnast.wire.server import Surroundings

_BUSY: Final = frozenset({429, 502, 503, 504, 520, 529})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to ask again, and after how long. Pure: the caller sleeps."""

    busy_attempts: int = 6
    """Tries in total while the endpoint says it is busy (429, 502, 503, 504, 520, 529) or cannot be reached."""
    error_attempts: int = 3
    """Tries in total when it answers 500."""
    first_delay_s: float = 0.5
    longest_delay_s: float = 20.0

    def delay_s(self, detail: FailureDetail, attempt: int, jitter: float) -> float | None:
        """Seconds until the next try after the `attempt`-th failed, or None to give up. `jitter` is in [0, 1)."""
        allowed = self._attempts(detail)
        if attempt >= allowed:
            return None
        if detail.retry_after_s is not None:
            return min(detail.retry_after_s, self.longest_delay_s)
        return float(min(self.first_delay_s * 2 ** (attempt - 1), self.longest_delay_s) * (0.5 + jitter))

    def _attempts(self, detail: FailureDetail) -> int:
        if detail.kind in {"model_unreachable", "model_rate_limited", "model_overloaded"}:
            return self.busy_attempts
        return self.error_attempts if detail.status == 500 else 1


class EndpointSettings(ModelSettings):
    """Settings of every model server with endpoints behind it."""

    max_concurrent_requests: PositiveInt | None = None
    """Calls in flight at most."""
    max_concurrent_requests_per_endpoint: PositiveInt | None = None
    """Calls in flight at most at each base URL."""
    timeout_s: PositiveFloat = 1800.0
    """Seconds one call may take."""
    max_attempts: PositiveInt = 6
    """Tries of one call in total while the endpoint is busy or cannot be reached; at most three on a 500."""
    replica_choice: ReplicaChoice = "least_loaded"
    """Where a new session goes if there are several base URLs: where the least is going on, or by its name (`hash`)."""
    health_interval_s: NonNegativeFloat = 5.0
    """Seconds between looks at each of several base URLs; 0 looks at none."""
    health_timeout_s: PositiveFloat = 5.0
    """Seconds such a look may take."""


class Upstream:
    """An OpenAI-compatible API behind one or more replicas."""

    def __init__(
        self,
        instance: str,
        base_url: str | Sequence[str],
        surroundings: Surroundings,
        settings: EndpointSettings,
        *,
        api_key: str,
        headers: Mapping[str, str],
    ) -> None:
        self.replicas = Replicas(
            expanded(base_url), limit_each=settings.max_concurrent_requests_per_endpoint, choice=settings.replica_choice
        )
        self._instance = instance
        self._surroundings = surroundings
        self._clock = surroundings.calls.clock
        authorization = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._headers = header_items({"content-type": "application/json", **headers, **authorization})
        self._scrubber = Scrubber({"api_key": api_key, "secret": list(headers.values())})
        self._timeout_s = settings.timeout_s
        self._slots = asyncio.Semaphore(settings.max_concurrent_requests) if settings.max_concurrent_requests else None
        self.policy = RetryPolicy(busy_attempts=settings.max_attempts, error_attempts=min(3, settings.max_attempts))
        self.health = HealthWatch(
            self.replicas,
            surroundings.http,
            self._headers,
            interval_s=settings.health_interval_s,
            timeout_s=settings.health_timeout_s,
            reads_load=settings.replica_choice == "least_loaded",
            refresh=refresher(base_url),
        )

    async def stop(self) -> None:
        """End what goes on in the background. Calls made afterwards are still answered."""
        await self.health.stop()

    async def post(self, path: str, body: JsonObject, call: Asker) -> JsonObject:
        """The JSON answer of an endpoint. Raises CallError when tries are used up or trying again is pointless."""
        replica, answer = await self.ask(path, orjson.dumps(body), call)
        return self._parsed(answer.body, replica, path)

    async def post_timed(self, path: str, body: JsonObject, call: Asker) -> tuple[JsonObject, float | None]:
        """The same for a chat completion, and when its first token came (ms): asked for as a stream, put together here.

        An endpoint that answers without streaming is taken at its word; then there is no such time.
        """
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        replica, answer = await self.ask(path, orjson.dumps(asked), call, timed=True)
        if not (answer.header("content-type") or "").startswith("text/event-stream"):
            return self._parsed(answer.body, replica, path), None
        try:
            completion, offset = completion_of_stream(answer.body)
        except StreamedError as error:
            kind = kind_of_reply(Stage.MODEL, error.status or 500)
            raise CallError(self._failure(kind, replica, path, error.body, status=error.status)) from error
        except BrokenStream as error:
            raise CallError(self._failure("model_bad_reply", replica, path, str(error), status=200)) from error
        return completion, None if offset is None else arrived_ms(answer.arrivals, offset)

    async def ask(self, path: str, data: bytes, call: Asker, *, timed: bool = False) -> tuple[Replica, HttpReply]:
        """The first good answer, and where it came from. With `timed`, it says when each part of it came."""
        self.health.start()
        attempt = 0
        while True:
            attempt += 1
            replica = self.replicas.choose(call)
            replica.in_flight += 1
            if call.trail is not None:
                call.trail.endpoint = replica.base_url
            try:
                if self._slots is None and replica.slots is None:
                    return replica, await self._once(replica, path, data, call.rollout_id, timed=timed)
                async with self._slots or nullcontext(), replica.slots or nullcontext():
                    return replica, await self._once(replica, path, data, call.rollout_id, timed=timed)
            except CallError as error:
                delay = self.policy.delay_s(error.detail, attempt, random.random())  # noqa: S311 - jitter
                if delay is None:
                    raise
            finally:
                replica.in_flight -= 1
            await asyncio.sleep(delay)

    async def _once(
        self, replica: Replica, path: str, data: bytes, rollout_id: str | None, *, timed: bool
    ) -> HttpReply:
        started = time.perf_counter()
        signals = self._surroundings.signals
        signals.called()
        try:
            with self._clock.deadline(self._timeout_s):
                answer = await self._surroundings.http.request(
                    "POST", replica.target(path), self._headers, data, repeatable=True, timed=timed
                )
        except (TimeoutError, TransportError) as error:
            timed_out = isinstance(error, TimeoutError)
            if timed_out:
                signals.rejected(time.perf_counter() - started)
            else:
                self.replicas.report_down(replica)
            said = f"no answer within {self._timeout_s:g} s" if timed_out else str(error)
            detail = self._failure(kind_of_exception(Stage.MODEL, timed_out=timed_out), replica, path, said)
            raise CallError(detail) from error
        if answer.status < 500:
            replica.mark_up()
        if self._surroundings.boundary is not None:
            self._log_boundary(replica, path, answer.status, answer.body, rollout_id, started)
        if answer.status == 200:
            return answer
        retry_after = retry_after_s(answer.header("retry-after"))
        text = answer.body.decode("utf-8", errors="replace")
        kind = kind_of_reply(Stage.MODEL, answer.status)
        if answer.status in _BUSY:
            signals.rejected(time.perf_counter() - started)
        raise CallError(self._failure(kind, replica, path, text, status=answer.status, retry_after=retry_after))

    def _parsed(self, raw: bytes, replica: Replica, path: str) -> JsonObject:
        try:
            parsed: Any = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            said = f"status 200 but not JSON ({error}): {raw[:200].decode(errors='replace')}"
            raise CallError(self._failure("model_bad_reply", replica, path, said, status=200)) from error
        if not isinstance(parsed, dict):
            raise CallError(
                self._failure("model_bad_reply", replica, path, "status 200 but no JSON object", status=200)
            )
        return parsed

    def failure(self, kind: str, path: str, said: str) -> CallError:
        """A failure of this endpoint that the server itself found, e.g. a reply it cannot use."""
        return CallError(self._failure(kind, self.replicas.all[0], path, said))

    def _failure(
        self,
        kind: str,
        replica: Replica,
        path: str,
        said: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> FailureDetail:
        said = self._scrubber.scrub(said)  # some endpoints repeat the key they refuse
        answered = f"answered {status}" if status is not None else "failed"
        return FailureDetail(
            kind,
            Stage.MODEL,
            f"{self._instance}: {replica.url(path)} {answered}: {bounded(said, 300)}",
            instance=self._instance,
            endpoint=replica.base_url,
            status=status,
            body=bounded(said),
            retry_after_s=retry_after,
            chain=(replica.url(path) + (f" {status}" if status is not None else ""),),
        )

    def _log_boundary(
        self, replica: Replica, path: str, status: int, body: bytes, rollout_id: str | None, started: float
    ) -> None:
        assert self._surroundings.boundary is not None
        request = Request("POST", path, rollout_id=rollout_id)
        reply = Reply(status, raw=body)
        took_s = time.perf_counter() - started
        self._surroundings.boundary.answered(f"{self._instance} upstream", replica.base_url, request, reply, took_s)
