"""The commands of the control socket: status, stacks, pause, resume, drain, stop, cancel, set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.errors import NotFoundError, UserError, suggest
from gymnast.types.task import RolloutKey

if TYPE_CHECKING:
    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.observer import TakeSnapshot

COMMANDS = ("status", "stacks", "pause", "resume", "drain", "stop", "cancel", "set")


class ControlCommands:
    """Executes control requests on an engine."""

    def __init__(self, engine: Engine, take_snapshot: TakeSnapshot) -> None:
        self._engine = engine
        self._take_snapshot = take_snapshot

    async def handle(self, request: dict[str, Any]) -> Any:
        """Execute one request and return what to show."""
        command = str(request["command"])
        if command in {"status", "stacks"}:
            return msgspec.to_builtins(self._take_snapshot()) if command == "status" else self._engine.stacks()
        if command in {"pause", "resume"}:
            self._engine.pause(paused=command == "pause")
            return f"{command}d"
        if command == "drain":
            self._engine.drain("drained by gymnast ctl")
            return f"draining: {len(self._engine.in_flight)} in flight"
        if command == "stop":
            self._engine.stop_now("stopped by gymnast ctl")
            return "stopped"
        if command == "cancel":
            return self._cancel(str(request["argument"]))
        if command == "set":
            return self._set(str(request["argument"]))
        raise NotFoundError(f"unknown command '{command}'", next=suggest(command, COMMANDS))

    def _cancel(self, text: str) -> str:
        match = re.fullmatch(r"(\d+):(\d+)", text)
        if match is None:
            raise UserError(f"expected a rollout key, got '{text}'", next="use TASK:ROLLOUT, e.g. 41:3")
        if not self._engine.cancel(RolloutKey(int(match[1]), int(match[2]))):
            raise NotFoundError(
                f"rollout {text} is not in flight", next="gymnast status RUN lists the oldest in flight"
            )
        return f"cancelled {text}"

    def _set(self, text: str) -> str:
        name, _, value = text.partition("=")
        if name != "concurrency" or not value.isdecimal() or int(value) < 1:
            raise UserError(f"cannot set '{text}'", next="use concurrency=N, N at least 1")
        self._engine.set_concurrency(int(value))
        return f"concurrency is {self._engine.limit.current}"
