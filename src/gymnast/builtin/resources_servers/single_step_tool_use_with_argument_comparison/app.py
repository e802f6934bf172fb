"""The next step of a conversation: the right tool with the right arguments, or a message to the user."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    JsonObject,
    ScoringSettings,
    Task,
    Verdict,
    parse_arguments,
)

from .actions import ExpectedAction, ExpectedMessage, ExpectedToolCall, MadeCall, StepRewardCategory, expected_calls
from .matching import match_calls
from .nemo_gym_rules import compare_calls
from .strict_rules import ToolCallComparatorConfig, mismatches

Grade = tuple[float, StepRewardCategory, list[str]]
"""Reward, category, and the arguments that differ (under strict scoring)."""


class SingleStepSettings(ScoringSettings, EnvironmentSettings):
    tool_call_comparator_config: ToolCallComparatorConfig = ToolCallComparatorConfig()


class SingleStepTask(Task):
    expected_action: ExpectedAction

    def unscorable_reason(self, params: JsonObject) -> str | None:
        offered = {tool.get("name") for tool in params.get("tools") or () if isinstance(tool, dict)}
        missing = sorted({call.name for call in expected_calls(self.expected_action)} - offered)
        return f"expects a call of '{missing[0]}', which its tools do not have" if missing else None


class SingleStepVerdict(Verdict):
    expected_action: ExpectedAction
    category: StepRewardCategory
    mismatched_arguments: list[str]
    """Arguments of the right tool that differ, are missing or are unexpected."""


class SingleStepToolUse(Environment[SingleStepTask, None]):
    """Compares the model's next action with the expected one; no tool is ever run."""

    settings: SingleStepSettings

    def parse_task(self, row: JsonObject) -> SingleStepTask:
        task = super().parse_task(row)
        if self.settings.scoring == "strict":
            for call in expected_calls(task.expected_action):
                _ = call.parsed  # refuses the row
        return task

    async def verify(self, attempt: Attempt[SingleStepTask, None]) -> SingleStepVerdict:
        is_strict = self.settings.scoring == "strict"
        reward, category, mismatched = self._grade_strictly(attempt) if is_strict else self._grade(attempt)
        return SingleStepVerdict(
            reward=reward,
            expected_action=attempt.task.expected_action,
            category=category,
            mismatched_arguments=mismatched,
        )

    def _grade(self, attempt: Attempt[SingleStepTask, None]) -> Grade:
        expected, made = attempt.task.expected_action, _calls(attempt.output)
        if made and isinstance(expected, ExpectedMessage):
            return 0.0, StepRewardCategory.NO_EXPECTED_CHAT_MESSAGE, []
        if made:
            config = self.settings.tool_call_comparator_config
            return *compare_calls(expected_calls(expected), made, config), []
        if not any(_has_text(item) for item in attempt.output):
            return 0.0, StepRewardCategory.NO_ACTION_FOUND, []
        return _grade_message(expected)

    def _grade_strictly(self, attempt: Attempt[SingleStepTask, None]) -> Grade:
        attempt = _first_turn(attempt)
        expected, made = attempt.task.expected_action, _calls(attempt.output)
        if made and isinstance(expected, ExpectedMessage):
            return 0.0, StepRewardCategory.NO_EXPECTED_CHAT_MESSAGE, []
        if made:
            return _grade_calls(expected_calls(expected), made, self.settings.tool_call_comparator_config)
        if not attempt.text.strip() or attempt.is_incomplete:
            return 0.0, StepRewardCategory.NO_ACTION_FOUND, []
        return _grade_message(expected)


def _calls(output: list[JsonObject]) -> list[MadeCall]:
    calls = (item for item in output if item.get("type") == "function_call")
    return [MadeCall(name=item["name"], arguments=item["arguments"]) for item in calls]


def _has_text(item: JsonObject) -> bool:
    """Whether an item is an assistant message with a part that is text, be it empty, or that is itself a text."""
    if item.get("type", "message") != "message" or item.get("role") != "assistant":
        return False
    content = item["content"]
    return bool(content) and (isinstance(content, str) or any(part.get("type") == "output_text" for part in content))


def _grade_message(expected: ExpectedAction) -> Grade:
    if isinstance(expected, ExpectedMessage):
        return 1.0, StepRewardCategory.EXPECTED_CHAT_MESSAGE_FOUND, []
    return 0.0, StepRewardCategory.NO_EXPECTED_TOOL_CALL, []


def _first_turn(attempt: Attempt[SingleStepTask, None]) -> Attempt[SingleStepTask, None]:
    """The model's output before the first tool output, in case the agent continued."""
    output = list(itertools.takewhile(lambda item: item.get("type") != "function_call_output", attempt.output))
    return Attempt(attempt.task, attempt.params, {**attempt.response, "output": output}, None)


def _grade_calls(
    expected: Sequence[ExpectedToolCall], made: Sequence[MadeCall], config: ToolCallComparatorConfig
) -> Grade:
    """Every expected call must be made, in any order, and no other unless extra calls are allowed."""
    if len(made) < len(expected) or (len(made) > len(expected) and not config.allow_extra_calls):
        return 0.0, StepRewardCategory.FUNCTION_CALL_BATCH_LENGTH_DIFFERENT, []
    grades = [[_grade_call(wanted, call, config) for call in made] for wanted in expected]
    partners = match_calls([[number for number, (category, _) in enumerate(row) if category is None] for row in grades])
    if len(partners) == len(expected):
        is_batch = len(expected) > 1
        right = StepRewardCategory.EXPECTED_TOOL_CALL_BATCH if is_batch else StepRewardCategory.EXPECTED_TOOL_CALL
        return 1.0, right, []
    alone = next(number for number in range(len(expected)) if number not in partners.values())
    failures = [(category, wrong) for category, wrong in grades[alone] if category is not None]
    category, wrong = next((one for one in failures if one[0] != StepRewardCategory.UNEXPECTED_TOOL), failures[0])
    return 0.0, category, wrong


def _grade_call(
    expected: ExpectedToolCall, call: MadeCall, config: ToolCallComparatorConfig
) -> tuple[StepRewardCategory | None, list[str]]:
    if call.name != expected.name:
        return StepRewardCategory.UNEXPECTED_TOOL, []
    arguments, wanted = parse_arguments(call.arguments), expected.parsed
    if arguments is None or not isinstance(wanted, dict):
        return StepRewardCategory.ARGUMENTS_DECODE_ERROR, []
    wrong = mismatches(expected.name, wanted, arguments, config)
    return (StepRewardCategory.ARGUMENT_VALUE_DIFFERENT if wrong else None), wrong
