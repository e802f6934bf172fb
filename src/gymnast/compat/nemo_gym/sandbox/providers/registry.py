"""`nemo_gym.sandbox.providers.registry`: where third parties register sandbox providers."""

from gymnast.compat.nemo_gym.sandbox.providers import ENTRY_POINTS as ENTRY_POINT_GROUP
from gymnast.compat.nemo_gym.sandbox.providers import (
    create_provider,
    get_provider_class,
    list_providers,
    register_provider,
)
from gymnast.compat.nemo_gym.surface import missing_from

__all__ = ["ENTRY_POINT_GROUP", "create_provider", "get_provider_class", "list_providers", "register_provider"]
__getattr__ = missing_from("nemo_gym.sandbox.providers.registry")
