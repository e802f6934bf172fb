"""The environment for NeMo RL as a Ray actor class, for configurations and registries that load a class by name.

gymnast.train.nemo_rl_actor.GymnastActor        in place of nemo_rl.environments.nemo_gym.NemoGym
"""

from __future__ import annotations

from typing import Any, Final

import ray

from gymnast.train.nemo_rl_environment import GymnastEnvironment

ACTOR_OPTIONS: Final[dict[str, Any]] = {"max_restarts": -1, "max_concurrency": 16_384}
"""NeMo RL's single controller makes a call for each prompt in flight, and health checks must not wait behind them."""

GymnastActor: Final[Any] = ray.remote(**ACTOR_OPTIONS)(GymnastEnvironment)
