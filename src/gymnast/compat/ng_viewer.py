"""`ng_viewer`: the report of a run in the browser, from a port on this machine, until interrupted."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.cli.options import say
from gymnast.compat.ng_asked import Asked, FieldError, Fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.wire.asgi import AsgiApp, AsgiScope, Receive, Send

HOST: Final = "127.0.0.1"
_HERE: Final = frozenset({HOST, "localhost"})


def viewer(asked: Asked) -> int:
    """Build the report of one run or several, and serve it."""
    config = asked.config(stub_policy=True)
    fields = Fields(config)
    names = [part.strip() for part in fields.text("jsonl_fpath").split(",") if part.strip()]
    host = fields.optional("server_host") or HOST
    if host not in _HERE:
        hint = "from another machine: ssh -L 7860:127.0.0.1:PORT, or take the file that gymnast report writes"
        raise FieldError(f"a report is shown on this machine only, not on {host}", next=hint)
    page = report_page([config.roots.require(name, "jsonl_fpath") for name in names])
    asyncio.run(_serve(page, fields.index("server_port", 65536)))
    return 0


def report_page(runs: Sequence[Path]) -> bytes:
    """The HTML of these runs, as `gymnast report` writes it; nothing is left beside them."""
    from gymnast.report.build import write_report
    from gymnast.report.run_view import view_runs

    with tempfile.TemporaryDirectory(prefix="gymnast-viewer-") as folder:
        return write_report(view_runs(runs), Path(folder) / "report.html").path.read_bytes()


async def _serve(page: bytes, port: int) -> None:
    from gymnast.runtime.listener import Listener
    from gymnast.runtime.ports import bind

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    sock = bind(HOST, port, what="the viewer", way_on="leave server_port out, which takes a free one")
    async with Listener(_app(page), sock) as listener:
        print(f"{listener.url}/", flush=True)
        say("Ctrl-C ends it")
        await stop.wait()


def _app(page: bytes) -> AsgiApp:
    async def app(scope: AsgiScope, _: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").rpartition(":")[0]
        # A page elsewhere could point its own name at this machine and read what models said.
        status = 403 if host not in _HERE else 200 if scope["path"] == "/" else 404
        kind = b"text/html; charset=utf-8" if status == 200 else b"text/plain"
        headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": page if status == 200 else b"nothing here\n"})

    return app
