"""An environment of the package `verifiers` as a resources server: its tasks, its agent harness, its rewards.

`verifiers_agent` asks for an episode at the rollout's own URL of the policy and then for the verdict. Without an
episode, the response is scored by the task's rewards, as far as these need no runtime.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from gymnast.hub.resources_servers.verifiers.episodes import Endpoint, Episodes, Outcome
from gymnast.kit import Attempt, Environment, EnvironmentSettings, Task, Verdict
from gymnast.types.failure import FailureDetail, Stage
from gymnast.wire.server import HttpError
from gymnast.wire.validate import InvalidBody, detail_of

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Request
    from gymnast.wire.server import Surroundings


class VerifiersSettings(EnvironmentSettings):
    env: dict[str, Any]
    """The package's own `[env]` block: `taskset: {id: …}`, and for each seat (`agent`) its `harness` and `runtime`."""
    python_path: list[str] = []
    """Folders in which tasksets are looked for, besides installed packages."""


class VerifiersTask(Task):
    task_idx: NonNegativeInt | None = None
    """The task's place in the taskset."""
    task: dict[str, Any] | None = None
    """Or its own data, as the taskset's data class reads it."""


class EpisodeRequest(BaseModel):
    """Where the policy is during one rollout."""

    model_config = ConfigDict(extra="forbid")
    base_url: str
    api_key: str
    model: str = "policy"
    sampling: dict[str, Any] = {}


@dataclass(slots=True)
class Play:
    task: Any
    outcome: Outcome | None = None


class VerifiersVerdict(Verdict):
    rewards: dict[str, float] = Field(default_factory=dict)
    metrics: dict[str, float | None] = Field(default_factory=dict)
    stop_condition: str | None = None


class VerifiersEnvironment(Environment[VerifiersTask, Play]):
    """Each rollout is an episode of the package's environment."""

    settings: VerifiersSettings

    def __init__(self, name: str, settings: VerifiersSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self._episodes: Episodes
        self.route("POST", "/run_episode", self._run_episode)

    async def start(self) -> None:
        for folder in (str(Path(__file__).parent), *self.settings.python_path):
            if folder not in sys.path:  # where tasksets live that are no installed packages
                sys.path.append(folder)
        self._episodes = await asyncio.to_thread(Episodes, self.settings.env)
        await self._episodes.open()
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self._episodes.close()

    async def open(self, task: VerifiersTask) -> Play:
        try:
            return Play(await asyncio.to_thread(self._episodes.task, task.task, task.task_idx))
        except ValueError as error:
            detail = {"type": "value_error", "loc": ["body", "task_idx"], "msg": str(error), "input": task.task_idx}
            raise InvalidBody([detail]) from error

    async def verify(self, attempt: Attempt[VerifiersTask, Play]) -> VerifiersVerdict:
        play = attempt.session
        outcome = play.outcome
        if outcome is None:
            given = attempt.params["input"]
            asked = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
            outcome = await self._episodes.score(play.task, [*asked, *attempt.output])
        return VerifiersVerdict(
            reward=outcome.reward,
            rewards=outcome.rewards,
            metrics=dict(outcome.metrics),
            stop_condition=outcome.stop_condition,
        )

    async def _run_episode(self, request: Request) -> JsonObject:
        try:
            asked = EpisodeRequest.model_validate(request.body)
        except ValidationError as error:
            raise InvalidBody(detail_of(error)) from error
        with self.missing_session_is_a_failure(request):
            async with self.sessions.use(request.session_id, exclusive=True) as play:
                endpoint = Endpoint(asked.base_url, asked.api_key, asked.model)
                outcome = await self._episodes.run(play.task, endpoint, asked.sampling)
                if outcome.errors:
                    raise self._failed(outcome)
                play.outcome = outcome
        return asdict(outcome)

    def _failed(self, outcome: Outcome) -> HttpError:
        text = f"the episode failed: {'; '.join(outcome.errors[-3:])}"
        detail = FailureDetail("agent_error", Stage.AGENT, text, instance=self.name, status=500)
        return HttpError(500, text, failure=detail)
