"""`nemo_gym.server_metadata`: what the first server of a config says about itself."""

from dataclasses import asdict, dataclass
from typing import Any

from gymnast.compat.nemo_gym.surface import missing_from


@dataclass
class ServerMetadata:
    """The descriptive settings of a server."""

    domain: str | None = None
    description: str | None = None
    verified: bool = False
    verified_url: str | None = None
    value: str | None = None

    def to_dict(self) -> dict[str, str | bool | None]:
        return asdict(self)


def visit_resources_server(data: dict[str, Any], level: int = 1) -> ServerMetadata:
    """The metadata of the first resources server of a config, read from YAML; `level` 4 is a server's own settings."""
    return _first_server(data, "resources_servers", level)


def visit_agent_server(data: dict[str, Any], level: int = 1) -> ServerMetadata:
    """The metadata of the first agent of a config, as `visit_resources_server`."""
    return _first_server(data, "responses_api_agents", level)


def _first_server(data: Any, kind: str, level: int) -> ServerMetadata:
    for depth, key in ((4, ""), (3, kind), (2, "")):  # as if a whole config had been passed
        data = {key: data} if level >= depth else data
    for block in data.values() if isinstance(data, dict) else ():
        servers = block.get(kind) if isinstance(block, dict) else None
        for settings in servers.values() if isinstance(servers, dict) else ():
            if isinstance(settings, dict):
                known = {name: settings[name] for name in ServerMetadata.__dataclass_fields__ if name in settings}
                return ServerMetadata(**known)
    return ServerMetadata()


__getattr__ = missing_from("nemo_gym.server_metadata")
