"""The stage of a call, from its path, and the failure kind of each stage."""

from __future__ import annotations

from typing import Final

from gymnast.types.failure import FailureDetail, FailureKind, Stage, bounded

_STAGES: Final = {
    "/seed_session": Stage.SEED,
    "/reset": Stage.SEED,
    "/verify": Stage.VERIFY,
    "/close": Stage.CLOSE,
    "/run": Stage.AGENT,
    "/aggregate_metrics": Stage.AGENT,
    "/v1/responses": Stage.MODEL,
    "/v1/chat/completions": Stage.MODEL,
    "/v1/messages": Stage.MODEL,
}
_KINDS: Final = {
    Stage.SEED: FailureKind.SEED_ERROR,
    Stage.VERIFY: FailureKind.VERIFIER_ERROR,
    Stage.TOOL: FailureKind.TOOL_ERROR,
    Stage.MODEL: FailureKind.MODEL_ERROR,
    Stage.AGENT: FailureKind.AGENT_ERROR,
    Stage.CLOSE: FailureKind.SEED_ERROR,
}


def stage_of(path: str) -> Stage:
    """The stage of a call; a path outside the contract is a tool."""
    path = path.partition("?")[0]
    if path.startswith("/ng-rollout/"):
        path = "/" + path.split("/", 3)[-1].removeprefix("training-token-capture/")
    return _STAGES.get(path, Stage.TOOL)


def failure_of(instance: str, path: str, error: BaseException) -> FailureDetail:
    """The failure behind an exception of a hosted server: an inner failure, or its own."""
    detail = getattr(error, "detail", None)
    if isinstance(detail, FailureDetail):
        return detail
    stage = stage_of(path)
    message = str(error)
    content = getattr(error, "response_content", None)
    if isinstance(content, bytes) and content:
        message += f": {content.decode('utf-8', errors='replace')}"
    return FailureDetail(
        _KINDS[stage],
        stage,
        f"{instance} raised {type(error).__name__} at {path}: {bounded(message, 500)}",
        instance=instance,
        status=500,
        body=bounded(message if content else repr(error)),
    )
