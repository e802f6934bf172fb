"""The `/verify` call of an agent, and the check that the reply is a verdict."""

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
