"""RULER: recall from long contexts. The reward is the share of the expected strings that the answer contains."""

from __future__ import annotations

from typing import Any, Final

from pydantic import PositiveInt

from gymnast.kit import Attempt, Environment, EnvironmentSettings, InvalidBody, ScoringSettings, Task, Verdict

from . import nemo_gym_rules, strict_rules

ANY_SUBSETS: Final = ("qa_1", "qa_2")
"""Questions with several right answers, of which one is enough."""


class RulerSettings(ScoringSettings, EnvironmentSettings):
    max_answer_words: PositiveInt = 200
    """Strict scoring: read only this many words at the end of an answer if wrong candidates cannot be recognized."""


class RulerTask(Task):
    outputs: list[str]
    length: int
    subset: str


class RulerVerdict(Verdict):
    outputs: list[str]
    length: int
    subset: str
    cwe: float | None = None
    fwe: float | None = None
    niah_multikey_1: float | None = None
    niah_multikey_2: float | None = None
    niah_multikey_3: float | None = None
    niah_multiquery: float | None = None
    niah_multivalue: float | None = None
    niah_single_1: float | None = None
    niah_single_2: float | None = None
    niah_single_3: float | None = None
    qa_1: float | None = None
    qa_2: float | None = None
    vt: float | None = None


SUBSETS: Final = tuple(
    name for name in RulerVerdict.model_fields if name not in {"reward", "outputs", "length", "subset"}
)


class Ruler(Environment[RulerTask, None]):
    """Scores one answer; no session, no tools."""

    settings: RulerSettings

    def parse_task(self, row: dict[str, Any]) -> RulerTask:
        task = super().parse_task(row)
        if not task.outputs:
            raise InvalidBody.of_field("expected at least one string", "outputs")
        if self.settings.scoring == "strict" and not all(output.strip() for output in task.outputs):
            raise InvalidBody.of_field("every answer contains an empty string", "outputs")
        return task

    async def verify(self, attempt: Attempt[RulerTask, None]) -> RulerVerdict:
        task = attempt.task
        if self.settings.scoring == "strict":
            words = self.settings.max_answer_words
            reward = strict_rules.score(attempt.text, task.outputs, task.subset, attempt.params, words)
        else:
            reward = nemo_gym_rules.score(attempt.response, task.outputs, any_of=task.subset in ANY_SUBSETS)
        per_subset = {task.subset: reward} if task.subset in SUBSETS else {}
        return RulerVerdict(reward=reward, outputs=task.outputs, length=task.length, subset=task.subset, **per_subset)
