"""`nemo_gym.rollout_observability`: what agents report about a rollout, and the trajectory record made from it."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, model_validator

from gymnast.compat.nemo_gym.config_types import ModelServerRef
from gymnast.compat.nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseInputItem
from gymnast.compat.nemo_gym.surface import missing_from


class ObservationModel(BaseModel):
    """An observation. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid")


class ObservationGap(ObservationModel):
    """Something that could not be observed."""

    code: str
    invocation_id: str | None = None
    detail: str | None = None


class ModelCallRef(ObservationModel):
    model_call_id: str | None = None
    model_ref: ModelServerRef | None = None
    response_id: str | None = None

    @model_validator(mode="after")
    def validate_join_key(self) -> "ModelCallRef":
        if self.model_call_id is None and self.response_id is None:
            raise ValueError("a model call needs a model_call_id or a response_id")
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
            raise ValueError("completed_at must not be before started_at")
        if self.duration_ms is not None and self.duration_ms < 0:
            raise ValueError("duration_ms must not be negative")
        return self


class ContextCompactionObservation(ObservationModel):
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
    """A sandbox that was used: its outcome and what it used in all."""

    model_config = ConfigDict(extra="allow")
    kind: Literal["sandbox"] = "sandbox"
    role: Literal["agent", "verifier", "environment"] = "agent"
    provider: str | None = None
    sandbox_id: str | None = None
    outcome: Literal["completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"] = "unknown"
    exit_code: int | None = None
    wall_time_s: float | None = Field(default=None, ge=0)
    cpu_time_s: float | None = Field(default=None, ge=0)
    peak_memory_mib: float | None = Field(default=None, ge=0)
    resource_usage_source: str | None = None
    error_type: str | None = None
    invocation_id: str | None = None


AgentObservationRecord: TypeAlias = Annotated[
    AgentInvocation | ToolCallObservation | ContextCompactionObservation | SandboxObservation, Discriminator("kind")
]


class AgentObservationBundle(ObservationModel):
    """All that an agent reports: the field `ng_agent_observations` of a row."""

    source: str
    records: list[AgentObservationRecord] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @model_validator(mode="after")
    def validate_identity(self) -> "AgentObservationBundle":
        invocations = [record for record in self.records if isinstance(record, AgentInvocation)]
        _unique([record.invocation_id for record in invocations], "invocation_id")
        _refuse_cycles({record.invocation_id: record.parent_invocation_id for record in invocations})
        return self


@dataclass(slots=True)
class AgentEpisode:
    """What an agent did: its response and observations."""

    response: NeMoGymResponse
    observations: AgentObservationBundle


class TrajectoryTokenStats(ObservationModel):
    """The tokens of a model call; None for what the endpoint did not report."""

    prompt_tokens: int | None = Field(default=None, ge=0)
    completion_tokens: int | None = Field(default=None, ge=0)
    reasoning_tokens: int | None = Field(default=None, ge=0)
    total_tokens: int | None = Field(default=None, ge=0)
    cached_tokens: int | None = Field(default=None, ge=0)


class TrajectoryResponseMetadata(ObservationModel):
    """The reply to a model call, without its content."""

    response_id: str | None = None
    model_ref: ModelServerRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    error_category: str | None = None
    latency_ttft_ms: float | None = Field(default=None, ge=0)


class TrajectoryModelCall(ObservationModel):
    model_call_id: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: float | None = Field(default=None, ge=0)
    request: Any | None = None
    response: Any | None = None
    response_metadata: TrajectoryResponseMetadata = Field(default_factory=TrajectoryResponseMetadata)
    token_stats: TrajectoryTokenStats = Field(default_factory=TrajectoryTokenStats)


class TrajectoryToolCall(ToolCallObservation):
    output: Any | None = None


class TrajectoryTurn(ObservationModel):
    """A turn: the question and the model's answer."""

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
    """The trajectory of a rollout: the field `ng_trajectory` of a row."""

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
        _unique([record.invocation_id for record in self.invocations], "invocation_id")
        if any(turn.task_id != self.task_id or turn.rollout_id != self.rollout_id for turn in self.turns):
            raise ValueError("a turn belongs to another rollout")
        return self


def _refuse_cycles(parents: dict[str, str | None]) -> None:
    """A parent may be unknown, but none may be its own ancestor."""
    for start, parent in parents.items():
        seen, current = {start}, parent
        while current is not None and current in parents:
            if current in seen:
                raise ValueError(f"parent_invocation_id must not form a cycle: {current}")
            seen.add(current)
            current = parents[current]


def _unique(values: list[str], what: str) -> None:
    duplicates = sorted({value for value in values if values.count(value) > 1})
    if duplicates:
        raise ValueError(f"{what} must be unique; duplicates: {', '.join(duplicates)}")


__getattr__ = missing_from("nemo_gym.rollout_observability")
