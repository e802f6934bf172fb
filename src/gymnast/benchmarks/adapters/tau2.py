"""τ²-bench: tasks with the domain's policy as system prompt, the user's scenario, and the path of the database."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.types.json import JsonObject

_PROMPT: Final = (
    "You work at a customer service desk. Help the user and keep to the policy below. In each turn either write to the"
    " user or call a tool, not both.\n\n{policy}"
)


def read_rows(files: Mapping[str, Path]) -> Iterator[JsonObject]:
    by_name = {PurePosixPath(name).name: path for name, path in files.items()}
    policy = _PROMPT.format(policy=by_name["policy.md"].read_text(encoding="utf-8").strip())
    for task in json.loads(by_name["tasks.json"].read_bytes()):
        yield make_task(task, policy, by_name["db.json"])


def make_task(task: JsonObject, policy: str, database: Path) -> JsonObject:
    """A task of the environment `tau2`."""
    criteria = task["evaluation_criteria"]
    return {
        "responses_create_params": {"input": [{"role": "system", "content": policy}]},
        "id": task["id"],
        "user": _scenario(task["user_scenario"]),
        "evaluation_criteria": {
            "actions": [_action(action) for action in criteria.get("actions") or ()],
            "communicate_info": criteria.get("communicate_info") or [],
            "reward_basis": criteria.get("reward_basis") or ["DB", "COMMUNICATE"],
        },
        "database": str(database.absolute()),
    }


def _action(action: JsonObject) -> JsonObject:
    if action.get("requestor") not in {None, "assistant"}:
        raise ValueError(
            f"the action {action.get('action_id')} belongs to the user: only users without tools are supported"
        )
    return {"name": action["name"], "arguments": action["arguments"]}


def _scenario(scenario: JsonObject) -> JsonObject:
    instructions: Any = scenario["instructions"]
    if isinstance(instructions, str):
        return {"persona": scenario.get("persona"), "goal": instructions}
    return {
        "persona": scenario.get("persona"),
        "goal": instructions["reason_for_call"],
        "instructions": instructions.get("task_instructions"),
        "known_info": instructions.get("known_info"),
        "unknown_info": instructions.get("unknown_info"),
    }
