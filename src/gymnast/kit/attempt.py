"""What a verifier sees of an attempt: the task, the model's output in convenient forms, and the session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, FiniteFloat

from gymnast.types.responses import message_text
from gymnast.wire.calls import Scope

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject


class Task(BaseModel):
    """Base of an environment's task: the row fields it reads. Other fields of the row are ignored.

    What a field holds is shared with the record where its type is `Any`: read it, do not change it.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)


class Verdict(BaseModel):
    """What `verify` returns: a finite reward and whatever else the environment reports of the attempt."""

    model_config = ConfigDict(extra="forbid")
    reward: FiniteFloat


TaskT = TypeVar("TaskT", bound=Task)
SessionT = TypeVar("SessionT")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model made. `arguments` is None when the model's JSON could not be parsed into an object."""

    name: str
    arguments: dict[str, Any] | None
    call_id: str


class Attempt(Generic[TaskT, SessionT]):
    """One attempt to be scored. The response is shared with the record: read it, do not change it."""

    __slots__ = ("params", "response", "scope", "session", "task")

    def __init__(
        self, task: TaskT, params: JsonObject, response: JsonObject, session: SessionT, scope: Scope | None = None
    ) -> None:
        self.task = task
        self.params = params
        self.response = response
        self.session = session
        self.scope = scope or Scope()
        """What calls made for the attempt, e.g. of a judge, share: its identity, and the account of what they use."""

    @property
    def output(self) -> list[JsonObject]:
        """All items of the trajectory, in order."""
        output: list[JsonObject] = self.response["output"]
        return output

    @property
    def text(self) -> str:
        """All assistant text, concatenated. Reasoning is not part of it."""
        return "".join(message_text(item) for item in self.output if _is_answer(item))

    @property
    def last_text(self) -> str:
        """The text of the last assistant message, or nothing."""
        return next((message_text(item) for item in reversed(self.output) if _is_answer(item)), "")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Every call the model made, in order."""
        return [
            ToolCall(item["name"], parse_arguments(item["arguments"]), item["call_id"])
            for item in self.output
            if item.get("type") == "function_call"
        ]

    @property
    def is_incomplete(self) -> bool:
        """The model was cut off (length, content filter)."""
        return bool(self.response.get("incomplete_details"))


def parse_arguments(text: str) -> dict[str, Any] | None:
    """A call's JSON arguments, or None when they are not an object."""
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _is_answer(item: JsonObject) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == "assistant"
