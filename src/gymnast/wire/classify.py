"""Names failures at the boundary where they are seen: pure functions from (stage, status, body) to a failure kind."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gymnast.types.failure import FailureDetail, Stage, bounded

if TYPE_CHECKING:
    from gymnast.wire.message import Reply

_TIMEOUT = {
    Stage.MODEL: "model_timeout",
    Stage.SEED: "seed_timeout",
    Stage.TOOL: "tool_timeout",
    Stage.VERIFY: "verifier_timeout",
    Stage.AGENT: "rollout_timeout",
}
_REFUSED = {Stage.SEED: "seed_rejected", Stage.VERIFY: "verify_rejected", Stage.AGENT: "agent_rejected"}
_CRASHED = {
    Stage.SEED: "seed_error",
    Stage.TOOL: "tool_error",
    Stage.VERIFY: "verifier_error",
    Stage.AGENT: "agent_error",
}
_MODEL_STATUS = {
    401: "model_auth",
    403: "model_auth",
    404: "model_not_found",
    408: "model_timeout",
    429: "model_rate_limited",
    502: "model_overloaded",
    503: "model_overloaded",
    504: "model_overloaded",
    520: "model_overloaded",
    529: "model_overloaded",
}


def kind_of_exception(stage: Stage, *, timed_out: bool) -> str:
    """The kind of a call that got no answer."""
    if timed_out:
        return _TIMEOUT.get(stage, "rollout_timeout")
    if stage is Stage.MODEL:
        return "model_unreachable"
    return "agent_unreachable" if stage is Stage.AGENT else "environment_unreachable"


def kind_of_reply(stage: Stage, status: int) -> str:
    """The kind of a call that was answered with a bad status."""
    if stage is Stage.MODEL:
        if status in _MODEL_STATUS:
            return _MODEL_STATUS[status]
        return "model_rejected" if 400 <= status < 500 else "model_error"
    if 400 <= status < 500 and stage in _REFUSED:
        return _REFUSED[stage]
    return _CRASHED.get(stage, "unknown")


def reply_failure(reply: Reply, kind: str, stage: Stage, instance: str, path: str, address: str) -> FailureDetail:
    """The failure a bad reply stands for: what the server said in a structured way, else what its body says."""
    hop = f"{instance}{path} {reply.status}"
    if reply.failure is not None:
        return reply.failure.seen_by(hop)
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
    for _ in range(8):  # nesting is collector -> agent -> resources -> judge at the deepest; never loop for ever
        match = _INNER.search(text)
        if match is None:
            return text
        try:
            text = ast.literal_eval(match[1]).decode("utf-8", errors="replace")
        except (ValueError, SyntaxError):
            return text
    return text


def retry_after_s(header: str | None) -> float | None:
    """A Retry-After header in seconds; dates are ignored."""
    try:
        return max(0.0, float(header)) if header is not None else None
    except ValueError:
        return None
