"""Updates the weights of running SGLang servers from a folder.

In the mode `keep`, running generations go back to the queue (SGLang's `retract`) and continue with the new weights;
their caches are computed again. With `abort` they end and are continued by a new request. SGLang has no `wait`.
"""

from __future__ import annotations

from typing import Any, Final

from gymnast.train.engine_weights import EngineWeights, PauseMode, WeightUpdateError

_PAUSE_MODES: Final[dict[PauseMode, str]] = {"keep": "retract", "abort": "abort"}
"""Not `in_place`: generations would go on with caches of the old weights."""


class SglangWeights(EngineWeights):
    """The SGLang servers of one policy."""

    modes = ("keep", "abort")
    hint_404 = "; SGLang 0.5.6 or newer is needed"

    async def _pause(self, root: str) -> None:
        await self._post(root, "/pause_generation", {"mode": _PAUSE_MODES[self._mode]})

    async def _load_and_label(self, root: str, folder: str, label: str) -> None:
        request = {"model_path": folder, "weight_version": label, "flush_cache": True}
        reply = await self._post(root, "/update_weights_from_disk", request, timeout_s=self._load_timeout_s)
        _require_success(root, "/update_weights_from_disk", reply)

    async def _label(self, root: str, label: str) -> None:
        request = {"new_version": label, "abort_all_requests": False}
        _require_success(root, "/update_weight_version", await self._post(root, "/update_weight_version", request))

    async def _resume(self, root: str) -> None:
        await self._post(root, "/continue_generation", {})


def _require_success(root: str, path: str, reply: Any) -> None:
    """SGLang may answer 200 and say in the body that it failed."""
    if isinstance(reply, dict) and reply.get("success") is False:
        raise WeightUpdateError(f"{root}{path} failed: {reply.get('message')}")
