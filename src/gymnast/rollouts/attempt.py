"""One attempt at a rollout: call the agent and return the outcome. A failed attempt is an outcome, not an exception."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.errors import CallError
from gymnast.rollouts.token_ledgers import AttemptLedgers
from gymnast.types.encoding import encode_json, is_finite_number, make_encodable, show
from gymnast.types.failure import BODY_LIMIT, FailureDetail, FailureKind, Stage, bounded, kind_named, message_of
from gymnast.types.task import (
    ALTERED,
    ATTEMPT_INDEX,
    FAILURE_CLASS,
    FAILURE_TERMINAL,
    IDENTITY_KEYS,
    JUDGE_ERROR,
    MASK,
    NO_PERSIST,
    agent_name_of,
    correlation_id,
)
from gymnast.types.tokens import NO_TOKENS, RecordedTokens
from gymnast.types.truncation import TruncatedPolicy, Truncation, truncation_of
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE, ModelUsage, count_or_none, make_capture, parse_tokens
from gymnast.wire.calls import Scope
from gymnast.wire.classify import kind_of_reply, reply_failure
from gymnast.wire.progress import AttemptProgress

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.types.usage import UsageCounter
    from gymnast.wire.calls import Calls
    from gymnast.wire.message import Reply


_MAX_CLASS: Final = 200
"""Characters of the failure class that an agent reports."""
_MAX_TRACE: Final = 10
"""Frames that the record of an unexpected error keeps."""


class Scored(msgspec.Struct, frozen=True, tag="scored"):
    """The attempt has a reward; `line` is the record to write."""

    line: bytes
    reward: float
    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    persisted: bool = True
    usage: ModelUsage | None = None
    """What its model calls used, as far as known."""
    truncated: Truncation | None = None
    masked: bool = False


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The attempt has no reward; `partial` is what the agent returned anyway, e.g. a response without a verdict."""

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
    progress: AttemptProgress | None = None,
    *,
    tokens: RecordedTokens = NO_TOKENS,
) -> Outcome:
    """Run a materialized input once. `index` is the number of attempts before this one.

    `tokens` says which models' tokens go into the record, and how.
    """
    row = orjson.loads(line)
    if index:
        row[ATTEMPT_INDEX] = index
    agent = agent_name_of(row) or ""
    started_at, started = time.time(), time.perf_counter()
    progress = progress or AttemptProgress()
    scope = Scope(correlation_id(row), progress)
    ledgers = AttemptLedgers(calls, tokens, scope) if tokens.models else None
    try:
        if ledgers is not None:
            await ledgers.open()
        reply = await calls.call(agent, "/run", row, scope, stage=Stage.AGENT, timeout_s=timeout_s)
        result = _verify_row(reply, agent, calls)
        if ledgers is not None:
            await ledgers.attach_to(result)
    except CallError as error:
        if ledgers is not None:
            await ledgers.discard()
        return failed_attempt(error.detail, time.perf_counter() - started, started_at, progress)
    if progress.usage_counter is None:
        _add_reported_usage(result, progress)
    return make_outcome(result, row, agent, time.perf_counter() - started, started_at, progress)


def make_outcome(
    result: JsonObject, row: JsonObject, instance: str, seconds: float, started_at: float, progress: AttemptProgress
) -> Outcome:
    """A verify row as an outcome: scored, unless it reports a failure."""
    usage = _attach_usage(result, row, progress.usage_counter)
    reported = result.get(FAILURE_CLASS)
    if reported is not None:
        name = bounded(_text_of(reported), _MAX_CLASS)
        partial, _ = make_encodable({**result, FAILURE_CLASS: name}, show_objects=True)
        return Failed(_reported_failure(name, result, instance), seconds, started_at, partial, usage)
    try:
        return _make_scored(_stamp(result, row), seconds, usage)
    except TypeError as error:
        text = f"{instance} replied with a value that has no JSON form: {error}"
        detail = FailureDetail(FailureKind.AGENT_BAD_REPLY, Stage.AGENT, text, instance=instance)
        partial, _ = make_encodable(result, show_objects=True)
        return Failed(detail, seconds, started_at, partial, usage)


