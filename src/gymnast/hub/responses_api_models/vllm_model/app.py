"""A vLLM server (or anything that speaks Chat Completions like it), asked in the Responses form.

Reasoning travels as `<think>` blocks inside and as the engine's reasoning fields outside. A prompt that no longer fits
the context is an outcome of the policy (an incomplete response), not a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import orjson
from pydantic import Field

from gymnast.errors import CallError
from gymnast.kit import Model, ModelCall
from gymnast.kit.model import new_id
from gymnast.kit.upstream import EndpointSettings, Upstream
from gymnast.types.failure import FailureDetail, Stage
from gymnast.types.json import JsonObject
from gymnast.wire.dialects.chat_reply import BadCompletion, response_of_completion, split_thinking
from gymnast.wire.dialects.chat_request import NotConvertible, chat_request, think_block
from gymnast.wire.server import HttpError
from gymnast.wire.validate import InvalidBody, validate_response

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Response
    from gymnast.wire.server import Surroundings

_CHAT: Final = "/chat/completions"
_OVERFLOW: Final = ("context length", "max_tokens")
_AUDIO: Final = ("audio_data", "audio_path", "audio_paths")


class VLLMModelSettings(EndpointSettings):
    base_url: str | list[str] = Field(min_length=1)
    api_key: str
    model: str
    return_token_id_information: Literal[False] = False
    uses_reasoning_parser: bool = True
    uses_interleaved_reasoning: bool = True
    preserve_reasoning_in_assistant_content: bool = False
    replace_developer_role_with_system: bool = False
    sequential_reasoning_allowed: bool = True
    is_responses_native: bool = False
    chat_template_kwargs: JsonObject | None = None
    sampling_overrides: JsonObject | None = None
    extra_body: JsonObject | None = None
    default_headers: dict[str, str] = {}


class VLLMModel(Model):
    """Converts Responses to Chat Completions and back in front of an engine."""

    settings: VLLMModelSettings

    def __init__(self, name: str, settings: VLLMModelSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self.upstream = Upstream(
            name,
            settings.base_url,
            surroundings,
            settings,
            api_key=settings.api_key,
            headers=settings.default_headers,
        )

    @property
    def model_name(self) -> str:
        return self.settings.model

    @property
    def takes_hosted_tools(self) -> bool:
        return self.settings.is_responses_native

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        if self.settings.is_responses_native:
            return await self._respond_natively(params, call)
        try:
            body, lost = chat_request(params)
        except NotConvertible as error:
            raise self._refusal(str(error)) from error
        self.note_ignored(call, lost)
        completion = await self.complete(body, call)
        try:
            return response_of_completion(
                completion,
                params,
                model=self.settings.model,
                new_id=new_id,
                parse_thinking=self.settings.uses_reasoning_parser,
            )
        except BadCompletion as error:
            raise self.upstream.failure("model_bad_reply", _CHAT, str(error)) from error

    async def complete(self, body: JsonObject, call: ModelCall) -> JsonObject:
        messages = [self._outbound_message(message, call) for message in body["messages"]]
        if not self.settings.sequential_reasoning_allowed and _ends_with_empty_turn(messages):
            return _empty_completion(self.settings.model, "content_filter")
        asked = self._outbound_body({**body, "messages": messages})
        try:
            completion = await self.upstream.post(_CHAT, asked, call)
        except CallError as error:
            if _is_overflow(error.detail):
                return _empty_completion(self.settings.model, "length")
            raise
        try:
            for choice in completion.get("choices") or ():
                self._fold_reasoning(choice.get("message") or {})
        except (AttributeError, TypeError) as error:
            said = f"the reply is no chat completion: {error}"
            raise self.upstream.failure("model_bad_reply", _CHAT, said) from error
        return completion

    async def _respond_natively(self, params: CreateParams, call: ModelCall) -> Response:
        asked = self._outbound_body(dict(params))
        reply = await self.upstream.post("/responses", asked, call)
        try:
            return validate_response(reply, loc=("response",))
        except InvalidBody as error:
            raise self.upstream.failure("model_bad_reply", "/responses", f"no Responses object: {error}") from error

    def _outbound_body(self, body: JsonObject) -> JsonObject:
        """Configured extras lie under what the request says; sampling overrides lie on top of it."""
        settings = self.settings
        metadata = body.get("metadata") or {}
        for name in _AUDIO:
            if name in metadata:
                raise self._refusal(f"audio in metadata ('{name}') is not supported")
        template = {**(settings.chat_template_kwargs or {}), **self._json_text(metadata, "chat_template_kwargs")}
        extra = {**(settings.extra_body or {}), **self._json_text(metadata, "extra_body")}
        under: JsonObject = {"chat_template_kwargs": template, **extra} if template else extra
        return {**under, **body, "model": settings.model, **(settings.sampling_overrides or {})}

    def _outbound_message(self, message: JsonObject, call: ModelCall) -> JsonObject:
        if message.get("role") == "developer" and self.settings.replace_developer_role_with_system:
            return {**message, "role": "system"}
        content = message.get("content")
        if (
            message.get("role") != "assistant"
            or not isinstance(content, str)
            or not self.settings.uses_reasoning_parser
        ):
            return message
        thoughts, text = split_thinking(content)
        if not thoughts:
            return message
        kept = content if self.settings.preserve_reasoning_in_assistant_content else text or None
        if not self.settings.uses_interleaved_reasoning:
            return {**message, "content": kept}
        if len(thoughts) > 1 and kept is not content:
            self.note_ignored(call, ["reasoning after the first of a turn"])  # a message has one field for it
        return {**message, "content": kept, "reasoning_content": thoughts[0], "reasoning": thoughts[0]}

    def _fold_reasoning(self, message: JsonObject) -> None:
        reasoning = message.pop("reasoning_content", None)
        reasoning = message.pop("reasoning", None) or reasoning
        if not reasoning:
            return
        if not self.settings.uses_reasoning_parser:
            said = "the engine returned reasoning although uses_reasoning_parser is false"
            raise self.upstream.failure("model_bad_reply", _CHAT, said)
        message["content"] = think_block(reasoning) + (message.get("content") or "")

    def _json_text(self, metadata: JsonObject, key: str) -> JsonObject:
        if key not in metadata:
            return {}
        try:
            value: Any = orjson.loads(metadata[key])
        except (orjson.JSONDecodeError, TypeError) as error:
            raise self._refusal(f"metadata.{key} is not JSON text: {error}") from error
        if not isinstance(value, dict):
            raise self._refusal(f"metadata.{key} is not the JSON text of an object")
        return value

    def _refusal(self, said: str) -> HttpError:
        """The request asks for what this backend cannot do; leaving that out would change its meaning."""
        detail = FailureDetail("model_rejected", Stage.MODEL, f"{self.name}: {said}", instance=self.name, body=said)
        return HttpError(422, said, failure=detail)


def _is_overflow(detail: FailureDetail) -> bool:
    return detail.status == 400 and any(mark in (detail.body or "") for mark in _OVERFLOW)


def _ends_with_empty_turn(messages: list[JsonObject]) -> bool:
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and not last.get("content") and not last.get("tool_calls")


def _empty_completion(model: str, finish_reason: str) -> JsonObject:
    message = {"role": "assistant", "content": None}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "chtcmpl-123", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]}
