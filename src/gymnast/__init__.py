"""Gymnast: collects rollouts of language-model agents in RL environments, and never drops one.

Importing this package starts nothing, patches nothing and loads no heavy library: the names below load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymnast.api.collect import collect
    from gymnast.api.collector import Collector
    from gymnast.checks.environment import check_environment
    from gymnast.compat.nemo_skills.options import wrap_arguments
    from gymnast.compat.nemo_skills.pipeline import nemo_gym_rollouts
    from gymnast.compat.nemo_skills.run_cmd import run_cmd
    from gymnast.errors import GymnastError, MissingRolloutsError, UserError
    from gymnast.results.run import Run, load
    from gymnast.results.sync import collect_sync
    from gymnast.rollouts.record import Record

__version__ = "0.1.0"

__all__ = [
    "Collector",
    "GymnastError",
    "MissingRolloutsError",
    "Record",
    "Run",
    "UserError",
    "check_environment",
    "collect",
    "collect_sync",
    "load",
    "nemo_gym_rollouts",
    "run_cmd",
    "wrap_arguments",
]

_MODULES = {
    "Collector": "gymnast.api.collector",
    "GymnastError": "gymnast.errors",
    "MissingRolloutsError": "gymnast.errors",
    "Record": "gymnast.rollouts.record",
    "Run": "gymnast.results.run",
    "UserError": "gymnast.errors",
    "check_environment": "gymnast.checks.environment",
    "collect": "gymnast.api.collect",
    "collect_sync": "gymnast.results.sync",
    "load": "gymnast.results.run",
    "nemo_gym_rollouts": "gymnast.compat.nemo_skills.pipeline",
    "run_cmd": "gymnast.compat.nemo_skills.run_cmd",
    "wrap_arguments": "gymnast.compat.nemo_skills.options",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'gymnast' has no attribute '{name}'")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