def failed_attempt(detail: FailureDetail, seconds: float, started_at: float, progress: AttemptProgress) -> Failed:
    """The outcome of an attempt that a failure ended, with what it used until then."""
    usage_counter = progress.usage_counter
    return Failed(detail, seconds, started_at, None, usage_counter.usage() if usage_counter is not None else None)


def fail_unexpected(error: Exception, started: float, progress: AttemptProgress) -> Failed:
    """The outcome of an attempt that raised what no part of it expects: it ends the attempt, never the run."""
    kind = FailureKind.OUT_OF_MEMORY if isinstance(error, MemoryError) else FailureKind.UNKNOWN
    text = f"{type(error).__name__} while running the attempt: {message_of(error)}"
    trace = "".join(traceback.format_exception(error)[-_MAX_TRACE:])
    instance = progress.instance or None
    detail = FailureDetail(kind, progress.stage, text, instance=instance, body=bounded(trace))
    seconds = time.monotonic() - started
    return failed_attempt(detail, seconds, time.time() - seconds, progress)


def treat_truncated(scored: Scored, policy: TruncatedPolicy, agent: str) -> Outcome:
    """A scored attempt as the run's policy for truncated rollouts wants it."""
    if scored.truncated is None or policy == "score":
        return scored
    record = orjson.loads(scored.line)
    if policy == "mask":
        masked = orjson.dumps(_with_mask(record))
        return msgspec.structs.replace(scored, line=masked, masked=True)
    limit = "the output limit or a full context" if scored.truncated is Truncation.LENGTH else "a limit of its agent"
    detail = FailureDetail(
        FailureKind.TRUNCATED, Stage.AGENT, f"the rollout was truncated by {limit}", instance=agent or None
    )
    return Failed(detail, scored.seconds, time.time() - scored.seconds, record, scored.usage)


def _with_mask(record: JsonObject) -> JsonObject:
    """The record with a mask for trainers, before its identity."""
    masked: JsonObject = {}
    for name, value in record.items():
        if name in IDENTITY_KEYS:
            masked.setdefault(MASK, True)
        masked[name] = value
    masked[MASK] = True
    return masked


def make_failure_line(line: bytes, failed: Failed, *, index: int, final: bool, run_id: str) -> bytes:
    """The line of the failures file for a failed attempt at a materialized input."""
    detail = failed.detail
    record = _stamp(dict(failed.partial or {}), orjson.loads(line))
    record[ATTEMPT_INDEX] = index
    record.setdefault(FAILURE_CLASS, detail.kind.value)
    if failed.usage is not None and failed.usage.calls:
        record[MODEL_USAGE] = failed.usage.as_json()
    if final:
        record[FAILURE_TERMINAL] = True
    record["failure"] = make_failure_object(detail, failed.seconds, failed.started_at, run_id)
    # The identity goes last, where `key_of_line` reads it without parsing the line.
    for key in IDENTITY_KEYS[:2]:
        record[key] = record.pop(key)
    return encode_json(record)


def make_failure_object(detail: FailureDetail, seconds: float, started_at: float, run_id: str) -> JsonObject:
    """The `failure` object of a record."""
    cause = {} if detail.cause is None else {"cause": detail.cause, "certainty": detail.certainty}
    return {
        "kind": detail.kind.value,
        "layer": kind_named(detail.kind).layer.value,
        "stage": detail.stage.value,
        "message": detail.message,
        "instance": detail.instance,
        "endpoint": detail.endpoint,
        "status": detail.status,
        "body": detail.body,
        **cause,
        "chain": list(detail.chain),
        "started_at": started_at,
        "seconds": round(seconds, 6),
        "run_id": run_id,
    }


