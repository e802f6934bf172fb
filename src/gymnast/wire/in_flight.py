"""Requests in flight at a server: where each one waits, since when, and its stack.

Every server on a port serves the list at `/gymnast/in-flight`, protected like its other routes. Bodies are not shown.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gymnast.types.encoding import printable
from gymnast.types.failure import Stage
from gymnast.wire.asgi import ROLLOUT_HEADER, send_reply
from gymnast.wire.message import Reply
from gymnast.wire.progress import PROGRESS_KEY, AttemptProgress

if TYPE_CHECKING:
    from types import FrameType

    from gymnast.types.json import JsonObject
    from gymnast.wire.asgi import AsgiApp, AsgiScope, Receive, Send

IN_FLIGHT_PATH: Final = "/gymnast/in-flight"
_MAX_REQUESTS: Final = 20
_MAX_FRAMES: Final = 60
_STAGES: Final = {
    "/run": Stage.AGENT,
    "/seed_session": Stage.SEED,
    "/verify": Stage.VERIFY,
    "/close_session": Stage.CLOSE,
    "/v1/responses": Stage.MODEL,
    "/v1/chat/completions": Stage.MODEL,
    "/v1/messages": Stage.MODEL,
}


@dataclass(slots=True, eq=False)
class _OpenRequest:
    """A request without a reply yet."""

    path: str
    rollout_id: str
    started: float
    progress: AttemptProgress
    task: asyncio.Task[Any] | None


class InFlightTracker:
    """Middleware that tracks an application's open requests and lists them. GET requests are not counted."""

    def __init__(self, app: AsgiApp, instance: str) -> None:
        self._app = app
        self._instance = instance
        self._open: set[_OpenRequest] = set()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "GET":
            if scope.get("path") == IN_FLIGHT_PATH:
                await send_reply(send, Reply(200, self.snapshot()))
                return
            await self._app(scope, receive, send)
            return
        progress = scope[PROGRESS_KEY] = AttemptProgress()
        prefix, path = _split(scope["path"])
        rollout_id = prefix or _rollout_header(scope)
        request = _OpenRequest(path, rollout_id, time.monotonic(), progress, asyncio.current_task())
        self._open.add(request)
        try:
            await self._app(scope, receive, send)
        finally:
            self._open.discard(request)

    def snapshot(self) -> JsonObject:
        """The oldest open requests, as JSON."""
        now = time.monotonic()
        oldest = sorted(self._open, key=lambda request: request.started)[:_MAX_REQUESTS]
        return {
            "instance": self._instance,
            "count": len(self._open),
            "requests": [self._row(request, now) for request in oldest],
        }

    def _row(self, request: _OpenRequest, now: float) -> JsonObject:
        progress = request.progress
        is_local = progress.stage is Stage.PLAN  # no calls to other instances: the time is spent in this one
        return {
            "key": request.rollout_id or request.path,
            "agent": self._instance,
            "path": request.path,
            "stage": (_STAGES.get(request.path, Stage.TOOL) if is_local else progress.stage).value,
            "instance": self._instance if is_local else progress.instance,
            "endpoint": progress.endpoint,
            "seconds": now - request.started,
            "in_stage_s": now - (request.started if is_local else progress.since),
            "frames": coroutine_frames(request.task.get_coro()) if request.task is not None else [],
        }


def coroutine_frames(coroutine: Any) -> list[str]:
    """`file:line in function` for each coroutine in the await chain, outermost first."""
    frames: list[str] = []
    while coroutine is not None and len(frames) < _MAX_FRAMES:
        frame: FrameType | None = _first_attribute(coroutine, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            frames.append(printable(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"))
        coroutine = _first_attribute(coroutine, "cr_await", "gi_yieldfrom", "ag_await")
    return frames


def _first_attribute(owner: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(owner, name, None)) is not None), None)


def _split(path: str) -> tuple[str, str]:
    """The rollout id in a path's prefix, and the path without the prefix."""
    if not path.startswith("/ng-rollout/"):
        return "", path
    rollout, _, rest = path.removeprefix("/ng-rollout/").partition("/")
    return rollout, "/" + rest.removeprefix("training-token-capture/")


def _rollout_header(scope: AsgiScope) -> str:
    header = ROLLOUT_HEADER.encode()
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == header), "")
