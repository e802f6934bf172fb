"""A key planted in every place of a configuration is found in no file that a run writes and in nothing it prints.

The endpoint is hostile: it repeats everything it is sent, in errors and in replies.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gymnast.config import compose, read_environ
from tests.helpers.command_functions import invoke_command
from tests.helpers.jsonl import example_rows, write_jsonl

MODEL = "responses_api_models/openai_model/configs/openai_model.yaml"
BLOCK = "policy_model.responses_api_models.openai_model"


class Parrot(BaseHTTPRequestHandler):
    """Fails the first requests with everything it was sent, then answers with it."""

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        sent = f"{self.path} {dict(self.headers)} {body}"
        if "0001" in body or not hasattr(self.server, "answers"):
            self._send(400, {"error": {"message": f"I do not like {sent}"}})
            self.server.answers = True  # type: ignore[attr-defined]
            return
        message = {"role": "assistant", "content": f"\\boxed{{B}} you sent {sent}"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        self._send(200, {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        pass


@pytest.fixture
def parrot() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Parrot)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


KEY = "q7Zp-Canary/0042=x"
PLACES = {
    "the key of the endpoint": f'++{BLOCK}.openai_api_key="{KEY}"',
    "a password in a URL": "url:user:KEY@",
    "a token in a URL": "url:KEY@",
    "a parameter of a URL": "query",
    "a header": f'++{BLOCK}.openai_default_headers={{X-Auth: "{KEY}"}}',
    "a field of the requests": f'++{BLOCK}.extra_body={{api_key: "{KEY}"}}',
    "a nested mapping": f'++{BLOCK}.extra_body={{credentials: {{openai: {{value: "{KEY}"}}}}}}',
    "a service's auth": f'++{BLOCK}.extra_body={{service_auth: "{KEY}"}}',
    "a top-level mapping": f'+api_keys={{openai: {{value: "{KEY}"}}}}',
}
FORMS = [
    KEY,
    quote(KEY, safe=""),
    quote(KEY),
    base64.b64encode(KEY.encode()).decode().rstrip("="),
    base64.b64encode(f"user:{KEY}".encode()).decode().rstrip("="),
]


def find_key(text: str) -> str | None:
    return next((form for form in FORMS if form in text), None)


@pytest.mark.parametrize("place", PLACES)
def test_a_planted_key_is_nowhere(tmp_path: Path, parrot: int, place: str) -> None:
    override = PLACES[place]
    url = f"http://127.0.0.1:{parrot}/v1"
    options = ["-c", MODEL, "-e", "mcqa", "-m", "m"]
    if override.startswith("url:"):
        url = url.replace("http://", "http://" + override.removeprefix("url:").replace("KEY", quote(KEY, safe="")))
    elif override == "query":
        url = f"{url}?api_key={quote(KEY, safe='')}"
    else:
        options.append(override)
    options += ["--model-url", url]
    rows = example_rows("mcqa")[:3]
    write_jsonl(tmp_path / "in.jsonl", rows)
    printed: dict[str, str] = {}

    def run(name: str, *arguments: str) -> None:
        done = invoke_command(tmp_path, "gymnast", *arguments, env={"COLUMNS": "500"})
        printed[name] = done.out + done.err

    collect = ("collect", "-i", "in.jsonl", "-o", "x.jsonl", "--max-attempts", "1", *options)
    run("collect", *collect)
    run("collect again", *collect, "--resume", "--retry-failed")
    run("config show", "config", "show", *options)
    run("config show as JSON", "config", "show", "--json", *options)
    run("status", "status", "x.jsonl", "--json")
    run("doctor", "doctor", "x.jsonl")
    run("report", "report", "x.jsonl")
    run("bundle", "bundle", "x.jsonl")
    for name, text in printed.items():
        assert find_key(text) is None, f"{name}: {text}"
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file() and path.suffix not in {".gz", ".zip", ".tgz"}:
            assert find_key(path.read_bytes().decode("utf-8", "replace")) is None, path


async def test_the_head_server_shows_no_key(tmp_path: Path) -> None:
    config = compose(
        read_environ(), environments=["mcqa"], model="m", model_url=f"http://user:{quote(KEY, safe='')}@h/v1"
    )
    shown = json.dumps(config.masked_values())
    assert find_key(shown) is None
    assert "http://" in shown