def _make_scored(record: JsonObject, seconds: float, used: ModelUsage | None) -> Scored:
    usage = _usage_of(record)
    return Scored(
        _encode_record(record),
        float(record["reward"]),
        seconds,
        count_or_none(usage.get("input_tokens")),
        count_or_none(usage.get("output_tokens")),
        not record.get(NO_PERSIST),
        used,
        truncation_of(record),
        record.get(MASK) is True,
    )


def _encode_record(record: JsonObject) -> bytes:
    """The record's line. Values that JSON cannot hold are altered, and the record says which."""
    try:
        return orjson.dumps(record)
    except TypeError:
        encodable, alterations = make_encodable(record)
        altered = {ALTERED: alterations, **encodable} if alterations else encodable
        return encode_json(altered)


def _usage_of(record: JsonObject) -> JsonObject:
    response = record.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    return usage if isinstance(usage, dict) else {}


def _attach_usage(result: JsonObject, row: JsonObject, usage_counter: UsageCounter | None) -> ModelUsage | None:
    """Add the usage to the result, before its identity."""
    if usage_counter is None:
        return None
    usage = usage_counter.usage()
    if usage.calls:
        result[MODEL_USAGE] = usage.as_json()
        if usage_counter.captured is not None:  # an agent's own capture has more detail
            result.setdefault(CALL_CAPTURE, make_capture(usage_counter, correlation_id(row)))
    return usage


def _add_reported_usage(result: JsonObject, progress: AttemptProgress) -> None:
    """Third-party agents may call models directly: then all that is known is the response's own usage."""
    tokens = parse_tokens(_usage_of(result))
    if tokens is not None:
        known = ModelUsage(0, 0, 0, tokens.input, tokens.cached, tokens.output, tokens.reasoning, cost=None)
        progress.ensure_usage_counter().merge(known)


def _stamp(result: JsonObject, row: JsonObject) -> JsonObject:
    """Copy the row's identity to the result."""
    for key in IDENTITY_KEYS:
        if key in row:
            result[key] = row[key]
    return result


def _verify_row(reply: Reply, agent: str, calls: Calls) -> JsonObject:
    """A verify row: an object with a finite reward, or with a failure that the agent reports."""
    if not reply.ok:
        kind = kind_of_reply(Stage.AGENT, reply.status)
        raise CallError(reply_failure(reply, kind, Stage.AGENT, agent, "/run", calls.address(agent)))
    body: Any = reply.body
    if isinstance(body, dict):
        if body.get(FAILURE_CLASS) is not None:
            return body
        reward = body.get("reward")
        if is_finite_number(reward) and isinstance(body.get("response"), dict | None):
            return body
    text = f"{agent} replied to /run with {_problem_of(body)} instead of a verify row"
    raise CallError(
        FailureDetail(FailureKind.AGENT_BAD_REPLY, Stage.AGENT, text, instance=agent, body=show(body, BODY_LIMIT))
    )


def _problem_of(body: Any) -> str:
    if not isinstance(body, dict):
        return type(body).__name__
    reward = body.get("reward")
    if is_finite_number(reward):
        return f"a response of type {type(body.get('response')).__name__}"
    return f"reward {show(reward)}"


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else show(value, BODY_LIMIT)


def _reported_failure(name: str, result: JsonObject, agent: str) -> FailureDetail:
    is_judge = name == FailureKind.JUDGE_FAILED
    kind, stage = (FailureKind.JUDGE_FAILED, Stage.VERIFY) if is_judge else (FailureKind.AGENT_REPORTED, Stage.AGENT)
    error = _text_of(result.get(JUDGE_ERROR) or result.get("error") or name)
    text = f"{agent} reported {name}: {bounded(error, 300)}"
    return FailureDetail(kind, stage, text, instance=agent, body=bounded(error))
