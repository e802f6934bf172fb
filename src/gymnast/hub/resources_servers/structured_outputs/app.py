"""Structured outputs: an answer, or the arguments of a tool call, is a document of the schema that the task gives."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, PositiveFloat, PositiveInt, field_validator

from gymnast.hub.resources_servers.structured_outputs.documents import DocumentError
from gymnast.kit import Attempt, Environment, EnvironmentSettings, Task, Verdict
from gymnast.kit.packages import require_package
from gymnast.kit.work_pool import WorkOverrunError, WorkPool
from gymnast.types.json import JsonObject
from gymnast.wire.server import Surroundings
from gymnast.wire.validate import InvalidBody

SchemaType = Literal["json", "yaml", "toml", "xml"]


class StructuredOutputsSettings(EnvironmentSettings):
    xml_coerce_types: bool = True
    """Read the text of XML elements as the numbers and booleans that the schema asks for."""
    allow_code_fence: bool = False
    """Accept a document inside one code fence, with nothing around it."""
    strict_schema: bool = False
    """Treat every object of a schema as closed: all its properties required and no others."""
    max_document_chars: PositiveInt = 1_000_000
    verify_timeout_s: PositiveFloat = 10.0
    """CPU time a document may take."""
    verify_processes: PositiveInt = 2


class RowFields(BaseModel):
    """The fields of a row, which the reply repeats."""

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
            raise ValueError(f"response_mode {value!r} is neither 'text' nor a tool call")
        return value

    @property
    def is_in_text(self) -> bool:
        return self.response_mode in {None, "text"}


class StructuredOutputsVerdict(RowFields, Verdict):
    error_type: str | None = None
    error_message: str | None = None


class StructuredOutputs(Environment[StructuredOutputsTask, None]):
    """Scores one document; there is no session. Tools of a row are not run: their arguments are the answer."""

    settings: StructuredOutputsSettings

    def __init__(self, name: str, settings: StructuredOutputsSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self._pool = WorkPool(
            "gymnast.hub.resources_servers.structured_outputs.checking:check",
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
        if task.is_in_text:
            document = attempt.last_text
            options["allow_code_fence"] = self.settings.allow_code_fence
        else:
            document = called_arguments(attempt.output, task.tool_name)
            options |= {"is_arguments": True, "payload_key": task.tool_payload_key}
        if len(document) > self.settings.max_document_chars:
            raise DocumentError(f"the document has {len(document)} characters", "too_large")
        try:
            outcome: dict[str, str | None] = await self._pool.call(task.schema_str, task.schema_type, document, options)
        except WorkOverrunError as error:
            raise DocumentError(f"the document could not be checked: {error}", "timeout") from error
        return outcome


def called_arguments(output: list[JsonObject], tool_name: str | None) -> str:
    """The arguments of the only call in an output, which must be of the tool that was asked for."""
    calls = [item for item in output if item.get("type") == "function_call"]
    if not calls:
        raise DocumentError("no tool was called", "no_tool_call")
    if len(calls) > 1:
        raise DocumentError(f"{len(calls)} tools were called, not one", "several_tool_calls")
    name, arguments = calls[0]["name"], calls[0]["arguments"]
    if tool_name is not None and name != tool_name:
        raise DocumentError(f"'{name}' was called, not '{tool_name}'", "wrong_tool")
    return str(arguments)
