"""The fault laboratory: real runs through the command line, an endpoint and an environment that misbehave on demand.

A fault is a few lines: a function that makes a run go wrong and returns what doctor is given to look at.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gymnast.cli.commands import build_app
from gymnast.cli.main import run_guarded
from tests.helpers.jsonl import write_jsonl

ONE_TRY = "++policy_model.responses_api_models.vllm_model.max_attempts=1"
NO_WAIT = "++model_endpoint_readiness_timeout_seconds=0"
MODEL = "++policy_model.responses_api_models.vllm_model"


# --- the endpoint ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What the endpoint sends."""

    body: bytes
    status: int = 200
    delay_s: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()


def said(
    text: str, *, usage: bool = True, finish: str = "stop", delay_s: float = 0.0, tool: tuple[str, str] | None = None
) -> Answer:
    """A good chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if tool is not None:
        call = {"id": "call_1", "type": "function", "function": {"name": tool[0], "arguments": tool[1]}}
        message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "lab",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
    }
    if usage:
        body["usage"] = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return Answer(json.dumps(body).encode(), delay_s=delay_s)


def error(status: int, body: Any = b"", **headers: str) -> Answer:
    """A bad status."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(raw, status, headers=tuple(headers.items()))


RIGHT = said("It is \\boxed{A}")
WRONG = said("It is \\boxed{B}")
NOT_FOUND = error(404, {"detail": "Not Found"})
Policy = Callable[[int, dict[str, Any]], Answer]


@contextmanager
def endpoint(policy: Policy, models: Answer | None = None, *, paths: Container[str] | None = None) -> Iterator[str]:
    """An HTTP endpoint that answers the n-th request so; its base URL. It has only these paths, if some are given."""
    lock, taken = threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(
                NOT_FOUND if self._is_unknown() else models or Answer(b'{"object": "list", "data": [{"id": "lab"}]}')
            )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self._is_unknown():
                self._send(NOT_FOUND)
                return
            with lock:
                number = taken[0]
                taken[0] += 1
            answer = policy(number, body)
            time.sleep(answer.delay_s)
            self._send(answer)

        def _is_unknown(self) -> bool:
            return paths is not None and self.path not in paths

        def _send(self, answer: Answer) -> None:
            with contextlib.suppress(OSError):
                self.send_response(answer.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer.body)))
                for name, value in answer.headers:
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Whoever asked has gone, as tests want it: nothing to print."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# --- the environment -------------------------------------------------------------------------------------------------

ENVIRONMENT = '''
"""An environment that does what its rows say."""
import asyncio

from gymnast.kit import Attempt, Environment, Task, tool
from gymnast.errors import CallError
from gymnast.types.failure import FailureDetail, Stage


class LabTask(Task):
    trouble: str = ""


class Session:
    pass


class Lab(Environment[LabTask, Session]):
    async def open(self, task):
        if task.trouble == "seed":
            raise LookupError("the shelf is empty")
        self.trouble = task.trouble
        return Session()

    @tool
    async def look(self, session: Session) -> str:
        """Look around."""
        if self.trouble == "hang":
            await asyncio.sleep(60)
        if self.trouble == "tool":
            raise ZeroDivisionError("nothing to look at")
        return "a room"

    async def verify(self, attempt: Attempt) -> float:
        trouble = attempt.task.trouble
        if trouble == "verify":
            raise KeyError("no grader for this row")
        if trouble == "full":
            raise OSError(28, "No space left on device", "/scratch/cache")
        if trouble == "nan":
            return float("nan")
        if trouble == "slow":
            await asyncio.sleep(60)
        if trouble == "sandbox":
            raise CallError(FailureDetail("sandbox_failed", Stage.VERIFY, "bwrap: setting up uid map: denied"))
        return 1.0 if trouble != "zero" else 0.0
'''
LAB_CONFIG = """
lab:
  resources_servers:
    lab: {entrypoint: app.py, domain: other}
lab_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: lab}
      model_server: {type: responses_api_models, name: policy_model}
"""
FOREIGN = '''
"""A server written for the contract alone."""
from fastapi import FastAPI, Response
from pydantic import BaseModel

app = FastAPI()


class Body(BaseModel):
    target: int
    response: dict


@app.post("/seed_session")
async def seed() -> dict:
    return {}


@app.post("/verify")
async def verify(body: Body):
    return Response(status_code=500)
'''
LOOK = {"type": "function", "name": "look", "description": "", "strict": False, "parameters": {"type": "object"}}
LAUNCH = {**LOOK, "name": "launch_rocket"}


