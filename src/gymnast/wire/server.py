"""A server as a route table: `handle(request) -> reply`, identical over every transport.

Owns what the contract requires of every server: liveness, the rollout prefix, session cookies, error bodies. Uses no
sockets: `wire.asgi` serves it over HTTP and `wire.transports` calls it in memory.
"""

from __future__ import annotations

import logging
import re
from abc import ABC
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gymnast.errors import CallError
from gymnast.types.encoding import show
from gymnast.types.failure import BODY_LIMIT, FailureDetail, FailureKind, Stage, message_of
from gymnast.wire.message import Reply, Request
from gymnast.wire.progress import Signals
from gymnast.wire.validate import InvalidBody

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gymnast.config.instances import ServerKind
    from gymnast.wire.boundary import BoundaryLog
    from gymnast.wire.calls import Calls
    from gymnast.wire.http_client import HttpClient

Handler = Callable[[Request], Awaitable[Any]]

_MAX_WARNINGS: Final = 200  # rows and clients must not flood the log
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
class ServerContext:
    """What a server may use of its process."""

    calls: Calls
    http: HttpClient
    boundary: BoundaryLog | None = None
    signals: Signals = field(default_factory=Signals)
    log_dir: Path | None = None
    """Where instances write their logs, if configured."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The whole configuration with addresses, for hosted servers; native servers get only their settings."""
    shared: dict[str, Any] = field(default_factory=dict)
    """Objects shared by all hosted servers of a cell."""


class Server(ABC):
    """Base of all native servers. Subclasses add routes and manage their resources in `start` and `stop`."""

    kind: ClassVar[ServerKind]
    failure_kind: ClassVar[FailureKind] = FailureKind.UNKNOWN
    failure_stage: ClassVar[Stage] = Stage.AGENT
    """The kind and stage recorded for an exception that escapes a handler."""
    has_sessions: ClassVar[bool] = True
    """Whether replies set the session cookie."""

    def __init__(self, name: str, context: ServerContext) -> None:
        self.name = name
        self.context = context
        self.calls = context.calls
        self.cookie_name = f"{type(self).__name__}___{name}"
        self.log = logging.getLogger(f"gymnast.instance.{name}")
        self._routes: dict[tuple[str, str], Handler] = {("GET", "/"): self._liveness}
        self._warned: set[str] = set()

    def route(self, method: str, path: str, handler: Handler) -> None:
        """Route `method path` to `handler`, which returns JSON data or a Reply."""
        self._routes[method, path] = handler

    def warn_once(self, message: str) -> None:
        """Log a warning about a row or a setting: once, not once per rollout."""
        if message not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(message)
            self.log.warning("%s", message)

    @property
    def routes(self) -> list[tuple[str, str]]:
        """Every (method, path) this server handles."""
        return list(self._routes)

    async def start(self) -> None:
        """Acquire resources. Called once, before the first request."""

    async def stop(self) -> None:
        """Release resources. Called once, after the last request."""

    async def handle(self, request: Request) -> Reply:
        """Handle a request. Exceptions become the contract's error bodies; only cancellation escapes."""
        if request.path.startswith("/ng-rollout/"):
            strip_prefix(request)
        request.cookie_name = self.cookie_name
        handler = self._routes.get((request.method, request.path))
        try:
            result = await handler(request) if handler is not None else self._no_route(request)
        except (InvalidBody, ReplyError) as error:
            result = self.error_reply(request, error)
        except Exception as error:  # noqa: BLE001 - the boundary: any exception of a server becomes its 500
            return self.error_reply(request, error)
        reply = result if isinstance(result, Reply) else Reply(200, result)
        if request.new_session_id is not None and self.has_sessions:
            reply.cookies = {**reply.cookies, self.cookie_name: request.new_session_id}
        return reply

    def error_reply(self, request: Request, error: Exception) -> Reply:
        """The contract's reply to an exception of a handler."""
        if isinstance(error, InvalidBody):
            return Reply(422, {"detail": error.detail})
        if isinstance(error, ReplyError):
            return error.reply
        return self._inner_error(error) if isinstance(error, CallError) else self._handler_error(request, error)

    def failure_for(self, request: Request, error: Exception) -> FailureDetail:
        """The failure recorded for an unexpected exception of a handler."""
        return FailureDetail(
            self.failure_kind,
            self.failure_stage,
            f"{self.name} raised {type(error).__name__} at {request.path}: {message_of(error, 500)}",
            instance=self.name,
            status=500,
            body=show(error, BODY_LIMIT),
        )

    async def _liveness(self, _: Request) -> dict[str, str]:
        return {"status": "ok"}

    def _no_route(self, request: Request) -> Reply:
        if any(path == request.path for _, path in self._routes):
            return Reply(405, {"detail": "Method Not Allowed"})
        return Reply(404, {"detail": "Not Found"})

    def _inner_error(self, error: CallError) -> Reply:
        detail = error.detail
        inner = (detail.body or detail.message).encode()
        return Reply(500, f"Hit an exception in {self.cookie_name} calling an inner server: {inner!r}", failure=detail)

    def _handler_error(self, request: Request, error: Exception) -> Reply:
        self.log.error("%s %s raised", request.method, request.path, exc_info=error)
        return Reply(500, show(error, BODY_LIMIT), failure=self.failure_for(request, error))


def strip_prefix(request: Request) -> None:
    """Move the rollout id from the path's prefix to the request."""
    match = _PREFIX.match(request.path)
    if match is not None:
        request.rollout_id = match[1]
        request.path = request.path[match.end() :] or "/"
