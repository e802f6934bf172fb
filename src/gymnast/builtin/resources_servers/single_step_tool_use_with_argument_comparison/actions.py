"""Actions of a step, expected or taken, and what a comparison of the two is called."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gymnast.kit import InvalidBody


class StepRewardCategory(StrEnum):
    """Why a step has its reward. The texts are NeMo Gym's: users group rollouts by them."""

    NO_ACTION_FOUND = "No tool call or chat message was found in the response"
    NO_EXPECTED_TOOL_CALL = "No tool call was found when one was expected"
    EXPECTED_CHAT_MESSAGE_FOUND = "A chat message was found as expected"
    NO_EXPECTED_CHAT_MESSAGE = "A tool call was executed when a chat message was expected"
    UNEXPECTED_TOOL = "The tool in a tool call is not the expected tool"
    ARGUMENTS_DECODE_ERROR = "An error occurred when decoding the arguments string in a tool call as a JSON object"
    ARGUMENT_VALUE_TYPE_DIFFERENT = "The type of an argument value in a tool call is different than the expected type"
    ARGUMENT_OBJECT_KEYS_DIFFERENT = (
        "The keys in an object in an argument value in a tool call are different than the keys in the expected object"
    )
    ARGUMENT_LIST_LENGTH_DIFFERENT = (
        "A list in an argument value in a tool call has a different length than the expected list"
    )
    ARGUMENT_VALUE_DIFFERENT = "An argument value in a tool call is different than the expected value"
    EXPECTED_TOOL_CALL = "A tool call that matches the expected tool call was found"
    FUNCTION_CALL_BATCH_LENGTH_DIFFERENT = "The number of tool calls in a batch is different than expected"
    EXPECTED_TOOL_CALL_BATCH = "A tool-call batch that matches the expected tool calls was found"


class ExpectedToolCall(BaseModel):
    model_config = ConfigDict(frozen=True)
    type: Literal["function_call"]
    name: str
    arguments: str | dict[str, Any] = "{}"

    @property
    def parsed(self) -> Any:
        """The arguments. Raises InvalidBody if they are not JSON: NeMo Gym reads them only if the tool is right."""
        if not isinstance(self.arguments, str):
            return self.arguments
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError) as error:
            problem = f"arguments: expected JSON, got {self.arguments[:80]!r}"
            raise InvalidBody.of_field(problem, "expected_action", "arguments") from error


class ExpectedToolCalls(BaseModel):
    """Several tool calls, in any order."""

    model_config = ConfigDict(frozen=True)
    type: Literal["function_call_batch"]
    calls: list[ExpectedToolCall] = Field(min_length=1)


class ExpectedMessage(BaseModel):
    """A message to the user; its text is not compared."""

    model_config = ConfigDict(frozen=True)
    type: Literal["message"]
    content: str | None = None


ExpectedAction = Annotated[ExpectedToolCall | ExpectedToolCalls | ExpectedMessage, Field(discriminator="type")]


def expected_calls(action: ExpectedToolCall | ExpectedToolCalls | ExpectedMessage) -> list[ExpectedToolCall]:
    """The tool calls of an expected action; none for a message."""
    if isinstance(action, ExpectedMessage):
        return []
    return list(action.calls) if isinstance(action, ExpectedToolCalls) else [action]


class MadeCall(BaseModel):
    """A tool call of the model; its arguments as it wrote them."""

    model_config = ConfigDict(frozen=True)
    name: str
    arguments: str
