"""Tasks of the package reasoning_gym, scored by its own scorers."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

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
    last_boxed,
    require_package,
    unwrap_text,
)


class ReasoningGymSettings(ScoringSettings, EnvironmentSettings):
    answer_fallback: Literal["last_line", "none"] = "last_line"
    r"""Under strict scoring: the answer of a text without `<answer>` tags and without `\boxed{}`."""
    verify_timeout_s: PositiveFloat = 20.0
    """CPU time after which an answer scores 0."""
    verify_processes: PositiveInt = 2
    """Scoring processes; each takes seconds to start and about 250 MB."""
    max_answer_chars: PositiveInt = 100_000
    """Under strict scoring, longer answers score 0."""


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
        is_too_long = self.settings.scoring == "strict" and len(answer or "") > self.settings.max_answer_chars
        score = await self._score_answer(task, None if is_too_long else answer, attempt.task.model_dump())
        return ReasoningGymVerdict(reward=score, task_name=task, score=score, extracted_answer=answer)

    def _answer(self, attempt: Attempt[ReasoningGymTask, None]) -> str | None:
        if self.settings.scoring == "nemo_gym":
            return nemo_gym_answer(attempt.unattributed_text)
        return strict_answer(attempt.last_text, last_line=self.settings.answer_fallback == "last_line")

    async def _score_answer(self, task: str, answer: str | None, entry: dict[str, Any]) -> float:
        try:
            outcome = await self._pool.call(task, answer, entry, self.settings.scoring)
        except CpuTimeExceededError as error:
            self.log.warning("an answer to a %s task scores 0: %s", task, error)
            return 0.0
        if "row_error" in outcome:
            raise InvalidBody.of_field(outcome["row_error"], "metadata")
        return float(outcome["score"])


_OPEN, _CLOSE, _BOX = "<answer>", "</answer>", "\\boxed{"
_LABEL: Final = re.compile(r"\**(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*\**\s*:\s*", re.IGNORECASE)


def nemo_gym_answer(text: str) -> str:
    r"""NeMo Gym's rule: the last pair of tags, else the first `\boxed{}` up to its first brace, else all text."""
    answer, start = None, text.find(_OPEN)
    while start >= 0 and (end := text.find(_CLOSE, start)) >= 0:
        answer, start = text[start + len(_OPEN) : end], text.find(_OPEN, end)
    return (_first_box(text) if answer is None else answer).strip()


def _first_box(text: str) -> str:
    """The content of the first box that is not empty; the whole text if there is none."""
    start = text.find(_BOX)
    while start >= 0 and (end := text.find("}", start)) >= 0:
        if content := text[start + len(_BOX) : end]:
            return content
        start = text.find(_BOX, end)
    return text


def strict_answer(text: str, *, last_line: bool) -> str | None:
    """Our own rule, after thoughts: the last pair of tags, the last box or, with `last_line`, the last line."""
    reply = text.rpartition("</think>")[2]
    end = reply.rfind(_CLOSE)
    start = reply.rfind(_OPEN, 0, end) if end >= 0 else -1
    if start >= 0:
        return reply[start + len(_OPEN) : end].strip()
    box = last_boxed(reply)
    if box is not None:
        return unwrap_text(box)
    line = reply.strip().rpartition("\n")[2].strip() if last_line else ""
    label = _LABEL.match(line)
    return line[label.end() :].strip("* ") or None if label else line or None
