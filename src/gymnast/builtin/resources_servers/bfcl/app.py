"""Function calling as in the Berkeley Function Calling Leaderboard: the calls of one turn against possible answers."""

from __future__ import annotations

from typing import Any

from gymnast.kit import Attempt, Environment, EnvironmentSettings, JsonObject, Task, Verdict

from .matching import find_mismatch


class BfclTask(Task):
    id: str | None = None
    category: str
    """`simple`, `multiple`, `parallel`, `parallel_multiple`, `irrelevance` or `relevance`, also with `live_` before."""
    functions: list[dict[str, Any]]
    ground_truth: list[dict[str, dict[str, list[Any]]]] | None = None

    def unscorable_reason(self, params: JsonObject) -> str | None:
        if self.ground_truth or self.category.endswith("relevance"):
            return None
        return "no ground_truth: every answer gets 0"


class BfclVerdict(Verdict):
    category: str
    mismatch: str | None
    """Why the calls are not the expected ones."""


class Bfcl(Environment[BfclTask, None]):
    """Scores the tool calls of one turn; nothing is run."""

    settings: EnvironmentSettings

    async def verify(self, attempt: Attempt[BfclTask, None]) -> BfclVerdict:
        task = attempt.task
        mismatch = find_mismatch(task.category, task.functions, attempt.tool_calls, task.ground_truth or [])
        return BfclVerdict(reward=float(mismatch is None), category=task.category, mismatch=mismatch)
