"""A small OpenAI-compatible server as a program, with the bad habits of big ones."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--say", default="")
    parser.add_argument("--crash", action="store_true", help="end while starting")
    parser.add_argument("--crash-again", type=Path, help="end while starting if this file exists; make it otherwise")
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--no-reuse", action="store_true", help="bind without SO_REUSEADDR")
    parser.add_argument("--offspring", type=Path, help="start processes that stay, and write their ids there")
    parser.add_argument("--deaf", action="store_true", help="do not end when told to")
    parser.add_argument("--slow-start-s", type=float, default=0.0)
    parser.add_argument("--latency-s", type=float, default=0.0, help="of every completion")
    parser.add_argument("--count-starts", type=Path, help="add a line there")
    parser.add_argument("--token-ids", action="store_true", help="return ids and logprobs where they are asked for")
    options = parser.parse_args()
    if options.count_starts is not None:
        with options.count_starts.open("a") as counts:
            counts.write("started\n")
    sys.stderr.write(f"small engine starting on {options.port} {options.say}\n")
    if options.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.offspring is not None:
        _beget(options.offspring)
    if options.crash or (options.crash_again is not None and options.crash_again.exists()):
        raise RuntimeError("the weights are gone")
    if options.crash_again is not None:
        options.crash_again.touch()
    time.sleep(options.slow_start_s)
    sock = socket.socket()
    if not options.no_reuse:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", options.port))
    asyncio.run(_serve(sock, ready=not options.never_ready, token_ids=options.token_ids, latency_s=options.latency_s))


def _beget(record: Path) -> None:
    """One process that stays with us and one that leaves our session, as daemons do."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    pids = [subprocess.Popen(sleep).pid, subprocess.Popen(sleep, start_new_session=True).pid]
    record.write_text(json.dumps([os.getpid(), *pids]))


async def _serve(sock: socket.socket, *, ready: bool, token_ids: bool, latency_s: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ")[1].decode()
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0
                )
                body = json.loads(await reader.readexactly(length) or b"null")
                status, reply = _reply(path, body, ready=ready)
                if token_ids and path == "/v1/chat/completions" and body.get("return_token_ids"):
                    _add_ids(reply, body)
                if isinstance(body, dict) and "slowly" in json.dumps(body):
                    await asyncio.sleep(30)
                if latency_s and path == "/v1/chat/completions":
                    await asyncio.sleep(latency_s)
                data = json.dumps(reply).encode()
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(data), data))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, sock=sock)
    await server.serve_forever()


def _add_ids(reply: Any, body: Any) -> None:
    """Letters as tokens; the answer's logprobs name their ids."""
    choice = reply["choices"][0]
    ids = [ord(letter) for letter in choice["message"]["content"]]
    choice["token_ids"] = ids
    choice["logprobs"] = {"content": [{"token": f"token_id:{token}", "logprob": -0.25} for token in ids]}
    reply["prompt_token_ids"] = [ord(letter) for message in body["messages"] for letter in str(message["content"])]


def _reply(path: str, body: Any, *, ready: bool) -> tuple[int, Any]:
    if path == "/health":
        return (200, {}) if ready else (503, {})
    if path == "/v1/models":
        return 200, {"object": "list", "data": [{"id": "small"}]}
    if path == "/v1/chat/completions":
        text = f"pid {os.getpid()} gpu {os.environ.get('GPU')}"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        return 200, {"id": "c", "object": "chat.completion", "created": 0, "choices": [choice], "usage": usage}
    return 404, {"detail": "Not Found"}


if __name__ == "__main__":
    main()
