"""A second model server in front of a local_vllm_model's inference servers: same weights, other settings."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from pydantic import PositiveFloat

from gymnast.builtin.responses_api_models.local_vllm_model.delegate import Delegate
from gymnast.builtin.responses_api_models.vllm_model.app import VLLMModel, VLLMModelSettings
from gymnast.kit import CallError, FailureDetail, FailureKind, ModelRef, ServerContext, Stage

_CONFIG: Final = "/get_inner_vllm_config"
_POLL_S: Final = 0.5


class LocalVLLMModelProxySettings(VLLMModelSettings):
    model_server: ModelRef
    """The local_vllm_model whose inference servers to use."""
    base_url: str | list[str] = ""
    """Not used, nor are `api_key` and `model`: they come from the model server."""
    api_key: str = ""
    model: str = ""
    wait_s: PositiveFloat = 1800.0
    """Seconds that the first request waits for the model server."""


class LocalVLLMModelProxy(Delegate):
    """Looks up the endpoints once, at the first request, when all instances are started."""

    settings: LocalVLLMModelProxySettings

    def __init__(self, name: str, settings: LocalVLLMModelProxySettings, context: ServerContext) -> None:
        super().__init__(name, context)
        self.settings = settings
        self._inner: VLLMModel | None = None
        self._lock = asyncio.Lock()

    async def stop(self) -> None:
        if self._inner is not None:
            await self._inner.stop()

    async def inner(self) -> VLLMModel:
        if self._inner is None:
            async with self._lock:
                if self._inner is None:
                    endpoints = await self._endpoints()
                    inner = self.make_inner(
                        self.settings, endpoints["base_url"], endpoints["api_key"], endpoints["model"]
                    )
                    await inner.start()
                    self._inner = inner
        return self._inner

    async def _endpoints(self) -> dict[str, Any]:
        server, deadline = self.settings.model_server.name, time.monotonic() + self.settings.wait_s
        while True:
            try:
                reply = await self.calls.call(server, _CONFIG, method="GET", stage=Stage.MODEL, timeout_s=10.0)
                if reply.ok:
                    return dict(reply.body)
                problem = f"status {reply.status}: {reply.text()}"
            except CallError as error:
                if error.detail.kind == FailureKind.ENVIRONMENT_UNREACHABLE and not self.calls.knows(server):
                    raise
                problem = error.detail.message
            if time.monotonic() + _POLL_S > deadline:
                text = f"{self.name}: cannot get the endpoints of '{server}': {problem}"
                raise CallError(FailureDetail(FailureKind.MODEL_UNREACHABLE, Stage.MODEL, text, instance=self.name))
            await asyncio.sleep(_POLL_S)
