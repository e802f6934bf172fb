"""The `/v1/responses` call of agents and judges, and the check that the reply is a response object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.errors import CallError
from gymnast.types.failure import FailureDetail, FailureKind, Stage

if TYPE_CHECKING:
    from gymnast.wire.calls import Calls, Scope


async def call_model(calls: Calls, model: str, params: Any, scope: Scope, timeout_s: float) -> Any:
    """Call a model and return its response object. Raises CallError if the reply is not one."""
    response = await calls.expect(
        model, "/v1/responses", params, scope, stage=Stage.MODEL, timeout_s=timeout_s, validated=True
    )
    if isinstance(response, dict) and isinstance(response.get("output"), list):
        return response
    text = f"{model} answered /v1/responses without a response object"
    raise CallError(FailureDetail(FailureKind.MODEL_BAD_REPLY, Stage.MODEL, text, instance=model))
