"""`nemo_gym.rollout_observability`: what agents tell about the course of a rollout, and the record made of it."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, model_validator

from gymnast.compat.nemo_gym.config_types import ModelServerRef
from gymnast.compat.nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseInputItem
from gymnast.compat.nemo_gym.surface import missing_from

__all__ = [
    "AgentEpisode",
    "AgentInvocation",
    "AgentObservationBundle",
    "AgentObservationRecord",
    "ContextCompactionObservation",
    "ModelCallRef",
    "ObservationGap",
    "ObservationModel",
    "SandboxObservation",
    "ToolCallObservation",
    "TrajectoryModelCall",
    "TrajectoryRecord",
    "TrajectoryToolCall",
    "TrajectoryTurn",
]


class ObservationModel(BaseModel):
    """Something that was observed. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class ObservationGap(ObservationModel):
    """Something that could not be observed."""

    code: str
    invocation_id: str | None = None
    detail: str | None = None


class ModelCallRef(ObservationModel):
    """Names a model call."""

    model_call_id: str | None = None
    model_ref: ModelServerRef | None = None
    response_id: str | None = None

    @model_validator(mode="after")
    def validate_join_key(self) -> "ModelCallRef":
        if self.model_call_id is None and self.response_id is None:
            raise ValueError("a model call is named by its model_call_id or its response_id")
        return self


class AgentInvocation(ObservationModel):
    """One run of an agent or of a part of it."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    status: Literal["completed", "failed", "incomplete", "unknown"] = "unknown"
    duration_ms: float | None = None
    error_type: str | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    conversation: list[NeMoGymResponseInputItem] = Field(default_factory=list)


class ToolCallObservation(ObservationModel):
    """A tool that was called."""

    kind: Literal["tool_call"] = "tool_call"
    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: float | None = None
    timing_source: Literal["executor", "artifact", "harness"] | None = None
    status: Literal["completed", "failed", "timeout", "cancelled", "incomplete", "unknown"] = "unknown"
    error_type: str | None = None

    @model_validator(mode="after")
    def validate_timing(self) -> "ToolCallObservation":
        if self.started_at is not None and self.completed_at is not None and self.completed_at < self.started_at:
            raise ValueError("a tool call cannot end before it begins")
        if self.duration_ms is not None and self.duration_ms < 0:
            raise ValueError("duration_ms cannot be negative")
        return self


class ContextCompactionObservation(ObservationModel):
    """A history that was made shorter."""

    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: str
    observed_at: float | None = None
    trigger: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    outcome: Literal["completed", "failed", "aborted", "unknown"] = "unknown"
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: ModelCallRef | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    after_model_call: ModelCallRef | None = None


class SandboxObservation(ObservationModel):
    """A sandbox that was used."""

    model_config = ConfigDict(extra="allow")
    kind: Literal["sandbox"] = "sandbox"
    sandbox_id: str
    invocation_id: str | None = None


AgentObservationRecord: TypeAlias = Annotated[
    AgentInvocation | ToolCallObservation | ContextCompactionObservation | SandboxObservation, Discriminator("kind")
]


class AgentObservationBundle(ObservationModel):
    """All that one agent tells: the field `ng_agent_observations` of a row."""

    source: str
    records: list[AgentObservationRecord] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @model_validator(mode="after")
    def validate_identity(self) -> "AgentObservationBundle":
        _unique([found.invocation_id for found in self.records if isinstance(found, AgentInvocation)], "invocation_id")
        calls = [found for found in self.records if isinstance(found, ToolCallObservation)]
        _unique([f"{call.invocation_id}/{call.tool_call_id}" for call in calls], "tool_call_id")
        return self


@dataclass(slots=True)
class AgentEpisode:
    """What an agent did: its response, and how it came about."""

    response: NeMoGymResponse
    observations: AgentObservationBundle


class TrajectoryModelCall(ObservationModel):
    """A model call of a trajectory."""

    model_config = ConfigDict(extra="allow")
    model_call_id: str | None = None
    response_id: str | None = None
    call_index: int | None = None
    invocation_id: str | None = None


class TrajectoryToolCall(ToolCallObservation):
    """A tool call and what came of it."""

    output: Any | None = None


class TrajectoryTurn(ObservationModel):
    """A turn: what was asked, and what the model made of it."""

    invocation_id: str
    task_id: str
    rollout_id: str
    turn_no: int = Field(ge=1)
    timestamp: float
    question: Any | None = None
    answer: Any | None = None
    reasoning_content: Any | None = None
    resolved: bool | None = None
    step_count: int = Field(ge=0)
    model_calls: list[ModelCallRef] = Field(default_factory=list)


class TrajectoryRecord(ObservationModel):
    """The whole course of a rollout: the field `ng_trajectory` of a row."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: str
    rollout_id: str
    invocations: list[AgentInvocation] = Field(default_factory=list)
    turns: list[TrajectoryTurn] = Field(default_factory=list)
    model_calls: list[TrajectoryModelCall] = Field(default_factory=list)
    tool_calls: list[TrajectoryToolCall] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @model_validator(mode="after")
    def validate_identity(self) -> "TrajectoryRecord":
        _unique([found.invocation_id for found in self.invocations], "invocation_id")
        if any(turn.task_id != self.task_id or turn.rollout_id != self.rollout_id for turn in self.turns):
            raise ValueError("a turn belongs to another rollout")
        return self


def _unique(values: list[str], what: str) -> None:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"{what} must be unique, but is given twice: {', '.join(twice)}")


__getattr__ = missing_from("nemo_gym.rollout_observability")
