"""One attempt at a rollout: call the agent, and say what became of it. Nothing here raises for a failed attempt."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from gymnast.errors import CallError
from gymnast.rollouts.token_ledgers import AttemptLedgers
from gymnast.types.failure import FailureDetail, Stage, bounded, kind_named
from gymnast.types.task import (
    ATTEMPT_INDEX,
    FAILURE_CLASS,
    FAILURE_TERMINAL,
    IDENTITY_KEYS,
    NO_PERSIST,
    agent_name_of,
    correlation_id,
)
from gymnast.types.tokens import NO_TOKENS, TokenKeeping
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE, ModelUsage, capture_of, tokens_of
from gymnast.wire.calls import Scope
from gymnast.wire.classify import kind_of_reply, reply_failure
from gymnast.wire.trail import Trail

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.types.usage import Account
    from gymnast.wire.calls import Calls
    from gymnast.wire.message import Reply


class Scored(msgspec.Struct, frozen=True, tag="scored"):
    """The attempt has a reward; `line` is its record as it will be written."""

    line: bytes
    reward: float
    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    persisted: bool = True
    usage: ModelUsage | None = None
    """What its model calls used, as far as that is known."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The attempt has none; `partial` is what the agent returned anyway (e.g. the response a judge could not score)."""

    detail: FailureDetail
    seconds: float
    started_at: float
    partial: dict[str, Any] | None = None
    usage: ModelUsage | None = None


Outcome = Scored | Failed


async def attempt(
    calls: Calls,
    line: bytes,
    index: int,
    timeout_s: float,
    trail: Trail | None = None,
    *,
    tokens: TokenKeeping = NO_TOKENS,
) -> Outcome:
    """Run a materialized input once. `index` is the number of attempts before this one.

    `tokens` says whose tokens become part of the record, and how.
    """
    row = orjson.loads(line)
    if index:
        row[ATTEMPT_INDEX] = index
    agent = agent_name_of(row) or ""
    started_at, started = time.time(), time.perf_counter()
    trail = trail or Trail()
    scope = Scope(correlation_id(row), trail)
    ledgers = AttemptLedgers(calls, tokens, scope) if tokens.models else None
    try:
        if ledgers is not None:
            await ledgers.open()
        reply = await calls.call(agent, "/run", row, scope, stage=Stage.AGENT, timeout_s=timeout_s)
        result = _verify_row(reply, agent, calls.address(agent))
        if ledgers is not None:
            await ledgers.take_into(result)
    except CallError as error:
        if ledgers is not None:
            await ledgers.drop()
        return ended_by(error, time.perf_counter() - started, started_at, trail)
    if trail.account is None:
        _account_unseen(result, trail)
    return outcome_of(result, row, agent, time.perf_counter() - started, started_at, trail)


def outcome_of(
    result: JsonObject, row: JsonObject, instance: str, seconds: float, started_at: float, trail: Trail
) -> Outcome:
    """A verify row as an outcome: scored, unless it says itself that it is a failure."""
    usage = _accounted(result, row, trail.account)
    reported = result.get(FAILURE_CLASS)
    if reported is not None:
        return Failed(_reported(str(reported), result, instance), seconds, started_at, result, usage)
    return _scored(_stamped(result, row), seconds, usage)


def ended_by(error: CallError, seconds: float, started_at: float, trail: Trail) -> Failed:
    """An attempt that ended with an error, and what it used until then."""
    account = trail.account
    return Failed(error.detail, seconds, started_at, None, account.usage() if account is not None else None)


def failure_line(line: bytes, failed: Failed, *, index: int, final: bool, run_id: str) -> bytes:
    """The line of the failures file for a failed attempt at a materialized input."""
    detail = failed.detail
    record = _stamped(dict(failed.partial or {}), orjson.loads(line))
    record[ATTEMPT_INDEX] = index
    record.setdefault(FAILURE_CLASS, detail.kind)
    if failed.usage is not None and failed.usage.calls:
        record[MODEL_USAGE] = failed.usage.as_json()
    if final:
        record[FAILURE_TERMINAL] = True
    record["failure"] = failure_object(detail, failed.seconds, failed.started_at, run_id)
    # The identity goes last, where it is found without parsing the line.
    for key in IDENTITY_KEYS[:2]:
        record[key] = record.pop(key)
    return orjson.dumps(record)


def failure_object(detail: FailureDetail, seconds: float, started_at: float, run_id: str) -> JsonObject:
    """The evidence of a failure as records carry it."""
    return {
        "kind": detail.kind,
        "layer": kind_named(detail.kind).layer.value,
        "stage": detail.stage.value,
        "message": detail.message,
        "instance": detail.instance,
        "endpoint": detail.endpoint,
        "status": detail.status,
        "body": detail.body,
        "chain": list(detail.chain),
        "started_at": started_at,
        "seconds": round(seconds, 6),
        "run_id": run_id,
    }


def _scored(record: JsonObject, seconds: float, used: ModelUsage | None) -> Scored:
    usage = (record.get("response") or {}).get("usage") or {}
    return Scored(
        orjson.dumps(record),
        float(record["reward"]),
        seconds,
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        not record.get(NO_PERSIST),
        used,
    )


def _accounted(result: JsonObject, row: JsonObject, account: Account | None) -> ModelUsage | None:
    """Write what was used onto the result, in front of its identity."""
    if account is None:
        return None
    usage = account.usage()
    if usage.calls:
        result[MODEL_USAGE] = usage.as_json()
        if account.captured is not None:
            result.setdefault(CALL_CAPTURE, capture_of(account, correlation_id(row)))  # an agent's own says more
    return usage


def _account_unseen(result: JsonObject, trail: Trail) -> None:
    """Agents that others wrote may call models behind our back: then the response's own usage is what is known."""
    tokens = tokens_of((result.get("response") or {}).get("usage"))
    if tokens is not None:
        known = ModelUsage(0, 0, 0, tokens.input, tokens.cached, tokens.output, tokens.reasoning, cost=None)
        trail.open_account().merge(known)


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
    text = f"{agent} reported {name}: {bounded(str(said), 300)}"
    return FailureDetail(kind, stage, text, instance=agent, body=bounded(str(said)))
