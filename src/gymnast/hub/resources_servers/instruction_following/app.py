"""Instruction following: an answer keeps the verifiable instructions of its task, all of them or a fraction."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from gymnast.hub.resources_servers.instruction_following.instructions import arguments_of, check_all
from gymnast.kit import Attempt, Environment, EnvironmentSettings, Task, Verdict
from gymnast.kit.work_pool import WorkPool
from gymnast.types.responses import message_text
from gymnast.wire.server import Surroundings

GradingMode = Literal["binary", "fraction"]
_LEGACY: Final = ("instruction_id_list", "prompt", "kwargs", "grading_mode")
_MAX_CPU_S: Final = 60.0
_MAX_TEXT_HERE: Final = 20_000
"""Longer answers are checked in another process: an instruction takes about 1 ms for these at worst."""


class InstructionFollowingSettings(EnvironmentSettings):
    grading_mode: GradingMode | None = None
    """Forces one way of grading for all rows."""
    verify_processes: PositiveInt = 2
    """Processes for very long answers, started when needed."""


class Instructions(Task):
    """What an answer must keep to."""

    instruction_id_list: list[str] = Field(min_length=1)
    given: list[dict[str, Any] | None] | None = None
    """The row's `kwargs`."""
    prompt: str | None = None
    grading_mode: GradingMode = "binary"

    @model_validator(mode="after")
    def _arguments_fit(self) -> Self:
        _ = self.arguments
        return self

    @cached_property
    def arguments(self) -> list[dict[str, Any]]:
        """What each instruction is called with."""
        given = self.given if self.given is not None else [None] * len(self.instruction_id_list)
        if len(given) != len(self.instruction_id_list):
            raise ValueError(f"{len(self.instruction_id_list)} instructions have {len(given)} kwargs")
        return [arguments_of(name, kwargs) for name, kwargs in zip(self.instruction_id_list, given, strict=True)]


class InstructionFollowingTask(Task):
    """A row: instructions in `verifier_metadata`, or, in older rows, at the top."""

    id: int | str | None = None
    verifier_metadata: dict[str, Any]
    instructions: Instructions

    @model_validator(mode="before")
    @classmethod
    def _from_row(cls, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        metadata = row.get("verifier_metadata") or {name: row[name] for name in _LEGACY if row.get(name) is not None}
        asked = {**metadata, "given": metadata.get("kwargs")} if isinstance(metadata, dict) else metadata
        return {"id": row.get("id"), "verifier_metadata": metadata, "instructions": asked}


class InstructionFollowingVerdict(Verdict):
    follow_all_instructions: bool
    follow_instruction_list: list[bool]
    verifier_metadata: dict[str, Any]


class InstructionFollowing(Environment[InstructionFollowingTask, None]):
    """Scores one answer; there is no session and there are no tools."""

    settings: InstructionFollowingSettings

    def __init__(self, name: str, settings: InstructionFollowingSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self._pool = WorkPool(
            "gymnast.hub.resources_servers.instruction_following.instructions:check_all",
            size=settings.verify_processes,
            cpu_s=_MAX_CPU_S,
        )

    async def stop(self) -> None:
        await self._pool.close()
        await super().stop()

    async def verify(self, attempt: Attempt[InstructionFollowingTask, None]) -> InstructionFollowingVerdict:
        task, asked = attempt.task, attempt.task.instructions
        text = _last_message(attempt.output)
        here = len(text) <= _MAX_TEXT_HERE
        check = (text, asked.instruction_id_list, asked.arguments)
        followed: list[bool] = check_all(*check) if here else await self._pool.call(*check)
        mode = self.settings.grading_mode or asked.grading_mode
        return InstructionFollowingVerdict(
            reward=float(all(followed)) if mode == "binary" else sum(followed) / len(followed),
            follow_all_instructions=all(followed),
            follow_instruction_list=followed,
            verifier_metadata=task.verifier_metadata,
        )


def _last_message(output: list[dict[str, Any]]) -> str:
    """The text of the last output item: what an attempt ends with is what it answers."""
    last = output[-1] if output else {}
    return message_text(last) if last.get("type", "message") == "message" and last.get("role") == "assistant" else ""
