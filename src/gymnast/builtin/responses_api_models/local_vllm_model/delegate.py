"""A model server whose endpoints are known only once it runs: it delegates to a vllm_model in front of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gymnast.builtin.responses_api_models.vllm_model.app import VLLMModel, VLLMModelSettings
from gymnast.kit import FailureKind, Reply, Request, Server, ServerKind, Settings, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence


class Delegate(Server):
    """Passes every request to the inner model server, except those for its own routes."""

    kind: ClassVar[ServerKind] = "responses_api_models"
    failure_kind: ClassVar[FailureKind] = FailureKind.MODEL_ERROR
    failure_stage: ClassVar[Stage] = Stage.MODEL
    inner_class: ClassVar[type[VLLMModel]] = VLLMModel

    @abstractmethod
    async def inner(self) -> VLLMModel:
        """The inner model server; may wait for its endpoints."""

    def make_inner(self, settings: Settings, base_urls: Sequence[str], api_key: str, model: str) -> VLLMModel:
        """A vllm_model with our name and those of our settings that it has."""
        own = settings.model_dump(include=set(VLLMModelSettings.model_fields), exclude_unset=True)
        values = {**own, "base_url": list(base_urls), "api_key": api_key, "model": model}
        inner = self.inner_class(self.name, VLLMModelSettings.model_validate(values), self.context)
        inner.cookie_name = self.cookie_name
        return inner

    def has_own_route(self, request: Request) -> bool:
        """Whether this server handles the request itself."""
        return (request.method, request.path) in self._routes and request.path != "/"

    async def handle(self, request: Request) -> Reply:
        if self.has_own_route(request):
            return await super().handle(request)
        try:
            inner = await self.inner()
        except Exception as error:  # noqa: BLE001 - the boundary, as in Server.handle
            return self.error_reply(request, error)
        return await inner.handle(request)
