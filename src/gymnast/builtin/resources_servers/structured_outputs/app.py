"""Structured outputs: scores whether an answer, or the arguments of a tool call, match the schema of the task."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, PositiveFloat, PositiveInt, field_validator

from gymnast.builtin.resources_servers.structured_outputs.documents import DocumentError
from gymnast.kit import (
    Attempt,
    CpuTimeExceededError,
    Environment,
    EnvironmentSettings,
    InvalidBody,
    JsonObject,
    ProcessPool,
    ServerContext,
    Task,
    Verdict,
    require_package,
)

SchemaType = Literal["json", "yaml", "toml", "xml"]


class StructuredOutputsSettings(EnvironmentSettings):
    xml_coerce_types: bool = True
    """Convert the text of XML elements to the numbers and booleans of the schema."""
    allow_code_fence: bool = False
    """Accept a document in a single code fence with nothing around it."""
    strict_schema: bool = False
    """Treat every object of a schema as closed: all its properties are required and no others allowed."""
    max_document_chars: PositiveInt = 1_000_000
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

    @field_validator("response_mode")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        if value is not None and value != "text" and not value.startswith(("tool", "function")):
            raise ValueError(f"response_mode must be 'text' or a tool call, not {value!r}")
        return value

    @property
    def is_text(self) -> bool:
        return self.response_mode in {None, "text"}


class StructuredOutputsVerdict(RowFields, Verdict):
    error_type: str | None = None
    error_message: str | None = None


class StructuredOutputs(Environment[StructuredOutputsTask, None]):
    """Scores one document; no session. The tools of a row do not run: their arguments are the answer."""

    settings: StructuredOutputsSettings

    def __init__(self, name: str, settings: StructuredOutputsSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._pool = ProcessPool(
            "gymnast.builtin.resources_servers.structured_outputs.checking:check",
            size=settings.verify_processes,
            cpu_s=settings.verify_timeout_s,
        )

    async def start(self) -> None:
        require_package("jsonschema", extra="structured_outputs", where=self.name)
        await super().start()

    async def stop(self) -> None:
        await self._pool.close()
        await super().stop()

    async def verify(self, attempt: Attempt[StructuredOutputsTask, None]) -> StructuredOutputsVerdict:
        try:
            outcome = await self._outcome(attempt)
        except DocumentError as error:
            outcome = {"error_type": error.kind, "error_message": str(error)}
        if "row_error" in outcome:
            detail = {"type": "value_error", "loc": ["body", "schema_str"], "msg": outcome["row_error"], "input": None}
            raise InvalidBody([detail])
        row = attempt.task.model_dump(include=set(RowFields.model_fields))
        return StructuredOutputsVerdict(reward=float(outcome["error_type"] is None), **row, **outcome)

    async def _outcome(self, attempt: Attempt[StructuredOutputsTask, None]) -> dict[str, str | None]:
        task, options = attempt.task, self.settings.model_dump(include={"xml_coerce_types", "strict_schema"})
        if task.is_text:
            document = attempt.last_text
            options["allow_code_fence"] = self.settings.allow_code_fence
        else:
            document = read_call_arguments(attempt.output, task.tool_name)
            options |= {"is_arguments": True, "payload_key": task.tool_payload_key}
        if len(document) > self.settings.max_document_chars:
            raise DocumentError(f"the document has {len(document)} characters", "too_large")
        try:
            outcome: dict[str, str | None] = await self._pool.call(task.schema_str, task.schema_type, document, options)
        except CpuTimeExceededError as error:
            raise DocumentError(f"the document could not be checked: {error}", "timeout") from error
        return outcome


def read_call_arguments(output: list[JsonObject], tool_name: str | None) -> str:
    """The arguments of the only call in an output, which must be of the requested tool."""
    calls = [item for item in output if item.get("type") == "function_call"]
    if not calls:
        raise DocumentError("no tool was called", "no_tool_call")
    if len(calls) > 1:
        raise DocumentError(f"{len(calls)} tools were called, not one", "several_tool_calls")
    name, arguments = calls[0]["name"], calls[0]["arguments"]
    if tool_name is not None and name != tool_name:
        raise DocumentError(f"'{name}' was called, not '{tool_name}'", "wrong_tool")
    return str(arguments)
