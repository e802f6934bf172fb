"""Builds the trajectory of a rollout (`ng_trajectory`) from all that is known of it.

Sources: the agent's own trajectory, its observations, and the captured model calls. What is missing or unusable becomes
a gap of the record; it never costs the result.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from gymnast.compat.nemo_gym.openai_utils import NeMoGymFunctionCallOutput
from gymnast.compat.nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ObservationGap,
    ToolCallObservation,
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryResponseMetadata,
    TrajectoryTokenStats,
    TrajectoryToolCall,
    TrajectoryTurn,
)
from gymnast.types.task import TASK_INDEX, correlation_id
from gymnast.types.usage import CALL_CAPTURE

OBSERVATIONS: Final = "ng_agent_observations"
TRAJECTORY: Final = "ng_trajectory"
_PAYLOADS: Final = ("request", "response", "request_raw", "response_raw")
_TASK_NAMES: Final = ("task_id", "problem_id", "instance_id", TASK_INDEX)
_log = logging.getLogger(__name__)


def attach_trajectory(row: dict[str, Any], result: dict[str, Any]) -> None:
    """Add the trajectory record, and drop the payloads of model calls, which it has."""
    trajectory = _Trajectory(_task_id(row), correlation_id(row) or "unknown")
    try:
        trajectory.add_own(result.get(TRAJECTORY))
        trajectory.add_observations(result.get(OBSERVATIONS), _response_outputs(result))
        trajectory.add_calls(result.get(CALL_CAPTURE))
        record = trajectory.record()
    except ValidationError as error:
        _log.warning("no trajectory of rollout %s", trajectory.rollout_id, exc_info=True)
        gap = ObservationGap(code="trajectory_projection_failed", detail=type(error).__name__)
        record = TrajectoryRecord(task_id=trajectory.task_id, rollout_id=trajectory.rollout_id, gaps=[gap])
    else:
        _drop_payloads(result.get(CALL_CAPTURE))
    result[TRAJECTORY] = record.model_dump(mode="json")


@dataclass(slots=True)
class _Trajectory:
    task_id: str
    rollout_id: str
    invocations: list[AgentInvocation] = field(default_factory=list)
    turns: list[TrajectoryTurn] = field(default_factory=list)
    calls: list[TrajectoryModelCall] = field(default_factory=list)
    tools: dict[tuple[str, str], TrajectoryToolCall] = field(default_factory=dict)
    gaps: list[ObservationGap] = field(default_factory=list)

    def record(self) -> TrajectoryRecord:
        """The finished record, with a gap for each part that is empty."""
        parts = {
            "model_calls_unavailable": self.calls,
            "turns_unavailable": self.turns,
            "conversation_unavailable": [record for record in self.invocations if record.conversation],
        }
        gaps = [*self.gaps, *(ObservationGap(code=code) for code, known in parts.items() if not known)]
        return TrajectoryRecord(
            task_id=self.task_id,
            rollout_id=self.rollout_id,
            invocations=self.invocations,
            turns=sorted(self.turns, key=lambda turn: (turn.timestamp, turn.invocation_id, turn.turn_no)),
            model_calls=self.calls,
            tool_calls=list(self.tools.values()),
            gaps=list({(gap.code, gap.invocation_id, gap.detail): gap for gap in gaps}.values()),
        )

    def add_own(self, own: Any) -> None:
        """Take over the trajectory that the agent itself recorded."""
        if not isinstance(own, dict):
            return
        try:
            record = TrajectoryRecord.model_validate(own)
        except ValidationError as error:
            self._add_gap("producer_trajectory_invalid", type(error).__name__)
            return
        identity = {"task_id": self.task_id, "rollout_id": self.rollout_id}
        wrong = [name for name, value in identity.items() if getattr(record, name) != value]
        if wrong:
            self._add_gap("producer_trajectory_identity_mismatch", ",".join(wrong))
        self.turns = [turn.model_copy(update=identity) for turn in record.turns]
        self.invocations, self.calls = record.invocations, record.model_calls
        self.tools = {(tool.invocation_id, tool.tool_call_id): tool for tool in record.tool_calls}
        self.gaps += record.gaps

    def add_observations(self, observations: Any, outputs: dict[str, Any]) -> None:
        """Add invocations and tool calls that the agent observed."""
        if observations is None:
            return
        try:
            bundle = AgentObservationBundle.model_validate(observations)
        except ValidationError as error:
            self._add_gap("agent_observations_invalid", type(error).__name__)
            return
        known = {record.invocation_id for record in self.invocations}
        self.invocations += [
            record
            for record in bundle.records
            if isinstance(record, AgentInvocation) and record.invocation_id not in known
        ]
        conversation_outputs = {
            (invocation.invocation_id, item.call_id): item.output
            for invocation in self.invocations
            for item in invocation.conversation
            if isinstance(item, NeMoGymFunctionCallOutput)
        }
        for record in bundle.records:
            if isinstance(record, ToolCallObservation):
                key = record.invocation_id, record.tool_call_id
                self.tools[key] = _merge_tool(
                    self.tools.get(key), record, conversation_outputs.get(key, outputs.get(key[1]))
                )
        self.gaps += bundle.gaps

    def add_calls(self, capture: Any) -> None:
        """Add the captured model calls, into those that the agent recorded itself where they are the same."""
        capture = capture if isinstance(capture, dict) else {}
        positions = {call.model_call_id: index for index, call in enumerate(self.calls) if call.model_call_id}
        for call in capture.get("calls") or ():
            projected = _project_call(call)
            position = positions.pop(projected.model_call_id or "", None)
            if position is None:
                self.calls.append(projected)
            else:
                self.calls[position] = _merge_call(self.calls[position], projected)
        for gap in capture.get("gaps") or ():
            if isinstance(gap, dict):
                self.gaps.append(ObservationGap.model_validate(gap))
            else:  # of a native run
                self._add_gap("model_calls", str(gap))

    def _add_gap(self, code: str, detail: str | None = None) -> None:
        self.gaps.append(ObservationGap(code=code, detail=detail))


def _merge_tool(known: TrajectoryToolCall | None, seen: ToolCallObservation, output: Any) -> TrajectoryToolCall:
    values = known.model_dump() if known is not None else {}
    update = seen.model_dump(exclude_none=True)
    if known is not None and seen.status == "unknown":
        update.pop("status")
    return TrajectoryToolCall.model_validate({**values, **update, **({"output": output} if output is not None else {})})


def _project_call(call: dict[str, Any]) -> TrajectoryModelCall:
    metadata = {name: call[name] for name in TrajectoryResponseMetadata.model_fields if call.get(name) is not None}
    response = call.get("response")
    if isinstance(response, dict) and isinstance(response.get("status"), str):
        metadata.setdefault("response_status", response["status"])
    return TrajectoryModelCall(
        model_call_id=call.get("model_call_id"),
        started_at=call.get("started_at"),
        completed_at=call.get("completed_at"),
        duration_ms=call.get("latency_total_ms"),
        request=call.get("request") if call.get("request") is not None else call.get("request_raw"),
        response=response if response is not None else call.get("response_raw"),
        response_metadata=TrajectoryResponseMetadata.model_validate(metadata),
        token_stats=TrajectoryTokenStats(
            prompt_tokens=_count(call.get("tokens_in")),
            completion_tokens=_count(call.get("tokens_out")),
            reasoning_tokens=_count(call.get("tokens_reasoning")),
            total_tokens=_count(call.get("tokens_total")),
            cached_tokens=_count(call.get("cached_tokens")),
        ),
    )


def _merge_call(known: TrajectoryModelCall, captured: TrajectoryModelCall) -> TrajectoryModelCall:
    values, update = known.model_dump(), captured.model_dump(exclude_none=True)
    nested = {name: {**values[name], **update[name]} for name in ("response_metadata", "token_stats")}
    return TrajectoryModelCall.model_validate({**values, **update, **nested})


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _drop_payloads(capture: Any) -> None:
    for call in (capture.get("calls") or ()) if isinstance(capture, dict) else ():
        for name in _PAYLOADS:
            call.pop(name, None)


def _response_outputs(result: dict[str, Any]) -> dict[str, Any]:
    items = (result.get("response") or {}).get("output") or ()
    return {item["call_id"]: item.get("output") for item in items if item.get("type") == "function_call_output"}


def _task_id(row: dict[str, Any]) -> str:
    return str(next((row[name] for name in _TASK_NAMES if row.get(name) is not None), "unknown"))
