"""What doctor reads from running processes: a collection's socket, a serve's ports, /models of endpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.doctor.examine import Target
    from gymnast.doctor.facts import ProbeFacts
    from gymnast.runtime.remote import RemoteHead
    from gymnast.wire.http_client import HttpClient


async def add_live_facts(target: Target, head: str | None, *, live: bool, probe: bool) -> Target:
    """The subject, with what running processes report."""
    if target.run is not None and (live or target.run.socket.exists()):
        status, stacks = await _query_run(target.run.socket, live=live)
        target = replace(target, live=status, stacks=tuple(stacks))
    if head is not None or (live and target.run is None):
        target = await _add_serves(target, head, live=live)
    if probe and target.run is not None:
        from gymnast.doctor.examine import endpoints_of

        target = replace(target, probes=await _probe(endpoints_of(target.run)))
    return target


async def _query_run(socket: Path, *, live: bool) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The status and stacks of a running collection. One that has ended is worth a note only with `live`."""
    from gymnast.errors import NotFoundError, UserError
    from gymnast.rollouts.control import send_request

    try:
        status = await send_request(socket, {"command": "status"})
        stacks = await send_request(socket, {"command": "stacks"}) if live else []
    except UserError as error:
        if live:
            state = "not running" if isinstance(error, NotFoundError) else "running, but not responding"
            shared.say(f"{state}: {error.what}; reading its files")
        return None, []
    return status, stacks


# --- serves ----------------------------------------------------------------------------------------------------------


async def _add_serves(target: Target, head: str | None, *, live: bool) -> Target:
    """Add the health of the selected serves; with `live`, also their open requests and logs."""
    from gymnast.config import read_environ
    from gymnast.doctor.facts import ProbeFacts
    from gymnast.errors import UserError
    from gymnast.runtime.find_head import find_heads
    from gymnast.runtime.remote import check_health, read_head
    from gymnast.wire.http_client import HttpClient

    servers: list[ProbeFacts] = []
    requests: list[dict[str, Any]] = []
    logs = list(target.logs)
    async with HttpClient() as client:
        for url, token in find_heads(head, None, read_environ()):
            logs += _logs_of(url)
            try:
                remote = await read_head(client, url, token)
            except UserError as error:
                servers.append(ProbeFacts("head server", url, ok=False, detail=error.what))
                continue
            servers += [
                ProbeFacts(entry.name, entry.url, ok=entry.healthy, detail=f"{entry.status} {entry.said}".strip())
                for entry in await check_health(client, remote)
            ]
            requests += await _open_requests(client, remote) if live else []
    return replace(
        target,
        servers=tuple(servers),
        requests=tuple(sorted(requests, key=lambda row: -float(row["in_stage_s"]))),
        logs=tuple(dict.fromkeys(logs)),
        name=target.name or ", ".join(dict.fromkeys(url for url, _ in find_heads(head, None, read_environ()))),
    )


async def _open_requests(client: HttpClient, remote: RemoteHead) -> list[dict[str, Any]]:
    """The requests in flight of each instance of a serve. Other implementations have no such page."""
    import asyncio

    from gymnast.runtime.probe import probe
    from gymnast.wire.in_flight import IN_FLIGHT_PATH

    urls = dict.fromkeys(str(row["url"]).rstrip("/") for row in remote.instances if row.get("url"))
    replies = await asyncio.gather(
        *(probe(client, url + IN_FLIGHT_PATH, token=remote.token, timeout_s=5.0) for url in urls)
    )
    bodies = [reply.body for reply in replies if reply.ok and isinstance(reply.body, dict)]
    return [row for body in bodies for row in body.get("requests") or ()]


def _logs_of(head_url: str) -> list[Path]:
    """The log files of a serve on this host."""
    from gymnast.config import read_environ
    from gymnast.doctor.read_logs import find_logs
    from gymnast.runtime.registry import Registry

    entries = Registry(read_environ().runtime_dir).entries()
    folders = [Path(entry.log_dir) for entry in entries if entry.head_url == head_url and entry.log_dir]
    return [path for folder in folders if folder.is_dir() for path in find_logs(folder)]


# --- endpoints -------------------------------------------------------------------------------------------------------


async def _probe(endpoints: list[str]) -> tuple[ProbeFacts, ...]:
    from gymnast.doctor.facts import ProbeFacts
    from gymnast.runtime.probe import probe
    from gymnast.wire.http_client import HttpClient

    probes: list[ProbeFacts] = []
    async with HttpClient() as client:
        for url in endpoints:
            page = f"{url.rstrip('/')}/models"
            reply = await probe(client, page, timeout_s=5.0, external=True)
            listed = reply.body.get("data") if isinstance(reply.body, dict) else None
            models = tuple(str(entry.get("id")) for entry in listed or () if isinstance(entry, dict))
            probes.append(ProbeFacts("policy", page, reply.ok or reply.code is not None, reply.detail, models))
    return tuple(probes)
