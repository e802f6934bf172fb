"""Passes requests through to any endpoint with the OpenAI Responses API (and Chat Completions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field

from gymnast.kit import (
    CreateParams,
    EndpointSettings,
    FailureKind,
    InvalidBody,
    JsonObject,
    Model,
    ModelCall,
    Response,
    ServerContext,
    Upstream,
    validate_response,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class OpenAIModelSettings(EndpointSettings):
    openai_base_url: str | list[str] = Field(min_length=1)
    openai_api_key: str
    openai_model: str
    extra_body: JsonObject = {}
    openai_default_headers: dict[str, str] = {}
    drop_input_reasoning_items: bool = False


class OpenAIModel(Model):
    """Passes requests to `{base_url}/responses` and `{base_url}/chat/completions`."""

    settings: OpenAIModelSettings

    def __init__(self, name: str, settings: OpenAIModelSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self.upstream = Upstream(
            name,
            settings.openai_base_url,
            context,
            settings,
            api_key=settings.openai_api_key,
            headers=settings.openai_default_headers,
        )

    async def stop(self) -> None:
        await self.upstream.stop()

    @property
    def model_name(self) -> str:
        return self.settings.openai_model

    @property
    def takes_hosted_tools(self) -> bool:
        return True

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        body: dict[str, Any] = {**self.settings.extra_body, **params, "model": self.settings.openai_model}
        if self.settings.drop_input_reasoning_items and isinstance(body["input"], list):
            body["input"] = [item for item in body["input"] if item.get("type") != "reasoning"]
        self.note_ignored(call, _ignored_metadata(params.get("metadata") or {}))
        reply = await self.upstream.post("/responses", body, call)
        try:
            response = validate_response(reply, loc=("response",))
        except InvalidBody as error:
            raise self.upstream.failure(
                FailureKind.MODEL_BAD_REPLY, "/responses", f"not a Responses object: {error}"
            ) from error
        self.upstream.require_answer(response, "/responses")
        return response

    async def complete(self, body: JsonObject, call: ModelCall) -> JsonObject:
        request = {**self.settings.extra_body, **body, "model": self.settings.openai_model}
        return await self.upstream.post("/chat/completions", request, call)


def _ignored_metadata(metadata: Mapping[str, str]) -> list[str]:
    """Parameters in metadata for inference servers that read them; the Responses API does not."""
    keys = [key for key in ("extra_body", "chat_template_kwargs") if key in metadata]
    return [f"metadata.{key}.{name}" for key in keys for name in _keys(metadata[key])]


def _keys(text: str) -> list[str]:
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ["*"]
    return list(value) if isinstance(value, dict) else ["*"]
