"""`gymnast status`: the progress of a run, or the health of running servers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.config import Config
    from gymnast.runtime.find_head import Head
    from gymnast.runtime.remote import InstanceHealth, RemoteHead


def command(
    run_file: shared.OptionalRun = None,
    head: shared.Head = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="With RUN: print a line every few seconds until nothing is owed.")
    ] = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Show the progress of a run, or the health of servers.

    With RUN: the state of that collection, live while it runs. Without: the instances of the `gymnast serve` given by
    --head, or of those started in this folder, or of all of yours; exit code 0 only if all of them are healthy.
    """
    if run_file is not None:
        from gymnast.cli.run_status import show

        return show(run_file, as_json=as_json, watch=watch)
    return run(head, None, as_json=as_json)


def run(head: str | None, config: Config | None, *, as_json: bool) -> int:
    """Print the status; 0 if every instance is healthy."""
    import asyncio

    from gymnast.config import read_environ
    from gymnast.errors import NotFoundError
    from gymnast.runtime.find_head import find_heads

    try:
        addresses = find_heads(head, config, read_environ())
    except NotFoundError as error:
        hint = f"{error.next}; for a collection, name its run: gymnast status RUN"
        raise NotFoundError(error.what, where=error.where, next=hint) from error
    heads = asyncio.run(read_health(addresses))
    health = [entry for _, entries in heads for entry in entries]
    healthy = sum(entry.healthy for entry in health)
    if as_json:
        serves = [{"head": remote.url, "instances": list(map(asdict, entries))} for remote, entries in heads]
        shared.print_json({"healthy": healthy, "unhealthy": len(health) - healthy, "serves": serves})
    else:
        for remote, entries in heads:
            _print(remote, entries)
        print(f"{healthy} healthy, {len(health) - healthy} unhealthy")
    return 0 if health and healthy == len(health) else 1


async def read_health(heads: Sequence[Head]) -> list[tuple[RemoteHead, list[InstanceHealth]]]:
    """The head servers at these addresses, with the health of their instances."""
    from gymnast.runtime.remote import check_health, read_head
    from gymnast.wire.http_client import HttpClient

    health: list[tuple[RemoteHead, list[InstanceHealth]]] = []
    async with HttpClient() as client:
        for url, token in heads:
            remote = await read_head(client, url, token)
            health.append((remote, await check_health(client, remote)))
    return health


def _print(remote: RemoteHead, health: list[InstanceHealth]) -> None:
    from rich.table import Table

    from gymnast.cli.progress import print_table

    server = "another implementation"
    if remote.identity:
        server = f"gymnast {remote.identity['version']}, pid {remote.identity['pid']}"
    table = Table(title=f"{remote.url} ({server})", title_justify="left")
    for heading in ("instance", "kind", "url", "pid", "status"):
        table.add_column(heading, overflow="fold")
    for entry in health:
        table.add_row(entry.name, entry.kind, entry.url, str(entry.pid or ""), f"{entry.status} {entry.said}".strip())
    print_table(table)
