"""Any Gymnasium environment as a conversation: observations as text, actions parsed from the model's turns."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import orjson
from pydantic import Field, PositiveInt

from gymnast.kit import (
    Attempt,
    EnvironmentSettings,
    InvalidBody,
    ServerContext,
    Step,
    StepEnvironment,
    Task,
    UserError,
    bounded,
)

from .actions import NoAction
from .games import GameText, game_text_for, observation_text, parse_action, to_plain


class GymnasiumSettings(EnvironmentSettings):
    env_id: str | None = None
    """Gymnasium's id of the environment, e.g. Blackjack-v1; `module:Id-v0` imports the module first. Rows may override
    it, without a module."""
    env_kwargs: dict[str, Any] = {}
    reward_scale: float = 1.0
    """A factor for every reward of the environment."""
    invalid_action_reward: float = 0.0
    """The reward of a turn without a valid action."""
    max_invalid_actions: PositiveInt = 3
    """The episode ends after this many turns without a valid action."""


class GymnasiumTask(Task):
    env_id: str | None = Field(default=None, pattern=r"^[\w./-]{1,100}$")
    env_kwargs: dict[str, Any] = {}
    """Override those of the settings."""
    seed: int | None = Field(default=None, ge=0)
    """The seed of the episode. By default derived from the prompt and the task index."""
    responses_create_params: Any = None
    task_index: int | None = Field(default=None, alias="_ng_task_index")


@dataclass(slots=True)
class Episode:
    env: Any
    game_text: GameText
    invalid: int = 0


class GymnasiumEnvironment(StepEnvironment[GymnasiumTask, Episode]):
    """Each rollout is an episode. Environments compute in a thread."""

    settings: GymnasiumSettings

    def __init__(self, name: str, settings: GymnasiumSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._library = _gymnasium()

    async def reset(self, task: GymnasiumTask) -> tuple[Episode, str | None]:
        return await asyncio.to_thread(self._start_episode, task)

    async def step(self, turn: Attempt[GymnasiumTask, Episode]) -> Step:
        return await asyncio.to_thread(self._apply, turn.session, turn.last_text)

    async def close(self, session: Episode) -> None:
        await asyncio.to_thread(session.env.close)

    def _start_episode(self, task: GymnasiumTask) -> tuple[Episode, str]:
        env_id = task.env_id or self.settings.env_id
        if env_id is None:
            raise InvalidBody([{"type": "missing", "loc": ["body", "env_id"], "msg": "Field required", "input": None}])
        try:
            env = self._library.make(env_id, **{**self.settings.env_kwargs, **task.env_kwargs})
            observation, _ = env.reset(seed=_seed(task))
        except Exception as error:
            # Whatever an environment raises for a row's id and arguments, the row is at fault.
            message = f"cannot create {env_id}: {type(error).__name__}: {bounded(str(error), 300)}"
            raise InvalidBody.of_field(message, "env_id", value=env_id) from error
        game_text = game_text_for(env_id)
        return Episode(env, game_text), observation_text(game_text, env, observation)

    def _apply(self, episode: Episode, text: str) -> Step:
        try:
            action = parse_action(episode.game_text, episode.env.action_space, text)
        except NoAction as refusal:
            episode.invalid += 1
            over = episode.invalid >= self.settings.max_invalid_actions
            return Step(observation=str(refusal), reward=self.settings.invalid_action_reward, truncated=over)
        observation, reward, terminated, truncated, _ = episode.env.step(action)
        return Step(
            observation=observation_text(episode.game_text, episode.env, observation),
            reward=float(reward) * self.settings.reward_scale,
            terminated=bool(terminated),
            truncated=bool(truncated),
            info={"action": to_plain(action)},
        )


def _seed(task: GymnasiumTask) -> int:
    if task.seed is not None:
        return task.seed
    identity = [task.responses_create_params, task.task_index]
    return int.from_bytes(hashlib.sha256(orjson.dumps(identity)).digest()[:4])


def _gymnasium() -> ModuleType:
    try:
        import gymnasium  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UserError(
            "this environment needs the package gymnasium", next="pip install 'gymnast[gymnasium]'"
        ) from error
    return gymnasium
