"""An environment of the package `verifiers` as a resources server: its tasks, its agent harness, its rewards.

`verifiers_agent` starts an episode at the rollout's own URL of the policy and then asks for the verdict. Without an
episode, the response is scored by those rewards of the task that need no runtime.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    FailureDetail,
    FailureKind,
    HttpError,
    InvalidBody,
    JsonObject,
    Request,
    ServerContext,
    Stage,
    Task,
    Verdict,
    error_detail,
)

from .episodes import Endpoint, Episodes, Outcome


class VerifiersSettings(EnvironmentSettings):
    env: dict[str, Any]
    """The package's `[env]` block: `taskset: {id: …}`, and the `harness` and `runtime` of each seat (`agent`)."""
    python_path: list[str] = []
    """Folders to search for tasksets, in addition to installed packages."""


class VerifiersTask(Task):
    task_idx: NonNegativeInt | None = None
    """The index of the task in the taskset."""
    task: dict[str, Any] | None = None
    """Or its data, as the taskset's data class reads it."""


class EpisodeRequest(BaseModel):
    """The policy's endpoint during one rollout."""

    model_config = ConfigDict(extra="forbid")
    base_url: str
    api_key: str
    model: str = "policy"
    sampling: dict[str, Any] = {}


@dataclass(slots=True)
class EpisodeState:
    task: Any
    outcome: Outcome | None = None


class VerifiersVerdict(Verdict):
    rewards: dict[str, float] = Field(default_factory=dict)
    metrics: dict[str, float | None] = Field(default_factory=dict)
    stop_condition: str | None = None


class VerifiersEnvironment(Environment[VerifiersTask, EpisodeState]):
    """Each rollout is an episode of the package's environment."""

    settings: VerifiersSettings

    def __init__(self, name: str, settings: VerifiersSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._episodes: Episodes
        self.route("POST", "/run_episode", self._run_episode)

    async def start(self) -> None:
        for folder in (str(Path(__file__).parent), *self.settings.python_path):
            if folder not in sys.path:  # for tasksets that are not installed packages
                sys.path.append(folder)
        self._episodes = await asyncio.to_thread(Episodes, self.settings.env)
        await self._episodes.open()
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self._episodes.close()

    async def open(self, task: VerifiersTask) -> EpisodeState:
        try:
            return EpisodeState(await asyncio.to_thread(self._episodes.task, task.task, task.task_idx))
        except ValueError as error:
            raise InvalidBody.of_field(str(error), "task_idx", value=task.task_idx) from error

    async def verify(self, attempt: Attempt[VerifiersTask, EpisodeState]) -> VerifiersVerdict:
        state = attempt.session
        outcome = state.outcome
        if outcome is None:
            value = attempt.params["input"]
            prompt = [{"role": "user", "content": value}] if isinstance(value, str) else list(value)
            outcome = await self._episodes.score(state.task, [*prompt, *attempt.output])
        return VerifiersVerdict(
            reward=outcome.reward,
            rewards=outcome.rewards,
            metrics=dict(outcome.metrics),
            stop_condition=outcome.stop_condition,
        )

    async def _run_episode(self, request: Request) -> JsonObject:
        try:
            options = EpisodeRequest.model_validate(request.body)
        except ValidationError as error:
            raise InvalidBody(error_detail(error)) from error
        with self.fail_without_session(request):
            async with self.sessions.use(request.session_id, exclusive=True) as state:
                endpoint = Endpoint(options.base_url, options.api_key, options.model)
                outcome = await self._episodes.run(state.task, endpoint, options.sampling)
                if outcome.errors:
                    raise self._make_failure(outcome)
                state.outcome = outcome
        return asdict(outcome)

    def _make_failure(self, outcome: Outcome) -> HttpError:
        text = f"the episode failed: {'; '.join(outcome.errors[-3:])}"
        detail = FailureDetail(FailureKind.AGENT_ERROR, Stage.AGENT, text, instance=self.name, status=500)
        return HttpError(500, text, failure=detail)
