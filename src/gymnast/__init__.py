"""Gymnast: rollouts of language-model agents in RL environments, collected without losing one.

Importing this package starts nothing, patches nothing and loads no heavy library: the names below load when used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymnast.authoring.check import check_environment
    from gymnast.cluster.pipeline import nemo_gym_rollouts
    from gymnast.cluster.pipeline_options import wrap_arguments
    from gymnast.cluster.run_cmd import run_cmd
    from gymnast.errors import GymnastError, MissingRolloutsError, UserError
    from gymnast.rollouts.collector import Collector
    from gymnast.rollouts.library import collect
    from gymnast.rollouts.record import Record

__version__ = "0.1.0"

__all__ = [
    "Collector",
    "GymnastError",
    "MissingRolloutsError",
    "Record",
    "UserError",
    "check_environment",
    "collect",
    "nemo_gym_rollouts",
    "run_cmd",
    "wrap_arguments",
]

_HOMES = {
    "Collector": "gymnast.rollouts.collector",
    "GymnastError": "gymnast.errors",
    "MissingRolloutsError": "gymnast.errors",
    "Record": "gymnast.rollouts.record",
    "UserError": "gymnast.errors",
    "check_environment": "gymnast.authoring.check",
    "collect": "gymnast.rollouts.library",
    "nemo_gym_rollouts": "gymnast.cluster.pipeline",
    "run_cmd": "gymnast.cluster.run_cmd",
    "wrap_arguments": "gymnast.cluster.pipeline_options",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gymnast' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
