"""Controls a running collection over a Unix socket in the run's folder: one line of JSON in, one out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

import orjson

from gymnast.errors import NotFoundError, UserError

if TYPE_CHECKING:
    from pathlib import Path

Handle = Callable[[dict[str, Any]], Awaitable[Any]]


class ControlServer:
    """Serves requests while the block is open. Only this user can connect."""

    def __init__(self, path: Path, handle: Handle) -> None:
        self._path = path
        self._handle = handle
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._path.unlink(missing_ok=True)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Socket addresses hold 108 bytes, run folders are often deeper: go through the open folder.
            self._server = await asyncio.start_unix_server(self._serve, f"/proc/self/fd/{folder}/{self._path.name}")
            self._path.chmod(0o600)
        finally:
            os.close(folder)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

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
        raise NotFoundError(
            f"the run is not running on this host: {error.strerror or error}",
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
