"""Classifies failures where they occur: pure functions from (stage, status, body) to a failure kind."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gymnast.types.failure import FailureDetail, FailureKind, Stage, bounded

if TYPE_CHECKING:
    from gymnast.wire.message import Reply

_TIMEOUT = {
    Stage.MODEL: FailureKind.MODEL_TIMEOUT,
    Stage.SEED: FailureKind.SEED_TIMEOUT,
    Stage.TOOL: FailureKind.TOOL_TIMEOUT,
    Stage.VERIFY: FailureKind.VERIFIER_TIMEOUT,
    Stage.AGENT: FailureKind.ROLLOUT_TIMEOUT,
}
_REJECTED = {
    Stage.SEED: FailureKind.SEED_REJECTED,
    Stage.VERIFY: FailureKind.VERIFY_REJECTED,
    Stage.AGENT: FailureKind.AGENT_REJECTED,
}
_CRASHED = {
    Stage.SEED: FailureKind.SEED_ERROR,
    Stage.TOOL: FailureKind.TOOL_ERROR,
    Stage.VERIFY: FailureKind.VERIFIER_ERROR,
    Stage.AGENT: FailureKind.AGENT_ERROR,
}
_BAD_REPLY = {
    Stage.MODEL: FailureKind.MODEL_BAD_REPLY,
    Stage.VERIFY: FailureKind.VERIFIER_BAD_REPLY,
    Stage.AGENT: FailureKind.AGENT_BAD_REPLY,
}
_MODEL_STATUS = {
    401: FailureKind.MODEL_AUTH,
    402: FailureKind.MODEL_QUOTA,
    403: FailureKind.MODEL_AUTH,
    404: FailureKind.MODEL_NOT_FOUND,
    408: FailureKind.MODEL_TIMEOUT,
    429: FailureKind.MODEL_RATE_LIMITED,
    502: FailureKind.MODEL_OVERLOADED,
    503: FailureKind.MODEL_OVERLOADED,
    504: FailureKind.MODEL_OVERLOADED,
    **dict.fromkeys(range(520, 531), FailureKind.MODEL_OVERLOADED),
}


def kind_of_exception(stage: Stage, *, timed_out: bool) -> FailureKind:
    """The failure kind of a call that got no reply."""
    if timed_out:
        return _TIMEOUT.get(stage, FailureKind.ROLLOUT_TIMEOUT)
    if stage is Stage.MODEL:
        return FailureKind.MODEL_UNREACHABLE
    return FailureKind.AGENT_UNREACHABLE if stage is Stage.AGENT else FailureKind.ENVIRONMENT_UNREACHABLE


def kind_of_unusable_reply(stage: Stage) -> FailureKind:
    """The failure kind of a call whose reply cannot be used whatever its status."""
    return _BAD_REPLY.get(stage, _CRASHED.get(stage, FailureKind.UNKNOWN))


def kind_of_reply(stage: Stage, status: int) -> FailureKind:
    """The failure kind of a call that got an error status."""
    if stage is Stage.MODEL:
        if status in _MODEL_STATUS:
            return _MODEL_STATUS[status]
        if status < 400:
            return FailureKind.MODEL_MISCONFIGURED if status >= 300 else FailureKind.MODEL_BAD_REPLY
        return FailureKind.MODEL_REJECTED if 400 <= status < 500 else FailureKind.MODEL_ERROR
    if 400 <= status < 500 and stage in _REJECTED:
        return _REJECTED[stage]
    return _CRASHED.get(stage, FailureKind.UNKNOWN)


def reply_failure(
    reply: Reply, kind: FailureKind, stage: Stage, instance: str, path: str, address: str
) -> FailureDetail:
    """The failure behind an error reply: the structured detail the server sent, else one made from its body."""
    hop = f"{instance}{path} {reply.status}"
    if reply.failure is not None:
        return reply.failure.add_hop(hop)
    body = bounded(innermost_body(reply.text()))
    return FailureDetail(
        kind,
        stage,
        f"{instance} answered {reply.status} to {path}: {bounded(body, 300)}",
        instance=instance,
        endpoint=address,
        status=reply.status,
        body=body,
        retry_after_s=retry_after_s(reply.headers.get("retry-after")),
        chain=(hop,),
    )


_INNER = re.compile(r"""calling an inner server: (b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*")""", re.DOTALL)


def innermost_body(text: str) -> str:
    """The body at the bottom of nested 'Hit an exception in … calling an inner server: b'…'' texts."""
    for _ in range(8):  # bounded; real nesting ends at collector -> agent -> resources -> judge
        match = _INNER.search(text)
        if match is None:
            return text
        try:
            text = ast.literal_eval(match[1]).decode("utf-8", errors="replace")
        except (ValueError, SyntaxError):
            return text
    return text


def retry_after_s(header: str | None) -> float | None:
    """Parse a Retry-After header in seconds; dates are ignored."""
    try:
        return max(0.0, float(header)) if header is not None else None
    except ValueError:
        return None
