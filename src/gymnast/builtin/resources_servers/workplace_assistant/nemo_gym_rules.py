"""Scoring as NeMo Gym's environment of the same name does it: all calls are replayed, and all tables must be equal.

A reference stored as text has no calls there, and a call that cannot be made is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gymnast.builtin.resources_servers.workplace_assistant.comparison import Comparison, Problem
from gymnast.builtin.resources_servers.workplace_assistant.nemo_gym_office import (
    NeMoGymOffice,
    make_frames,
    replay_all,
    table_differences,
)
from gymnast.builtin.resources_servers.workplace_assistant.office_data import OfficeData
from gymnast.kit import JsonObject


class NeMoGymRules:
    """What `scoring: nemo_gym` does with an office."""

    def __init__(self, office_data: OfficeData) -> None:
        self.shared = make_frames(office_data)

    def open(self) -> NeMoGymOffice:
        return NeMoGymOffice(self.shared)

    async def replay_reference(self, ground_truth: Sequence[JsonObject] | str) -> tuple[NeMoGymOffice, list[Problem]]:
        """The office after the reference calls, and the calls that fail."""
        calls = [] if isinstance(ground_truth, str) else [*map(_reference_call, ground_truth)]
        return await replay_all(self.shared, calls)

    async def compare(self, expected: NeMoGymOffice, output: Sequence[JsonObject], _: Collection[Any]) -> Comparison:
        """The tables that differ after the model's calls."""
        office, failed = await replay_all(self.shared, _calls_made(output))
        return Comparison(table_differences(expected, office), len(failed))


def _calls_made(output: Sequence[JsonObject]) -> Iterator[tuple[str, str]]:
    for item in output:
        if item.get("type") == "function_call":
            yield str(item["name"]), str(item["arguments"])


def _reference_call(call: JsonObject) -> tuple[str, str]:
    arguments = call.get("arguments", "")
    return str(call.get("name", "")), arguments if isinstance(arguments, str) else json.dumps(arguments)
