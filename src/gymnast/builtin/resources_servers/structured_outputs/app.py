"""Structured outputs: scores whether an answer, or the arguments of a tool call, match the schema of the task."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, PositiveFloat, PositiveInt, field_validator

from gymnast.kit import (
    Attempt,
    CpuTimeExceededError,
    CustomMetrics,
    Environment,
    EnvironmentSettings,
    GroupField,
    InvalidBody,
    JsonObject,
    MeanRewards,
    ProcessPool,
    ScoringSettings,
    ServerContext,
    Task,
    Verdict,
    require_package,
)

from .documents import DocumentError

_TEXTS: Final = (
    *("instruction_layout", "instruction_detail_level", "system_instruction_style", "tool_name_style"),
    *("distractor_style", "tool_union_mode"),
)


def _flag(value: Any) -> str | None:
    return None if value is None else str(bool(value)).lower()


def _count(value: Any) -> str | None:
    return None if value is None else str(value)


METRICS: Final = MeanRewards(
    (
        GroupField("schema_type", label=str, missing="unknown"),
        GroupField("problem_type"),
        GroupField("schema_repr", "repr_"),
        *(GroupField(name, f"{name}_") for name in ("response_mode", "tool_schema_mode", "tool_choice")),
        GroupField("parallel_tool_calls", "parallel_tool_calls_", _flag),
        GroupField("num_tools", "num_tools_", _count),
        GroupField("has_distractors", "has_distractors_", _flag),
        *(GroupField(name, f"{name}_") for name in _TEXTS),
    )
)


SchemaType = Literal["json", "yaml", "toml", "xml", "csv"]
_MAX_ERROR_CHARS: Final = 200


class StructuredOutputsSettings(ScoringSettings, EnvironmentSettings):
    xml_coerce_types: bool = True
    """Convert the text of XML elements to the numbers and booleans of the schema."""
    allow_code_fence: bool = False
    """Accept a document in a single code fence with nothing around it."""
    strict_schema: bool = True
    """Treat every object of a schema as closed: all its properties are required and no others allowed."""
    max_document_chars: PositiveInt = 1_000_000
    """Under strict scoring, longer documents fail as `too_large`."""
    verify_timeout_s: PositiveFloat = 10.0
    """CPU time per document."""
    verify_processes: PositiveInt = 2


class RowFields(BaseModel):
    """The fields of a row that the reply repeats."""

    schema_str: str
    schema_type: SchemaType = "json"
    problem_type: str | None = None
    schema_repr: str | None = None
    source_format: str | None = None
    num_turns: int | None = None
    source_record_id: str | None = None
    response_mode: str | None = "text"
    tool_name: str | None = None
    tool_schema_mode: str | None = None
    tool_payload_key: str | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    source_schema_type: str | None = None
    num_tools: int | None = None
    num_distractors: int | None = None
    has_distractors: bool | None = None
    instruction_layout: str | None = None
    instruction_detail_level: str | None = None
    system_instruction_style: str | None = None
    tool_name_style: str | None = None
    distractor_style: str | None = None
    tool_union_mode: str | None = None


class StructuredOutputsTask(RowFields, Task):
    """A row."""

    @field_validator("schema_type", mode="before")
    @classmethod
    def _in_lower_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value


class StructuredOutputsVerdict(RowFields, Verdict):
    error_type: str | None = None
    error_message: str | None = None


class StructuredOutputs(Environment[StructuredOutputsTask, None]):
    """Scores one document; no session. The tools of a row do not run: their arguments are the answer."""

    settings: StructuredOutputsSettings
    custom_metrics: ClassVar[CustomMetrics] = METRICS

    def __init__(self, name: str, settings: StructuredOutputsSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._pool = self.own_pool(
            ProcessPool(
                "gymnast.builtin.resources_servers.structured_outputs.checking:check",
                size=settings.verify_processes,
                cpu_s=settings.verify_timeout_s,
            )
        )

    async def start(self) -> None:
        require_package("jsonschema", extra="structured_outputs", where=self.name)
        await super().start()

    async def verify(self, attempt: Attempt[StructuredOutputsTask, None]) -> StructuredOutputsVerdict:
        try:
            outcome = await self._outcome(attempt)
        except DocumentError as error:
            outcome = {"error_type": error.kind, "error_message": str(error)}
        if "row_error" in outcome:
            raise InvalidBody.of_field(str(outcome["row_error"]), "schema_str")
        row = attempt.task.model_dump(include=set(RowFields.model_fields))
        return StructuredOutputsVerdict(reward=float(outcome["error_type"] is None), **row, **outcome)

    async def _outcome(self, attempt: Attempt[StructuredOutputsTask, None]) -> dict[str, str | None]:
        task, settings = attempt.task, self.settings
        options = settings.model_dump(include={"scoring", "xml_coerce_types", "strict_schema", "allow_code_fence"})
        is_strict = settings.scoring == "strict"
        if not self._requires_call(task.response_mode):
            document = attempt.last_text if is_strict else attempt.text
        else:
            if attempt.response.get("error") is not None and not is_strict:
                raise DocumentError(describe_error(attempt.response["error"]), "api_error")
            document = read_call_arguments(attempt.output, task.tool_name)
            options |= {"is_arguments": True, "payload_key": task.tool_payload_key}
        if is_strict and len(document) > settings.max_document_chars:
            raise DocumentError(f"the document has {len(document)} characters", "too_large")
        try:
            outcome: dict[str, str | None] = await self._pool.call(task.schema_str, task.schema_type, document, options)
        except CpuTimeExceededError as error:
            if not is_strict:
                raise
            raise DocumentError(f"the document could not be checked: {error}", "timeout") from error
        return outcome

    def _requires_call(self, response_mode: str | None) -> bool:
        """NeMo Gym takes an unknown mode for text; under strict scoring the row is refused."""
        if self.settings.scoring == "nemo_gym":
            return response_mode == "tool_call"
        if response_mode is None or response_mode == "text":
            return False
        if not response_mode.startswith(("tool", "function")):
            problem = f"response_mode must be 'text' or a tool call, not {response_mode!r}"
            raise InvalidBody.of_field(problem, "response_mode")
        return True


def describe_error(error: object) -> str:
    """The error of a response, as NeMo Gym writes it."""
    if not isinstance(error, dict):
        return str(error)[:_MAX_ERROR_CHARS]
    names = sorted(error, key=lambda name: {"code": 0, "message": 1}.get(name, 2))
    fields = ", ".join(f"{name}={error[name]!r}" for name in names)
    return f"ResponseError({fields})"[:_MAX_ERROR_CHARS]


def read_call_arguments(output: list[JsonObject], tool_name: str | None) -> str:
    """The arguments of the only call in an output, which must be of the requested tool."""
    calls = [item for item in output if item.get("type") == "function_call"]
    if not calls:
        raise DocumentError("No function_call item found in assistant response", "missing_tool_call")
    if len(calls) > 1:
        names = ", ".join(call["name"] for call in calls)
        raise DocumentError(f"Expected exactly one function_call, got: {names}", "multiple_tool_calls")
    name, arguments = calls[0]["name"], calls[0]["arguments"]
    if tool_name and name != tool_name:
        raise DocumentError(f"Expected tool '{tool_name}', got: {name}", "wrong_tool_name")
    return str(arguments)
