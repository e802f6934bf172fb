"""What a server is busy with: the requests that are not answered yet, where each waits, since when, with its stack.

Every server on a port tells it at `/gymnast/in-flight`, guarded like its other pages. Bodies are not shown.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gymnast.types.failure import Stage
from gymnast.wire.asgi import ROLLOUT_HEADER, send_reply
from gymnast.wire.message import Reply
from gymnast.wire.trail import TRAIL_KEY, Trail

if TYPE_CHECKING:
    from types import FrameType

    from gymnast.types.json import JsonObject
    from gymnast.wire.asgi import AsgiApp, AsgiScope, Receive, Send

IN_FLIGHT_PATH: Final = "/gymnast/in-flight"
_OLDEST: Final = 20
_DEEPEST: Final = 60
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
class _Open:
    """A request that is being answered."""

    path: str
    rollout_id: str
    started: float
    trail: Trail
    task: asyncio.Task[Any] | None


class Watched:
    """An application whose open requests can be listed. Liveness pages and the list itself are not counted."""

    def __init__(self, app: AsgiApp, instance: str) -> None:
        self._app = app
        self._instance = instance
        self._open: set[_Open] = set()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "GET":
            if scope.get("path") == IN_FLIGHT_PATH:
                await send_reply(send, Reply(200, self.listed()))
                return
            await self._app(scope, receive, send)
            return
        trail = scope[TRAIL_KEY] = Trail()
        prefix, path = _split(scope["path"])
        entry = _Open(path, prefix or _header(scope), time.monotonic(), trail, asyncio.current_task())
        self._open.add(entry)
        try:
            await self._app(scope, receive, send)
        finally:
            self._open.discard(entry)

    def listed(self) -> JsonObject:
        """The oldest open requests."""
        now = time.monotonic()
        oldest = sorted(self._open, key=lambda entry: entry.started)[:_OLDEST]
        return {
            "instance": self._instance,
            "count": len(self._open),
            "requests": [self._row(one, now) for one in oldest],
        }

    def _row(self, entry: _Open, now: float) -> JsonObject:
        trail = entry.trail
        is_inside = trail.stage is Stage.PLAN  # it has called nobody: what takes time is the instance itself
        return {
            "key": entry.rollout_id or entry.path,
            "agent": self._instance,
            "path": entry.path,
            "stage": (_STAGES.get(entry.path, Stage.TOOL) if is_inside else trail.stage).value,
            "instance": self._instance if is_inside else trail.instance,
            "endpoint": trail.endpoint,
            "seconds": now - entry.started,
            "in_stage_s": now - (entry.started if is_inside else trail.since),
            "frames": frames_of(entry.task.get_coro()) if entry.task is not None else [],
        }


def frames_of(waiting: Any) -> list[str]:
    """`file:line in function` of each coroutine that awaits the next."""
    found: list[str] = []
    while waiting is not None and len(found) < _DEEPEST:
        frame: FrameType | None = _first(waiting, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            found.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        waiting = _first(waiting, "cr_await", "gi_yieldfrom", "ag_await")
    return found


def _first(value: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)


def _split(path: str) -> tuple[str, str]:
    """The rollout that a path's prefix names, and the path without it."""
    if not path.startswith("/ng-rollout/"):
        return "", path
    rollout, _, rest = path.removeprefix("/ng-rollout/").partition("/")
    return rollout, "/" + rest.removeprefix("training-token-capture/")


def _header(scope: AsgiScope) -> str:
    wanted = ROLLOUT_HEADER.encode()
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")
