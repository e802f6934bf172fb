"""A serve that somebody else runs, found through its head server: its instances, their health, calls to them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from gymnast.config.instances import KINDS
from gymnast.errors import NotFoundError, StartError
from gymnast.runtime.head import IDENTITY_PATH
from gymnast.runtime.probe import probe
from gymnast.types.tokens import TokenKeeping
from gymnast.wire.calls import Calls, Transport
from gymnast.wire.transports import Http

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
    """What a head server says."""

    url: str
    token: str | None
    config: JsonObject
    instances: list[JsonObject]
    identity: JsonObject | None
    """None where the head is not ours (a NeMo Gym head has no such page)."""

    def agents(self) -> dict[str, str]:
        """URL of each agent."""
        return {name: url for name, (kind, url) in self.addresses().items() if kind == "responses_api_agents"}

    def tokens(self, form: TokenForm | None) -> TokenKeeping:
        """Whose tokens are kept; how, is said by `form` or else by the head's configuration."""
        blocks = [(name, inner) for name, kind, inner in self._blocks() if kind == "responses_api_models"]
        models = tuple(name for name, inner in blocks if inner.get("return_token_id_information") is True)
        return TokenKeeping(models, form or ("items" if self.config.get("token_form") == "items" else "ledger"))

    def addresses(self) -> dict[str, tuple[str, str]]:
        """Kind and URL of each instance that the configuration gives an address."""
        found: dict[str, tuple[str, str]] = {}
        for name, kind, inner in self._blocks():
            if inner.get("url"):
                found[name] = (kind, str(inner["url"]))
            elif inner.get("host") and inner.get("port"):
                found[name] = (kind, f"http://{inner['host']}:{inner['port']}")
        return found

    def _blocks(self) -> Iterator[tuple[str, str, JsonObject]]:
        """Name, kind and settings of everything configured as a server."""
        for name, block in self.config.items():
            for kind in KINDS:
                found = block.get(kind) if isinstance(block, dict) else None
                inner = next(iter(found.values()), None) if isinstance(found, dict) else None
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
    said: str = ""

    @property
    def healthy(self) -> bool:
        return self.status == "success"


async def read_head(client: HttpClient, url: str, token: str | None) -> RemoteHead:
    """Ask a head server. Something on that port that is no head server is told apart."""
    instances = await probe(client, f"{url}/server_instances", token=token, timeout_s=HEAD_TIMEOUT_S)
    if instances.status in {"connection_error", "timeout"}:
        next_step = "start it (gymnast serve), or name another: --head URL"
        raise NotFoundError(f"no head server answers at {url}: {instances.said}", next=next_step)
    if instances.code == 401:
        raise NotFoundError(f"the head server at {url} requires a token", next="set GYMNAST_TOKEN")
    config = await probe(client, f"{url}/global_config_dict_yaml", token=token, timeout_s=HEAD_TIMEOUT_S)
    if not isinstance(instances.body, list) or not isinstance(config.body, str):
        next_step = "name the right one: --head URL"
        raise StartError(f"what listens at {url} is no head server", where=instances.said or None, next=next_step)
    parsed: Any = yaml.safe_load(config.body)
    identity = await probe(client, f"{url}{IDENTITY_PATH}", token=token, timeout_s=HEAD_TIMEOUT_S)
    ours = identity.body if isinstance(identity.body, dict) and identity.body.get("product") == "gymnast" else None
    return RemoteHead(url, token, parsed if isinstance(parsed, dict) else {}, instances.body, ours)


async def health_of(client: HttpClient, head: RemoteHead) -> list[InstanceHealth]:
    """The health of every instance the head lists or expects."""
    checks = await asyncio.gather(
        *(probe(client, row["url"], token=head.token, timeout_s=2.0) for row in head.instances)
    )
    dead = (head.identity or {}).get("dead") or {}
    restarts = (head.identity or {}).get("restarts") or {}
    found = [_health(row, check, dead, restarts) for row, check in zip(head.instances, checks, strict=True)]
    listed = {health.name for health in found}
    expected = (head.identity or {}).get("expected") or []
    return found + [InstanceHealth(name, "", "", "not_started", None) for name in expected if name not in listed]


def _health(row: JsonObject, check: Probe, dead: dict[str, str], restarts: dict[str, int]) -> InstanceHealth:
    name = row["process_name"]
    said = dead.get(name) or check.said
    if check.ok and name in restarts:
        said = f"started again {restarts[name]} time(s): {said}"
    return InstanceHealth(name, row["server_type"], row["url"], check.status, row.get("pid"), said)


def remote_calls(client: HttpClient, head: RemoteHead, boundary: BoundaryLog | None = None) -> Calls:
    """Calls to everything the head knows."""
    transports: dict[str, Transport] = {
        name: Http(url, client, token=head.token) for name, (_, url) in head.addresses().items()
    }
    return Calls(transports, boundary=boundary)
