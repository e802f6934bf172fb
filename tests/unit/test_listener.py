"""A server on a socket leaves nothing open, however its block ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymnast.errors import StartError
from gymnast.runtime.listener import Listener
from gymnast.runtime.ports import bind_socket
from gymnast.wire.asgi import AsgiScope, Receive, Send
from gymnast.wire.http_client import HttpClient, parse_target
from tests.helpers.waiting import eventually


async def hello(_: AsgiScope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def listener() -> Listener:
    return Listener(hello, bind_socket("127.0.0.1", 0, what="test", hint=""))


async def refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_a_block_that_ends_closes_the_port(http: HttpClient) -> None:
    async with listener() as server:
        answer = await http.request("GET", parse_target(f"{server.url}/"))
    assert answer.body == b"hello"
    assert await refused(server.port)


async def test_a_request_under_way_is_answered_before_the_block_ends(http: HttpClient) -> None:
    arrived, proceed = asyncio.Event(), asyncio.Event()

    async def slow_hello(scope: AsgiScope, receive: Receive, send: Send) -> None:
        arrived.set()
        await proceed.wait()
        await hello(scope, receive, send)

    async with Listener(slow_hello, bind_socket("127.0.0.1", 0, what="test", hint="")) as server:
        request = asyncio.create_task(http.request("GET", parse_target(f"{server.url}/")))
        await arrived.wait()
        asyncio.get_running_loop().call_later(0.02, proceed.set)
    assert proceed.is_set()
    assert (await request).body == b"hello"
    assert await refused(server.port)


async def test_closing_that_is_cancelled_leaves_nothing_open(http: HttpClient) -> None:
    server, entered = listener(), asyncio.Event()

    async def serve() -> None:
        async with server:
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    assert (await http.request("GET", parse_target(f"{server.url}/"))).status == 200  # its connection is kept open
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0)  # it is closing
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await refused(server.port)


async def test_starting_that_is_cancelled_leaves_nothing_open() -> None:
    server = listener()
    task = asyncio.create_task(server.__aenter__())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: len(asyncio.all_tasks()) == 1)
    assert await refused(server.port)


async def test_a_server_that_ends_while_starting_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    server = listener()

    async def fail(_: Any, sockets: object = None) -> None:
        raise OSError("no more files")

    monkeypatch.setattr("uvicorn.Server.serve", fail)
    with pytest.raises(StartError, match="no more files"):
        await server.__aenter__()
    await asyncio.sleep(0)
    assert await refused(server.port)
