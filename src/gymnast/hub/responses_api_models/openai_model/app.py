"""Any endpoint that speaks the OpenAI Responses API (and Chat Completions): requests pass through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field

from gymnast.kit import Model, ModelCall
from gymnast.kit.upstream import EndpointSettings, Upstream
from gymnast.types.json import JsonObject
from gymnast.wire.validate import InvalidBody, validate_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.types.items import CreateParams, Response
    from gymnast.wire.server import Surroundings


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

    def __init__(self, name: str, settings: OpenAIModelSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self.upstream = Upstream(
            name,
            settings.openai_base_url,
            surroundings,
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
        self.note_ignored(call, _read_by_nobody(params.get("metadata") or {}))
        reply = await self.upstream.post("/responses", body, call)
        try:
            return validate_response(reply, loc=("response",))
        except InvalidBody as error:
            raise self.upstream.failure("model_bad_reply", "/responses", f"no Responses object: {error}") from error

    async def complete(self, body: JsonObject, call: ModelCall) -> JsonObject:
        asked = {**self.settings.extra_body, **body, "model": self.settings.openai_model}
        return await self.upstream.post("/chat/completions", asked, call)


def _read_by_nobody(metadata: Mapping[str, str]) -> list[str]:
    """What rides in metadata for engines that look into it; the Responses API has no parameter for it."""
    found = [key for key in ("extra_body", "chat_template_kwargs") if key in metadata]
    return [f"metadata.{key}.{name}" for key in found for name in _keys(metadata[key])]


def _keys(text: str) -> list[str]:
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ["*"]
    return list(value) if isinstance(value, dict) else ["*"]
