"""What became of a command's rollout: a failure, or a response to be scored. Pure.

A limit that was reached is an outcome. A model call that failed and was never made good is a failure of that kind,
however the command ended: nobody's reward is 0 because an endpoint was down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.types.call_tree import CallReason
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.types.responses import message_text, response_object

if TYPE_CHECKING:
    from collections.abc import Collection

    from gymnast.kit.door import Door
    from gymnast.runtime.command import CommandResult
    from gymnast.types.items import CreateParams, Item, Response
    from gymnast.types.json import JsonObject

_TAIL: Final = 1800
"""Characters of each output stream that a record keeps."""


def failure_of(
    result: CommandResult, door: Door, agent: str, *, accepted: Collection[int], timeout_fails: bool
) -> FailureDetail | None:
    """Why the attempt has no reward, or None if it is to be scored."""
    found = door.tools.failure or (door.last_failure if door.ended_by is None else None)
    if found is not None:
        return msgspec.structs.replace(found, chain=(*found.chain, f"{agent} command"))
    kind = _kind(result, door, accepted, timeout_fails=timeout_fails)
    if kind is None:
        return None
    answered = sum(call.is_answered for call in door.trace.calls)
    waiting = sum(call.error_category == "incomplete" for call in door.trace.calls)
    text = f"the command of {agent} {result.ending} after {answered} answered model calls"
    text += f", waiting for {waiting} more" if waiting else ""
    last = _last_line(result)
    return FailureDetail(
        kind, Stage.AGENT, f"{text}: {last}" if last else text, instance=agent, body=bounded(evidence(result))
    )


def _kind(result: CommandResult, door: Door, accepted: Collection[int], *, timeout_fails: bool) -> str | None:
    if door.ended_by is not None:
        return None
    if result.timed_out:
        return "agent_timeout" if timeout_fails else None
    if result.exit_code not in accepted and not _was_cut_off(door):
        return "out_of_memory" if result.out_of_memory else "agent_exited"
    return "agent_no_model_call" if door.trace.main_end is None else None


def _was_cut_off(door: Door) -> bool:
    """The policy's last answer was cut off, e.g. by a full context: programs often end with an error then."""
    end = door.trace.main_end
    return end is not None and bool(end.incomplete)


def scored_response(params: CreateParams, door: Door, result: CommandResult, answer: str | None) -> Response:
    """The rollout as one response: the main conversation, the usage of all calls, why it was cut off if it was."""
    output: list[Any] = door.trace.main_output()
    if answer is not None and answer.strip() != _last_text(output).strip():
        output.append(_message(answer))
    return traced_response(params, door, output, door.ended_by or ("timeout" if result.timed_out else None))


def traced_response(params: CreateParams, door: Door, output: list[Any], reason: str | None) -> Response:
    """A response with this output, and what else is known of the rollout's main conversation."""
    end = door.trace.main_end
    return response_object(
        params,
        output,
        response_id=(end.response_id if end is not None else None) or "resp_none",
        created_at=end.created_at if end is not None else 0.0,
        model=(end.model if end is not None else None) or "policy",
        usage=door.trace.usage,
        incomplete={"reason": reason} if reason else (end.incomplete if end is not None else None),
    )


def observations(result: CommandResult, door: Door, agent: str, rollout_id: str | None) -> JsonObject:
    """The row attachment `ng_agent_observations`: how the command went, besides its model calls."""
    invocation: JsonObject = {
        "kind": "agent_invocation",
        "invocation_id": rollout_id,
        "exit_code": result.exit_code,
        "seconds": round(result.seconds, 3),
        "ended_by": door.ended_by or ("timeout" if result.timed_out else None),
        "stdout_tail": result.stdout[-_TAIL:],
        "stderr_tail": result.stderr[-_TAIL:],
        "dropped_output_bytes": result.dropped_bytes,
        "tool_calls": door.tools.count,
    }
    compactions = [
        {"kind": "context_compaction", "invocation_id": rollout_id, "call_index": call.node.index}
        for call in door.trace.calls
        if call.node.reason is CallReason.COMPACTED
    ]
    gaps = [{"code": "request_refused", "invocation_id": rollout_id, "detail": refused} for refused in door.refused]
    return {"source": agent, "records": [invocation, *compactions, *door.tools.records], "gaps": gaps}


def evidence(result: CommandResult) -> str:
    """The ends of what a command printed."""
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
