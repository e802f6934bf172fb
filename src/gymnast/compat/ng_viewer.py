"""`ng_viewer`: serve the report of a run on a local port until interrupted."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.cli.options import say
from gymnast.compat.ng_arguments import FieldError, Fields, NgArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.wire.asgi import AsgiApp, AsgiScope, Receive, Send

HOST: Final = "127.0.0.1"
_LOCAL: Final = frozenset({HOST, "localhost"})


def viewer(arguments: NgArguments) -> int:
    """Build the report of one or more runs and serve it."""
    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    names = [part.strip() for part in fields.text("jsonl_fpath").split(",") if part.strip()]
    host = fields.optional("server_host") or HOST
    if host not in _LOCAL:
        hint = "from another machine, use ssh -L 7860:127.0.0.1:PORT, or copy the file that gymnast report writes"
        raise FieldError(f"the viewer listens on this machine only, not on {host}", next=hint)
    page = report_page([config.roots.require(name, "jsonl_fpath") for name in names])
    asyncio.run(_serve(page, fields.index("server_port", 65536)))
    return 0


def report_page(runs: Sequence[Path]) -> bytes:
    """The HTML report of these runs, as `gymnast report` writes it; leaves no file."""
    from gymnast.report.build import write_report
    from gymnast.report.run_view import view_runs

    with tempfile.TemporaryDirectory(prefix="gymnast-viewer-") as folder:
        return write_report(view_runs(runs), Path(folder) / "report.html").path.read_bytes()


async def _serve(page: bytes, port: int) -> None:
    from gymnast.runtime.listener import Listener
    from gymnast.runtime.ports import bind_socket

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    sock = bind_socket(HOST, port, what="the viewer", hint="leave out server_port to use a free one")
    async with Listener(_app(page), sock) as listener:
        print(f"{listener.url}/", flush=True)
        say("press Ctrl-C to stop")
        await stop.wait()


def _app(page: bytes) -> AsgiApp:
    async def app(scope: AsgiScope, _: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").rpartition(":")[0]
        # DNS rebinding: another site could point its name at this machine and read the transcripts.
        status = 403 if host not in _LOCAL else 200 if scope["path"] == "/" else 404
        kind = b"text/html; charset=utf-8" if status == 200 else b"text/plain"
        headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": page if status == 200 else b"not found\n"})

    return app
