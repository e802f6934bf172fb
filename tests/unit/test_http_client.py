"""The HTTP client against servers that behave and servers that do not. All real sockets."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from gymnast.wire.http_client import HttpClient, Slots, header_items, parse_target
from gymnast.wire.http_connection import StaleConnectionError, TransportError
from tests.helpers.tcp_server import OK, answering, listening, read_request
from tests.helpers.waiting import eventually


async def test_a_request_and_its_answer(http: HttpClient) -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    async with listening(handler) as server:
        headers = header_items({"content-type": "application/json"})
        reply = await http.request(
            "POST", parse_target(server.url), headers, b'{"a":1}', extra_headers=(("cookie", "a=b"),)
        )
    assert (reply.status, reply.body, reply.header("x-thing")) == (200, b"hi", "One")
    assert list(reply.headers()) == [("content-length", "2"), ("x-thing", "One"), ("x-thing", "Two")]
    head, body = seen[0]
    assert body == b'{"a":1}'
    assert head.startswith(b"POST /x HTTP/1.1\r\n")
    assert f"host: 127.0.0.1:{server.port}\r\n".encode() in head
    assert b"content-type: application/json\r\n" in head
    assert b"cookie: a=b\r\n" in head


async def test_connections_are_reused(http: HttpClient) -> None:
    async with listening(answering(OK)) as server:
        for _ in range(5):
            await http.request("GET", parse_target(server.url))
        assert server.connections == 1
        await asyncio.gather(*(http.request("GET", parse_target(server.url)) for _ in range(4)))
        assert server.connections == 4


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
        % (len(gzip.compress(b"hi", mtime=0)), gzip.compress(b"hi", mtime=0)),
    ],
    ids=["chunked", "100-continue", "early-hints", "gzip"],
)
async def test_forms_of_an_answer(http: HttpClient, reply: bytes) -> None:
    async with listening(answering(reply)) as server:
        for _ in range(2):
            answer = await http.request("GET", parse_target(server.url))
            assert (answer.status, answer.body) == (200, b"hi")


async def test_an_answer_that_ends_with_the_connection(http: HttpClient) -> None:
    async with listening(answering(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", times=1)) as server:
        assert (await http.request("GET", parse_target(server.url))).body == b"until the end"


async def test_an_answer_without_a_body(http: HttpClient) -> None:
    async with listening(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        reply = await http.request("GET", parse_target(server.url))
        assert (reply.status, reply.body) == (204, b"")


async def test_connection_close_is_honoured(http: HttpClient) -> None:
    async with listening(answering(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")) as server:
        for _ in range(2):
            await http.request("GET", parse_target(server.url))
        assert server.connections == 2


async def test_a_large_body_in_small_pieces(http: HttpClient) -> None:
    body = bytes(range(256)) * 4000

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, sent = await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(sent))
        for start in range(0, len(sent), 50_000):
            writer.write(sent[start : start + 50_000])
            await writer.drain()

    async with listening(handler) as server:
        assert (await http.request("POST", parse_target(server.url), (), body)).body == body


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"", "without a reply"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhi", "in the middle of the reply"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi", "in the middle of the reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope", "cannot be decompressed"),
    ],
    ids=["closed", "garbage", "truncated", "truncated-chunk", "bad-gzip"],
)
async def test_no_answer_is_a_transport_error(http: HttpClient, reply: bytes, said: str) -> None:
    async with listening(answering(reply, times=1)) as server:
        with pytest.raises(TransportError, match=said):
            await http.request("GET", parse_target(server.url))


async def test_nobody_listens(http: HttpClient) -> None:
    async with listening(answering(OK)) as server:
        port = server.port
    with pytest.raises(TransportError, match="Connect"):
        await http.request("GET", parse_target(f"http://127.0.0.1:{port}/"))


async def test_a_host_that_does_not_resolve(http: HttpClient) -> None:
    with pytest.raises(TransportError, match=r"cannot connect to no\.such\.host\.invalid"):
        await http.request("GET", parse_target("http://no.such.host.invalid/"))


async def test_an_abandoned_exchange_never_answers_the_next_one(http: HttpClient) -> None:
    late = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await read_request(reader)
            if b"/slow" in head:
                await late.wait()
            text = b"slow" if b"/slow" in head else b"fast"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + text)

    async with listening(handler) as server:
        base = f"http://127.0.0.1:{server.port}"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await http.request("GET", parse_target(f"{base}/slow"))
        late.set()
        assert (await http.request("GET", parse_target(f"{base}/fast"))).body == b"fast"
        assert server.connections == 2


async def test_a_reused_connection_that_died_is_replaced_only_for_repeatable_requests(http: HttpClient) -> None:
    async with listening(answering(OK, times=1)) as server:  # closes after each answer without saying so
        target = parse_target(server.url)
        for _ in range(3):
            assert (await http.request("POST", target, (), b"{}", idempotent=True)).body == b"hi"
        connection = http._idle[target.origin][-1]  # the race: closed by the server, not yet noticed by us
        connection._transport = _Pretending(connection._transport)  # type: ignore[assignment]
        with pytest.raises(StaleConnectionError):
            await http.request("POST", target, (), b"{}")


class _Pretending:
    """A transport that looks open and is not."""

    def __init__(self, real: object) -> None:
        self.real = real

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        raise StaleConnectionError("closed")

    def abort(self) -> None:
        self.real.abort()  # type: ignore[attr-defined]


async def test_unasked_data_closes_the_connection(http: HttpClient) -> None:
    answered = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await answered.wait()
        writer.write(OK.replace(b"hi", b"no"))  # an answer without a request
        await reader.read()

    async with listening(handler) as server:
        await http.request("GET", parse_target(server.url))
        (connection,) = http._idle[parse_target(server.url).origin]
        answered.set()
        await eventually(lambda: not connection.is_usable)
        assert (await http.request("GET", parse_target(server.url))).body == b"hi"
        assert server.connections == 2


async def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnast.wire.http_client._KEEPALIVE_S", 0.02)
    async with HttpClient() as http, listening(answering(OK)) as server:
        await http.request("GET", parse_target(server.url))
        await eventually(lambda: not http._idle)
        await http.request("GET", parse_target(server.url))
        assert server.connections == 2


@pytest.mark.parametrize("limits", [{"max_connections": 3}, {"max_per_host": 3}])
async def test_connections_are_bounded(limits: dict[str, Any]) -> None:
    busy = peak = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal busy, peak
        while True:
            await read_request(reader)
            busy += 1
            peak = max(peak, busy)
            await asyncio.sleep(0.01)
            busy -= 1
            writer.write(OK)

    async with HttpClient(**limits) as http, listening(handler) as server:
        await asyncio.gather(*(http.request("GET", parse_target(server.url)) for _ in range(20)))
    assert peak == 3


async def test_a_waiter_that_gives_up_does_not_lose_the_slot() -> None:
    slots = Slots(1)
    assert slots.try_acquire()
    waiters = [asyncio.create_task(slots.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    slots.release()
    await asyncio.sleep(0)
    assert waiters[1].done()
    assert not waiters[2].done()
    slots.release()
    await waiters[2]
    slots.release()
    assert slots.try_acquire()


def test_urls_are_parsed_and_odd_paths_escaped() -> None:
    target = parse_target("https://api.example.com/v1/chat completions?x=1")
    assert (target.origin.host, target.origin.port, target.origin.tls) == ("api.example.com", 443, True)
    assert (target.path, target.host_header) == ("/v1/chat%20completions?x=1", "api.example.com")
    assert parse_target("http://[::1]:8000").host_header == "[::1]:8000"
    assert "\n" not in parse_target("http://h/a\nb").path
    for bad in ("ftp://x/", "nonsense", "http://"):
        with pytest.raises(ValueError, match="not an http"):
            parse_target(bad)


async def test_headers_cannot_be_injected(http: HttpClient) -> None:
    with pytest.raises(ValueError, match="line break"):
        await http.request("GET", parse_target("http://127.0.0.1:9/"), (("x", "a\r\nevil: yes"),))
    with pytest.raises(ValueError, match="line break"):
        await http.request("GET", parse_target("http://127.0.0.1:9/"), extra_headers=(("x", "a\nb"),))


async def test_the_resolver_is_asked_once_a_minute(http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    loop = asyncio.get_running_loop()
    original = loop.getaddrinfo

    async def counting(*args: object, **options: object) -> object:
        nonlocal asked
        asked += 1
        return await original(*args, **options)  # type: ignore[arg-type]

    async with listening(answering(OK)) as server:
        target = parse_target(f"http://localhost:{server.port}/")
        monkeypatch.setattr(loop, "getaddrinfo", counting)
        await asyncio.gather(*(http.request("GET", target) for _ in range(3)))
        await http.request("GET", target)
    assert asked <= 6  # ours is at most one for each simultaneous first connection; asyncio asks for literals itself
