"""The head server: lists the instances for clients. It holds no secrets, so it cannot leak any."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import yaml

from gymnast import __version__
from gymnast.wire.server import Server, ServerContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.config import Config, Instance
    from gymnast.config.instances import ServerKind
    from gymnast.runtime.cell import Address, Cell
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Request

IDENTITY_PATH = "/gymnast"


@dataclass(slots=True)
class HeadState:
    """What the head server publishes."""

    config_yaml: str = ""
    instances: Callable[[], list[JsonObject]] = list
    expected: list[str] = field(default_factory=list)
    """Names of all instances, ready or not."""
    dead: dict[str, str] = field(default_factory=dict)
    """How instances that should be running last died."""
    restarts: Callable[[], dict[str, int]] = dict
    pid: int = 0
    cwd: str = ""
    started_at: float = 0.0


class HeadServer(Server):
    """The two endpoints of the contract, and one that identifies Gymnast."""

    kind: ClassVar[ServerKind] = "resources_servers"  # required, but unused: the head server is in no configuration
    has_sessions: ClassVar[bool] = False

    def __init__(self, state: HeadState, context: ServerContext) -> None:
        super().__init__("head_server", context)
        self._state = state
        self.route("GET", "/global_config_dict_yaml", self._config)
        self.route("GET", "/server_instances", self._instances)
        self.route("GET", IDENTITY_PATH, self._identity)

    async def _config(self, _: Request) -> str:
        return self._state.config_yaml

    async def _instances(self, _: Request) -> list[JsonObject]:
        return self._state.instances()

    async def _identity(self, _: Request) -> JsonObject:
        state = self._state
        return {
            "product": "gymnast",
            "version": __version__,
            "pid": state.pid,
            "cwd": state.cwd,
            "started_at": state.started_at,
            "expected": state.expected,
            "dead": state.dead,
            "restarts": state.restarts(),
        }


def config_yaml(config: Config, cell: Cell, head: Address) -> str:
    """The resolved configuration for clients, with all addresses filled in and all secrets masked."""
    values: dict[str, Any] = config.masked_values()
    values["head_server"] = {"host": head.host, "port": head.port}
    for instance in cell.instances:
        address = cell.addresses.get(instance.name)
        block = values[instance.name][instance.kind][instance.implementation]
        if address is not None:
            block["host"], block["port"] = address.host, address.port
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def instance_rows(cell: Cell, started_at: float) -> list[JsonObject]:
    """One object per instance, in the contract's format."""
    return [_row(cell, instance, started_at) for instance in cell.instances]


def _row(cell: Cell, instance: Instance, started_at: float) -> JsonObject:
    address = cell.addresses.get(instance.name)
    remote = urlsplit(instance.url) if instance.url else None
    return {
        "config_path": instance.name,
        "dir_path": str(instance.directory) if instance.directory else None,
        "entrypoint": instance.entrypoint,
        "host": address.host if address else remote.hostname if remote else None,
        "name": instance.implementation,
        "pid": cell.pid_of(instance.name) if address else None,
        "port": address.port if address else remote.port if remote else None,
        "process_name": instance.name,
        "server_type": instance.kind,
        "start_time": started_at,
        "status": None,
        "uptime_seconds": None,
        "url": address.url if address else instance.url,
    }
