"""`nemo_gym.sandbox`: sandboxes for commands that a model wrote."""

from gymnast.compat.nemo_gym.sandbox.api import AsyncSandbox, Sandbox
from gymnast.compat.nemo_gym.sandbox.config import resolve_provider_config, resolve_provider_metadata
from gymnast.compat.nemo_gym.sandbox.providers import (
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    create_provider,
    get_provider_class,
    list_providers,
    register_provider,
)
from gymnast.compat.nemo_gym.sandbox.utils import rewrite_image
from gymnast.compat.nemo_gym.surface import missing_from

__all__ = [
    "AsyncSandbox",
    "Sandbox",
    "SandboxCreateError",
    "SandboxEndpoint",
    "SandboxExecResult",
    "SandboxHandle",
    "SandboxProvider",
    "SandboxResources",
    "SandboxSpec",
    "SandboxStatus",
    "create_provider",
    "get_provider_class",
    "list_providers",
    "register_provider",
    "resolve_provider_config",
    "resolve_provider_metadata",
    "rewrite_image",
]

__getattr__ = missing_from("nemo_gym.sandbox", __file__)
