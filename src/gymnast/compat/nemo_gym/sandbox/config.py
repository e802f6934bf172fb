"""`nemo_gym.sandbox.config`: which provider a server's `sandbox_provider` means.

Named: a block at the top of the configuration, `{<provider>: {…}, default_metadata?: {…}}`. Inline: the same in place.
"""

from collections.abc import Mapping
from typing import Any, Final

from omegaconf import DictConfig, OmegaConf

from gymnast.compat.nemo_gym.global_config import maybe_get_global_config_dict
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.errors import NotFoundError, UserError, suggest

__all__ = [
    "resolve_provider_config",
    "resolve_provider_metadata",
]

_METADATA: Final = "default_metadata"


def resolve_provider_config(
    sandbox_provider: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The provider and its options, `{<provider>: {…}}`."""
    block = {name: value for name, value in _block(sandbox_provider, named_configs).items() if name != _METADATA}
    if len(block) != 1:
        raise UserError(
            f"a sandbox provider is a block with one name, not {', '.join(block) or 'none'}",
            next="write {docker: {…}}, or name a block of the configuration",
        )
    return {name: dict(options or {}) for name, options in block.items()}


def resolve_provider_metadata(
    sandbox_provider: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What every sandbox of a provider is labelled with."""
    return dict(_block(sandbox_provider, named_configs).get(_METADATA) or {})


def _block(given: str | Mapping[str, Any], named: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(given, str):
        return _plain(given)
    known: Mapping[Any, Any] = named if named is not None else maybe_get_global_config_dict() or {}
    found = known.get(given)
    if found is None:
        hint = suggest(given, [str(name) for name in known])
        raise NotFoundError(f"the configuration has no sandbox provider '{given}'", next=hint)
    return _plain(found)


def _plain(block: Any) -> dict[str, Any]:
    found: Any = OmegaConf.to_container(block, resolve=True) if isinstance(block, DictConfig) else block
    return dict(found)


__getattr__ = missing_from("nemo_gym.sandbox.config")
