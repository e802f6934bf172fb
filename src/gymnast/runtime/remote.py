"""A running serve, seen through its head server: its instances, their health, calls to them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from gymnast.config.instances import SERVER_KINDS
from gymnast.errors import NotFoundError, StartError
from gymnast.runtime.head_server import IDENTITY_PATH
from gymnast.runtime.probe import probe, probe_server
from gymnast.types.tokens import RecordedTokens
from gymnast.wire.calls import Calls, Transport
from gymnast.wire.transports import HttpTransport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.runtime.probe import Probe
    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import TokenForm
    from gymnast.wire.boundary import BoundaryLog
    from gymnast.wire.http_client import HttpClient

HEAD_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RemoteHead:
    """What a head server reports."""

    url: str
    token: str | None
    config: JsonObject
    instances: list[JsonObject]
    identity: JsonObject | None
    """None if the head is not Gymnast's (a NeMo Gym head has no such page)."""

    def agents(self) -> dict[str, str]:
        return {name: url for name, (kind, url) in self.addresses().items() if kind == "responses_api_agents"}

    def tokens(self, form: TokenForm | None) -> RecordedTokens:
        """Which models' tokens are kept, and how: `form`, or else the head's configuration."""
        blocks = [(name, inner) for name, kind, inner in self._blocks() if kind == "responses_api_models"]
        models = tuple(name for name, inner in blocks if inner.get("return_token_id_information") is True)
        return RecordedTokens(models, form or ("items" if self.config.get("token_form") == "items" else "ledger"))

    def addresses(self) -> dict[str, tuple[str, str]]:
        """Kind and URL of each instance that has an address in the configuration."""
        addresses: dict[str, tuple[str, str]] = {}
        for name, kind, inner in self._blocks():
            if inner.get("url"):
                addresses[name] = (kind, str(inner["url"]))
            elif inner.get("host") and inner.get("port"):
                addresses[name] = (kind, f"http://{inner['host']}:{inner['port']}")
        return addresses

    def _blocks(self) -> Iterator[tuple[str, str, JsonObject]]:
        """Name, kind and settings of each configured server."""
        for name, block in self.config.items():
            for kind in SERVER_KINDS:
                servers = block.get(kind) if isinstance(block, dict) else None
                inner = next(iter(servers.values()), None) if isinstance(servers, dict) else None
                if isinstance(inner, dict):
                    yield name, kind, inner


@dataclass(frozen=True, slots=True)
class InstanceHealth:
    """One line of `gymnast status`."""

    name: str
    kind: str
    url: str
    status: str
    pid: int | None
    said: str = ""  # a key of `gymnast status --json`

    @property
    def healthy(self) -> bool:
        return self.status == "success"


async def read_head(client: HttpClient, url: str, token: str | None) -> RemoteHead:
    """Query a head server. Raises if nothing answers, or something that is not a head server."""
    instances = await probe(client, f"{url}/server_instances", token=token, timeout_s=HEAD_TIMEOUT_S)
    if instances.status in {"connection_error", "timeout"}:
        next_step = "start it (gymnast serve), or give another --head URL"
        raise NotFoundError(f"no head server answers at {url}: {instances.detail}", next=next_step)
    if instances.code == 401:
        raise NotFoundError(f"the head server at {url} requires a token", next="set GYMNAST_TOKEN")
    config = await probe(client, f"{url}/global_config_dict_yaml", token=token, timeout_s=HEAD_TIMEOUT_S)
    if not isinstance(instances.body, list) or not isinstance(config.body, str):
        next_step = "give the URL of a head server: --head URL"
        raise StartError(f"the server at {url} is not a head server", where=instances.detail or None, next=next_step)
    parsed: Any = yaml.safe_load(config.body)
    identity = await probe(client, f"{url}{IDENTITY_PATH}", token=token, timeout_s=HEAD_TIMEOUT_S)
    own_identity = (
        identity.body if isinstance(identity.body, dict) and identity.body.get("product") == "gymnast" else None
    )
    return RemoteHead(url, token, parsed if isinstance(parsed, dict) else {}, instances.body, own_identity)


async def check_health(client: HttpClient, head: RemoteHead) -> list[InstanceHealth]:
    """The health of every instance that the head lists or expects."""
    checks = await asyncio.gather(*(probe_server(client, row["url"], token=head.token) for row in head.instances))
    dead = (head.identity or {}).get("dead") or {}
    restarts = (head.identity or {}).get("restarts") or {}
    listed = [_health(row, check, dead, restarts) for row, check in zip(head.instances, checks, strict=True)]
    names = {health.name for health in listed}
    expected = (head.identity or {}).get("expected") or []
    return listed + [InstanceHealth(name, "", "", "not_started", None) for name in expected if name not in names]


def _health(row: JsonObject, check: Probe, dead: dict[str, str], restarts: dict[str, int]) -> InstanceHealth:
    name = row["process_name"]
    detail = dead.get(name) or check.detail
    if check.ok and name in restarts:
        detail = f"restarted {restarts[name]} time(s): {detail}"
    return InstanceHealth(name, row["server_type"], row["url"], check.status, row.get("pid"), detail)


def remote_calls(client: HttpClient, head: RemoteHead, boundary: BoundaryLog | None = None) -> Calls:
    """Calls to all instances that the head knows."""
    transports: dict[str, Transport] = {
        name: HttpTransport(url, client, token=head.token) for name, (_, url) in head.addresses().items()
    }
    return Calls(transports, boundary=boundary)
