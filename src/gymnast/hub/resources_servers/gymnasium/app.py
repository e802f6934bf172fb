"""Any Gymnasium environment as a conversation: observations in words, actions read from the model's turns."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field, PositiveInt

from gymnast.errors import UserError
from gymnast.hub.resources_servers.gymnasium.actions import NoAction
from gymnast.hub.resources_servers.gymnasium.games import Words, action_of, observation_text, plain, words_of
from gymnast.kit import Attempt, EnvironmentSettings, Step, StepEnvironment, Task
from gymnast.types.failure import bounded
from gymnast.wire.validate import InvalidBody

if TYPE_CHECKING:
    from gymnast.wire.server import Surroundings


class GymnasiumSettings(EnvironmentSettings):
    env_id: str | None = None
    """The id that Gymnasium knows it by, e.g. Blackjack-v1; `module:Id-v0` imports the module first. Rows may name
    another one, without a module."""
    env_kwargs: dict[str, Any] = {}
    reward_scale: float = 1.0
    """Every reward of the environment is multiplied by this."""
    invalid_action_reward: float = 0.0
    """The reward of a turn without an action of the environment."""
    max_invalid_actions: PositiveInt = 3
    """As many turns without an action end the episode."""


class GymnasiumTask(Task):
    env_id: str | None = Field(default=None, pattern=r"^[\w./-]{1,100}$")
    env_kwargs: dict[str, Any] = {}
    """Laid over the settings' ones."""
    seed: int | None = Field(default=None, ge=0)
    """Where the episode begins. Without it, the same for the same prompt and task index."""
    responses_create_params: Any = None
    task_index: int | None = Field(default=None, alias="_ng_task_index")


@dataclass(slots=True)
class Episode:
    env: Any
    words: Words
    invalid: int = 0


class GymnasiumEnvironment(StepEnvironment[GymnasiumTask, Episode]):
    """Each rollout is an episode. What an environment computes, it computes in a thread."""

    settings: GymnasiumSettings

    def __init__(self, name: str, settings: GymnasiumSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self._library = _gymnasium()

    async def reset(self, task: GymnasiumTask) -> tuple[Episode, str | None]:
        return await asyncio.to_thread(self._begin, task)

    async def step(self, turn: Attempt[GymnasiumTask, Episode]) -> Step:
        return await asyncio.to_thread(self._take, turn.session, turn.last_text)

    async def close(self, session: Episode) -> None:
        await asyncio.to_thread(session.env.close)

    def _begin(self, task: GymnasiumTask) -> tuple[Episode, str]:
        env_id = task.env_id or self.settings.env_id
        if env_id is None:
            raise InvalidBody([{"type": "missing", "loc": ["body", "env_id"], "msg": "Field required", "input": None}])
        try:
            env = self._library.make(env_id, **{**self.settings.env_kwargs, **task.env_kwargs})
            observation, _ = env.reset(seed=_seed(task))
        except Exception as error:
            # Whatever an environment makes of a row's id and arguments, it is the row that does not fit.
            message = f"{env_id} cannot be made: {type(error).__name__}: {bounded(str(error), 300)}"
            raise InvalidBody(
                [{"type": "value_error", "loc": ["body", "env_id"], "msg": message, "input": env_id}]
            ) from error
        words = words_of(env_id)
        return Episode(env, words), observation_text(words, env, observation)

    def _take(self, episode: Episode, text: str) -> Step:
        try:
            action = action_of(episode.words, episode.env.action_space, text)
        except NoAction as refusal:
            episode.invalid += 1
            over = episode.invalid >= self.settings.max_invalid_actions
            return Step(observation=str(refusal), reward=self.settings.invalid_action_reward, truncated=over)
        observation, reward, terminated, truncated, _ = episode.env.step(action)
        return Step(
            observation=observation_text(episode.words, episode.env, observation),
            reward=float(reward) * self.settings.reward_scale,
            terminated=bool(terminated),
            truncated=bool(truncated),
            info={"action": plain(action)},
        )


def _seed(task: GymnasiumTask) -> int:
    if task.seed is not None:
        return task.seed
    said = [task.responses_create_params, task.task_index]
    return int.from_bytes(hashlib.sha256(orjson.dumps(said)).digest()[:4])


def _gymnasium() -> ModuleType:
    try:
        import gymnasium  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UserError(
            "this environment needs the package gymnasium", next="pip install 'gymnast[gymnasium]'"
        ) from error
    return gymnasium
