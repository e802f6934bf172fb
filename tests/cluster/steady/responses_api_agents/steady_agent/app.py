"""An agent whose answers depend on nothing but the row: records of two runs are equal, byte for byte.

It takes as long as its settings say, differently for each rollout. A row with `fails` fails for good.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gymnast.errors import CallError
from gymnast.kit import Agent, AgentSettings
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Scope


class SteadyAgentSettings(AgentSettings):
    mean_s: float = 0.05
    """How long a rollout takes on average."""
    held_by: Path | None = None
    """A file: while it exists, rollouts do not end."""
    held_from: int = 0
    """The first task that is held."""


class SteadyAgent(Agent):
    """Waits and answers."""

    settings: SteadyAgentSettings

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        key = f"{row[TASK_INDEX]}/{row[ROLLOUT_INDEX]}"
        chance = random.Random(key)
        await asyncio.sleep(chance.expovariate(1 / self.settings.mean_s))
        is_held = self.settings.held_by is not None and row[TASK_INDEX] >= self.settings.held_from
        while is_held and self.settings.held_by is not None and self.settings.held_by.exists():
            await asyncio.sleep(0.1)
        if row.get("fails"):
            raise CallError(FailureDetail(FailureKind.AGENT_REJECTED, Stage.AGENT, f"{key} is a row that fails"))
        part = {"type": "output_text", "text": f"answer {key}", "annotations": []}
        said = {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [part]}
        return {**row, "response": _response(said), "reward": float(chance.random() < 0.5)}

    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        return _response()

    async def aggregate_metrics(self, body: JsonObject) -> JsonObject:
        return {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}


def _response(*output: JsonObject) -> Response:
    whole = {
        "id": "r",
        "created_at": 1.0,
        "model": "steady",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": list(output),
    }
    return cast("Response", whole)
