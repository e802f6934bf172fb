"""A conversation in steps: the environment asks scripted follow-up questions and scores the last answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from gymnast.kit import (
    Attempt,
    EnvironmentSettings,
    InvalidBody,
    JsonObject,
    ScoringSettings,
    Step,
    StepEnvironment,
    Task,
)


class MultiTurnSettings(ScoringSettings, EnvironmentSettings):
    pass


def _as_turns(value: Any) -> Any:
    return list(value) if isinstance(value, str) or value == {} else value


class FollowUpTask(Task):
    follow_ups: Annotated[list[str | None], BeforeValidator(_as_turns)] = []
    """A text is as many turns as it has characters, and null says nothing, as in NeMo Gym; strict: a list of texts."""
    expected_answer: Annotated[str, BeforeValidator(lambda answer: answer or "")] = ""
    """Null, 0, false, and empty values are no answer, as in NeMo Gym: every rollout gets 0."""

    def unscorable_reason(self, params: JsonObject) -> str | None:
        return None if self.expected_answer else "no expected_answer: every rollout gets 0"


@dataclass(slots=True)
class Conversation:
    asked: int = 0


class ExampleMultiTurn(StepEnvironment[FollowUpTask, Conversation]):
    """One follow-up per turn; the answer to the last one must contain the expected answer."""

    settings: MultiTurnSettings

    def parse_task(self, row: dict[str, Any]) -> FollowUpTask:
        task = super().parse_task(row)
        if self.settings.scoring == "strict" and row.get("follow_ups", []) != [
            turn for turn in task.follow_ups if turn is not None
        ]:
            raise InvalidBody.of_field("follow_ups must be a list of strings", "follow_ups")
        return task

    async def reset(self, task: FollowUpTask) -> tuple[Conversation, str | None]:
        return Conversation(), None

    async def step(self, turn: Attempt[FollowUpTask, Conversation]) -> Step:
        task, conversation = turn.task, turn.session
        if conversation.asked < len(task.follow_ups):
            conversation.asked += 1
            return Step(observation=task.follow_ups[conversation.asked - 1])
        is_strict = self.settings.scoring == "strict"
        is_right = _contains_word(turn.last_text, task) if is_strict else _contains(turn.unattributed_text, task)
        return Step(reward=float(is_right), terminated=True)


def _contains(text: str, task: FollowUpTask) -> bool:
    """NeMo Gym's rule: 12 is in 112, and all text of the turn counts."""
    return bool(task.expected_answer) and task.expected_answer.lower() in text.lower()


def _contains_word(text: str, task: FollowUpTask) -> bool:
    """Whether the text contains the answer as a whole word."""
    answer = task.expected_answer
    return bool(answer) and re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None
