"""Instruction following: scores whether an answer follows the verifiable instructions of its task."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import PositiveInt, model_validator

from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    InvalidBody,
    JsonObject,
    ProcessPool,
    Scoring,
    ScoringSettings,
    ServerContext,
    Task,
    Verdict,
    message_text,
)

from . import english, nemo_gym_rules, strict_rules

GradingMode = Literal["binary", "fraction"]
_FIELDS: Final = ("instruction_id_list", "prompt", "kwargs", "grading_mode")
_MODES: Final = ("binary", "fraction")
_MAX_CPU_S: Final = 60.0
_MAX_INLINE_CHARS: Final = 4_000
"""Longer answers are checked in another process: some patterns take a time that grows with the square of the length."""


class InstructionFollowingSettings(ScoringSettings, EnvironmentSettings):
    grading_mode: GradingMode | None = None
    """Overrides the grading mode of all rows."""
    verify_processes: PositiveInt = 2
    """Processes for long answers, started when needed."""


class InstructionFollowingTask(Task):
    """A row: what is checked is in `verifier_metadata`, or at the top level in older rows."""

    id: int | str | None = None
    verifier_metadata: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _from_row(cls, row: Any) -> Any:
        if not isinstance(row, dict) or not isinstance(row.get("verifier_metadata") or {}, dict):
            return row
        metadata = {**(row.get("verifier_metadata") or {})}
        metadata |= {name: row[name] for name in _FIELDS if name in row and name not in metadata}
        for name in ("instruction_id_list", "kwargs"):
            value = metadata.get(name)
            if not isinstance(value, list | str | dict) and (name != "kwargs" or value is not None):
                raise ValueError(f"verifier_metadata.{name} must be a list, not {value!r:.200}")
        return {"id": row.get("id"), "verifier_metadata": metadata}


class InstructionFollowingVerdict(Verdict):
    follow_all_instructions: bool
    follow_instruction_list: list[bool]
    verifier_metadata: dict[str, Any]


class InstructionFollowing(Environment[InstructionFollowingTask, None]):
    """Scores one answer; no session, no tools."""

    settings: InstructionFollowingSettings

    def __init__(self, name: str, settings: InstructionFollowingSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._pool = self.own_pool(
            ProcessPool(
                "gymnast.builtin.resources_servers.instruction_following.app:check_all",
                size=settings.verify_processes,
                cpu_s=_MAX_CPU_S,
            )
        )

    async def start(self) -> None:
        await super().start()
        if self.settings.scoring == "nemo_gym" and (missing := english.missing_packages()):
            self.log.warning(
                "sentences, word tokens and languages are found by built-in rules: %s not installed",
                " and ".join(missing),
            )

    def parse_task(self, row: JsonObject) -> InstructionFollowingTask:
        task = super().parse_task(row)
        metadata = task.verifier_metadata
        mode = metadata.get("grading_mode", "binary")
        if mode not in _MODES:
            problem = f"grading_mode must be 'binary' or 'fraction', not {mode!r:.200}"
            raise InvalidBody.of_field(problem, "verifier_metadata")
        if self.settings.scoring == "strict":
            try:
                strict_rules.parse_all(metadata["instruction_id_list"], metadata.get("kwargs"))
            except ValueError as error:
                raise InvalidBody.of_field(str(error), "verifier_metadata") from error
        return task

    async def verify(self, attempt: Attempt[InstructionFollowingTask, None]) -> InstructionFollowingVerdict:
        metadata, scoring = attempt.task.verifier_metadata, self.settings.scoring
        mode = self.settings.grading_mode or metadata.get("grading_mode", "binary")
        ids, arguments = list(metadata["instruction_id_list"]), metadata.get("kwargs")
        if scoring == "strict":
            arguments = strict_rules.parse_all(ids, arguments)
        text = _last_message(attempt.output) if scoring == "strict" else _first_part(attempt.output)
        check = (text, ids, [None] * len(ids) if arguments is None else list(arguments), scoring)
        followed: list[bool] = check_all(*check) if len(text) <= _MAX_INLINE_CHARS else await self._pool.call(*check)
        share = sum(followed) / len(followed) if followed else 0.0
        return InstructionFollowingVerdict(
            reward=float(all(followed)) if mode == "binary" else share,
            follow_all_instructions=all(followed),
            follow_instruction_list=followed,
            verifier_metadata=metadata,
        )


def check_all(answer: str, ids: list[Any], arguments: list[Any], scoring: Scoring) -> list[bool]:
    """Which of the instructions an answer follows by the rules of a scoring."""
    check = strict_rules.check_all if scoring == "strict" else nemo_gym_rules.check_all
    return check(answer, ids, arguments)


def _last_message(output: list[dict[str, Any]]) -> str:
    """The text of the last output item if it is a message: what an attempt ends with is its answer."""
    last = output[-1] if output else {}
    return message_text(last) if last.get("type", "message") == "message" and last.get("role") == "assistant" else ""


def _first_part(output: list[dict[str, Any]]) -> str:
    """The first text of the last output item, of whichever type it is."""
    content = output[-1].get("content") if output else None
    if isinstance(content, str):
        return content
    return str(content[0].get("text") or "") if content else ""
