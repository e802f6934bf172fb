"""A server as a route table: `handle(request) -> reply`, the same whichever transport carries the call.

Owns what the contract says of every server: liveness, the rollout prefix, session cookies, error bodies. Knows no
sockets; `wire.asgi` puts a server on HTTP and `wire.transports` calls it in memory.
"""

from __future__ import annotations

import logging
import re
from abc import ABC
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from gymnast.errors import CallError
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.wire.message import Reply, Request
from gymnast.wire.trail import Signals
from gymnast.wire.validate import InvalidBody

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gymnast.config.instances import ServerKind
    from gymnast.wire.boundary import BoundaryLog
    from gymnast.wire.calls import Calls
    from gymnast.wire.http_client import HttpClient

Handler = Callable[[Request], Awaitable[Any]]

_PREFIX = re.compile(r"^/ng-rollout/([A-Za-z0-9][A-Za-z0-9._-]*)(?:/training-token-capture)?(?=/|$)")


class ReplyError(Exception):
    """Ends a handler with this reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"{reply.status}: {reply.body}")
        self.reply = reply


class HttpError(ReplyError):
    """Ends a handler with this status and `{"detail": …}`."""

    def __init__(self, status: int, detail: Any, *, failure: FailureDetail | None = None) -> None:
        super().__init__(Reply(status, {"detail": detail}, failure=failure))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a server may use of the process it lives in."""

    calls: Calls
    http: HttpClient
    boundary: BoundaryLog | None = None
    signals: Signals = field(default_factory=Signals)
    log_dir: Path | None = None
    """Where instances log; None where nobody said."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The whole configuration with addresses, for guests: our own servers are given their settings and no more."""
    shared: dict[str, Any] = field(default_factory=dict)
    """What guests of one cell make once for all of them."""


class Server(ABC):
    """Base of every native server. Subclasses add routes; `start` and `stop` own their resources."""

    kind: ClassVar[ServerKind]
    failure_kind: ClassVar[str] = "unknown"
    failure_stage: ClassVar[Stage] = Stage.AGENT
    """What an exception that escapes a handler is called."""
    has_sessions: ClassVar[bool] = True
    """Whether replies carry the session cookie."""

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        self.name = name
        self.surroundings = surroundings
        self.calls = surroundings.calls
        self.cookie_name = f"{type(self).__name__}___{name}"
        self.log = logging.getLogger(f"gymnast.instance.{name}")
        self._routes: dict[tuple[str, str], Handler] = {("GET", "/"): self._liveness}

    def route(self, method: str, path: str, handler: Handler) -> None:
        """Answer `method path` with `handler`. A handler returns JSON data or a Reply."""
        self._routes[method, path] = handler

    @property
    def routes(self) -> list[tuple[str, str]]:
        """Every (method, path) this server answers."""
        return list(self._routes)

    async def start(self) -> None:
        """Acquire what the server needs. Called once, before the first request."""

    async def stop(self) -> None:
        """Release it. Called once, after the last request."""

    async def handle(self, request: Request) -> Reply:
        """Answer a request. Exceptions become the contract's error bodies; only cancellation escapes."""
        if request.path.startswith("/ng-rollout/"):
            strip_prefix(request)
        request.cookie_name = self.cookie_name
        handler = self._routes.get((request.method, request.path))
        try:
            result = await handler(request) if handler is not None else self._no_route(request)
        except (InvalidBody, ReplyError) as error:
            result = self.error_reply(request, error)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever a server raises becomes its 500
            return self.error_reply(request, error)
        reply = result if isinstance(result, Reply) else Reply(200, result)
        if request.issued_session is not None and self.has_sessions:
            reply.cookies = {**reply.cookies, self.cookie_name: request.issued_session}
        return reply

    def error_reply(self, request: Request, error: Exception) -> Reply:
        """What the contract answers when a handler raised this."""
        if isinstance(error, InvalidBody):
            return Reply(422, {"detail": error.detail})
        if isinstance(error, ReplyError):
            return error.reply
        return self._inner_failure(error) if isinstance(error, CallError) else self._own_failure(request, error)

    def failure_for(self, request: Request, error: Exception) -> FailureDetail:
        """How an unexpected exception of a handler is recorded."""
        return FailureDetail(
            self.failure_kind,
            self.failure_stage,
            f"{self.name} raised {type(error).__name__} at {request.path}: {bounded(str(error), 500)}",
            instance=self.name,
            status=500,
            body=bounded(repr(error)),
        )

    async def _liveness(self, _: Request) -> dict[str, str]:
        return {"status": "ok"}

    def _no_route(self, request: Request) -> Reply:
        if any(path == request.path for _, path in self._routes):
            return Reply(405, {"detail": "Method Not Allowed"})
        return Reply(404, {"detail": "Not Found"})

    def _inner_failure(self, error: CallError) -> Reply:
        detail = error.detail
        inner = (detail.body or detail.message).encode()
        return Reply(500, f"Hit an exception in {self.cookie_name} calling an inner server: {inner!r}", failure=detail)

    def _own_failure(self, request: Request, error: Exception) -> Reply:
        self.log.error("%s %s raised", request.method, request.path, exc_info=error)
        return Reply(500, repr(error), failure=self.failure_for(request, error))


def strip_prefix(request: Request) -> None:
    """Take the rollout's id off the path and onto the request."""
    match = _PREFIX.match(request.path)
    if match is not None:
        request.rollout_id = match[1]
        request.path = request.path[match.end() :] or "/"
