"""An environment and its scripted judge in this process, for tests of environments that ask one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gymnast.builtin.responses_api_models.scripted_model.app import ScriptedModel, ScriptedModelSettings
from gymnast.builtin.responses_api_models.scripted_model.script import FunctionScript, ScriptedCall
from gymnast.wire.calls import Calls, Scope, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.progress import AttemptProgress
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import InProcessTransport
from tests.helpers.environments import Subject, response, said

JUDGE = {"type": "responses_api_models", "name": "judge"}
SAME = "They agree.\n[[A=B]]"
OTHER = "They differ.\n[[A!=B]]"


class ScriptedJudge:
    """Says what it is told to, one reply a call (the last repeats), and remembers what it was asked."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[ScriptedCall] = []

    def __call__(self, call: ScriptedCall) -> Any:
        self.asked.append(call)
        return self.replies[min(len(self.asked), len(self.replies)) - 1]

    @property
    def questions(self) -> list[str]:
        return [call.user_text for call in self.asked]


def scripted(transports: dict[str, Transport], answer: Callable[[ScriptedCall], Any], **settings: Any) -> Calls:
    """Calls in which `judge` is a scripted model."""
    calls = Calls(transports)
    model = ScriptedModel("judge", ScriptedModelSettings(replies=["-"], **settings), ServerContext(calls, HttpClient()))
    model.script = FunctionScript(answer)
    transports["judge"] = InProcessTransport(model)
    return calls


@asynccontextmanager
async def judged(server_class: Any, settings: Any, answer: Callable[[ScriptedCall], Any]) -> AsyncIterator[Subject]:
    """An environment whose judge answers so."""
    transports: dict[str, Transport] = {}
    calls = scripted(transports, answer)
    server = server_class("env", settings, ServerContext(calls, HttpClient()))
    transports["env"] = InProcessTransport(server)
    await server.start()
    try:
        yield Subject(server, calls)
    finally:
        await server.stop()


async def verify_in_rollout(subject: Subject, row: dict[str, Any], text: str, progress: AttemptProgress) -> Any:
    """A verdict, with what it used in the usage counter of `progress`."""
    body = {**row, "response": response(said(text))}
    reply = await subject.calls.call("env", "/verify", body, Scope("1-0", progress))
    assert reply.status == 200, reply.body
    return reply.body


def texts_of(evaluations: Sequence[dict[str, Any]]) -> list[str | None]:
    """The labels of a record's judge evaluations."""
    return [evaluation["verdict_label"] for evaluation in evaluations]
