"""What tests of shipped environments need: one in this process, outputs of models, verifier cases, a scripted run."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import gymnast
from gymnast.config.roots import BUILTIN
from gymnast.runtime.loader import settings_type
from gymnast.wire.calls import Calls, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import InProcessTransport
from tests.helpers.commands import SCRIPTED
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl


class Subject:
    """An environment in this process."""

    def __init__(self, server: Any, calls: Calls) -> None:
        self.server = server
        self.calls = calls

    async def verify(self, row: dict[str, Any], *output: Any) -> Any:
        """The verdict on an output; a text is an assistant message."""
        items = [said(item) if isinstance(item, str) else item for item in output]
        reply = await self.calls.call("env", "/verify", {**row, "response": response(*items)})
        assert reply.status == 200, reply.body
        return reply.body

    async def refusal(self, row: dict[str, Any], path: str = "/seed_session") -> str:
        """What is said of a row that is refused."""
        reply = await self.calls.call("env", path, {**row, "response": response()})
        assert reply.status == 422, reply
        return str(reply.body)


def host_environment(server_class: Any, settings: Any = None) -> tuple[Any, Calls]:
    """An environment in this process that is not started, and calls in which it is `env`."""
    transports: dict[str, Transport] = {}
    calls = Calls(transports)
    settings = settings or settings_type(server_class)()
    server = server_class("env", settings, ServerContext(calls, HttpClient()))
    transports["env"] = InProcessTransport(server)
    return server, calls


@asynccontextmanager
async def started(server_class: Any, settings: Any) -> AsyncIterator[Subject]:
    """An environment, started; stopped afterwards."""
    server, calls = host_environment(server_class, settings)
    await server.start()
    try:
        yield Subject(server, calls)
    finally:
        await server.stop()


def response(*output: Any) -> dict[str, Any]:
    """A response object with this output."""
    return {
        "id": "r",
        "created_at": 1.0,
        "model": "m",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": list(output),
    }


def said(text: str) -> dict[str, Any]:
    """An assistant message."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [part]}


def thought(text: str) -> dict[str, Any]:
    """Reasoning."""
    return {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]}


def called(name: str, arguments: Any) -> dict[str, Any]:
    """A function call; arguments that are a text are sent as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": text}


async def check_cases(subject: Subject, name: str) -> None:
    """The verifier cases of a shipped environment end as they say, twice."""
    cases = read_jsonl(BUILTIN / "resources_servers" / name / "data" / "verifier_cases.jsonl")
    assert {case["kind"] for case in cases} == {"full_reward", "zero_reward", "malformed", "determinism"}
    for case in cases * 2:
        reply = await subject.calls.call("env", "/verify", case["request"])
        if "expected_error" in case:
            assert reply.status == case["expected_error"], (case["name"], reply.body)
        else:
            assert reply.status == 200, (case["name"], reply.body)
            assert reply.body["reward"] == case["expected_reward"], case["name"]


async def collect_examples(
    folder: Path, name: str, replies: Sequence[Any], *overrides: str, environment: str | None = None
) -> list[dict[str, Any]]:
    """The records of a run over the example rows in which the n-th row gets the n-th reply."""
    rows = example_rows(name)
    assert len(rows) == len(replies)
    for number, row in enumerate(rows):  # what the script goes by
        row["responses_create_params"]["metadata"] = {"row": str(number)}
    script = folder / "script.py"
    script.write_text(
        f"REPLIES = {list(replies)!r}\n\n\ndef answer(call):\n    return REPLIES[int(call.params['metadata']['row'])]\n"
    )
    sys.path.insert(0, str(folder))
    try:
        sys.modules.pop("script", None)
        records = [
            record
            async for record in gymnast.collect(
                write_jsonl(folder / "rows.jsonl", rows),
                folder / "out.jsonl",
                environments=[environment or name],
                config_paths=[SCRIPTED],
                overrides=["++policy_model.responses_api_models.scripted_model.script=script:answer", *overrides],
            )
        ]
    finally:
        sys.path.remove(str(folder))
    return sorted((record.data for record in records), key=lambda data: int(data["_ng_task_index"]))