def install(folder: Path, code: str = ENVIRONMENT) -> None:
    """The lab's environment, where a run in this folder finds it."""
    home = folder / "resources_servers" / "lab"
    (home / "configs").mkdir(parents=True, exist_ok=True)
    (home / "app.py").write_text(code)
    (home / "configs" / "lab.yaml").write_text(LAB_CONFIG)


# --- runs ------------------------------------------------------------------------------------------------------------


@dataclass
class Lab:
    """One experiment in a folder of its own, which is the current one."""

    folder: Path
    code: int = 0
    said: str = ""
    tasks: Path = field(init=False)
    endings: ExitStack = field(default_factory=ExitStack)

    def at_end(self, do: Callable[[], None]) -> None:
        """Do this when the experiment is over: what doctor is to see must still be there."""
        self.endings.callback(do)

    def __post_init__(self) -> None:
        self.tasks = self.folder / "tasks.jsonl"
        self.rows(6)

    @property
    def output(self) -> Path:
        return self.folder / "x.jsonl"

    def rows(self, number: int, **fields: Any) -> Path:
        """Rows of the multiple-choice environment, with these fields on each."""
        tools = fields.pop("tools", None)
        rows = [
            {
                "responses_create_params": {
                    "input": [{"role": "user", "content": f"Question {index}"}],
                    **({"tools": tools} if tools else {}),
                },
                "options": [{letter: letter} for letter in "ABCD"],
                "expected_answer": "A",
                **fields,
            }
            for index in range(number)
        ]
        return write_jsonl(self.tasks, rows)

    def gymnast(self, *arguments: str) -> tuple[int, str, str]:
        """Our command in this process: its exit code and what it printed."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_guarded(lambda: build_app(arguments[0])(args=list(arguments), standalone_mode=False))
        return code, out.getvalue(), err.getvalue()

    def collect(
        self, policy: Policy | Answer, *arguments: str, environment: str = "mcqa", models: Answer | None = None
    ) -> int:
        """Collect with this policy; what the command said is in `x.err`, as if somebody had kept it."""

        def answer(number: int, body: dict[str, Any]) -> Answer:
            return policy if isinstance(policy, Answer) else policy(number, body)

        with endpoint(answer, models) as url:
            return self.collect_at(url, *arguments, environment=environment)

    def collect_at(self, url: str, *arguments: str, environment: str = "mcqa") -> int:
        self.code, _, self.said = self.gymnast(
            *("collect", "-e", environment, "--model-type", "vllm_model", "-m", "lab", "--model-url", url),
            *("-i", "tasks.jsonl", "-o", "x.jsonl", ONE_TRY, *arguments),
        )
        with (self.folder / "x.err").open("a") as log:
            log.write(self.said)
        return self.code

    def collect_as_ng(self, policy: Answer) -> None:
        """Collect as `ng_collect_rollouts` does, which lets the environment refuse rows one by one."""
        with endpoint(lambda *_: policy, None) as url:
            self.code, _, self.said = self.gymnast(
                *("gym", "eval", "run", "--resources-server", "mcqa", "--model-type", "vllm_model"),
                *("--model-url", url, "--model", "lab", "--input", "tasks.jsonl", "--output", "x.jsonl", ONE_TRY),
            )

    def doctor(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Doctor's report."""
        code, out, err = self.gymnast("doctor", *arguments, "--json")
        assert out, err
        report: dict[str, Any] = json.loads(out)
        return code, report

    # --- what tests do to files afterwards

    def lines(self, name: str = "x.jsonl") -> list[str]:
        return (self.folder / name).read_text().splitlines(keepends=True)

    def rewrite(self, lines: Sequence[str], name: str = "x.jsonl") -> None:
        (self.folder / name).write_text("".join(lines))

    def manifest(self, **changes: Any) -> None:
        """Change the manifest."""
        path = self.folder / "x_run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
