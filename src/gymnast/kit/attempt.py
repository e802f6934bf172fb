"""What a verifier is given: the task, the model's output in convenient forms, and the session."""

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
    """Base class of an environment's task: the row fields it reads. Other fields are ignored.

    Values of fields typed `Any` are shared with the record: do not modify them.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    def unscorable_reason(self, params: JsonObject) -> str | None:
        """Why no answer to this row can be right, or None. `gymnast check rows` and `collect` report it.

        For tasks with optional fields: a row without an expected answer is valid, but gets 0 whatever the model says.
        `params` are the row's create params.
        """
        del params
        return None


class Verdict(BaseModel):
    """What `verify` returns: a finite reward, and whatever a subclass adds."""

    model_config = ConfigDict(extra="forbid")
    reward: FiniteFloat


TaskT = TypeVar("TaskT", bound=Task)
SessionT = TypeVar("SessionT")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the model. `arguments` is None if its JSON is not an object."""

    name: str
    arguments: dict[str, Any] | None
    call_id: str


class Attempt(Generic[TaskT, SessionT]):
    """One attempt to score. The response is shared with the record: do not modify it."""

    __slots__ = ("params", "response", "scope", "session", "task")

    def __init__(
        self, task: TaskT, params: JsonObject, response: JsonObject, session: SessionT, scope: Scope | None = None
    ) -> None:
        self.task = task
        self.params = params
        self.response = response
        self.session = session
        self.scope = scope or Scope()
        """Shared by calls made for the attempt, e.g. to a judge: its identity and its usage."""

    @property
    def output(self) -> list[JsonObject]:
        """All items of the trajectory, in order."""
        output: list[JsonObject] = self.response["output"]
        return output

    @property
    def text(self) -> str:
        """All assistant text, concatenated, without reasoning."""
        return "".join([message_text(item) for item in self.output if _is_assistant_message(item)])

    @property
    def last_text(self) -> str:
        """The text of the last assistant message, or an empty string."""
        return next((message_text(item) for item in reversed(self.output) if _is_assistant_message(item)), "")

    @property
    def unattributed_text(self) -> str:
        """The text of every message, whatever its role: what NeMo Gym's step environments read."""
        return "".join(_output_text(item) for item in self.output if item.get("type", "message") == "message")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """All tool calls of the model, in order."""
        return [
            ToolCall(item["name"], parse_arguments(item["arguments"]), item["call_id"])
            for item in self.output
            if item.get("type") == "function_call"
        ]

    @property
    def is_incomplete(self) -> bool:
        """Whether the response was truncated (length, content filter)."""
        return bool(self.response.get("incomplete_details"))


def parse_arguments(text: str) -> dict[str, Any] | None:
    """A call's JSON arguments, or None if they are not an object."""
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _is_assistant_message(item: JsonObject) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == "assistant"


def _output_text(item: JsonObject) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content or () if part.get("type") == "output_text")
