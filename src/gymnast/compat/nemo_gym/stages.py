"""What a call is about, told by its path: how failures on the way are named."""

from __future__ import annotations

from typing import Final

from gymnast.types.failure import FailureDetail, Stage, bounded

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
    Stage.SEED: "seed_error",
    Stage.VERIFY: "verifier_error",
    Stage.TOOL: "tool_error",
    Stage.MODEL: "model_error",
    Stage.AGENT: "agent_error",
    Stage.CLOSE: "seed_error",
}


def stage_of(path: str) -> Stage:
    """The stage of a call; a path that is none of the contract's is a tool."""
    path = path.partition("?")[0]
    if path.startswith("/ng-rollout/"):
        path = "/" + path.split("/", 3)[-1].removeprefix("training-token-capture/")
    return _STAGES.get(path, Stage.TOOL)


def failure_of(instance: str, path: str, error: BaseException) -> FailureDetail:
    """How an exception of a hosted server is recorded: as the inner failure it stands for, else as its own."""
    detail = getattr(error, "detail", None)
    if isinstance(detail, FailureDetail):
        return detail
    stage = stage_of(path)
    said = str(error)
    content = getattr(error, "response_content", None)
    if isinstance(content, bytes) and content:
        said += f": {content.decode('utf-8', errors='replace')}"
    return FailureDetail(
        _KINDS[stage],
        stage,
        f"{instance} raised {type(error).__name__} at {path}: {bounded(said, 500)}",
        instance=instance,
        status=500,
        body=bounded(said if content else repr(error)),
    )
