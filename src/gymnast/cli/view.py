"""`gymnast view`: the studio, a live view of runs in the browser."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST: Final = "127.0.0.1"

Targets = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FOLDER|RUN", help="Folders with runs, or runs by any of their files. [default: .]", show_default=False
    ),
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for a free one.")]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Refuse steering and annotations.")]
Export = Annotated[
    Path | None,
    typer.Option("--export", metavar="DIR", help="Write the runs as a static site into this folder instead."),
]
Transcripts = Annotated[
    int, typer.Option("--transcripts", min=0, help="With --export: transcripts to include of each run.")
]


def command(
    targets: Targets = None,
    *,
    port: Port = 0,
    no_open: NoOpen = False,
    read_only: ReadOnly = False,
    export: Export = None,
    transcripts: Transcripts = 2000,
    as_json: shared.JsonOutput = False,
) -> int:
    """Show runs in the browser, live.

    Lists every run below a folder, with plots, tables, search, transcripts, comparison and diagnosis, and controls runs
    that are in progress. Listens on this machine only; the URL contains a token. From another machine, use
    ssh -L PORT:127.0.0.1:PORT.
    """
    if export is not None:
        return _export(targets or [Path()], export, transcripts, as_json=as_json)
    asyncio.run(serve(targets or [Path()], port=port, opens=not no_open, read_only=read_only, as_json=as_json))
    return 0


async def serve(targets: Sequence[Path], *, port: int, opens: bool, read_only: bool, as_json: bool) -> None:
    """Serve the studio until interrupted."""
    from gymnast.config.environ import read_allowed_hosts, read_environ
    from gymnast.runtime.listener import Listener
    from gymnast.runtime.ports import bind_socket
    from gymnast.studio.access import Access
    from gymnast.studio.library import Library
    from gymnast.studio.runs import RunFolders
    from gymnast.studio.server import StudioApp

    folders = RunFolders(targets)
    single = folders.only_run_id()
    access = Access(hosts=read_allowed_hosts())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    sock = bind_socket(HOST, port, what="the studio", hint="leave out --port to use a free one")
    async with Library(folders, read_environ().cache_dir) as library:
        app = StudioApp(library, access, read_only=read_only, single_run=single)
        async with Listener(app, sock) as listener:
            url = f"{listener.url}/?token={access.token}"
            _announce(url, listener.port, as_json=as_json)
            if opens:
                await asyncio.to_thread(_open_browser, url)
            await stop.wait()
            app.end_streams()
    _end_process()


def _end_process() -> None:
    """End without waiting for pages that threads still compute. They only read; what writes had a second to finish."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _announce(url: str, port: int, *, as_json: bool) -> None:
    if as_json:
        shared.print_json({"url": url, "port": port})
        sys.stdout.flush()
        return
    print(url, flush=True)
    shared.say("press Ctrl-C to stop")


def _open_browser(url: str) -> None:
    """Open a browser, if this machine shows one to someone."""
    import webbrowser

    from gymnast.config.environ import has_display

    if has_display():
        try:
            webbrowser.open(url)
        except webbrowser.Error:
            shared.say("no browser could be opened: open the URL yourself")


def _export(targets: Sequence[Path], folder: Path, transcripts: int, *, as_json: bool) -> int:
    from gymnast.studio.export import export_site

    site = asyncio.run(export_site(targets, folder, max_transcripts=transcripts))
    if as_json:
        shared.print_json(
            {
                "folder": str(site.folder),
                "runs": site.runs,
                "files": site.files,
                "size_bytes": site.size_bytes,
                "left_out": site.left_out,
            }
        )
        return 0
    print(f"site      {site.folder}  ({site.runs} runs, {site.files} files, {site.size_bytes / 1e6:.1f} MB)")
    if site.left_out:
        print(f"left out  {site.left_out}")
    shared.say(f"open {site.folder / 'index.html'} in a browser, or put the folder on any web server")
    return 0
