"""`gymnast status`: the health of a running serve."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.runtime.remote import InstanceHealth, RemoteHead


def command(head: shared.Head = None, as_json: shared.JsonOutput = False) -> int:
    """Show the instances of a running serve. Exit code 0 only if all are healthy."""
    return run(head, None, as_json=as_json)


def run(head: str | None, config: Config | None, *, as_json: bool) -> int:
    """Print the status; 0 if everything that should run does."""
    import asyncio

    url, token = find_head(head, config)
    remote, health = asyncio.run(_look(url, token))
    healthy = sum(entry.healthy for entry in health)
    if as_json:
        import orjson

        body = {
            "head": url,
            "healthy": healthy,
            "unhealthy": len(health) - healthy,
            "instances": [asdict(entry) for entry in health],
        }
        print(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode())
    else:
        _print(remote, health)
        print(f"{healthy} healthy, {len(health) - healthy} unhealthy")
    return 0 if health and healthy == len(health) else 1


def find_head(head: str | None, config: Any) -> tuple[str, str | None]:
    """The head server that is meant, and the token for it: as named, as configured, or as registered on this host."""
    from gymnast.config import read_environ
    from gymnast.config.load import DEFAULT_HEAD_PORT, DEFAULT_HOST
    from gymnast.runtime.registry import Registry

    environ = read_environ()
    token = environ.token
    registry = Registry(environ.runtime_dir)
    configured = config.values.get("head_server") if config is not None else None
    if head is None and configured:
        head = f"http://{configured.get('host') or DEFAULT_HOST}:{configured.get('port') or DEFAULT_HEAD_PORT}"
    if head is not None:
        head = head.rstrip("/")
        known = next((entry for entry in registry.entries() if entry.head_url == head), None)
        return head, token or (known.token if known else None)
    entry = registry.find(cwd=str(Path.cwd()), default_head=f"http://{DEFAULT_HOST}:{DEFAULT_HEAD_PORT}")
    for other in registry.entries():
        if other.pid != entry.pid:
            shared.say(f"note: another serve runs here: --head {other.head_url} (pid {other.pid}, in {other.cwd})")
    return entry.head_url, token or entry.token


async def _look(url: str, token: str | None) -> tuple[RemoteHead, list[InstanceHealth]]:
    from gymnast.runtime.remote import health_of, read_head
    from gymnast.wire.http_client import HttpClient

    async with HttpClient() as client:
        remote = await read_head(client, url, token)
        return remote, await health_of(client, remote)


def _print(remote: RemoteHead, health: list[InstanceHealth]) -> None:
    from rich.table import Table

    from gymnast.cli.terminal import print_table

    who = (
        f"gymnast {remote.identity['version']}, pid {remote.identity['pid']}"
        if remote.identity
        else "another implementation"
    )
    table = Table(title=f"{remote.url} ({who})", title_justify="left")
    for heading in ("instance", "kind", "url", "pid", "status"):
        table.add_column(heading, overflow="fold")
    for entry in health:
        status = entry.status if entry.healthy else f"{entry.status} {entry.said}".strip()
        table.add_row(entry.name, entry.kind, entry.url, str(entry.pid or ""), status)
    print_table(table)
