"""Gymnast's side of the comparison: an environment in this process, asked the same requests as the original."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self
from unittest.mock import patch

from gymnast.kit import CreateParams, Model, ModelCall, ModelSettings, Response, Template, make_response, make_usage
from gymnast.runtime.loader import settings_type
from gymnast.types.encoding import encode_json
from gymnast.wire.calls import Calls, Scope, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Reply
from gymnast.wire.server import Server, ServerContext
from gymnast.wire.transports import InProcessTransport
from tests.helpers.environments import Subject, started
from tests.parity.original import PROMPTS, REQUIRED, SYSTEM, Script, gather_until_refused, output_of

_COMMON = {"verify_processes": 1, "judge_max_tries": 1}
_OUR_NAMES: Final = {
    "text_to_sql": ("dialect", "context", "question", "first", "second"),
    "math_with_judge": ("problem", "first", "second"),
}
"""Of the parts of a prompt, in the order of PROMPTS."""


class Ours:
    """The servers of one environment, one for each combination of settings."""

    def __init__(self, environment: str, checkout: Path) -> None:
        self._environment, self._script = environment, Script()
        self._server_class = find_server_class(environment)
        self._own: dict[str, Any] = {}
        self._required = {} if environment == "google_search" else REQUIRED.get(environment, {})  # no keys: no searches
        if environment == "workplace_assistant":  # the same office on both sides
            self._own["data_dir"] = str(checkout / "resources_servers" / environment / "csv_data")
        self._subjects: dict[str, Subject] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        module, names = inspect.getmodule(self._server_class), _OUR_NAMES.get(self._environment)
        if names is not None:
            assert len(names) == len(PROMPTS[self._environment])
            template = Template("\n===\n".join(f"{{{name}}}" for name in names), names)
            self._stack.enter_context(patch.object(module, "QUESTION", template))
        if hasattr(module, "SYSTEM"):
            self._stack.enter_context(patch.object(module, "SYSTEM", SYSTEM))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def score(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The replies to a request."""
        self._script.load(request.get("judge", []))
        return self._script.add_calls(await self._score(request))

    async def _score(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        subject = await self._open(request.get("settings", {}))
        if request.get("together"):
            return await gather_until_refused([_send(subject, path, body, Scope()) for path, body in request["steps"]])
        replies, scope = [], Scope()
        for path, body in request["steps"]:
            replies.append(await _send(subject, path, body, scope))
            refused = replies[-1]["status"] != 200 and path in ("/reset", "/step", "/verify")
            if refused or (isinstance(replies[-1]["body"], dict) and replies[-1]["body"].get("terminated")):
                break
        return replies

    async def _open(self, settings: dict[str, Any]) -> Subject:
        key = json.dumps(settings, sort_keys=True)
        if key not in self._subjects:
            model = settings_type(self._server_class)
            values = {**_COMMON, **self._required, **self._own}
            known = {name: value for name, value in values.items() if name in model.model_fields}
            opened = model(**{**known, **settings})
            judge = known.get("judge_model_server", known.get("genrm_model_server"))
            context = (
                _judged(self._server_class, opened, self._script.answer)
                if judge
                else started(self._server_class, opened)
            )
            self._subjects[key] = await self._stack.enter_async_context(context)
        return self._subjects[key]


class _Judge(Model):
    """A judge that answers a text, or any items."""

    answer: Callable[[dict[str, Any]], Any]

    @property
    def model_name(self) -> str:
        return "judge"

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        output = output_of(self.answer(dict(params)))
        return make_response(params, output, response_id="r", created_at=1, model="judge", usage=make_usage(1, 1))


@asynccontextmanager
async def _judged(server_class: Any, settings: Any, answer: Callable[[dict[str, Any]], Any]) -> AsyncIterator[Subject]:
    """An environment whose judge answers so."""
    transports: dict[str, Transport] = {}
    context = ServerContext(Calls(transports), HttpClient())
    judge = _Judge("judge", ModelSettings(), context)
    judge.answer = answer
    server = server_class("env", settings, context)
    transports.update(judge=InProcessTransport(judge), env=InProcessTransport(server))
    await server.start()
    try:
        yield Subject(server, context.calls)
    finally:
        await server.stop()


def find_server_class(environment: str) -> Any:
    """The class of a shipped environment."""
    module = importlib.import_module(f"gymnast.builtin.resources_servers.{environment}.app")
    return next(
        member
        for member in vars(module).values()
        if inspect.isclass(member) and issubclass(member, Server) and member.__module__ == module.__name__
    )


async def _send(subject: Subject, path: str, body: Any, scope: Scope) -> dict[str, Any]:
    reply: Reply = await subject.calls.call("env", path, json.loads(json.dumps(body)), scope)
    return {"status": reply.status, "body": json.loads(encode_json(reply.body))}
