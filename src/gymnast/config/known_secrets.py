"""The secrets that this process can know: of its environment, of the keys file, and of configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.config.environ import read_environ, secret_environ
from gymnast.config.keyring import stored_keys

if TYPE_CHECKING:
    from collections.abc import Mapping


def known_secrets(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that may hold a secret, as a configuration for a `Scrubber`."""
    return {
        "environment": secret_environ(),
        "configs": dict(configs),
        "secret": [*stored_keys(read_environ().keys_file)],
    }
