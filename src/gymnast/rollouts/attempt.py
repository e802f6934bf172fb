"""One attempt at a rollout: call the agent, and say what became of it. Nothing here raises for a failed attempt."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnast.errors import CallError
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.types.task import (
    ATTEMPT_INDEX,
    FAILURE_CLASS,
    FAILURE_TERMINAL,
    IDENTITY_KEYS,
    agent_name_of,
    correlation_id,
)
from gymnast.wire.calls import Scope
from gymnast.wire.classify import kind_of_reply, reply_failure

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls
    from gymnast.wire.message import Reply


@dataclass(frozen=True, slots=True)
class Scored:
    """The attempt has a reward; `record` is its line of the output."""

    record: JsonObject
    seconds: float

    @property
    def reward(self) -> float:
        return float(self.record["reward"])


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt has none; `partial` is what the agent returned anyway (e.g. the response a judge could not score)."""

    detail: FailureDetail
    seconds: float
    started_at: float
    partial: JsonObject | None = None


async def attempt(calls: Calls, row: JsonObject, timeout_s: float) -> Scored | Failed:
    """Run a materialized row once."""
    agent = agent_name_of(row) or ""
    started_at, started = time.time(), time.perf_counter()
    scope = Scope(correlation_id(row))
    try:
        reply = await calls.call(agent, "/run", row, scope, stage=Stage.AGENT, timeout_s=timeout_s)
        result = _verify_row(reply, agent, calls.address(agent))
    except CallError as error:
        return Failed(error.detail, time.perf_counter() - started, started_at)
    seconds = time.perf_counter() - started
    reported = result.get(FAILURE_CLASS)
    if reported is not None:
        return Failed(_reported(str(reported), result, agent), seconds, started_at, result)
    return Scored(_stamped(result, row), seconds)


def failure_record(row: JsonObject, failed: Failed, *, retryable: bool, layer: str) -> JsonObject:
    """The line of the failures file for a failed attempt."""
    detail = failed.detail
    record: JsonObject = _stamped(dict(failed.partial or {}), row)
    record.setdefault(ATTEMPT_INDEX, row.get(ATTEMPT_INDEX, 0))
    record.setdefault(FAILURE_CLASS, detail.kind)
    if not retryable:
        record[FAILURE_TERMINAL] = True
    record["failure"] = {
        "kind": detail.kind,
        "layer": layer,
        "stage": detail.stage.value,
        "message": detail.message,
        "instance": detail.instance,
        "endpoint": detail.endpoint,
        "status": detail.status,
        "body": detail.body,
        "chain": list(detail.chain),
        "started_at": failed.started_at,
        "seconds": round(failed.seconds, 6),
    }
    return record


def _stamped(result: JsonObject, row: JsonObject) -> JsonObject:
    """The result with the row's identity."""
    for key in IDENTITY_KEYS:
        if key in row:
            result[key] = row[key]
    return result


def _verify_row(reply: Reply, agent: str, address: str) -> JsonObject:
    """A verify row: an object with a finite reward, or with a failure the agent reports itself."""
    if not reply.ok:
        kind = kind_of_reply(Stage.AGENT, reply.status)
        raise CallError(reply_failure(reply, kind, Stage.AGENT, agent, "/run", address))
    body: Any = reply.body
    if isinstance(body, dict):
        if body.get(FAILURE_CLASS) is not None:
            return body
        reward = body.get("reward")
        if isinstance(reward, (int, float)) and math.isfinite(reward):
            return body
    said = f"reward {body.get('reward')!r}" if isinstance(body, dict) else type(body).__name__
    text = f"{agent} answered /run with {said} instead of a verify row"
    raise CallError(FailureDetail("agent_bad_reply", Stage.AGENT, text, instance=agent, body=bounded(str(body))))


def _reported(name: str, result: JsonObject, agent: str) -> FailureDetail:
    kind = "judge_failed" if name == "judge_failed" else "agent_reported"
    said = result.get("_ng_failure_judge_error") or result.get("error") or name
    stage = Stage.VERIFY if kind == "judge_failed" else Stage.AGENT
    return FailureDetail(
        kind, stage, f"{agent} reported {name}: {bounded(str(said), 300)}", instance=agent, body=bounded(str(said))
    )
