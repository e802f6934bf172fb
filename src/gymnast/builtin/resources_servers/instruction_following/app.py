"""Instruction following: scores whether an answer follows the verifiable instructions of its task."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from gymnast.builtin.resources_servers.instruction_following.instructions import check_all, parse_arguments
from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    ProcessPool,
    ServerContext,
    Task,
    Verdict,
    message_text,
)

GradingMode = Literal["binary", "fraction"]
_LEGACY: Final = ("instruction_id_list", "prompt", "kwargs", "grading_mode")
_MAX_CPU_S: Final = 60.0
_MAX_INLINE_CHARS: Final = 20_000
"""Longer answers are checked in another process: up to here an instruction takes at most about 1 ms."""


class InstructionFollowingSettings(EnvironmentSettings):
    grading_mode: GradingMode | None = None
    """Overrides the grading mode of all rows."""
    verify_processes: PositiveInt = 2
    """Processes for very long answers, started when needed."""


class Instructions(Task):
    """The instructions of a row."""

    instruction_id_list: list[str] = Field(min_length=1)
    kwargs_list: list[dict[str, Any] | None] | None = None
    """The row's `kwargs`."""
    prompt: str | None = None
    grading_mode: GradingMode = "binary"

    @model_validator(mode="after")
    def _arguments_fit(self) -> Self:
        _ = self.arguments
        return self

    @cached_property
    def arguments(self) -> list[dict[str, Any]]:
        """The arguments of each instruction."""
        kwargs_list = self.kwargs_list if self.kwargs_list is not None else [None] * len(self.instruction_id_list)
        if len(kwargs_list) != len(self.instruction_id_list):
            raise ValueError(f"{len(self.instruction_id_list)} instructions have {len(kwargs_list)} kwargs")
        return [
            parse_arguments(name, kwargs) for name, kwargs in zip(self.instruction_id_list, kwargs_list, strict=True)
        ]


class InstructionFollowingTask(Task):
    """A row: instructions in `verifier_metadata`, or at the top level in older rows."""

    id: int | str | None = None
    verifier_metadata: dict[str, Any]
    instructions: Instructions

    @model_validator(mode="before")
    @classmethod
    def _from_row(cls, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        metadata = row.get("verifier_metadata") or {name: row[name] for name in _LEGACY if row.get(name) is not None}
        instructions = {**metadata, "kwargs_list": metadata.get("kwargs")} if isinstance(metadata, dict) else metadata
        return {"id": row.get("id"), "verifier_metadata": metadata, "instructions": instructions}


class InstructionFollowingVerdict(Verdict):
    follow_all_instructions: bool
    follow_instruction_list: list[bool]
    verifier_metadata: dict[str, Any]


class InstructionFollowing(Environment[InstructionFollowingTask, None]):
    """Scores one answer; no session, no tools."""

    settings: InstructionFollowingSettings

    def __init__(self, name: str, settings: InstructionFollowingSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._pool = ProcessPool(
            "gymnast.builtin.resources_servers.instruction_following.instructions:check_all",
            size=settings.verify_processes,
            cpu_s=_MAX_CPU_S,
        )

    async def stop(self) -> None:
        await self._pool.close()
        await super().stop()

    async def verify(self, attempt: Attempt[InstructionFollowingTask, None]) -> InstructionFollowingVerdict:
        task, instructions = attempt.task, attempt.task.instructions
        text = _last_message(attempt.output)
        is_inline = len(text) <= _MAX_INLINE_CHARS
        check = (text, instructions.instruction_id_list, instructions.arguments)
        followed: list[bool] = check_all(*check) if is_inline else await self._pool.call(*check)
        mode = self.settings.grading_mode or instructions.grading_mode
        return InstructionFollowingVerdict(
            reward=float(all(followed)) if mode == "binary" else sum(followed) / len(followed),
            follow_all_instructions=all(followed),
            follow_instruction_list=followed,
            verifier_metadata=task.verifier_metadata,
        )


def _last_message(output: list[dict[str, Any]]) -> str:
    """The text of the last output item if it is a message: what an attempt ends with is its answer."""
    last = output[-1] if output else {}
    return message_text(last) if last.get("type", "message") == "message" and last.get("role") == "assistant" else ""
