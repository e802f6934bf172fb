"""Asking an environment for its verdict: the `/verify` call of an agent, and the check that the verdict is one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gymnast.errors import CallError
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.types.responses import with_defaults
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from gymnast.kit.agent import AgentSettings
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls, Scope


async def verified(
    calls: Calls, environment: str, row: JsonObject, response: Any, scope: Scope, settings: AgentSettings
) -> JsonObject:
    """The verify row for a response; without a call where verification is switched off."""
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
    return checked_verdict(verdict, environment)


def checked_verdict(verdict: Any, environment: str) -> JsonObject:
    """A verify row must be an object with a finite reward: a broken verifier never scores."""
    reward = verdict.get("reward") if isinstance(verdict, dict) else None
    if isinstance(verdict, dict) and isinstance(reward, (int, float)) and math.isfinite(reward):
        return verdict
    said = f"no object ({type(verdict).__name__})" if not isinstance(verdict, dict) else f"reward {reward!r}"
    text = f"{environment} answered /verify with {said}"
    raise CallError(
        FailureDetail("verifier_bad_reply", Stage.VERIFY, text, instance=environment, body=bounded(str(verdict)))
    )
