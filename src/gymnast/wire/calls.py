"""Calling instances: one interface, whichever transport reaches them. Every call has a deadline.

`Calls` is what servers, the collector and clients hold; `Scope` is what the calls of one rollout share: its identity
and the cookies of each instance. No retries here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from gymnast.errors import CallError, suggest
from gymnast.types.failure import FailureDetail, Stage
from gymnast.types.usage import decode_usage, tokens_of
from gymnast.wire.classify import kind_of_exception, kind_of_reply, reply_failure
from gymnast.wire.deadline import DeadlineClock
from gymnast.wire.http_connection import TransportError
from gymnast.wire.message import NOTHING, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from gymnast.wire.boundary import BoundaryLog
    from gymnast.wire.trail import Trail

DEFAULT_TIMEOUT_S: Final = 600.0


class Transport(Protocol):
    """How a request reaches one instance."""

    address: str
    """For messages: a URL, or 'in-process'."""

    def send(self, request: Request) -> Awaitable[Reply]:
        """Deliver and return the answer. Raises TransportError when there is none."""
        ...


@dataclass(slots=True)
class Scope:
    """What the calls of one attempt share."""

    rollout_id: str | None = None
    trail: Trail | None = None
    inherited: dict[str, str] = field(default_factory=dict)
    """Cookies a client sent us; passed on to every instance, as the contract's servers do."""
    jars: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The latest cookies of each instance."""
    headers: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Sent along with every call."""

    def cookies_for(self, instance: str) -> Mapping[str, str]:
        own = self.jars.get(instance)
        if not self.inherited:
            return own or NOTHING
        return {**self.inherited, **own} if own else self.inherited

    def all_cookies(self) -> dict[str, str]:
        """Everything instances set, to be handed back to a client."""
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
        """Where an instance is, for messages."""
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
        """Send a request and return the reply, whatever its status. Raises CallError when there is no reply."""
        transport = self._transports.get(instance)
        if transport is None:
            raise CallError(_unknown(instance, stage, self._transports))
        scope = scope or Scope()
        request = Request(
            method,
            path,
            body,
            scope.cookies_for(instance),
            scope.headers,
            rollout_id=scope.rollout_id,
            trail=scope.trail,
            validated=validated,
        )
        trail = scope.trail
        before = trail.enter(stage, instance) if trail is not None else None
        started = time.perf_counter()
        try:
            with self.clock.deadline(timeout_s):
                reply = await transport.send(request)
        except (TimeoutError, TransportError) as error:
            detail = _no_reply(error, instance, path, stage, transport.address, timeout_s)
            if self._boundary:
                self._boundary.failed(instance, transport.address, request, detail, time.perf_counter() - started)
            raise CallError(detail) from error
        finally:
            if trail is not None and before is not None:
                trail.leave(before)
        if reply.raw is not None and trail is not None:
            _account(reply, trail, stage, started)
        if reply.cookies:
            known = scope.jars.get(instance)
            scope.jars[instance] = {**known, **reply.cookies} if known else reply.cookies
        if self._boundary:
            self._boundary.answered(instance, transport.address, request, reply, time.perf_counter() - started)
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
        """The body of a good reply. A bad status raises CallError with the innermost failure that is known."""
        reply = await self.call(instance, path, body, scope, stage=stage, timeout_s=timeout_s, validated=validated)
        if not reply.ok:
            kind = kind_of_reply(stage, reply.status)
            raise CallError(reply_failure(reply, kind, stage, instance, path, self.address(instance)))
        return reply.body


def _account(reply: Reply, trail: Trail, stage: Stage, started: float) -> None:
    """What a reply that came as bytes says of the model calls behind it: in our header, or, from others, as its usage.

    Instances in this process have written it to the trail themselves.
    """
    found = decode_usage(reply.headers)
    if found is not None:
        trail.open_account().merge(found)
    elif stage is Stage.MODEL:
        latency_ms = (time.perf_counter() - started) * 1000
        if reply.ok and isinstance(reply.body, dict):
            trail.open_account().add_call(tokens_of(reply.body.get("usage")), latency_ms, cost=None)
        else:
            trail.open_account().add_failed(latency_ms)


def _no_reply(
    error: Exception, instance: str, path: str, stage: Stage, address: str, timeout_s: float
) -> FailureDetail:
    timed_out = isinstance(error, TimeoutError)
    said = f"did not answer {path} within {timeout_s:g} s" if timed_out else f"gave no answer to {path}: {error}"
    return FailureDetail(
        kind_of_exception(stage, timed_out=timed_out),
        stage,
        f"{instance} {said}",
        instance=instance,
        endpoint=address,
        chain=(f"{instance}{path}",),
    )


def _unknown(instance: str, stage: Stage, known: Mapping[str, Transport]) -> FailureDetail:
    hint = suggest(instance, known)
    text = f"there is no instance '{instance}'" + (f"; {hint}" if hint else "")
    return FailureDetail(
        "agent_not_found" if stage is Stage.AGENT else "environment_unreachable", stage, text, instance=instance
    )
