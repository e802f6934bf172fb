"""A body with any one value replaced by an odd one is answered or refused. A 500 would be a defect of ours."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest

from gymnast.builtin.resources_servers.blackjack.app import Blackjack
from gymnast.builtin.resources_servers.mcqa.app import MCQA
from gymnast.builtin.responses_api_models.scripted_model.app import ScriptedModel, ScriptedModelSettings
from gymnast.wire.calls import Calls
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Request
from gymnast.wire.server import Server, ServerContext
from tests.helpers.environments import host_environment, response, said
from tests.helpers.jsonl import example_rows

ODD: Final[tuple[Any, ...]] = (
    None,
    1,
    1.5,
    True,
    "x",
    [],
    {},
    [[]],
    [{}],
    {"x": 1},
    [None],
    {"type": []},
    {"type": {}},
    10**30,
)
SCHEMA: Final = {"type": "object", "properties": {}}
TURN: Final = [
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "id": "f", "status": "completed"},
    {"type": "function_call_output", "call_id": "c", "output": "a tree"},
    said("A tree."),
]
RESPONSES: Final = {
    "input": [
        {"role": "system", "content": "Look."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is there?"},
                {"type": "input_image", "image_url": "data:image/png;base64,aa", "detail": "auto"},
            ],
        },
        *TURN,
    ],
    "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": True, "description": "Look."}],
    "tool_choice": {"type": "function", "name": "look"},
    "text": {"format": {"type": "json_schema", "name": "seen", "schema": SCHEMA}},
    "reasoning": {"effort": "low"},
    "metadata": {"extra_body": "{}"},
    "max_output_tokens": 5,
    "include": [],
}
CHAT: Final = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "What is there?"}]},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "a tree"},
    ],
    "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "seen", "schema": SCHEMA}},
    "stop": ["."],
    "n": 1,
    "metadata": {"extra_body": "{}"},
}
MESSAGES: Final = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "Look."}],
    "messages": [
        {
            "role": "user",
            "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "c", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "a tree"}]}],
        },
    ],
    "tools": [{"name": "look", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "look"},
    "stop_sequences": ["."],
    "metadata": {"user_id": "u"},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def with_odd(body: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    body = copy.deepcopy(body)
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = odd
    return body


async def find_defects(server: Server, path: str, body: Any) -> list[str]:
    await server.start()
    try:
        return [
            f"{place} = {odd}: {reply.body}"
            for place in places(body)
            for odd in ODD
            if (reply := await server.handle(Request("POST", path, with_odd(body, place, odd)))).status >= 500
        ]
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/responses", RESPONSES), ("/v1/chat/completions", CHAT), ("/v1/messages", MESSAGES)],
    ids=["responses", "chat", "messages"],
)
async def test_a_model_server_refuses_or_answers(path: str, body: Any) -> None:
    server = ScriptedModel(
        "policy_model", ScriptedModelSettings(replies=["hi"]), ServerContext(Calls({}), HttpClient())
    )
    assert not await find_defects(server, path, body)


@pytest.mark.parametrize("path", ["/seed_session", "/verify"])
async def test_an_environment_refuses_or_scores(path: str) -> None:
    server, _ = host_environment(MCQA)
    assert not await find_defects(server, path, {**example_rows("mcqa")[0], "response": response(*TURN)})


async def test_an_environment_with_steps_refuses_or_continues() -> None:
    server, _ = host_environment(Blackjack)
    assert not await find_defects(server, "/step", {**example_rows("blackjack")[0], "response": response(*TURN)})
