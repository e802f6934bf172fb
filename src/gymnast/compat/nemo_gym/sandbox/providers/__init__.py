"""`nemo_gym.sandbox.providers`: sandbox providers. Third parties use `register_provider` or an entry point."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final

from gymnast.compat.nemo_gym.errors import UnknownNameError
from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxCreateError as SandboxCreateError
from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxEndpoint as SandboxEndpoint
from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxExecResult as SandboxExecResult
from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxHandle as SandboxHandle
from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxProvider as SandboxProvider
from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxResources as SandboxResources
from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxSpec as SandboxSpec
from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxStatus as SandboxStatus
from gymnast.compat.nemo_gym.sandbox.providers.containers import ApptainerProvider, DockerProvider
from gymnast.compat.nemo_gym.sandbox.providers.local import BubblewrapProvider
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.errors import suggest

ENTRY_POINTS: Final = "nemo_gym.sandbox_providers"
_UNAVAILABLE: Final = frozenset({"daytona", "ecs_fargate", "enroot", "opensandbox", "openshell"})
_PROVIDERS: Final[dict[str, type[Any]]] = {
    "apptainer": ApptainerProvider,
    "bubblewrap": BubblewrapProvider,
    "docker": DockerProvider,
}


class UnavailableProvider:
    """A provider of NeMo Gym that is not implemented here: its name is known, and creating it says what to do."""

    name = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise SandboxCreateError(
            f"Gymnast has no sandbox provider '{self.name}': use docker, apptainer or bubblewrap, or register a class"
            f" for it (the entry point group {ENTRY_POINTS}, or register_provider('{self.name}', …))"
        )


def register_provider(name: str, provider_class: type[Any], *, override: bool = False) -> None:
    """Register a provider under a name, for this process. A name that is taken needs `override`."""
    if not name:
        raise ValueError("the name of a sandbox provider must not be empty")
    if name in _PROVIDERS and not override:
        raise ValueError(f"the sandbox provider '{name}' is already registered; pass override=True to replace it")
    _PROVIDERS[name] = provider_class


def list_providers() -> list[str]:
    return sorted({*_PROVIDERS, *(point.name for point in metadata.entry_points(group=ENTRY_POINTS))})


def get_provider_class(name: str) -> type[Any]:
    if name in _PROVIDERS:
        return _PROVIDERS[name]
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if point.name == name:
            provider_class: type[Any] = point.load()
            return provider_class
    if name in _UNAVAILABLE:
        return type(f"{name.title().replace('_', '')}Provider", (UnavailableProvider,), {"name": name})
    raise UnknownNameError(
        f"unknown sandbox provider '{name}'", next=suggest(name, list_providers()) or ", ".join(list_providers())
    )


def create_provider(config: Mapping[str, Any]) -> Any:
    """Create a provider from a configuration whose only key is its name: `{docker: {…}}`."""
    (name, options), *more = config.items()
    if more:
        raise ValueError(f"expected one sandbox provider, got {', '.join(config)}")
    if not isinstance(options or {}, Mapping):
        raise TypeError(f"expected a mapping of options for the sandbox provider '{name}', got {options!r}")
    return get_provider_class(str(name))(**dict(options or {}))


__getattr__ = missing_from("nemo_gym.sandbox.providers", __file__)
