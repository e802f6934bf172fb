"""Tasks of shipped environments, and what the replica answers to them: verifier cases in every second rollout.

So groups have a signal although the model is random. The other rollouts give up in their first turn.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from gymnast.checks.conformance.subject import turns_of
from gymnast.types.responses import message_text
from tests.helpers.mixed_policy import playable

GIVE_UP: Final = "I do not know."
DONE: Final = "Done."
_ASSISTANT: Final = "<|im_start|>assistant"


@dataclass(frozen=True)
class Episode:
    """The turns of one task that solve it."""

    mark: str
    """The text in the prompt that tells the task from others."""
    turns: list[str]
    earlier_turns: int
    """Turns of an assistant in the row itself."""


class Script:
    """Chooses the next turn of a conversation from its prompt."""

    def __init__(self, path: Path) -> None:
        self._episodes = [Episode(**entry) for entry in json.loads(path.read_text())]
        self._started: dict[str, int] = {}

    def next_turn(self, prompt: str) -> str:
        episode = next(episode for episode in self._episodes if episode.mark in prompt)
        turn = prompt.count(_ASSISTANT) - 1 - episode.earlier_turns
        if turn == 0:
            started = self._started[episode.mark] = self._started.get(episode.mark, 0) + 1
            if started % 2 == 0:
                return GIVE_UP
        return episode.turns[turn] if turn < len(episode.turns) else DONE


def write_tasks(path: Path, environments: list[str], count: int, *, name: str) -> list[Episode]:
    """Write rows of the environments, in turn, and return their episodes."""
    cases = {environment: cycle(_solved(environment)) for environment in environments}
    rows, episodes = [], []
    for number, environment in enumerate(islice(cycle(environments), count)):
        row, episode = _task(next(cases[environment]), f"({name} {number})")
        rows.append(row if len(environments) == 1 else {**row, "agent_ref": {"name": f"{environment}_simple_agent"}})
        episodes.append(episode)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return episodes


def write_script(path: Path, episodes: list[Episode]) -> None:
    path.write_text(json.dumps([asdict(episode) for episode in episodes]))


def _solved(environment: str) -> list[dict[str, Any]]:
    found = [case for name, case in playable().values() if name == f"{environment}/{environment}"]
    return [case for case in found if case["expected_reward"] > 0]


def _task(case: dict[str, Any], mark: str) -> tuple[dict[str, Any], Episode]:
    row = {key: value for key, value in case["request"].items() if key != "response"}
    params = dict(row["responses_create_params"])
    items = params["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    params["input"] = [{**items[0], "content": f"{mark} {message_text(items[0])}"}, *items[1:]]
    earlier = sum(item.get("role") == "assistant" for item in items)
    turns = [_text_of(turn["output"]) for turn in turns_of(case["request"]["response"])]
    return {**row, "responses_create_params": params}, Episode(mark, turns, earlier)


def _text_of(items: list[dict[str, Any]]) -> str:
    """A turn as the model would write it."""
    texts = [message_text(item) for item in items if item["type"] == "message"]
    calls = [
        json.dumps({"name": item["name"], "arguments": json.loads(item["arguments"])})
        for item in items
        if item["type"] == "function_call"
    ]
    return "\n".join([*texts, *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)])
