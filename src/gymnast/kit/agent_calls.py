"""The calls of agents and judges, `/seed_session`, `/v1/responses` and `/verify`, and checks of their replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.errors import CallError
from gymnast.types.encoding import is_finite_number, show
from gymnast.types.failure import BODY_LIMIT, FailureDetail, FailureKind, Stage
from gymnast.types.responses import with_defaults
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from gymnast.kit.agent import AgentSettings
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls, Scope


async def seed_session(
    calls: Calls, environment: str, row: JsonObject, scope: Scope, settings: AgentSettings
) -> JsonObject:
    """Open the environment's session for a row, and return what the environment says of itself."""
    offers = await calls.expect(
        environment, "/seed_session", row, scope, stage=Stage.SEED, timeout_s=settings.seed_timeout_s
    )
    return offers if isinstance(offers, dict) else {}


async def call_model(calls: Calls, model: str, params: Any, scope: Scope, timeout_s: float) -> Any:
    """Call a model and return its response object. Raises CallError if the reply is not one."""
    response = await calls.expect(
        model, "/v1/responses", params, scope, stage=Stage.MODEL, timeout_s=timeout_s, validated=True
    )
    if isinstance(response, dict) and isinstance(response.get("output"), list):
        return response
    text = f"{model} answered /v1/responses without a response object"
    raise CallError(FailureDetail(FailureKind.MODEL_BAD_REPLY, Stage.MODEL, text, instance=model))


async def request_verdict(
    calls: Calls, environment: str, row: JsonObject, response: Any, scope: Scope, settings: AgentSettings
) -> JsonObject:
    """The verify row for a response. Makes no call if verification is skipped."""
    if settings.skip_verification:
        reward = settings.skip_verification_reward
        return {
            **row,
            PARAMS: with_defaults(row[PARAMS]),
            "response": response,
            "reward": reward,
            "verification_skipped": True,
        }
    body = {**row, "response": response}
    verdict = await calls.expect(
        environment, "/verify", body, scope, stage=Stage.VERIFY, timeout_s=settings.verify_timeout_s, validated=True
    )
    return check_verdict(verdict, environment)


def check_verdict(verdict: Any, environment: str) -> JsonObject:
    """Return a verify row. Raises CallError unless it is an object with a finite reward."""
    reward = verdict.get("reward") if isinstance(verdict, dict) else None
    if isinstance(verdict, dict) and is_finite_number(reward):
        return verdict
    problem = (
        f"reward {show(reward)}" if isinstance(verdict, dict) else f"{type(verdict).__name__} instead of an object"
    )
    text = f"{environment} answered /verify with {problem}"
    raise CallError(
        FailureDetail(
            FailureKind.VERIFIER_BAD_REPLY, Stage.VERIFY, text, instance=environment, body=show(verdict, BODY_LIMIT)
        )
    )
