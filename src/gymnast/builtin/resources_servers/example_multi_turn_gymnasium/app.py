"""A conversation in steps: the environment asks scripted follow-up questions and scores the last answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gymnast.kit import Attempt, Step, StepEnvironment, Task


class FollowUpTask(Task):
    follow_ups: list[str] = []
    expected_answer: str


@dataclass(slots=True)
class Conversation:
    asked: int = 0


class ExampleMultiTurn(StepEnvironment[FollowUpTask, Conversation]):
    """One follow-up per turn; the answer to the last one must contain the expected answer."""

    async def reset(self, task: FollowUpTask) -> tuple[Conversation, str | None]:
        return Conversation(), None

    async def step(self, turn: Attempt[FollowUpTask, Conversation]) -> Step:
        task, conversation = turn.task, turn.session
        if conversation.asked < len(task.follow_ups):
            conversation.asked += 1
            return Step(observation=task.follow_ups[conversation.asked - 1])
        return Step(reward=float(_contains(turn.last_text, task.expected_answer)), terminated=True)


def _contains(text: str, answer: str) -> bool:
    """Whether the text contains the answer as a whole word: 12 is not in 112."""
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None
