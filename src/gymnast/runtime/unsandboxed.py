"""Runs model-written code unsandboxed, as the user: only if explicitly requested."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.runtime.loader import unset_settings

if TYPE_CHECKING:
    from gymnast.config import Config, Instance

_BLOCK: Final = "sandbox"
_NO_SANDBOX: Final[dict[str, Any]] = {"driver": "none", "unsafe_no_sandbox": True}


def without_sandbox(config: Config) -> tuple[Config, list[str]]:
    """The configuration with every sandbox disabled, and the names of the environments affected."""
    affected = [instance for instance in config.instances.values() if _runs_programs(instance)]
    changed = {instance.name: _disable_sandbox(instance) for instance in affected}
    return replace(config, instances={**config.instances, **changed}), sorted(changed)


def _runs_programs(instance: Instance) -> bool:
    if instance.kind != "resources_servers":
        return False
    return _BLOCK in instance.settings or _BLOCK in unset_settings(instance)


def _disable_sandbox(instance: Instance) -> Instance:
    block = instance.settings.get(_BLOCK) or {}
    return replace(instance, settings={**instance.settings, _BLOCK: {**block, **_NO_SANDBOX}})
