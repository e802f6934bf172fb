"""A second model server in front of the engines of a local_vllm_model: same weights, other settings."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from pydantic import PositiveFloat

from gymnast.errors import CallError
from gymnast.hub.responses_api_models.local_vllm_model.delegate import Delegate
from gymnast.hub.responses_api_models.vllm_model.app import VLLMModel, VLLMModelSettings
from gymnast.kit.settings import ModelRef
from gymnast.types.failure import FailureDetail, Stage
from gymnast.wire.server import Surroundings

_CONFIG: Final = "/get_inner_vllm_config"
_POLL_S: Final = 0.5


class LocalVLLMModelProxySettings(VLLMModelSettings):
    model_server: ModelRef
    """The local_vllm_model whose engines are used."""
    base_url: str | list[str] = ""
    """Not used, as `api_key` and `model`: they come from the model server."""
    api_key: str = ""
    model: str = ""
    wait_s: PositiveFloat = 1800.0
    """How long the first request waits for the model server."""


class LocalVLLMModelProxy(Delegate):
    """Asks for the endpoints once, when the first request comes: then all instances have been started."""

    settings: LocalVLLMModelProxySettings

    def __init__(self, name: str, settings: LocalVLLMModelProxySettings, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings)
        self.settings = settings
        self._inner: VLLMModel | None = None
        self._asking = asyncio.Lock()

    async def stop(self) -> None:
        if self._inner is not None:
            await self._inner.stop()

    async def inner(self) -> VLLMModel:
        if self._inner is None:
            async with self._asking:
                if self._inner is None:
                    found = await self._endpoints()
                    made = self.make_inner(self.settings, found["base_url"], found["api_key"], found["model"])
                    await made.start()
                    self._inner = made
        return self._inner

    async def _endpoints(self) -> dict[str, Any]:
        server, deadline = self.settings.model_server.name, time.monotonic() + self.settings.wait_s
        while True:
            try:
                reply = await self.calls.call(server, _CONFIG, method="GET", stage=Stage.MODEL, timeout_s=10.0)
                if reply.ok:
                    return dict(reply.body)
                said = f"status {reply.status}: {reply.text()}"
            except CallError as error:
                if error.detail.kind == "environment_unreachable" and not self.calls.knows(server):
                    raise
                said = error.detail.message
            if time.monotonic() + _POLL_S > deadline:
                text = f"{self.name}: '{server}' does not say where its engines are: {said}"
                raise CallError(FailureDetail("model_unreachable", Stage.MODEL, text, instance=self.name))
            await asyncio.sleep(_POLL_S)
