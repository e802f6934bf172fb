"""A vllm_model for chat templates with roles for the responses to compare."""

from __future__ import annotations

from typing import Final

from gymnast.builtin.responses_api_models.vllm_model.app import VLLMModel
from gymnast.kit import JsonObject, ModelCall

_PRINCIPLE: Final = "principle"
_ROLES: Final = (_PRINCIPLE, "response_1", "response_2")


class ComparingModel(VLLMModel):
    """A vllm_model that turns metadata into messages."""

    supports_principle = True

    async def _chat(self, body: JsonObject, call: ModelCall) -> JsonObject:
        return await super()._chat(add_responses(body, supports_principle=self.supports_principle), call)


def add_responses(body: JsonObject, *, supports_principle: bool) -> JsonObject:
    """A chat body with the principle and the two responses as messages instead of metadata."""
    metadata = body.get("metadata") or {}
    given = [(role, metadata[role]) for role in _ROLES if metadata.get(role) is not None]
    added = [
        {"role": role, "content": text} for role, text in given if role != _PRINCIPLE or (text and supports_principle)
    ]
    others = {name: value for name, value in metadata.items() if name not in _ROLES}
    rest = {name: value for name, value in body.items() if name != "metadata"}
    return {**rest, **({"metadata": others} if others else {}), "messages": [*body["messages"], *added]}
