"""Look up a value for each of several words, then submit all values in the right order."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from gymnast.kit import Attempt, Environment, EnvironmentSettings, ScoringSettings, Task, Verdict, tool

_INTEGERS: Final = TypeAdapter(list[int])


class MultiStepSettings(ScoringSettings, EnvironmentSettings):
    pass


class MultiStepTask(Task):
    id: int
    expected_synonym_values: list[int]
    expected_synonyms: list[str]
    minefield_label: str
    minefield_label_value: int


class SynonymValue(BaseModel):
    synonym_value: int


class HandedIn(BaseModel):
    success: bool


class MultiStepVerdict(Verdict):
    parsed_synonym_values: list[int]
    accuracy: bool
    set_overlap: float
    original_term_minefield_hit: bool
    order_instruction_following_failure: bool


class ExampleMultiStep(Environment[MultiStepTask, None]):
    """Two stateless tools; scored by the last submitted values."""

    settings: MultiStepSettings
    parallel_tools = True

    @tool
    async def get_synonym_value(self, synonym: str) -> SynonymValue:
        """Get the value of a synonym.

        Args:
            synonym: The synonym to look up.
        """
        return SynonymValue(synonym_value=sum(map(ord, synonym)))

    @tool
    async def extract_synonym_values(self, synonym_values: list[int]) -> HandedIn:
        """Hand in the values of the synonyms, in the order in which the synonyms were given.

        Args:
            synonym_values: The values, one for each synonym.
        """
        return HandedIn(success=True)

    async def verify(self, attempt: Attempt[MultiStepTask, None]) -> MultiStepVerdict:
        is_strict = self.settings.scoring == "strict"
        return _verdict_strict(attempt) if is_strict else _verdict(attempt)


def _verdict(attempt: Attempt[MultiStepTask, None]) -> MultiStepVerdict:
    """NeMo Gym's rules: 2.0 equals 2, numbers in quotation marks are read and not equal, repeats count once."""
    task = attempt.task
    expected, (values, numbers) = task.expected_synonym_values, _last_values(attempt)
    accurate = values == expected
    overlap = len(set(values) & set(expected)) / len(expected) if expected else float(not values)
    return MultiStepVerdict(
        reward=float(accurate),
        parsed_synonym_values=numbers,
        accuracy=accurate,
        set_overlap=overlap,
        original_term_minefield_hit=task.minefield_label in values or task.minefield_label_value in values,
        order_instruction_following_failure=not accurate and overlap == 1.0,
    )


def _last_values(attempt: Attempt[MultiStepTask, None]) -> tuple[list[Any], list[int]]:
    """The values of the last submission as they are and as integers; none if they cannot be read as such."""
    calls = (item for item in reversed(attempt.output) if item.get("type") == "function_call")
    last = next((item for item in calls if item["name"] == "extract_synonym_values"), None)
    try:
        values = json.loads(last["arguments"])["synonym_values"] if last else []
        return values, _INTEGERS.validate_python(values)
    except (ValidationError, ValueError, TypeError, KeyError, RecursionError):
        return [], []


def _verdict_strict(attempt: Attempt[MultiStepTask, None]) -> MultiStepVerdict:
    task = attempt.task
    expected, actual = task.expected_synonym_values, _submitted_integers(attempt)
    accurate = actual == expected
    expected_set, actual_set = set(expected), set(actual)
    return MultiStepVerdict(
        reward=float(accurate),
        parsed_synonym_values=actual,
        accuracy=accurate,
        set_overlap=len(expected_set & actual_set) / len(expected_set) if expected_set else float(not actual_set),
        original_term_minefield_hit=task.minefield_label_value in actual_set - expected_set,
        order_instruction_following_failure=not accurate and sorted(actual) == sorted(expected),
    )


def _submitted_integers(attempt: Attempt[MultiStepTask, None]) -> list[int]:
    for call in reversed(attempt.tool_calls):
        if call.name == "extract_synonym_values" and call.arguments is not None:
            values = call.arguments.get("synonym_values")
            if isinstance(values, list):
                return [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    return []
