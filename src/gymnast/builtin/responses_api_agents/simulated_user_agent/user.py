"""The simulated user: its prompt, and what it says next. If its model fails, the user failed, never the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, StringConstraints

from gymnast.kit import (
    CallError,
    FailureDetail,
    FailureKind,
    JsonObject,
    JudgeError,
    JudgeModel,
    Scope,
    Stage,
    message_text,
)

DONE: Final = "###STOP###"
TRANSFERRED: Final = "###TRANSFER###"
OUT_OF_SCOPE: Final = "###OUT-OF-SCOPE###"
"""What a user says to end a conversation: as in τ²-bench, so that models that know it behave alike."""

RULES: Final = f"""You play a person who contacts a service. The other side is the service's agent.

- Write only what the person says next, one short message at a time, in the person's own words.
- Stay with the scenario. What it does not tell, you do not know: never invent names, numbers or facts.
- Do not tell everything at once. Answer what you are asked, and give details when they are needed.
- Pursue the goal until it is reached or clearly refused.
- When the goal is reached and nothing is left to say, write {DONE}.
- When you are transferred to another agent, write {TRANSFERRED}.
- When the scenario does not let you answer, so that you cannot continue, write {OUT_OF_SCOPE}.
"""
_FIX: Final = frozenset(
    {
        FailureKind.MODEL_AUTH,
        FailureKind.MODEL_NOT_FOUND,
        FailureKind.MODEL_QUOTA,
        FailureKind.MODEL_MISCONFIGURED,
        FailureKind.MODEL_REJECTED,
    }
)
"""Failures of the user's model that no retry can help: they stay what they are, so that the run ends early."""


class Scenario(BaseModel):
    """A row's `user`: who the user is, and what for."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    goal: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    persona: str | None = None
    instructions: str | None = None
    """How to behave in this conversation."""
    known_info: str | None = None
    unknown_info: str | None = None

    def prompt(self, rules: str) -> str:
        parts = {
            "Who you are": self.persona,
            "Your goal": self.goal,
            "What you know": self.known_info,
            "What you do not know": self.unknown_info,
            "How you behave": self.instructions,
        }
        sections = "\n\n".join(f"## {title}\n{text.strip()}" for title, text in parts.items() if text and text.strip())
        return f"{rules.strip()}\n\n# Scenario\n\n{sections}"


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user says; `end` is the mark with which it ends the conversation."""

    text: str
    end: str | None


class SimulatedUser:
    """Says what the user says next, with a model of its own."""

    def __init__(self, model: JudgeModel, params: JsonObject, rules: str) -> None:
        self._model = model
        self._params = params
        self._rules = rules

    async def speak(self, scenario: Scenario, conversation: list[JsonObject], scope: Scope) -> UserMessage:
        """The next message. `conversation` has the messages so far, from the agent's side. Raises CallError."""
        history = [_mirror(item) for item in conversation if item.get("type", "message") == "message"]
        system = {"role": "system", "content": scenario.prompt(self._rules)}
        params = {**self._params, "input": [system, *(item for item in history if item["content"].strip())]}
        try:
            text, _ = await self._model.ask(params, scope, _read_text, "message")
        except JudgeError as error:
            raise CallError(self._failure(error)) from error
        end = next((mark for mark in (DONE, TRANSFERRED, OUT_OF_SCOPE) if mark in text), None)
        return UserMessage(text, end)

    def failure(self, message: str) -> FailureDetail:
        return FailureDetail(FailureKind.USER_FAILED, Stage.AGENT, message, instance=self._model.name)

    def _failure(self, error: JudgeError) -> FailureDetail:
        message = f"the simulated user ({self._model.name}) failed: {error}"
        kind = FailureKind(error.cause)
        if kind in _FIX:
            return FailureDetail(kind, Stage.AGENT, message, instance=self._model.name)
        return self.failure(message)


def _mirror(item: JsonObject) -> JsonObject:
    """A message as the user's model sees it: the agent is its user."""
    role = "assistant" if item["role"] == "user" else "user"
    return {"role": role, "content": message_text(item)}


def _read_text(response: JsonObject) -> str | None:
    """The text of a complete response. A truncated one is only half a message."""
    if response.get("incomplete_details"):
        return None
    messages: list[Any] = [item for item in response["output"] if item.get("type") == "message"]
    return "".join(map(message_text, messages)).strip() or None
