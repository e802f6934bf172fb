"""A policy that says what a script tells it to: for tests, demos and rehearsals of failures. No network, no weights."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson
from pydantic import NonNegativeFloat, model_validator

from gymnast.hub.responses_api_models.scripted_model.script import (
    Fault,
    Script,
    ScriptedCall,
    ScriptedReply,
    load_script,
    script_of,
)
from gymnast.kit import Model, ModelCall, ModelSettings
from gymnast.kit.model import new_id, now
from gymnast.types.responses import response_object, usage_object
from gymnast.wire.message import PlainText, Reply
from gymnast.wire.server import ReplyError

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Item, Response, Usage
    from gymnast.types.json import JsonObject
    from gymnast.wire.server import Surroundings


class ScriptedModelSettings(ModelSettings):
    script: str | None = None
    """A .jsonl, .json or .yaml file, or `module:function`."""
    replies: list[Any] | None = None
    """The same, written into the config."""
    latency_s: NonNegativeFloat = 0.0
    faults: list[Fault] = []
    seed: int = 0
    model: str = "scripted"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.script is None) == (self.replies is None):
            raise ValueError("give either `script` or `replies`")
        return self


class ScriptedModel(Model):
    """Answers from its script."""

    settings: ScriptedModelSettings

    def __init__(self, name: str, settings: ScriptedModelSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self.script: Script
        if settings.script is not None:
            self.script = load_script(settings.script, _existing)
        else:
            self.script = script_of(settings.replies, "replies")

    @property
    def model_name(self) -> str:
        return self.settings.model

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        asked = ScriptedCall(dict(params), call.rollout_id or _seed_of(params) or call.session_id, self.settings.seed)
        reply = self._fault(asked) or await self.script.reply(asked)
        if reply.hang:
            await asyncio.Event().wait()
        latency_s = self.settings.latency_s if reply.latency_s is None else reply.latency_s
        if latency_s:
            await asyncio.sleep(latency_s)
        if reply.status is not None or reply.raw is not None:
            raise ReplyError(_bad_reply(reply))
        return response_object(
            params,
            _items(reply),
            response_id=new_id("resp_"),
            created_at=now(),
            model=self.settings.model,
            usage=_usage(asked, reply),
            incomplete={"reason": "max_output_tokens" if reply.finish == "length" else reply.finish}
            if reply.finish != "stop"
            else None,
        )

    def _fault(self, call: ScriptedCall) -> ScriptedReply | None:
        draw = call.random.random() if self.settings.faults else 1.0
        for fault in self.settings.faults:
            if draw < fault.rate:
                return fault.reply
            draw -= fault.rate
        return None


def _existing(path: str) -> Path | None:
    return Path(path) if Path(path).is_file() else None


def _seed_of(params: CreateParams) -> str | None:
    """The seed of a repeat (`num_repeats_add_seed`), which tells rollouts apart where no rollout id travels."""
    try:
        seed = orjson.loads((params.get("metadata") or {}).get("extra_body", "{}")).get("seed")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return None if seed is None else f"seed-{seed}"


def _items(reply: ScriptedReply) -> list[Item]:
    items: list[Item] = []
    if reply.reasoning is not None:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"id": new_id("rs_"), "summary": summary, "type": "reasoning", "encrypted_content": None})
    if reply.text is not None or not (reply.tool_calls or items):
        part: JsonObject = {"annotations": [], "text": reply.text or "", "type": "output_text", "logprobs": None}
        items.append(
            {"id": new_id("msg_"), "content": [part], "role": "assistant", "status": "completed", "type": "message"}
        )
    for call in reply.tool_calls:
        call_id = call.call_id or new_id("call_")
        items.append(
            {
                "arguments": call.arguments_text,
                "call_id": call_id,
                "name": call.name,
                "type": "function_call",
                "id": call_id,
                "status": "completed",
            }
        )
    return items


def _usage(call: ScriptedCall, reply: ScriptedReply) -> Usage:
    if reply.usage is not None:
        given, made = reply.usage.get("input_tokens", 0), reply.usage.get("output_tokens", 0)
    else:
        given = len(orjson.dumps(call.params["input"]).split())
        made = len(((reply.text or "") + " " + (reply.reasoning or "")).split()) + 8 * len(reply.tool_calls)
    return usage_object(given, made)


def _bad_reply(reply: ScriptedReply) -> Reply:
    if reply.raw is not None:
        return Reply(200, PlainText(reply.raw))
    body: JsonObject | str = (
        reply.body if reply.body is not None else {"error": {"message": "scripted error", "type": "scripted"}}
    )
    headers = {} if reply.retry_after_s is None else {"retry-after": f"{reply.retry_after_s:g}"}
    return Reply(reply.status or 500, PlainText(body) if isinstance(body, str) else body, headers=headers)
