"""A policy endpoint that costs next to nothing: HTTP parsed by hand, replies made beforehand. Never the bottleneck.

    python bench/mock_policy.py [--tool-calls N] [--capacity C --service-ms T --queue Q] [--faults SHARE]

It answers chat completions: a tool call while the conversation holds fewer than N tool results, then an answer. With a
capacity, C requests are served at a time, T ms each, Q more wait, and the rest get a 429. With faults, that share of
the requests is answered with a 500, a 429, half a body or nothing at all. `GET /stats` says how many requests and
rejections there were, second by second. Prints its port on the first line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter, deque
from typing import cast

import uvloop


def response(status: bytes, body: bytes) -> bytes:
    """A whole HTTP response."""
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body


def completion(message: dict[str, object], finish: str) -> bytes:
    """A whole HTTP response around one assistant message."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "mock",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220},
    }
    return response(b"200 OK", json.dumps(body).encode())


ANSWER = completion({"role": "assistant", "content": "I think it is this one: \\boxed{B}"}, "stop")
CALL = completion(
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "increment_counter", "arguments": '{"count": 3}'}}
        ],
    },
    "tool_calls",
)
ERROR = response(b"500 Internal Server Error", b'{"error": "injected"}')
BUSY = response(b"429 Too Many Requests", b'{"error": "busy"}')


class Capacity:
    """So many at a time, so many waiting, and no more."""

    def __init__(self, at_once: int, service_s: float, queue: int) -> None:
        self._free = at_once
        self._service_s = service_s
        self._queue = queue
        self._waiting: deque[tuple[Policy, bytes]] = deque()

    def admit(self, connection: Policy, data: bytes) -> bool:
        if self._free > 0:
            self._free -= 1
            asyncio.get_running_loop().call_later(self._service_s, self._served, connection, data)
        elif len(self._waiting) < self._queue:
            self._waiting.append((connection, data))
        else:
            return False
        return True

    def _served(self, connection: Policy, data: bytes) -> None:
        connection.write(data)
        self._free += 1
        if self._waiting:
            self.admit(*self._waiting.popleft())


class Policy(asyncio.Protocol):
    """One connection."""

    tool_calls = 0
    faults = 0.0
    capacity: Capacity | None = None
    rng = random.Random(0)
    requests: Counter[int] = Counter()
    rejected: Counter[int] = Counter()

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses of asyncio's

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            start = head.find(b"content-length:")
            length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            if head.startswith(b"get "):
                self._tell(head)
            else:
                self._answer(CALL if body.count(b'"role":"tool"') < self.tool_calls else ANSWER)

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def _answer(self, good: bytes) -> None:
        second = int(time.time())
        self.requests[second] += 1
        if self.faults and self.rng.random() < self.faults:
            self._fail(good)
        elif self.capacity is None:
            self.write(good)
        elif not self.capacity.admit(self, good):
            self.rejected[second] += 1
            self.write(BUSY)

    def _fail(self, good: bytes) -> None:
        assert self._transport is not None
        way = self.rng.randrange(4)
        if way < 2:
            self.write(ERROR if way else BUSY)
        else:
            if way == 3:
                self.write(good[: len(good) // 2])
            self._transport.close()

    def _tell(self, head: bytes) -> None:
        if b"/stats" in head:
            self.write(response(b"200 OK", json.dumps([self.requests, self.rejected]).encode()))
        elif b"/models" in head:
            self.write(response(b"200 OK", b'{"object": "list", "data": [{"id": "mock"}]}'))
        else:
            self.write(response(b"404 Not Found", b"{}"))


async def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool-calls", type=int, default=0)
    parser.add_argument("--capacity", type=int, default=0)
    parser.add_argument("--service-ms", type=float, default=50.0)
    parser.add_argument("--queue", type=int, default=0)
    parser.add_argument("--faults", type=float, default=0.0)
    given = parser.parse_args()
    Policy.tool_calls, Policy.faults = given.tool_calls, given.faults
    if given.capacity:
        Policy.capacity = Capacity(given.capacity, given.service_ms / 1000, given.queue)
    server = await asyncio.get_running_loop().create_server(Policy, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
