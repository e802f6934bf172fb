"""`nemo_gym.sandbox.config`: resolves a server's `sandbox_provider`.

It is the name of a top-level block of the configuration, `{<provider>: {…}, default_metadata?: {…}}`, or such a block.
"""

from collections.abc import Mapping
from typing import Any, Final

from omegaconf import DictConfig, OmegaConf

from gymnast.compat.nemo_gym.errors import InvalidValueError, UnknownNameError
from gymnast.compat.nemo_gym.global_config import maybe_get_global_config_dict
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.errors import suggest

_METADATA: Final = "default_metadata"


def resolve_provider_config(
    sandbox_provider: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Resolve to the provider and its options, `{<provider>: {…}}`."""
    block = {name: value for name, value in _block(sandbox_provider, named_configs).items() if name != _METADATA}
    if len(block) != 1:
        raise InvalidValueError(
            f"expected one sandbox provider, got {', '.join(block) or 'none'}",
            next="write {docker: {…}}, or the name of a block of the configuration",
        )
    return {name: dict(options or {}) for name, options in block.items()}


def resolve_provider_metadata(
    sandbox_provider: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Resolve to the metadata of every sandbox of the provider."""
    return dict(_block(sandbox_provider, named_configs).get(_METADATA) or {})


def _block(provider: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(provider, str):
        return _plain(provider)
    known: Mapping[Any, Any] = named_configs if named_configs is not None else maybe_get_global_config_dict() or {}
    block = known.get(provider)
    if block is None:
        hint = suggest(provider, [str(name) for name in known])
        raise UnknownNameError(f"unknown sandbox provider '{provider}'", next=hint)
    return _plain(block)


def _plain(block: Any) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(block, resolve=True) if isinstance(block, DictConfig) else block
    return dict(plain)


__getattr__ = missing_from("nemo_gym.sandbox.config")
