"""Look up a value for each of several words, then submit all values in the right order."""

from __future__ import annotations

from pydantic import BaseModel

from gymnast.kit import Attempt, Environment, Task, Verdict, tool


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
        task = attempt.task
        expected, actual = task.expected_synonym_values, _handed_in(attempt)
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


def _handed_in(attempt: Attempt[MultiStepTask, None]) -> list[int]:
    for call in reversed(attempt.tool_calls):
        if call.name == "extract_synonym_values" and call.arguments is not None:
            values = call.arguments.get("synonym_values")
            if isinstance(values, list):
                return [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    return []
