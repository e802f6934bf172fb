"""Running model-written programs as the user, without walls: only where somebody asked for exactly that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.runtime.loader import unset_settings

if TYPE_CHECKING:
    from gymnast.config import Config, Instance

_BLOCK: Final = "sandbox"
_UNSAFE: Final[dict[str, Any]] = {"driver": "none", "unsafe_no_sandbox": True}


def without_sandbox(config: Config) -> tuple[Config, list[str]]:
    """The configuration with every sandbox off, and the names of the environments that this concerns."""
    concerned = [instance for instance in config.instances.values() if _runs_programs(instance)]
    changed = {instance.name: _unsafe(instance) for instance in concerned}
    return replace(config, instances={**config.instances, **changed}), sorted(changed)


def _runs_programs(instance: Instance) -> bool:
    if instance.kind != "resources_servers":
        return False
    return _BLOCK in instance.settings or _BLOCK in unset_settings(instance)


def _unsafe(instance: Instance) -> Instance:
    given = instance.settings.get(_BLOCK) or {}
    return replace(instance, settings={**instance.settings, _BLOCK: {**given, **_UNSAFE}})
