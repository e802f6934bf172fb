"""An environment, a scripted policy and an agent that runs a program, without a run around them."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from gymnast.builtin.responses_api_agents.command_agent.app import CommandAgent, CommandAgentSettings
from gymnast.builtin.responses_api_models.scripted_model.app import ScriptedModel, ScriptedModelSettings
from gymnast.kit import Attempt, Environment, EnvironmentSettings, ModelRef, ResourcesRef, Task, tool
from gymnast.wire.calls import Calls, Scope, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Reply
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import InProcessTransport

CLIENT = """
import json, os, sys, urllib.request

def send(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {
        "content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return reply.read().decode()

def chat(messages, **more):
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    found = json.loads(send(url, {"model": "m", "messages": messages, **more}))
    return found["choices"][0]["message"]

def user(text):
    return {"role": "user", "content": text}
"""
TOOLS: list[Any] = [{"type": "function", "name": "add", "parameters": {}, "strict": None}]


class Sums(Environment[Task, list[int]]):
    """Scores the number of additions; writes down what it saw."""

    async def open(self, task: Task) -> list[int]:
        return []

    async def close(self, session: list[int]) -> None:
        self.closed = getattr(self, "closed", 0) + 1

    @tool
    async def add(self, session: list[int], number: int) -> str:
        """Add a number."""
        session.append(number)
        return f"sum {sum(session)}"

    async def verify(self, attempt: Attempt[Task, list[int]]) -> float:
        self.last_text = attempt.last_text
        return float(sum(attempt.session))


class World:
    """An environment, a scripted policy and an agent that runs a program."""

    def __init__(self, folder: Path, program: str, replies: list[Any], **settings: Any) -> None:
        transports: dict[str, Transport] = {}
        self.calls = Calls(transports)
        context = ServerContext(self.calls, HttpClient())
        (folder / "program.py").write_text(CLIENT + textwrap.dedent(program))
        given = {"command": ["{python}", str(folder / "program.py")], "timeout_s": 20, "scratch_dir": str(folder / "s")}
        self.sums = Sums("sums", EnvironmentSettings(), context)
        self.model = ScriptedModel("policy", ScriptedModelSettings(replies=replies), context)
        refs: Any = {"resources_server": ResourcesRef(name="sums"), "model_server": ModelRef(name="policy")}
        self.agent = CommandAgent("agent", CommandAgentSettings(**refs, **{**given, **settings}), context)
        for server in (self.sums, self.model, self.agent):
            transports[server.name] = InProcessTransport(server)
        self.scratch = folder / "s"

    async def run(self, text: str = "go", rollout: int = 0, **params: Any) -> Reply:
        params = {"input": text, "tools": TOOLS, **params}
        row = {"responses_create_params": params, "secret": "42", "_ng_task_index": 1, "_ng_rollout_index": rollout}
        return await self.calls.call("agent", "/run", row, Scope(f"1-{rollout}"))

    async def failure(self, **params: Any) -> Any:
        reply = await self.run(**params)
        assert not reply.ok, reply.body
        assert reply.failure is not None
        return reply.failure

    async def record(self, **params: Any) -> Any:
        reply = await self.run(**params)
        assert reply.ok, reply.failure
        return reply.body


Worlds = Callable[..., World]


@asynccontextmanager
async def make_worlds(folder: Path) -> AsyncIterator[Worlds]:
    """Makes worlds whose agents are stopped at the end."""
    async with AsyncExitStack() as stack:

        def make(program: str, replies: list[Any], **settings: Any) -> World:
            world = World(folder, program, replies, **settings)
            stack.push_async_callback(world.agent.stop)
            return world

        yield make


def running(argument: str) -> list[psutil.Process]:
    """The processes with this argument."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if argument in (process.info["cmdline"] or ()) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
