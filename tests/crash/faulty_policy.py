"""A policy endpoint that misbehaves on purpose, and the same way for the same seed. What it does answer is right.

    python -m tests.crash.faulty_policy [--port N] [--seed N] [--slow-s S] [--fault NAME=SHARE …] [--flap AFTER:SECONDS]

It speaks chat completions: to a question with "the letter X" it answers `\\boxed{X}`. `--slow-s` delays each answer by
up to twice that, a fault meets a share of the requests, `--flap` drops every connection for some seconds once AFTER
requests were taken. GET /served tells how often each behaviour was met. Prints its port on the first line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

LETTER: Final = re.compile(r"the letter ([A-D])")
GOOD: Final = "good"
_BIND_PATIENCE_S: Final = 60.0


# --- what it says ----------------------------------------------------------------------------------------------------


def completion(letter: str) -> dict[str, Any]:
    """The right answer."""
    message = {"role": "assistant", "content": f"It is \\boxed{{{letter}}}"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "faulty",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
    }


def http(body: bytes, status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    """A whole HTTP answer; `length` is what its Content-Length claims."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def wrong_types(letter: str, choice: int) -> Any:
    """JSON that looks like a chat completion from afar; the right letter is always in it somewhere."""
    answer = f"\\boxed{{{letter}}}"
    good = completion(letter)

    def with_message(message: Any) -> dict[str, Any]:
        return {**good, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}

    lies = [
        [good],
        answer,
        {**good, "choices": answer},
        {**good, "choices": {"0": good["choices"][0]}},
        {**good, "choices": [answer]},
        {**good, "choices": []},
        with_message(answer),
        with_message(None),
        with_message({"role": "assistant", "content": 7}),
        with_message({"role": "assistant", "content": {"text": answer}}),
        with_message({"role": "assistant", "content": [answer]}),
        with_message({"role": "assistant", "content": None, "tool_calls": 3}),
        with_message({"role": "assistant", "content": None, "tool_calls": [answer]}),
        {**good, "usage": "little"},
        {**good, "usage": {"prompt_tokens": "many", "completion_tokens": [5]}},
        {**good, "created": "yesterday"},
    ]
    return lies[choice % len(lies)]


def lie(name: str, letter: str, choice: int) -> bytes:
    """An answer that is not what it says it is."""
    good = json.dumps(completion(letter)).encode()
    if name == "html":
        return http(b"<html><body>It is \\boxed{%b}</body></html>" % letter.encode())
    if name == "empty_object":
        return http(b"{}")
    if name == "wrong_types":
        return http(json.dumps(wrong_types(letter, choice)).encode())
    if name == "half_json":
        return http(good[: len(good) // 2])
    if name == "short_length":
        return http(good, length=len(good) - 40)
    if name == "long_length":  # and then the connection is closed
        return http(good, length=len(good) + 400)
    raise ValueError(name)


STATUSES: Final = {
    "429": http(b'{"error": "slow down"}', "429 Too Many Requests", "Retry-After: 0.2"),
    "500": http(b'{"error": "it is \\\\boxed{A}"}', "500 Internal Server Error"),
    "503": http(b'{"error": "loading"}', "503 Service Unavailable"),
}
LIES: Final = ("html", "empty_object", "wrong_types", "half_json", "short_length", "long_length")
CLOSING: Final = frozenset({"short_length", "long_length"})
FAULTS: Final = ("hang", "drop", *LIES, *STATUSES)


# --- when it says it -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Manners:
    """How an endpoint behaves: decided by the seed, the question and how often it was asked."""

    seed: int = 0
    slow_s: float = 0.0
    faults: Mapping[str, float] = field(default_factory=dict)
    flap_after: int | None = None
    flap_s: float = 0.0
    taken: int = 0
    served: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    down_until: float | None = None

    def take(self, question: str) -> tuple[str, float, int]:
        """What is done with a request: the behaviour, the delay before it, and a number for its details."""
        self.asked[question] += 1
        self.taken += 1
        if self.flap_after is not None and self.down_until is None and self.taken > self.flap_after:
            self.down_until = time.monotonic() + self.flap_s
        chance = random.Random(f"{self.seed}/{question}/{self.asked[question]}")
        name = self._choose(chance.random())
        self.served[name] += 1
        return name, chance.uniform(0.0, 2 * self.slow_s), self.taken

    def _choose(self, draw: float) -> str:
        for name, share in self.faults.items():
            draw -= share
            if draw < 0:
                return name
        return GOOD

    @property
    def is_down(self) -> bool:
        return self.down_until is not None and time.monotonic() < self.down_until


def letter_of(question: str) -> str:
    """The letter that a question asks for."""
    match = LETTER.search(question)
    return match[1] if match else "A"


def question_of(body: bytes) -> str:
    """The text of the last message of a chat request."""
    content = json.loads(body)["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class Endpoint(asyncio.Protocol):
    """One connection."""

    def __init__(self, manners: Manners) -> None:
        self._manners = manners
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._manners.is_down:
            self._manners.served["flap"] += 1
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            start = head.lower().find(b"content-length:")
            length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        if head.startswith(b"GET "):
            self._transport.write(self._page(head.split(b" ", 2)[1]))
            return
        question = question_of(body)
        name, delay_s, number = self._manners.take(question)
        if self._manners.is_down:
            self._manners.served["flap"] += 1
            self._transport.abort()
        elif name != "hang":
            self._later(delay_s, lambda: self._deliver(name, letter_of(question), number))

    def _page(self, path: bytes) -> bytes:
        if path == b"/served":
            return http(json.dumps(self._manners.served).encode())
        if path == b"/v1/models":
            return http(b'{"object": "list", "data": [{"id": "faulty"}]}')
        return http(b"{}", "404 Not Found")

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(delay_s, act))

    def _deliver(self, name: str, letter: str, number: int) -> None:
        assert self._transport is not None
        if name == "drop":
            self._transport.abort()
        elif name in LIES:
            self._transport.write(lie(name, letter, number))
            if name in CLOSING:
                self._transport.close()
        else:
            self._transport.write(STATUSES[name] if name in STATUSES else http(json.dumps(completion(letter)).encode()))


# --- the program -----------------------------------------------------------------------------------------------------


def parse() -> tuple[int, Manners]:
    """The port to take (0 for any) and how to behave."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow-s", type=float, default=0.0)
    parser.add_argument("--fault", action="append", default=[], metavar="NAME=SHARE")
    parser.add_argument("--flap", default=None, metavar="AFTER:SECONDS")
    given = parser.parse_args()
    faults = {name: float(share) for name, _, share in (text.partition("=") for text in given.fault)}
    if unknown := set(faults) - set(FAULTS):
        parser.error(f"unknown faults: {unknown}")
    after, _, seconds = (given.flap or "").partition(":")
    manners = Manners(given.seed, given.slow_s, faults, int(after) if after else None, float(seconds or 0))
    return given.port, manners


async def main() -> None:
    """Serve until killed."""
    port, manners = parse()
    loop = asyncio.get_running_loop()
    deadline = time.monotonic() + _BIND_PATIENCE_S
    while True:
        try:
            server = await loop.create_server(lambda: Endpoint(manners), "127.0.0.1", port, backlog=1024)
            break
        except OSError:  # the port of a predecessor that is not quite gone
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - a program of its own
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
