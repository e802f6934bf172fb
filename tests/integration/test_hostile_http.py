"""Hostile peers: names pointed at us, endless and inflated replies, slow and huge requests."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from gymnast.runtime import listener
from gymnast.runtime.listener import Listener
from gymnast.runtime.listening_ports import reserve_port
from gymnast.wire.allowed_hosts import AllowedHosts
from gymnast.wire.asgi import AccessGuard, BodyTooLarge, read_body
from gymnast.wire.http_client import HttpClient, parse_target
from gymnast.wire.http_connection import ReplyTooLargeError

MIB = 1 << 20


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await read_body(receive)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def raw_server(reply: Callable[[asyncio.StreamWriter], Any]) -> AsyncIterator[str]:
    """Answers every request with whatever `reply` writes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await reply(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def ask(url: str, **options: Any) -> Any:
    async with HttpClient(**options) as client, asyncio.timeout(300):
        return await client.request("GET", parse_target(url))


async def test_an_inflated_reply_is_refused_before_it_fills_the_memory() -> None:
    bomb = gzip.compress(b"\0" * (64 * MIB))

    async def reply(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(bomb)}\r\n\r\n"
        writer.write(head.encode() + bomb)
        await writer.drain()

    async with raw_server(reply) as url:
        with pytest.raises(ReplyTooLargeError, match="exceeds 8 MiB"):
            await ask(url, max_reply_bytes=8 * MIB)
        assert len((await ask(url, max_reply_bytes=64 * MIB)).body) == 64 * MIB


@pytest.mark.parametrize("head", ["transfer-encoding: chunked\r\n", ""], ids=["chunked", "until the end"])
async def test_an_endless_reply_is_refused(head: str) -> None:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode())
        block = b"x" * 65536
        while True:
            writer.write(b"%x\r\n%b\r\n" % (len(block), block) if head else block)
            await writer.drain()

    async with raw_server(reply) as url:
        with pytest.raises(ReplyTooLargeError, match="exceeds 4 MiB"):
            await ask(url, max_reply_bytes=4 * MIB)


async def status(url: str, host: str, *headers: str) -> int:
    address = url.removeprefix("http://").rstrip("/")
    name, port = address.split(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    lines = "".join(f"{line}\r\n" for line in ("GET / HTTP/1.1", f"host: {host}", "connection: close", *headers))
    writer.write(f"{lines}\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def test_a_name_that_others_can_point_at_us_is_refused_without_a_token() -> None:
    app = AccessGuard(hello, None, AllowedHosts(("gym.example.org",)))
    async with Listener(app, reserve_port("127.0.0.1")) as open_one:
        for host in ("127.0.0.1:80", "localhost", "node042", "head.cluster.local", "[::1]:9", "gym.example.org:443"):
            assert await status(open_one.url, host) == 200, host
        for host in (
            "attacker.example.com",
            "attacker.example.com:11000",
            "127.0.0.1.attacker.com",
            "localhost.evil.io",
        ):
            assert await status(open_one.url, host) == 403, host
    async with Listener(AccessGuard(hello, "secret"), reserve_port("127.0.0.1")) as guarded:
        assert await status(guarded.url, "attacker.example.com") == 401
        assert await status(guarded.url, "gym.example.com", "authorization: Bearer secret") == 200


def test_any_name_can_be_allowed() -> None:
    assert AllowedHosts(("*",)).allows(b"whatever.example.com")
    assert not AllowedHosts(()).allows(b"whatever.example.com")


async def test_a_client_that_never_finishes_its_head_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEAD_TIMEOUT_S", 0.2)
    async with Listener(AccessGuard(hello, "secret"), reserve_port("127.0.0.1")) as server:
        for start in (b"", b"GET / HTTP/1.1\r\nhost: loc"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(start)
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 300) == b""
            writer.close()


async def test_a_request_body_is_bounded() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    with pytest.raises(BodyTooLarge):
        await read_body(receive, limit=10_000)
