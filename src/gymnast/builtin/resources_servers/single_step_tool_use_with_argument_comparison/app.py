"""The next step of a conversation: the right tool with the right arguments, or a message to the user."""

from __future__ import annotations

import itertools
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gymnast.builtin.resources_servers.single_step_tool_use_with_argument_comparison.comparison import (
    ToolCallComparatorConfig,
    mismatches,
)
from gymnast.kit import Attempt, Environment, EnvironmentSettings, Task, ToolCall, Verdict, parse_arguments


class StepRewardCategory(StrEnum):
    """Why a step has its reward. The first two are correct."""

    EXPECTED_TOOL_CALL = "expected_tool_call"
    EXPECTED_MESSAGE = "expected_message"
    WRONG_ARGUMENTS = "wrong_arguments"
    UNREADABLE_ARGUMENTS = "unreadable_arguments"
    WRONG_TOOL = "wrong_tool"
    EXTRA_TOOL_CALLS = "extra_tool_calls"
    MESSAGE_INSTEAD_OF_TOOL_CALL = "message_instead_of_tool_call"
    TOOL_CALL_INSTEAD_OF_MESSAGE = "tool_call_instead_of_message"
    NO_ACTION = "no_action"


_CORRECT = frozenset({StepRewardCategory.EXPECTED_TOOL_CALL, StepRewardCategory.EXPECTED_MESSAGE})


class ExpectedToolCall(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    type: Literal["function_call"]
    name: str
    arguments: str | dict[str, Any] = "{}"

    @field_validator("arguments")
    @classmethod
    def _is_object(cls, value: str | dict[str, Any]) -> str | dict[str, Any]:
        if isinstance(value, str) and parse_arguments(value) is None:
            raise ValueError(f"expected a JSON object, got {value[:80]!r}")
        return value

    @property
    def parsed(self) -> dict[str, Any]:
        arguments = self.arguments
        return (parse_arguments(arguments) or {}) if isinstance(arguments, str) else arguments


class ExpectedMessage(BaseModel):
    """A message to the user; its text is not compared."""

    model_config = ConfigDict(extra="allow", frozen=True)
    type: Literal["message"]


ExpectedAction = Annotated[ExpectedToolCall | ExpectedMessage, Field(discriminator="type")]


class SingleStepSettings(EnvironmentSettings):
    tool_call_comparator_config: ToolCallComparatorConfig = ToolCallComparatorConfig()


class SingleStepTask(Task):
    expected_action: ExpectedAction


class SingleStepVerdict(Verdict):
    expected_action: ExpectedAction
    category: StepRewardCategory
    mismatched_arguments: list[str]
    """Arguments of the right tool that differ, are missing or are unexpected."""


class SingleStepToolUse(Environment[SingleStepTask, None]):
    """Compares the model's next action with the expected one; no tool is ever run."""

    settings: SingleStepSettings

    async def verify(self, attempt: Attempt[SingleStepTask, None]) -> SingleStepVerdict:
        category, mismatched = self._grade(_first_turn(attempt))
        return SingleStepVerdict(
            reward=float(category in _CORRECT),
            expected_action=attempt.task.expected_action,
            category=category,
            mismatched_arguments=mismatched,
        )

    def _grade(self, attempt: Attempt[SingleStepTask, None]) -> tuple[StepRewardCategory, list[str]]:
        expected, calls = attempt.task.expected_action, attempt.tool_calls
        has_message = bool(attempt.text.strip()) and not attempt.is_incomplete
        if isinstance(expected, ExpectedToolCall) and calls:
            return _grade_calls(expected, calls, self.settings.tool_call_comparator_config)
        if isinstance(expected, ExpectedMessage) and calls:
            return StepRewardCategory.TOOL_CALL_INSTEAD_OF_MESSAGE, []
        if not has_message:
            return StepRewardCategory.NO_ACTION, []
        right = isinstance(expected, ExpectedMessage)
        unexpected = StepRewardCategory.MESSAGE_INSTEAD_OF_TOOL_CALL
        return (StepRewardCategory.EXPECTED_MESSAGE if right else unexpected), []


def _first_turn(attempt: Attempt[SingleStepTask, None]) -> Attempt[SingleStepTask, None]:
    """The model's output before the first tool output, in case the agent continued."""
    output = list(itertools.takewhile(lambda item: item.get("type") != "function_call_output", attempt.output))
    return Attempt(attempt.task, attempt.params, {**attempt.response, "output": output}, None)


def _grade_calls(
    expected: ExpectedToolCall, calls: list[ToolCall], config: ToolCallComparatorConfig
) -> tuple[StepRewardCategory, list[str]]:
    if config.allow_extra_calls:
        grades = [_grade_call(expected, call, config) for call in calls]
        return next((grade for grade in grades if grade[0] in _CORRECT), grades[0])
    if len(calls) > 1:
        return StepRewardCategory.EXTRA_TOOL_CALLS, []
    return _grade_call(expected, calls[0], config)


def _grade_call(
    expected: ExpectedToolCall, call: ToolCall, config: ToolCallComparatorConfig
) -> tuple[StepRewardCategory, list[str]]:
    if call.name != expected.name:
        return StepRewardCategory.WRONG_TOOL, []
    if call.arguments is None:
        return StepRewardCategory.UNREADABLE_ARGUMENTS, []
    wrong = mismatches(expected.name, expected.parsed, call.arguments, config)
    return (StepRewardCategory.WRONG_ARGUMENTS if wrong else StepRewardCategory.EXPECTED_TOOL_CALL), wrong
