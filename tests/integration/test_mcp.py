"""Tools over MCP, with the official client against `gymnast serve`: sessions by token, errors as words, plain names."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from itsdangerous import URLSafeSerializer
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.helpers.commands import DEMO_POLICY, Outcome, serving
from tests.helpers.environments import called, response, said
from tests.helpers.jsonl import example_rows
from tests.helpers.local_serve import LocalServe

COUNTER, WEATHER = "example_session_state_mgmt", "example_single_tool_call"
HEADER = "X-NeMo-Gym-Session-Token"


def post(url: str, body: Any, cookie: str = "") -> tuple[Any, str]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    if cookie:
        request.add_header("cookie", cookie)
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.loads(reply.read()), str(reply.headers["set-cookie"]).split(";")[0]


@asynccontextmanager
async def connected(url: str, token: str | None, mode: Any = "auto") -> AsyncIterator[Client]:
    headers = {HEADER: token} if token else {}
    http = httpx2.AsyncClient(headers=headers)
    async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        yield client


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    exposed = f"++{COUNTER}_resources_server.resources_servers.{COUNTER}.expose_tools_over_mcp=true"
    folder = tmp_path_factory.mktemp("counter")
    with serving(folder, "-e", COUNTER, "-c", DEMO_POLICY, exposed) as served:
        yield served.url(f"{COUNTER}_resources_server")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_uses_tools_in_the_rollouts_session(counter: str, mode: str) -> None:
    row = {**example_rows(COUNTER)[0], "initial_count": 2, "expected_count": 7}
    seeds = [await asyncio.to_thread(post, f"{counter}/seed_session", row) for _ in range(2)]
    offers = [offer["mcp"] for offer, _ in seeds]
    assert {key: offers[0][key] for key in ("server_name", "url_path", "transport")} == {
        "server_name": f"{COUNTER}_resources_server",
        "url_path": "/mcp",
        "transport": "http",
    }
    for (_, cookie), offer, add in zip(seeds, offers, (5, 4), strict=True):
        async with connected(counter + offer["url_path"], offer["headers"][HEADER], mode) as client:
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == ["get_counter_value", "increment_counter"]
            assert listed[1].input_schema["required"] == ["count"]
            assert listed[1].description == "Increase the counter."
            await client.call_tool("increment_counter", {"count": add})
            assert json.loads(text_of(await client.call_tool("get_counter_value", {}))) == {"count": 2 + add}
            wrong = await client.call_tool("increment_counter", {"count": "many"})
            assert wrong.is_error
            assert text_of(wrong).startswith("HTTP 422 from POST /increment_counter: ")
        body = {**row, "response": response(called("mcp__counter__increment_counter", {"count": add}), said("ok"))}
        verdict, _ = await asyncio.to_thread(post, f"{counter}/verify", body, cookie)
        assert verdict["reward"] == float(add == 5)
        assert verdict["response"]["output"][0]["name"] == "mcp__counter__increment_counter"


async def test_tools_are_listed_without_a_token_and_called_only_with_one(counter: str) -> None:
    for token in (None, "forged.token"):
        async with connected(f"{counter}/mcp", token) as client:
            assert len((await client.list_tools()).tools) == 2
            refused = await client.call_tool("get_counter_value", {})
            assert refused.is_error
            assert text_of(refused).startswith("HTTP 401 from POST /get_counter_value")


async def test_the_token_is_the_contracts(counter: str) -> None:
    row = example_rows(COUNTER)[0]
    offer, cookie = await asyncio.to_thread(post, f"{counter}/seed_session", row)
    name, _, session_id = cookie.partition("=")
    token = URLSafeSerializer(name, salt="nemo-gym-mcp-session-token").loads(offer["mcp"]["headers"][HEADER])
    assert token == {"sid": session_id, "tools": ["get_counter_value", "increment_counter"]}


async def test_a_row_limits_its_token_to_the_tools_it_declares(counter: str) -> None:
    row = example_rows(COUNTER)[0]
    params = row["responses_create_params"]
    row = {**row, "responses_create_params": {**params, "tools": params["tools"][:1]}}
    offer, _ = await asyncio.to_thread(post, f"{counter}/seed_session", row)
    async with connected(f"{counter}/mcp", offer["mcp"]["headers"][HEADER]) as client:
        (only,) = (await client.list_tools()).tools
        assert only.name == params["tools"][0]["name"]


async def test_without_the_setting_there_is_no_mcp(serve_here: Callable[..., LocalServe]) -> None:
    url = serve_here(environments=[WEATHER], config_paths=[DEMO_POLICY]).url(WEATHER)
    offer, _ = await asyncio.to_thread(post, f"{url}/seed_session", example_rows(WEATHER)[0])
    assert "mcp" not in offer
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await asyncio.to_thread(post, f"{url}/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})


def test_an_environment_of_steps_refuses_the_setting(invoke: Callable[..., Outcome]) -> None:
    name = "example_multi_turn_gymnasium"
    setting = f"++{name}_resources_server.resources_servers.{name}.expose_tools_over_mcp=true"
    result = invoke("gymnast", "check", "env", name, setting)
    assert result.code == 2
    assert "has no tools to expose" in result.err
