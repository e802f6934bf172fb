"""A local_vllm_model for generative reward models, whose chat templates have roles for the responses to compare.

The request's metadata has `response_1`, `response_2` and optionally `principle`; they become the last messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gymnast.builtin.responses_api_models.local_vllm_model.app import LocalVLLMModel, LocalVLLMModelSettings
from gymnast.builtin.responses_api_models.vllm_model.app import VLLMModel
from gymnast.kit import Settings

from .comparing_model import ComparingModel


class GenRMModelSettings(LocalVLLMModelSettings):
    supports_principle_role: bool = True
    """Whether the chat template has the role `principle`; otherwise principles are left out."""


class GenRMModel(LocalVLLMModel):
    """Owns inference servers and the model server in front of them."""

    settings: GenRMModelSettings
    inner_class: ClassVar[type[VLLMModel]] = ComparingModel

    def make_inner(self, settings: Settings, base_urls: Sequence[str], api_key: str, model: str) -> VLLMModel:
        inner = super().make_inner(settings, base_urls, api_key, model)
        if isinstance(inner, ComparingModel):
            inner.supports_principle = self.settings.supports_principle_role
        return inner
