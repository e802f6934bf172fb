"""Controls a running collection over a Unix socket in the run's folder: one line of JSON in, one out.

Commands: status, stacks, pause, resume, drain, stop, cancel, set.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

import msgspec
import orjson

from gymnast.errors import NotFoundError, UserError, suggest
from gymnast.types.task import RolloutKey

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.observer import TakeSnapshot

Handle = Callable[[dict[str, Any]], Awaitable[Any]]


class ControlServer:
    """Serves requests while the block is open. Only this user can connect."""

    def __init__(self, path: Path, handle: Handle) -> None:
        self._path = path
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._folder: int | None = None

    async def __aenter__(self) -> Self:
        self._path.unlink(missing_ok=True)
        # Socket addresses hold 108 bytes, run folders are often deeper: go through the open folder. It stays open,
        # because from Python 3.13 on, a server that is closed removes its socket.
        self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        address = f"/proc/self/fd/{self._folder}/{self._path.name}"
        try:
            self._server = await asyncio.start_unix_server(self._serve, address)
            self._path.chmod(0o600)
        except BaseException:
            os.close(self._folder)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await asyncio.sleep(0)  # uvloop closes it in the next round of the loop
        self._path.unlink(missing_ok=True)
        if self._folder is not None:
            os.close(self._folder)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = await reader.readline()
                writer.write(await self._reply(line) + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # a client that disconnected or sent garbage must not disturb the run
        finally:
            writer.close()

    async def _reply(self, line: bytes) -> bytes:
        try:
            request = orjson.loads(line)
            return orjson.dumps({"ok": True, "result": await self._handle(request)})
        except UserError as error:
            return orjson.dumps({"ok": False, "what": error.what, "next": error.next})
        except (ValueError, KeyError, TypeError) as error:
            return orjson.dumps({"ok": False, "what": f"invalid request: {error}"})


async def send_request(path: Path, request: dict[str, Any]) -> Any:
    """Send a request to a run and return its result."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}", limit=1 << 24)
    except OSError as error:
        gone = isinstance(error, (FileNotFoundError, ConnectionRefusedError))
        raise NotFoundError(
            "the run is not running on this host" + ("" if gone else f": {error.strerror or error}"),
            where=str(path),
            next="gymnast status RUN shows its state",
        ) from error
    finally:
        os.close(folder)
    try:
        async with asyncio.timeout(10):
            writer.write(orjson.dumps(request) + b"\n")
            await writer.drain()
            reply = orjson.loads(await reader.readline())
    except (TimeoutError, orjson.JSONDecodeError) as error:
        raise UserError("the run does not respond: its event loop may be blocked", where=str(path)) from error
    finally:
        writer.close()
    if not reply["ok"]:
        raise UserError(reply["what"], next=reply.get("next"))
    return reply["result"]


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
