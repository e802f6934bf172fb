"""Builds the trajectory of a rollout (`ng_trajectory`) from the agent's observations and the captured model calls."""

from __future__ import annotations

from typing import Any, Final

from gymnast.compat.nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ObservationGap,
    ToolCallObservation,
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryToolCall,
)
from gymnast.types.task import TASK_INDEX, correlation_id
from gymnast.types.usage import CALL_CAPTURE

OBSERVATIONS: Final = "ng_agent_observations"
TRAJECTORY: Final = "ng_trajectory"
_PAYLOADS: Final = ("request", "response", "request_raw", "response_raw")


def attach_trajectory(row: dict[str, Any], result: dict[str, Any]) -> None:
    """Add the trajectory record, if there is anything to record, and drop the payloads of model calls."""
    observations, capture = result.get(OBSERVATIONS), result.get(CALL_CAPTURE)
    if (observations is None and capture is None) or TRAJECTORY in result:
        return
    bundle = AgentObservationBundle.model_validate(observations or {"source": "unknown"})
    rollout_id = correlation_id(row) or "unknown"
    outputs = _tool_outputs(result)
    calls = (capture or {}).get("calls") or []
    record = TrajectoryRecord(
        task_id=_task_id(row),
        rollout_id=rollout_id,
        invocations=[observation for observation in bundle.records if isinstance(observation, AgentInvocation)],
        tool_calls=[
            TrajectoryToolCall(**observation.model_dump(), output=outputs.get(observation.tool_call_id))
            for observation in bundle.records
            if isinstance(observation, ToolCallObservation)
        ],
        model_calls=[TrajectoryModelCall.model_validate(call) for call in calls],
        gaps=[
            *bundle.gaps,
            *(ObservationGap(code="model_calls", detail=str(gap)) for gap in (capture or {}).get("gaps", ())),
        ],
    )
    result[TRAJECTORY] = record.model_dump(mode="json")
    for call in calls:
        for name in _PAYLOADS:
            call.pop(name, None)


def _tool_outputs(result: dict[str, Any]) -> dict[str, Any]:
    items = (result.get("response") or {}).get("output") or ()
    return {item["call_id"]: item.get("output") for item in items if item.get("type") == "function_call_output"}


def _task_id(row: dict[str, Any]) -> str:
    record = next(
        (row[name] for name in ("task_id", "problem_id", "instance_id", TASK_INDEX) if name in row), "unknown"
    )
    return str(record)
