"""Calls between hosted servers: whatever aiohttp's options can say arrives, and replies are read as aiohttp's are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gymnast.config import Config
from gymnast.runtime.cell import Cell
from gymnast.wire.calls import Calls, Scope
from gymnast.wire.http_client import HttpClient
from gymnast.wire.transports import HttpTransport
from tests.contract.nemo_gym_policy import policy
from tests.contract.test_nemo_gym_hosting import block, living, written

Configure = Callable[..., Config]
APP = """
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel
from starlette.background import BackgroundTask


class Ask(BaseModel):
    path: str
    method: str = "POST"
    options: dict[str, Any] = {}
    raw: str | None = None


class Odd(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    done: list[str] = []

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for name in ("ask", "twice", "read", "text", "head", "lines", "who", "later"):
            route = getattr(self, name)
            app.post(f"/{name}", **({"response_class": PlainTextResponse} if name == "text" else {}))(route)
        app.api_route("/echo", methods=["GET", "POST", "PUT"])(self.echo)
        app.get("/look")(self.look)
        return app

    async def echo(self, request: Request) -> dict[str, Any]:
        names = ("x-mine", "content-type")
        return {
            "method": request.method,
            "query": dict(request.query_params),
            "headers": {name: request.headers.get(name) for name in names},
            "cookies": {name: value for name, value in request.cookies.items() if "___" not in name},
            "body": (await request.body()).decode(),
        }

    async def look(self, q: str = "nothing") -> dict[str, str]:
        return {"q": q}

    async def text(self) -> str:
        return "plain words"

    async def head(self, response: Response) -> dict[str, Any]:
        response.headers["x-said"] = "yes"
        return {}

    async def later(self) -> JSONResponse:
        return JSONResponse({"done": self.done}, background=BackgroundTask(self.done.append, "x"))

    async def lines(self) -> StreamingResponse:
        async def made() -> Any:
            yield b"one\\n"
            yield b"two\\n"

        return StreamingResponse(made(), media_type="text/plain")

    async def who(self, request: Request) -> str:
        return request.session[SESSION_ID_KEY]

    async def ask(self, body: Ask) -> dict[str, Any]:
        options = body.options if body.raw is None else {**body.options, "data": body.raw.encode()}
        reply = await self.server_client.request("odd", body.path, body.method, **options)
        return {"status": reply.status, "body": await reply.json(), "headers": dict(reply.headers)}

    async def read(self) -> dict[str, Any]:
        text = await self.server_client.post("odd", "/text", json={})
        lines = await self.server_client.post("odd", "/lines", json={})
        await text.release()
        return {
            "content": (await text.content.read()).decode(),
            "type": text.content_type,
            "lines": [line.decode() async for line in lines.content],
        }

    async def twice(self) -> list[Any]:
        seeded = await self.server_client.post("odd", "/seed_session", json={})
        replies = [await self.server_client.post("odd", "/who", json={}, cookies=seeded.cookies) for _ in "ab"]
        return [await reply.json() for reply in replies]

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
"""


@pytest.fixture
async def odd(configure: Configure, tmp_path: Path) -> AsyncIterator[Cell]:
    written(tmp_path, text=APP)
    async with living(configure(initial={"odd": block("odd"), **policy(["hello"])})) as cell:
        yield cell


@pytest.mark.parametrize(
    ("asked", "part", "arrives"),
    [
        ({"path": "/echo", "method": "GET", "options": {"params": {"a": "1 2"}}}, "query", {"a": "1 2"}),
        ({"path": "/echo?b=2", "options": {"params": {"a": "1"}, "json": {}}}, "query", {"a": "1", "b": "2"}),
        ({"path": "/look?q=5", "method": "GET"}, "q", "5"),
        ({"path": "/look", "method": "GET", "options": {"params": {"q": "6"}}}, "q", "6"),
        ({"path": "/echo", "options": {"json": {"c": 1}}, "method": "PUT"}, "body", '{"c":1}'),
        (
            {"path": "/echo", "options": {"headers": {"X-Mine": "7"}, "json": {}}},
            "headers",
            {"x-mine": "7", "content-type": "application/json"},
        ),
        (
            {"path": "/echo", "options": {"headers": {"Cookie": "d=4"}, "cookies": {"e": "5"}}},
            "cookies",
            {"d": "4", "e": "5"},
        ),
        ({"path": "/echo", "raw": '{"f":1}'}, "body", '{"f":1}'),
        ({"path": "/echo", "raw": "no json"}, "body", "no json"),
        ({"path": "/echo", "options": {"data": {"g": "1"}}}, "body", "g=1"),
    ],
)
async def test_whatever_a_request_says_arrives(odd: Cell, asked: dict[str, Any], part: str, arrives: Any) -> None:
    reply = await odd.calls.call("odd", "/ask", asked)
    assert reply.status == 200, reply.body
    assert (reply.body["status"], reply.body["body"][part]) == (200, arrives)


async def test_a_reply_is_read_in_any_way(odd: Cell) -> None:
    read = (await odd.calls.call("odd", "/read")).body
    assert read == {"content": "plain words", "type": "text/plain", "lines": ["one\n", "two\n"]}
    said = (await odd.calls.call("odd", "/ask", {"path": "/head"})).body
    assert said["headers"]["x-said"] == "yes"


async def test_the_first_reply_names_the_session_for_good(odd: Cell) -> None:
    first, second = (await odd.calls.call("odd", "/twice")).body
    assert first == second


async def test_a_session_without_a_seed_of_its_own_has_tools_over_mcp(configure: Configure, tmp_path: Path) -> None:
    written(tmp_path, text=APP)
    async with living(configure(initial={"odd": block("odd", expose_tools_over_mcp=True)})) as cell:
        scope = Scope()
        offer = (await cell.calls.call("odd", "/seed_session", {}, scope)).body["mcp"]
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who", "arguments": {}}}
        over_mcp = await cell.calls.call("odd", "/mcp", asked, Scope(headers=offer["headers"]))
        directly = await cell.calls.call("odd", "/who", {}, scope)
    assert over_mcp.body["result"] == {"content": [{"type": "text", "text": directly.text()}], "isError": False}


async def test_work_left_for_after_the_reply_is_done(odd: Cell) -> None:
    assert (await odd.calls.call("odd", "/later")).body == {"done": []}
    assert (await odd.calls.call("odd", "/later")).body == {"done": ["x"]}


async def test_routes_answer_in_memory_as_over_their_port(odd: Cell, http: HttpClient) -> None:
    outside = Calls({"odd": HttpTransport(odd.addresses["odd"].url, http)})
    for path in ("/text", "/lines", "/head"):
        inside, over_port = await odd.calls.call("odd", path, {}), await outside.call("odd", path, {})
        assert (inside.status, inside.text()) == (over_port.status, over_port.text()), path
    native = await odd.calls.call("policy_model", "/?x=1", None, method="GET")
    assert native.body == {"status": "ok"}
