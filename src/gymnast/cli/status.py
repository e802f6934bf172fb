"""`gymnast status`: a collection, or the health of running serves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.runtime.remote import InstanceHealth, RemoteHead


def command(
    run_file: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A collection: its output file.")] = None,
    head: shared.Head = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="With RUN: a line every few seconds, until nothing is owed.")
    ] = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Show a collection, or the instances of running serves.

    With RUN: how that collection stands, live if it is running. Without: the serve that is named, or those started in
    this folder, or all of yours; the exit code is 0 only if every expected instance is healthy.
    """
    if run_file is not None:
        from gymnast.cli.run_status import show

        return show(run_file, as_json=as_json, watch=watch)
    return run(head, None, as_json=as_json)


def run(head: str | None, config: Config | None, *, as_json: bool) -> int:
    """Print the status; 0 if everything that should run does."""
    import asyncio

    from gymnast.config import read_environ
    from gymnast.runtime.heads import find_heads

    looked = asyncio.run(_look(find_heads(head, config, read_environ())))
    health = [entry for _, found in looked for entry in found]
    healthy = sum(entry.healthy for entry in health)
    if as_json:
        import orjson

        serves = [{"head": remote.url, "instances": [asdict(entry) for entry in found]} for remote, found in looked]
        body = {"healthy": healthy, "unhealthy": len(health) - healthy, "serves": serves}
        print(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode())
    else:
        for remote, found in looked:
            _print(remote, found)
        print(f"{healthy} healthy, {len(health) - healthy} unhealthy")
    return 0 if health and healthy == len(health) else 1


async def _look(heads: list[tuple[str, str | None]]) -> list[tuple[RemoteHead, list[InstanceHealth]]]:
    from gymnast.runtime.remote import health_of, read_head
    from gymnast.wire.http_client import HttpClient

    found: list[tuple[RemoteHead, list[InstanceHealth]]] = []
    async with HttpClient() as client:
        for url, token in heads:
            remote = await read_head(client, url, token)
            found.append((remote, await health_of(client, remote)))
    return found


def _print(remote: RemoteHead, health: list[InstanceHealth]) -> None:
    from rich.table import Table

    from gymnast.cli.terminal import print_table

    who = "another implementation"
    if remote.identity:
        who = f"gymnast {remote.identity['version']}, pid {remote.identity['pid']}"
    table = Table(title=f"{remote.url} ({who})", title_justify="left")
    for heading in ("instance", "kind", "url", "pid", "status"):
        table.add_column(heading, overflow="fold")
    for entry in health:
        table.add_row(entry.name, entry.kind, entry.url, str(entry.pid or ""), f"{entry.status} {entry.said}".strip())
    print_table(table)
