"""Calls to instances: one interface over all transports. Every call has a deadline; nothing is retried here.

`Calls` is what servers, the collector and clients hold. `Scope` is what the calls of one attempt share: its identity
and the cookies of each instance.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from gymnast.errors import CallError, suggest
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.types.usage import decode_usage, parse_tokens
from gymnast.wire.classify import kind_of_exception, kind_of_reply, kind_of_unusable_reply, reply_failure
from gymnast.wire.deadline import Deadline, DeadlineClock
from gymnast.wire.endpoint_errors import with_cause
from gymnast.wire.http_connection import ReplyTooLargeError, TransportError
from gymnast.wire.message import EMPTY, Reply, Request
from gymnast.wire.progress import AttemptProgress

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gymnast.wire.boundary import BoundaryLog

DEFAULT_TIMEOUT_S: Final = 600.0


class Transport(Protocol):
    """How a request reaches one instance."""

    address: str
    """For messages: a URL, or 'in-process'."""

    def send(self, request: Request) -> Awaitable[Reply]:
        """Deliver the request and return the reply. Raises TransportError if none comes."""
        ...


class Scope(msgspec.Struct):
    """What the calls of one attempt share."""

    rollout_id: str | None = None
    progress: AttemptProgress | None = None
    inherited: dict[str, str] = {}
    """Cookies from our client, forwarded to every instance as the contract requires."""
    jars: dict[str, Mapping[str, str]] = {}
    """The latest cookies of each instance."""
    headers: Mapping[str, str] = EMPTY
    """Sent with every call."""

    def cookies_for(self, instance: str) -> Mapping[str, str]:
        own = self.jars.get(instance)
        if not self.inherited:
            return own or EMPTY
        return {**self.inherited, **own} if own else self.inherited

    def all_cookies(self) -> dict[str, str]:
        """All cookies set by instances, to be returned to the client."""
        return {name: value for jar in self.jars.values() for name, value in jar.items()}


class Calls:
    """The instances that can be called, by name."""

    def __init__(self, transports: Mapping[str, Transport], *, boundary: BoundaryLog | None = None) -> None:
        self._transports = transports
        self._boundary = boundary
        self.clock = DeadlineClock()

    def knows(self, instance: str) -> bool:
        return instance in self._transports

    def address(self, instance: str) -> str:
        """The address of an instance, for messages."""
        transport = self._transports.get(instance)
        return transport.address if transport is not None else "not configured"

    async def call(
        self,
        instance: str,
        path: str,
        body: Any = None,
        scope: Scope | None = None,
        *,
        method: str = "POST",
        stage: Stage = Stage.AGENT,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validated: bool = False,
    ) -> Reply:
        """Send a request and return the reply, whatever its status. Raises CallError if there is no reply."""
        transport = self._transports.get(instance)
        if transport is None:
            raise CallError(_unknown_instance(instance, stage, self._transports))
        scope = scope or Scope()
        request = Request(
            method,
            path,
            body,
            scope.cookies_for(instance) if scope.jars or scope.inherited else EMPTY,
            scope.headers,
            rollout_id=scope.rollout_id,
            progress=scope.progress,
            validated=validated,
        )
        progress = scope.progress
        before = progress.enter(stage, instance) if progress is not None else None
        spans = progress.spans if progress is not None else None
        span = spans.open(stage, instance, request) if spans is not None else None
        started = time.perf_counter()
        reply: Reply | None = None
        try:
            with Deadline(self.clock, timeout_s):
                reply = await transport.send(request)
        except (TimeoutError, TransportError) as error:
            detail = _no_reply(error, instance, path, stage, transport.address, timeout_s)
            if self._boundary:
                self._boundary.log_failure(instance, transport.address, request, detail, time.perf_counter() - started)
            raise CallError(detail) from error
        finally:
            if span is not None and progress is not None:
                span.close(reply, progress.endpoint)
            if progress is not None and before is not None:
                progress.leave(before)
        if reply.raw is not None and progress is not None:
            _record_usage(reply, progress, stage, started)
            if spans is not None:
                spans.merge_reply(reply.headers)
        if reply.cookies:
            jar = scope.jars.get(instance)
            scope.jars[instance] = {**jar, **reply.cookies} if jar else reply.cookies
        if self._boundary:
            self._boundary.log_reply(instance, transport.address, request, reply, time.perf_counter() - started)
        return reply

    async def expect(
        self,
        instance: str,
        path: str,
        body: Any = None,
        scope: Scope | None = None,
        *,
        stage: Stage,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        validated: bool = False,
    ) -> Any:
        """Return the body of a successful reply. An error status raises CallError with the innermost known failure."""
        reply = await self.call(instance, path, body, scope, stage=stage, timeout_s=timeout_s, validated=validated)
        if not reply.ok:
            kind = kind_of_reply(stage, reply.status)
            detail = reply_failure(reply, kind, stage, instance, path, self.address(instance))
            is_own = reply.failure is not None or stage is not Stage.MODEL
            raise CallError(detail if is_own else with_cause(detail, body, path=path))
        return reply.body


def _record_usage(reply: Reply, progress: AttemptProgress, stage: Stage, started: float) -> None:
    """Add the usage that a remote reply reports: in our header, or else in the body of a model's reply.

    Instances in this process record theirs directly.
    """
    usage = decode_usage(reply.headers)
    if usage is not None:
        progress.ensure_usage_counter().merge(usage)
    elif stage is Stage.MODEL:
        latency_ms = (time.perf_counter() - started) * 1000
        if reply.ok and isinstance(reply.body, dict):
            progress.ensure_usage_counter().add_call(parse_tokens(reply.body.get("usage")), latency_ms, cost=None)
        else:
            progress.ensure_usage_counter().add_failed(latency_ms)


def _no_reply(
    error: Exception, instance: str, path: str, stage: Stage, address: str, timeout_s: float
) -> FailureDetail:
    timed_out = isinstance(error, TimeoutError)
    reason = f"did not answer {path} within {timeout_s:g} s" if timed_out else f"gave no answer to {path}: {error}"
    kind = kind_of_exception(stage, timed_out=timed_out)
    if isinstance(error, ReplyTooLargeError):
        reason, kind = f"answered {path}, but {error}", kind_of_unusable_reply(stage)
    return FailureDetail(
        kind,
        stage,
        f"{instance} {reason}",
        instance=instance,
        endpoint=address,
        chain=(f"{instance}{path}",),
    )


def _unknown_instance(instance: str, stage: Stage, transports: Mapping[str, Transport]) -> FailureDetail:
    hint = suggest(instance, transports)
    text = f"there is no instance '{instance}'" + (f"; {hint}" if hint else "")
    return FailureDetail(
        FailureKind.AGENT_NOT_FOUND if stage is Stage.AGENT else FailureKind.ENVIRONMENT_UNREACHABLE,
        stage,
        text,
        instance=instance,
    )
