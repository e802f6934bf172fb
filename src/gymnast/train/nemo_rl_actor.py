"""The environment for NeMo RL as a Ray actor class, for configurations and registries that load a class by name.

gymnast.train.nemo_rl_actor.GymnastActor        in place of nemo_rl.environments.nemo_gym.NemoGym
"""

from __future__ import annotations

from typing import Any, Final

import ray

from gymnast.train.nemo_rl_environment import GymnastEnvironment

GymnastActor: Final[Any] = ray.remote(max_restarts=-1, max_concurrency=16)(GymnastEnvironment)
