"""The course of a rollout (`ng_trajectory`), put together from what the agent told and which model calls were seen."""

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
    """Add the record, if there is anything to record; payloads of model calls are then no longer needed beside it."""
    told, capture = result.get(OBSERVATIONS), result.get(CALL_CAPTURE)
    if (told is None and capture is None) or TRAJECTORY in result:
        return
    bundle = AgentObservationBundle.model_validate(told or {"source": "unknown"})
    rollout_id = correlation_id(row) or "unknown"
    outputs = _tool_outputs(result)
    calls = (capture or {}).get("calls") or []
    record = TrajectoryRecord(
        task_id=_task_id(row),
        rollout_id=rollout_id,
        invocations=[found for found in bundle.records if isinstance(found, AgentInvocation)],
        tool_calls=[
            TrajectoryToolCall(**found.model_dump(), output=outputs.get(found.tool_call_id))
            for found in bundle.records
            if isinstance(found, ToolCallObservation)
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
    found = next((row[name] for name in ("task_id", "problem_id", "instance_id", TASK_INDEX) if name in row), "unknown")
    return str(found)
