"""A policy endpoint that costs next to nothing: HTTP parsed by hand, replies made beforehand. Never the bottleneck.

    python bench/mock_policy.py [--tool-calls N]

It answers chat completions: a tool call while the conversation holds fewer than N tool results, then an answer.
Prints its port on the first line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import cast

import uvloop


def reply(message: dict[str, object], finish: str) -> bytes:
    """A whole HTTP response around one assistant message."""
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "mock",
            "choices": [{"index": 0, "finish_reason": finish, "message": message}],
            "usage": {"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220},
        }
    ).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


ANSWER = reply({"role": "assistant", "content": "I think it is this one: \\boxed{B}"}, "stop")
CALL = reply(
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "increment_counter", "arguments": '{"count": 3}'}}
        ],
    },
    "tool_calls",
)


class Policy(asyncio.Protocol):
    """One connection."""

    tool_calls = 0

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses of asyncio's

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            start = head.find(b"content-length:")
            length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self._transport.write(CALL if body.count(b'"role":"tool"') < self.tool_calls else ANSWER)


async def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool-calls", type=int, default=0)
    Policy.tool_calls = parser.parse_args().tool_calls
    server = await asyncio.get_running_loop().create_server(Policy, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
