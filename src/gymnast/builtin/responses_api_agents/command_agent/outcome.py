"""The outcome of a command's rollout: a failure, or a response to score. Pure.

Reaching a limit is an outcome, not a failure. A model call that failed without a later success is a failure of that
kind, however the command ended: an endpoint that is down must not cause a reward of 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.kit import (
    CallReason,
    CommandResult,
    CreateParams,
    FailureDetail,
    FailureKind,
    Item,
    JsonObject,
    Response,
    RolloutEndpoint,
    Stage,
    bounded,
    make_response,
    message_text,
)

if TYPE_CHECKING:
    from collections.abc import Collection


_TAIL: Final = 1800
"""Characters of each output stream kept in a record."""


def failure_of(
    result: CommandResult,
    endpoint: RolloutEndpoint,
    agent: str,
    *,
    accepted: Collection[int],
    timeout_fails: bool,
    offers_tools: bool = False,
) -> FailureDetail | None:
    """Why the attempt has no reward, or None if it should be scored. With `offers_tools`, the program must have offered
    the task's tools to the policy."""
    failure = endpoint.tools.failure or (endpoint.last_failure if endpoint.ended_by is None else None)
    if failure is not None:
        return msgspec.structs.replace(failure, chain=(*failure.chain, f"{agent} command"))
    kind = _kind(result, endpoint, accepted, timeout_fails=timeout_fails)
    if kind is None and offers_tools:
        return find_missing_tools(endpoint, agent, result)
    if kind is None:
        return None
    answered = sum(call.has_response for call in endpoint.trace.calls)
    waiting = sum(call.error_category == "incomplete" for call in endpoint.trace.calls)
    text = f"the command of {agent} {result.ending} after {answered} answered model calls"
    text += f", waiting for {waiting} more" if waiting else ""
    last = _last_line(result)
    return FailureDetail(
        kind, Stage.AGENT, f"{text}: {last}" if last else text, instance=agent, body=bounded(evidence(result))
    )


def find_missing_tools(endpoint: RolloutEndpoint, agent: str, result: CommandResult) -> FailureDetail | None:
    """The failure of a program whose model calls offered none of the task's tools."""
    declared = {tool["name"] for tool in endpoint.tools.declared}
    if not declared or endpoint.tools.count or endpoint.offered & declared:
        return None
    offered = ", ".join(sorted(endpoint.offered)[:8]) or "none"
    text = (
        f"the command of {agent} offered the policy none of the task's tools ({', '.join(sorted(declared)[:8])}); "
        f"it offered: {offered}"
    )
    text += "" if endpoint.tools.listed else "; it never asked for them over MCP"
    return FailureDetail(FailureKind.AGENT_NO_TOOLS, Stage.AGENT, text, instance=agent, body=bounded(evidence(result)))


def _kind(
    result: CommandResult, endpoint: RolloutEndpoint, accepted: Collection[int], *, timeout_fails: bool
) -> FailureKind | None:
    if endpoint.ended_by is not None:
        return None
    if result.timed_out:
        return FailureKind.AGENT_TIMEOUT if timeout_fails else None
    if result.exit_code not in accepted and not _was_truncated(endpoint):
        return FailureKind.OUT_OF_MEMORY if result.out_of_memory else FailureKind.AGENT_EXITED
    return FailureKind.AGENT_NO_MODEL_CALL if endpoint.trace.main_end is None else None


def _was_truncated(endpoint: RolloutEndpoint) -> bool:
    """Whether the policy's last response was truncated, e.g. by a full context: programs often fail then."""
    end = endpoint.trace.main_end
    return end is not None and bool(end.incomplete)


def make_scored_response(
    params: CreateParams, endpoint: RolloutEndpoint, result: CommandResult, answer: str | None
) -> Response:
    """The rollout as one response: the main conversation, the usage of all calls, and why it was truncated."""
    output: list[Any] = [_under_own_name(item, endpoint) for item in endpoint.trace.main_output()]
    if answer is not None and answer.strip() != _last_text(output).strip():
        output.append(_message(answer))
    return make_traced_response(
        params, endpoint, output, endpoint.ended_by or ("timeout" if result.timed_out else None)
    )


def _under_own_name(item: Any, endpoint: RolloutEndpoint) -> Any:
    """A call of `mcp__gymnast__add` as a call of `add`, which is what verifiers know; the trace keeps the original."""
    if item.get("type") != "function_call":
        return item
    name = endpoint.tools.own_name(item["name"])
    return item if name == item["name"] else {**item, "name": name}


def make_traced_response(
    params: CreateParams, endpoint: RolloutEndpoint, output: list[Any], reason: str | None
) -> Response:
    """A response with this output and the metadata of the rollout's main conversation."""
    end = endpoint.trace.main_end
    return make_response(
        params,
        output,
        response_id=(end.response_id if end is not None else None) or "resp_none",
        created_at=end.created_at if end is not None else 0.0,
        model=(end.model if end is not None else None) or "policy",
        usage=endpoint.trace.usage,
        incomplete={"reason": reason} if reason else (end.incomplete if end is not None else None),
    )


def make_observations(
    result: CommandResult, endpoint: RolloutEndpoint, agent: str, rollout_id: str | None
) -> JsonObject:
    """The row attachment `ng_agent_observations`: how the command ran, apart from its model calls."""
    invocation: JsonObject = {
        "kind": "agent_invocation",
        "invocation_id": rollout_id,
        "exit_code": result.exit_code,
        "seconds": round(result.seconds, 3),
        "ended_by": endpoint.ended_by or ("timeout" if result.timed_out else None),
        "stdout_tail": result.stdout[-_TAIL:],
        "stderr_tail": result.stderr[-_TAIL:],
        "dropped_output_bytes": result.dropped_bytes,
        "tool_calls": endpoint.tools.count,
    }
    compactions = [
        {"kind": "context_compaction", "invocation_id": rollout_id, "call_index": call.node.index}
        for call in endpoint.trace.calls
        if call.node.reason is CallReason.COMPACTED
    ]
    gaps = [{"code": "request_refused", "invocation_id": rollout_id, "detail": refused} for refused in endpoint.refused]
    return {"source": agent, "records": [invocation, *compactions, *endpoint.tools.records], "gaps": gaps}


def evidence(result: CommandResult) -> str:
    """The end of the command's output."""
    parts = [("stderr", result.stderr), ("stdout", result.stdout)]
    return "\n".join(f"--- end of {name} ---\n{text[-_TAIL:].rstrip()}" for name, text in parts if text.strip())


def _last_line(result: CommandResult) -> str:
    lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
    return bounded(lines[-1], 200) if lines else ""


def _last_text(output: list[Any]) -> str:
    spoken = (item for item in reversed(output) if item["type"] == "message" and item.get("role") == "assistant")
    return message_text(next(spoken, {}))


def _message(text: str) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_answer", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
