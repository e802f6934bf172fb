"""Answers with Anthropic's Messages API. A prompt that exceeds the context is an incomplete response, not a failure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from pydantic import Field, PositiveInt

from gymnast.kit import (
    BadMessage,
    CallError,
    CreateParams,
    EndpointSettings,
    FailureKind,
    JsonObject,
    Model,
    ModelCall,
    NotConvertible,
    Response,
    ServerContext,
    Upstream,
    add_overflow,
    is_context_overflow,
    make_rejection,
    message_to_response,
    new_id,
    params_to_messages,
    unix_time,
)

_PATH: Final = "/messages"
_FIXED_BY_THINKING: Final = ("temperature", "top_k")


class AnthropicModelSettings(EndpointSettings):
    base_url: str | list[str] = Field(min_length=1)
    """`https://api.anthropic.com`, with or without /v1."""
    api_key: str
    model: str
    anthropic_version: str = "2023-06-01"
    max_output_tokens: PositiveInt = 8192
    """For requests that set no limit: the API requires one."""
    thinking: JsonObject | None = None
    """`{type: enabled, budget_tokens: 8000}` or `{type: adaptive}`, as the API defines it."""
    cache_prompts: bool = False
    """Cache the prompt up to its last block: later turns of a rollout read it at a lower price."""
    extra_body: JsonObject = {}
    """Sent with every request, under the request's own parameters."""
    default_headers: dict[str, str] = {}
    """For example `{anthropic-beta: …}`."""


class AnthropicModel(Model):
    """Converts Responses to Messages and back."""

    settings: AnthropicModelSettings

    def __init__(self, name: str, settings: AnthropicModelSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        urls = [settings.base_url] if isinstance(settings.base_url, str) else settings.base_url
        self.upstream = Upstream(
            name,
            [versioned_url(url) for url in urls],
            context,
            settings,
            api_key=settings.api_key,
            headers=settings.default_headers,
            key_header="x-api-key",
            api_headers={"anthropic-version": settings.anthropic_version},
        )

    async def stop(self) -> None:
        await self.upstream.stop()

    @property
    def model_name(self) -> str:
        return self.settings.model

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        try:
            body, lost = params_to_messages(
                params, model=self.settings.model, default_max_tokens=self.settings.max_output_tokens
            )
        except NotConvertible as error:
            raise make_rejection(self.name, str(error)) from error
        self.note_ignored(call, [*lost, *self._add_settings(body)])
        message = await self._post(body, call)
        try:
            response = message_to_response(
                message, params, model=self.settings.model, created_at=unix_time(), new_id=new_id
            )
        except BadMessage as error:
            raise self.upstream.failure(FailureKind.MODEL_BAD_REPLY, _PATH, str(error)) from error
        self.upstream.require_answer(response, _PATH)
        return add_overflow(response, call)

    def _add_settings(self, body: JsonObject) -> list[str]:
        """Put the settings into the body. The names of parameters that cannot be sent with them."""
        for name, value in self.settings.extra_body.items():
            body.setdefault(name, value)
        if self.settings.cache_prompts:
            body["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        if self.settings.thinking is None:
            return []
        body["thinking"] = self.settings.thinking
        if self.settings.thinking.get("type") == "disabled":
            return []
        lost = [name for name in _FIXED_BY_THINKING if body.get(name) not in {None, 1}]
        for name in _FIXED_BY_THINKING:
            body.pop(name, None)
        return lost

    async def _post(self, body: JsonObject, call: ModelCall) -> JsonObject:
        try:
            return await self.upstream.post(_PATH, body, call)
        except CallError as error:
            if not is_context_overflow(error.detail):
                raise
            self.note_overflow(call, error.detail)
            return {"content": [], "stop_reason": "model_context_window_exceeded", "usage": None}


def versioned_url(url: str) -> str:
    """The base URL with /v1, which may be left out. Folders of published addresses have it already."""
    if urlsplit(url).scheme not in {"http", "https"}:
        return url
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"
