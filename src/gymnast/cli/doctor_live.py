"""What doctor reads from running processes: a collection's socket, a serve's ports, /models of endpoints."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.doctor.examine import Target
    from gymnast.doctor.facts import EndpointActivity, ProbeFacts
    from gymnast.runtime.remote import RemoteHead
    from gymnast.store.paths import RunPaths
    from gymnast.wire.http_client import HttpClient

_LATE_S: Final = 1.0
_PAUSE_S: Final = 1.0
_WATCH_S: Final = 5.0
_PROBE_TIMEOUT_S: Final = 10.0
_MAX_WATCHED: Final = 8


async def add_live_facts(target: Target, head: str | None, *, live: bool, probe: bool) -> Target:
    """The subject, with what running processes report."""
    if target.run is not None and (live or target.run.socket.exists()):
        target = await _add_collection(target, target.run, live=live)
    if head is not None or (live and target.run is None):
        target = await _add_serves(target, head, live=live)
    if probe and target.run is not None:
        from gymnast.doctor.examine import endpoints_of

        target = replace(target, probes=await _probe(endpoints_of(target.run)))
    return target


async def _add_collection(target: Target, run: RunPaths, *, live: bool) -> Target:
    """Add what a running collection says, what the kernel says about it, and what its endpoints are doing."""
    from gymnast.doctor.processes import read_processes

    target = replace(target, processes=read_processes(run.lock))
    if any(process.is_collector and process.state in "Tt" for process in target.processes):
        return replace(target, unresponsive="the process is stopped")  # it would not answer
    status, stacks, problem = await _query_run(run.socket, live=live)
    target = replace(target, live=status, stacks=tuple(stacks), unresponsive=problem)
    if status is None or not live:
        return target
    return replace(target, activity=await _watch_endpoints(_slow_endpoints(target, status)))


async def _query_run(socket: Path, *, live: bool) -> tuple[dict[str, Any] | None, list[dict[str, Any]], str]:
    """The status and stacks of a running collection, or why it does not respond.

    One that has ended is worth a line only with `live`.
    """
    from gymnast.errors import NotFoundError, UserError
    from gymnast.rollouts.control import send_request

    try:
        status = await send_request(socket, {"command": "status"})
        if live and status["loop_lag_s"] >= _LATE_S:  # once may be chance
            await asyncio.sleep(_PAUSE_S)
            before = status["loop_lag_s"]
            status = {**await send_request(socket, {"command": "status"}), "loop_lag_before_s": before}
        stacks = await send_request(socket, {"command": "stacks"}) if live else []
    except UserError as error:
        is_gone = isinstance(error, NotFoundError)
        if live:
            state = "not running" if is_gone else "running, but not responding"
            shared.say(f"{state}: {error.what}; reading its files")
        return None, [], "" if is_gone else error.what
    return status, stacks, ""


def _slow_endpoints(target: Target, status: dict[str, Any]) -> list[str]:
    """The endpoints that rollouts have waited for longer than the patience."""
    from gymnast.doctor.waits import patience_s

    patience = patience_s(target.stuck_after_s)
    rows = [row for row in (*status["oldest"], *target.stacks) if row["in_stage_s"] >= patience]
    return list(dict.fromkeys(row["endpoint"] for row in rows if row.get("endpoint")))[:_MAX_WATCHED]


async def _watch_endpoints(urls: list[str]) -> tuple[EndpointActivity, ...]:
    from gymnast.wire.http_client import HttpClient

    if not urls:
        return ()
    async with HttpClient() as client:
        return tuple(await asyncio.gather(*(_watch_endpoint(client, url) for url in urls)))


async def _watch_endpoint(client: HttpClient, url: str) -> EndpointActivity:
    """Look at an endpoint's metrics until a token comes out, for a few seconds at most."""
    from gymnast.doctor.facts import EndpointActivity
    from gymnast.doctor.waits import EndpointState, judge_endpoint
    from gymnast.runtime.probe import probe
    from gymnast.wire.inference_metrics import read_activity

    reply = await probe(client, f"{url.rstrip('/')}/models", timeout_s=_PROBE_TIMEOUT_S, external=True)
    if not reply.ok and reply.code is None:
        return EndpointActivity(url, answers=False, detail=reply.detail)
    started = time.monotonic()
    activity = EndpointActivity(url, answers=True, before=await read_activity(client, url))
    while activity.before is not None:
        await asyncio.sleep(_PAUSE_S)
        seconds = time.monotonic() - started
        activity = replace(activity, after=await read_activity(client, url), seconds=seconds)
        if seconds >= _WATCH_S or judge_endpoint(activity) is EndpointState.WORKING:
            break
    return activity


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
    from gymnast.doctor.log_files import find_logs
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
