"""Model servers in this process, and the policy endpoints that they call, on ports of their own."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final

from gymnast.builtin.responses_api_models.anthropic_model.app import AnthropicModel, AnthropicModelSettings
from gymnast.builtin.responses_api_models.openai_model.app import OpenAIModel, OpenAIModelSettings
from gymnast.builtin.responses_api_models.scripted_model.app import ScriptedModel, ScriptedModelSettings
from gymnast.builtin.responses_api_models.vllm_model.app import VLLMModel, VLLMModelSettings
from gymnast.runtime.listener import Listener
from gymnast.runtime.ports import bind_socket
from gymnast.types.failure import Stage
from gymnast.wire.asgi import Receive, Send, read_body, send_reply
from gymnast.wire.calls import Calls, Scope, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Reply
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import InProcessTransport

USAGE: Final = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


class Silence(Enum):
    """Replies that are none."""

    UNTIL_HANG_UP = auto()
    """The endpoint never answers; the caller has to give up."""


class Endpoint:
    """A policy endpoint that gives its replies in order (the last repeats) and remembers the requests."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.open = asyncio.Event()
        """Requests are held while it is not set."""
        self.open.set()
        self.running = self.peak = 0
        """How many requests are held or being answered, and the most there ever were."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await send_reply(send, Reply(404))
            return
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await self._answer(scope, receive, send)
        finally:
            self.running -= 1

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        self.asked.append({"path": scope["path"], **json.loads(await read_body(receive))})
        await self.open.wait()
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if reply is Silence.UNTIL_HANG_UP:
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            await send_reply(send, reply if isinstance(reply, Reply) else Reply(200, reply))


def chat(content: str | None = "hi", finish: str = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return {"id": "c", "object": "chat.completion", "created": 9, "model": "m", "choices": [choice], "usage": USAGE}


class Bench:
    """Hosts endpoints and model servers in front of them."""

    def __init__(self, stack: AsyncExitStack, client: HttpClient) -> None:
        self._stack = stack
        self.client = client
        self.transports: dict[str, Transport] = {}
        self.calls = Calls(self.transports)
        self.context = ServerContext(self.calls, client)

    async def listen(self, app: Any) -> str:
        """Serve an application on a port of its own; returns its address."""
        sock = bind_socket("127.0.0.1", 0, what="endpoint", hint="")
        return (await self._stack.enter_async_context(Listener(app, sock))).url

    async def endpoint(self, *replies: Any) -> Endpoint:
        endpoint = Endpoint(*replies)
        endpoint.url = f"{await self.listen(endpoint)}/v1"
        return endpoint

    def vllm(self, *urls: str, **settings: Any) -> VLLMModel:
        base_url = urls[0] if len(urls) == 1 else list(urls)
        given = {"base_url": base_url, "api_key": "sk", "model": "the-model", **settings}
        model = VLLMModel("policy", VLLMModelSettings(**given), self.context)
        self._stack.push_async_callback(model.stop)
        model.upstream.policy = replace(model.upstream.policy, first_delay_s=0.01)
        self.transports["policy"] = InProcessTransport(model)
        return model

    def openai(self, url: str, **settings: Any) -> OpenAIModel:
        given = {"openai_base_url": url, "openai_api_key": "sk", "openai_model": "the-model", **settings}
        model = OpenAIModel("policy", OpenAIModelSettings(**given), self.context)
        model.upstream.policy = replace(model.upstream.policy, first_delay_s=0.01)
        self.transports["policy"] = InProcessTransport(model)
        return model

    def anthropic(self, url: str, **settings: Any) -> AnthropicModel:
        given = {"base_url": url, "api_key": "sk-ant-secret", "model": "the-model", **settings}
        model = AnthropicModel("policy", AnthropicModelSettings(**given), self.context)
        self._stack.push_async_callback(model.stop)
        model.upstream.policy = replace(model.upstream.policy, first_delay_s=0.01)
        self.transports["policy"] = InProcessTransport(model)
        return model

    def scripted(self, **settings: Any) -> None:
        model = ScriptedModel("policy", ScriptedModelSettings(**settings), self.context)
        self.transports["policy"] = InProcessTransport(model)

    async def ask(self, scope: Scope | None = None, **params: Any) -> Reply:
        return await self.calls.call("policy", "/v1/responses", {"input": "q", **params}, scope, stage=Stage.MODEL)
