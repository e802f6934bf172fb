"""A scripted policy for tests, demos and simulated failures. No network, no weights."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import NonNegativeFloat, model_validator

from gymnast.kit import (
    CreateParams,
    Item,
    JsonObject,
    Model,
    ModelCall,
    ModelSettings,
    PlainText,
    Reply,
    ReplyError,
    Response,
    ServerContext,
    Usage,
    make_response,
    make_usage,
    new_id,
    unix_time,
)

from .script import Fault, Script, ScriptedCall, ScriptedReply, load_script, parse_script


class ScriptedModelSettings(ModelSettings):
    script: str | None = None
    """A .jsonl, .json or .yaml file, or `module:function`."""
    replies: list[Any] | None = None
    """The same entries, inline in the config."""
    latency_s: NonNegativeFloat = 0.0
    faults: list[Fault] = []
    seed: int = 0
    model: str = "scripted"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.script is None) == (self.replies is None):
            raise ValueError("set either `script` or `replies`")
        return self


class ScriptedModel(Model):
    settings: ScriptedModelSettings

    def __init__(self, name: str, settings: ScriptedModelSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self.script: Script
        if settings.script is not None:
            self.script = load_script(settings.script, _find_file)
        else:
            self.script = parse_script(settings.replies, "replies")

    @property
    def model_name(self) -> str:
        return self.settings.model

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        scripted_call = ScriptedCall(
            dict(params), call.rollout_id or _read_seed(params) or call.session_id, self.settings.seed
        )
        reply = self._fault(scripted_call) or await self.script.reply(scripted_call)
        if reply.hang:
            await asyncio.Event().wait()
        latency_s = self.settings.latency_s if reply.latency_s is None else reply.latency_s
        if latency_s:
            await asyncio.sleep(latency_s)
        if reply.status is not None or reply.raw is not None:
            raise ReplyError(_bad_reply(reply))
        return make_response(
            params,
            _items(reply),
            response_id=new_id("resp_"),
            created_at=unix_time(),
            model=self.settings.model,
            usage=_usage(scripted_call, reply),
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


def _find_file(path: str) -> Path | None:
    return Path(path) if Path(path).is_file() else None


def _read_seed(params: CreateParams) -> str | None:
    """The seed of a repeat (`num_repeats_add_seed`), which distinguishes rollouts without a rollout id."""
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
        input_tokens, output_tokens = reply.usage.get("input_tokens", 0), reply.usage.get("output_tokens", 0)
    else:
        input_tokens = len(orjson.dumps(call.params["input"]).split())
        output_tokens = len(((reply.text or "") + " " + (reply.reasoning or "")).split()) + 8 * len(reply.tool_calls)
    return make_usage(input_tokens, output_tokens)


def _bad_reply(reply: ScriptedReply) -> Reply:
    if reply.raw is not None:
        return Reply(200, PlainText(reply.raw))
    body: JsonObject | str = (
        reply.body if reply.body is not None else {"error": {"message": "scripted error", "type": "scripted"}}
    )
    headers = {} if reply.retry_after_s is None else {"retry-after": f"{reply.retry_after_s:g}"}
    return Reply(reply.status or 500, PlainText(body) if isinstance(body, str) else body, headers=headers)
