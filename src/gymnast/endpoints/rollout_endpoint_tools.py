"""The tools of a rollout's environment, for programs that call them directly: over plain HTTP or MCP.

Only tools that the task declares can be called. A tool's error is for the program to read; a failure of the environment
is also recorded, so that the agent can fail the attempt.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import CallError
from gymnast.types.failure import FailureDetail, Stage
from gymnast.wire.classify import kind_of_reply, reply_failure
from gymnast.wire.message import PlainText, Reply

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls, Scope

_ENVIRONMENT_DOWN: Final = frozenset({502, 503, 504})
_MAX_RECORDS: Final = 1000
"""Tool calls that are listed; further ones are only counted."""

Guard = Callable[[Awaitable[Reply]], Awaitable[Reply]]


class RolloutEndpointTools:
    """The declared tools, in the session of one rollout."""

    def __init__(
        self,
        declared: Sequence[JsonObject],
        environment: str,
        calls: Calls,
        scope: Scope,
        timeout_s: float,
        guard: Guard,
    ) -> None:
        """`guard` awaits a call and cancels it when the rollout ends."""
        self.declared = list(declared)
        self.records: list[JsonObject] = []
        self.count = 0
        self.listed = False
        """Whether the program asked for the tools over MCP."""
        self.failure: FailureDetail | None = None
        """A failure of the environment, as opposed to an error for the program to read."""
        self._environment = environment
        self._calls = calls
        self._scope = scope
        self._timeout_s = timeout_s
        self._guard = guard

    async def call(self, name: str, arguments: Any) -> Reply:
        """Call a declared tool."""
        started_at, started = time.time(), time.perf_counter()
        pending = self._calls.call(
            self._environment, f"/{name}", arguments, self._scope, stage=Stage.TOOL, timeout_s=self._timeout_s
        )
        try:
            reply = await self._guard(pending)
        except CallError as error:
            self.failure = error.detail
            reply = Reply(502, {"error": error.detail.message})
        else:
            self._note_failure(name, reply)
        self.count += 1
        if len(self.records) < _MAX_RECORDS:
            latency_ms = round((time.perf_counter() - started) * 1000, 3)
            record = {"name": name, "started_at": started_at, "latency_ms": latency_ms, "status_code": reply.status}
            self.records.append({"kind": "tool_call", **record})
        return Reply(reply.status, PlainText(reply.text()) if isinstance(reply.body, str) else reply.body)

    def own_name(self, name: str) -> str:
        """A declared tool's own name for the name that a program offers it under (`mcp__gymnast__add`); else itself."""
        matches = [tool["name"] for tool in self.declared if name.endswith((f"__{tool['name']}", f".{tool['name']}"))]
        return name if any(tool["name"] == name for tool in self.declared) else max(matches, key=len, default=name)

    def unknown_tool(self, name: str) -> Reply:
        """The reply to a call of a tool that is not declared."""
        known = ", ".join(tool["name"] for tool in self.declared) or "none"
        return Reply(404, {"error": f"There is no tool '{name}'. Tools you may call: {known}."})

    def _note_failure(self, name: str, reply: Reply) -> None:
        if not reply.ok and (reply.failure is not None or reply.status in _ENVIRONMENT_DOWN):
            kind, address = kind_of_reply(Stage.TOOL, reply.status), self._calls.address(self._environment)
            self.failure = reply_failure(reply, kind, Stage.TOOL, self._environment, f"/{name}", address)
