"""Updates the weights of running vLLM servers, from a folder or with vLLM's own weight transfer.

Needs servers started with VLLM_SERVER_DEV_MODE=1. In the mode `keep`, generations pause and continue with the new
weights; with `abort` they end and are continued by a new request; with `wait` they finish first. Each token is labelled
with its weights. vLLM 0.32 drops its caches on every pause, so new weights never use what old ones computed. It also
drops the old weights before it loads new ones: after a load that failed, one token would end the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.train.engine_weights import EngineWeights, PauseMode, WeightUpdateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["PauseMode", "VllmWeights", "WeightUpdateError"]


class VllmWeights(EngineWeights):
    """The vLLM servers of one policy."""

    hint_404 = "; start the server with VLLM_SERVER_DEV_MODE=1"
    hint_500 = "; the server's log has the reason"

    async def init_transfer(self, init_info: Mapping[str, Any]) -> None:
        """Open vLLM's weight transfer (`--weight-transfer-config`), once. `init_info`: the backend's own settings."""
        await self._on_all(
            lambda root: self._post(
                root,
                "/init_weight_transfer_engine",
                {"init_info": init_info},
                timeout_s=self._load_timeout_s,
                idempotent=False,
            )
        )

    async def transfer(self, label: str, updates: Iterable[Mapping[str, Any]]) -> None:
        """Receive weights through vLLM's weight transfer and label them, while generation pauses.

        `updates`: the backend's update infos, one for each chunk. The trainer sends meanwhile, e.g. from a thread.
        """
        chunks = list(updates)
        async with self._pause_servers():
            await self._on_all(lambda root: self._receive(root, chunks, label))
            self._advance(label)

    async def _pause(self, root: str) -> None:
        await self._post(root, f"/pause?mode={self._mode}")

    async def _load_and_label(self, root: str, folder: str, label: str) -> None:
        request = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        with self._replacing_weights(root):
            await self._post(root, "/collective_rpc", request, timeout_s=self._load_timeout_s)
        await self._label(root, label)

    async def _receive(self, root: str, chunks: Iterable[Mapping[str, Any]], label: str) -> None:
        steps: list[tuple[str, Any]] = [("/start_weight_update", None)]
        steps += [("/update_weights", {"update_info": chunk}) for chunk in chunks]
        steps.append(("/finish_weight_update", {"weight_version": label}))
        with self._replacing_weights(root):
            for path, body in steps:
                await self._post(root, path, body, timeout_s=self._load_timeout_s, idempotent=False)

    async def _label(self, root: str, label: str) -> None:
        await self._post(root, "/update_weight_version", {"new_version": label})

    async def _resume(self, root: str) -> None:
        await self._post(root, "/resume")
