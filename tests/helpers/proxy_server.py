"""A proxy for tests: CONNECT and absolute addresses, with or without credentials. Every host is one local port."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress

from tests.helpers.tcp_server import read_request


class ProxyServer:
    """A handler for `tcp_server.listening` that notes what was asked of it."""

    def __init__(self, port: int, *, user: str | None = None, refuse: bytes | None = None) -> None:
        self._port = port
        self._credentials = f"Basic {base64.b64encode(user.encode()).decode()}" if user else None
        self._refuse = refuse
        self.asked: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, body = await read_request(reader)
        first = head.split(b"\r\n")[0].decode()
        self.asked.append(first)
        if self._credentials and f"proxy-authorization: {self._credentials}" not in head.decode():
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return
        if self._refuse is not None:
            writer.write(self._refuse)
            await writer.drain()
            return
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        if first.startswith("CONNECT "):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            inner_writer.write(head + body)
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
