"""A model server whose endpoints are known only once it runs: it answers as the vllm_model in front of them would."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gymnast.hub.responses_api_models.vllm_model.app import VLLMModel, VLLMModelSettings
from gymnast.types.failure import Stage
from gymnast.wire.server import Server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.config.instances import ServerKind
    from gymnast.kit.settings import Settings
    from gymnast.wire.message import Reply, Request


class Delegate(Server):
    """Every request but those for routes of its own goes to the model server inside."""

    kind: ClassVar[ServerKind] = "responses_api_models"
    failure_kind: ClassVar[str] = "model_error"
    failure_stage: ClassVar[Stage] = Stage.MODEL

    @abstractmethod
    async def inner(self) -> VLLMModel:
        """The model server in front of the endpoints; may wait for them."""

    def make_inner(self, settings: Settings, base_urls: Sequence[str], api_key: str, model: str) -> VLLMModel:
        """A vllm_model under our name, with those of our settings that are its own."""
        own = settings.model_dump(include=set(VLLMModelSettings.model_fields), exclude_unset=True)
        asked = {**own, "base_url": list(base_urls), "api_key": api_key, "model": model}
        made = VLLMModel(self.name, VLLMModelSettings.model_validate(asked), self.surroundings)
        made.cookie_name = self.cookie_name
        return made

    def own_route(self, request: Request) -> bool:
        """Whether we answer this one ourselves."""
        return (request.method, request.path) in self._routes and request.path != "/"

    async def handle(self, request: Request) -> Reply:
        if self.own_route(request):
            return await super().handle(request)
        try:
            inner = await self.inner()
        except Exception as error:  # noqa: BLE001 - the boundary, as in Server.handle
            return self.error_reply(request, error)
        return await inner.handle(request)
