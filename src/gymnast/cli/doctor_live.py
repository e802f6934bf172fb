"""What running processes say to doctor: a collection over its socket, a serve over its ports, endpoints at /models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.doctor.examine import Subject
    from gymnast.doctor.facts import ProbeFacts
    from gymnast.runtime.remote import RemoteHead
    from gymnast.wire.http_client import HttpClient


async def with_what_runs(subject: Subject, head: str | None, *, live: bool, probe: bool) -> Subject:
    """The subject, with what processes say of themselves."""
    if subject.run is not None and (live or subject.run.socket.exists()):
        status, stacks = await _ask_run(subject.run.socket, wants=live)
        subject = replace(subject, live=status, stacks=tuple(stacks))
    if head is not None or (live and subject.run is None):
        subject = await _with_serves(subject, head, live=live)
    if probe and subject.run is not None:
        from gymnast.doctor.examine import endpoints_of

        subject = replace(subject, probes=await _probe(endpoints_of(subject.run)))
    return subject


async def _ask_run(socket: Path, *, wants: bool) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """What a running collection says. One that is gone says nothing, which is no error unless it was asked for."""
    from gymnast.errors import NotFoundError, UserError
    from gymnast.rollouts.control import ask

    try:
        status = await ask(socket, {"command": "status"})
        stacks = await ask(socket, {"command": "stacks"}) if wants else []
    except UserError as error:
        if wants:
            how = "not running" if isinstance(error, NotFoundError) else "running, and deaf"
            shared.say(f"{how}: {error.what}; looking at its files")
        return None, []
    return status, stacks


# --- serves ----------------------------------------------------------------------------------------------------------


async def _with_serves(subject: Subject, head: str | None, *, live: bool) -> Subject:
    """The health of the serves that are meant; with `live`, also their open requests and their logs."""
    from gymnast.config import read_environ
    from gymnast.doctor.facts import ProbeFacts
    from gymnast.errors import UserError
    from gymnast.runtime.heads import find_heads
    from gymnast.runtime.remote import health_of, read_head
    from gymnast.wire.http_client import HttpClient

    servers: list[ProbeFacts] = []
    requests: list[dict[str, Any]] = []
    logs = list(subject.logs)
    async with HttpClient() as client:
        for url, token in find_heads(head, None, read_environ()):
            logs += _logs_of(url)
            try:
                remote = await read_head(client, url, token)
            except UserError as error:
                servers.append(ProbeFacts("head server", url, ok=False, said=error.what))
                continue
            servers += [
                ProbeFacts(entry.name, entry.url, ok=entry.healthy, said=f"{entry.status} {entry.said}".strip())
                for entry in await health_of(client, remote)
            ]
            requests += await _open_requests(client, remote) if live else []
    return replace(
        subject,
        servers=tuple(servers),
        requests=tuple(sorted(requests, key=lambda row: -float(row["in_stage_s"]))),
        logs=tuple(dict.fromkeys(logs)),
        name=subject.name or ", ".join(dict.fromkeys(url for url, _ in find_heads(head, None, read_environ()))),
    )


async def _open_requests(client: HttpClient, remote: RemoteHead) -> list[dict[str, Any]]:
    """What each instance of a serve has not answered yet. Servers of others have no such page."""
    import asyncio

    from gymnast.runtime.probe import probe
    from gymnast.wire.in_flight import IN_FLIGHT_PATH

    urls = dict.fromkeys(str(row["url"]).rstrip("/") for row in remote.instances if row.get("url"))
    found = await asyncio.gather(
        *(probe(client, url + IN_FLIGHT_PATH, token=remote.token, timeout_s=5.0) for url in urls)
    )
    bodies = [answer.body for answer in found if answer.ok and isinstance(answer.body, dict)]
    return [row for body in bodies for row in body.get("requests") or ()]


def _logs_of(head_url: str) -> list[Path]:
    """Where a serve of this host logs."""
    from gymnast.config import read_environ
    from gymnast.doctor.read_logs import logs_in
    from gymnast.runtime.registry import Registry

    entries = Registry(read_environ().runtime_dir).entries()
    folders = [Path(entry.log_dir) for entry in entries if entry.head_url == head_url and entry.log_dir]
    return [path for folder in folders if folder.is_dir() for path in logs_in(folder)]


# --- endpoints -------------------------------------------------------------------------------------------------------


async def _probe(endpoints: list[str]) -> tuple[ProbeFacts, ...]:
    from gymnast.doctor.facts import ProbeFacts
    from gymnast.runtime.probe import probe
    from gymnast.wire.http_client import HttpClient

    found: list[ProbeFacts] = []
    async with HttpClient() as client:
        for url in endpoints:
            page = f"{url.rstrip('/')}/models"
            answer = await probe(client, page, timeout_s=5.0)
            listed = answer.body.get("data") if isinstance(answer.body, dict) else None
            models = tuple(str(entry.get("id")) for entry in listed or () if isinstance(entry, dict))
            found.append(ProbeFacts("policy", page, answer.ok or answer.code is not None, answer.said, models))
    return tuple(found)
