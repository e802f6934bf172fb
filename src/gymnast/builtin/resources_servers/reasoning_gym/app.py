"""Tasks of the package reasoning_gym, scored by its own scorers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from gymnast.builtin.resources_servers.reasoning_gym.answers import nemo_gym_answer, strict_answer
from gymnast.kit import (
    Attempt,
    CpuTimeExceededError,
    Environment,
    EnvironmentSettings,
    InvalidBody,
    ProcessPool,
    ScoringSettings,
    ServerContext,
    Task,
    Verdict,
    require_package,
)


class ReasoningGymSettings(ScoringSettings, EnvironmentSettings):
    answer_fallback: Literal["last_line", "none"] = "last_line"
    r"""Under strict scoring: the answer of a text without `<answer>` tags and without `\boxed{}`."""
    verify_timeout_s: PositiveFloat = 20.0
    """CPU time after which an answer scores 0."""
    verify_processes: PositiveInt = 2
    """Scoring processes; each takes seconds to start and about 250 MB."""
    max_answer_chars: PositiveInt = 100_000
    """Longer answers score 0."""


class TaskMetadata(BaseModel):
    """The package's metadata of a task; only the name of its generator is used here."""

    model_config = ConfigDict(extra="allow", frozen=True)
    source_dataset: str


class ReasoningGymTask(Task):
    question: str
    answer: str | None = None
    metadata: TaskMetadata


class ReasoningGymVerdict(Verdict):
    task_name: str
    score: float
    extracted_answer: str | None


class ReasoningGym(Environment[ReasoningGymTask, None]):
    """Scores one answer; no session, no tools."""

    settings: ReasoningGymSettings

    def __init__(self, name: str, settings: ReasoningGymSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._pool = self.own_pool(
            ProcessPool(
                "gymnast.builtin.resources_servers.reasoning_gym.scoring:score",
                size=settings.verify_processes,
                cpu_s=settings.verify_timeout_s,
                warm_up="gymnast.builtin.resources_servers.reasoning_gym.scoring:factory",
            )
        )

    async def start(self) -> None:
        require_package("reasoning_gym", extra="reasoning_gym", where=self.name)
        await super().start()

    async def verify(self, attempt: Attempt[ReasoningGymTask, None]) -> ReasoningGymVerdict:
        task = attempt.task.metadata.source_dataset
        answer = self._answer(attempt)
        usable = answer if answer is not None and len(answer) <= self.settings.max_answer_chars else None
        score = await self._score_answer(task, usable, attempt.task.model_dump())
        return ReasoningGymVerdict(reward=score, task_name=task, score=score, extracted_answer=answer)

    def _answer(self, attempt: Attempt[ReasoningGymTask, None]) -> str | None:
        if self.settings.scoring == "nemo_gym":
            return nemo_gym_answer(attempt.text)
        return strict_answer(attempt.last_text, last_line=self.settings.answer_fallback == "last_line")

    async def _score_answer(self, task: str, answer: str | None, entry: dict[str, Any]) -> float:
        try:
            outcome = await self._pool.call(task, answer, entry, self.settings.scoring)
        except CpuTimeExceededError as error:
            self.log.warning("an answer to a %s task scores 0: %s", task, error)
            return 0.0
        if "row_error" in outcome:
            detail = {"type": "value_error", "loc": ["body", "metadata"], "msg": outcome["row_error"], "input": None}
            raise InvalidBody([detail])
        return float(outcome["score"])
