"""Scoring without NeMo Gym's oddities: typed arguments, only offered tools count, references that can be read."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator

from gymnast.kit import InvalidBody, JsonObject, Tool, parse_arguments

from .comparison import Comparison, Problem
from .office import Office
from .scoring import Call, differences, replay
from .tables import OfficeData


class ReferenceCall(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    name: str
    arguments: dict[str, Any] = {}

    @field_validator("arguments", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value or {}
        parsed = parse_arguments(value)
        if parsed is None:
            raise ValueError(f"expected a JSON object, got {value[:80]!r}")
        return parsed


_CALLS: TypeAdapter[list[ReferenceCall]] = TypeAdapter(list[ReferenceCall])


class StrictRules:
    """What `scoring: strict` does with an office."""

    def __init__(self, office_data: OfficeData, tools: Mapping[str, Tool], *, any_order: bool) -> None:
        self.office_data = office_data
        self.tools = tools
        self.any_order = any_order

    def open(self) -> Office:
        return Office(self.office_data)

    async def replay_reference(self, ground_truth: Sequence[JsonObject] | str) -> tuple[Office, list[Problem]]:
        """The office after the reference calls, and the calls that fail."""
        calls = [(call.name, call.arguments) for call in _read_calls(ground_truth)]
        done = await replay(self.tools, calls, self.office_data)
        unknown = [(n, f"unknown tool '{name}'") for n, (name, _) in enumerate(calls) if name not in self.tools]
        return done.office, done.rejected + unknown

    async def compare(self, expected: Office, output: Sequence[JsonObject], offered: Collection[Any]) -> Comparison:
        """The tables that differ after the model's calls."""
        done = await replay(self.tools, _calls_made(output, offered), self.office_data)
        await asyncio.sleep(0)
        return Comparison(differences(expected, done.office, any_order=self.any_order), len(done.rejected))


def _calls_made(output: Sequence[JsonObject], offered: Collection[Any]) -> Iterator[Call]:
    """The model's calls, parsed lazily, because a model may make thousands.

    Calls of tools that the row does not offer never reached the office and are left out.
    """
    for item in output:
        if item.get("type") == "function_call" and (not offered or item["name"] in offered):
            yield str(item["name"]), parse_arguments(str(item["arguments"]))


def _read_calls(ground_truth: Sequence[JsonObject] | str) -> list[ReferenceCall]:
    try:
        value = _parse_list(ground_truth) if isinstance(ground_truth, str) else ground_truth
        return _CALLS.validate_python(value)
    except ValidationError as error:
        loc, message = error.errors()[0]["loc"], error.errors()[0]["msg"]
        raise InvalidBody.of_field(message, "ground_truth", *loc) from error
    except ValueError as error:
        raise InvalidBody.of_field(str(error), "ground_truth") from error


def _parse_list(text: str) -> Any:
    """Parse a list that was stored as text, as JSON or as a Python literal."""
    if not text.strip():
        return []
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError("ground_truth must be a list, or the text of one") from error
