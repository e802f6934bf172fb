"""The studio in a real browser: `gymnast view` as a process, and a page that remembers everything it should not do."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.helpers.commands import BIN

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 60_000


@contextmanager
def viewing(*arguments: str | Path) -> Iterator[str]:
    """`gymnast view` without a browser; yields its URL."""
    process = subprocess.Popen(
        [str(BIN / "gymnast"), "view", "--no-open", *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "gymnast view printed nothing"
        yield line.strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        pass


@contextmanager
def serving_files(folder: Path) -> Iterator[str]:
    """A plain web server for the files of a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def browsing(**options: Any) -> Iterator[Any]:
    """A browser's context."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(
            **{"viewport": {"width": 1360, "height": 900}, "accept_downloads": True, **options}
        )
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        yield context
        browser.close()


@dataclass
class Studio:
    """One page of the studio; walks by address, and lists what a well-behaved page does not do."""

    page: Page
    url: str
    misdeeds: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    """Beginnings of console messages that a flow provokes on purpose."""

    def __post_init__(self) -> None:
        origin = self.origin
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.misdeeds.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.on("popup", lambda popup: self.misdeeds.append(f"popup: {popup.url}"))
        self.page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((origin, "data:image/", "blob:"))
                else self.misdeeds.append(f"request: {request.url[:100]}")
            ),
        )
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready]")

    @property
    def origin(self) -> str:
        return self.url.split("?")[0].removesuffix("index.html")

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"} and not text.startswith(self.expected or ("\0",)):
            self.misdeeds.append(f"console: {text}")

    def _dismiss(self, dialog: Any) -> None:
        self.misdeeds.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def go(self, name: str, **params: Any) -> None:
        """Open a page of the studio by its address, as a link would."""
        pairs = [
            (key, item) for key, value in params.items() for item in (value if isinstance(value, list) else [value])
        ]
        query = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in pairs)
        target = f"#/{name}" + (f"?{query}" if query else "")
        self.page.evaluate(
            "(hash) => { delete document.documentElement.dataset.ready; location.hash = hash; }", "#/none"
        )
        self.page.evaluate("(hash) => { location.hash = hash; }", target)
        self.page.wait_for_selector("html[data-ready]")

    def at(self, selector: str, **options: Any) -> Locator:
        return self.page.locator(selector, **options)

    def rows(self) -> Locator:
        return self.page.locator("main table.rows tbody tr:not(.none)")

    def hash(self) -> str:
        return str(self.page.evaluate("location.hash"))

    def behaves(self) -> None:
        """The page did nothing but show itself."""
        misdeeds, self.misdeeds = self.misdeeds, []
        assert not misdeeds, misdeeds
        assert self.page.evaluate("window.pwned === undefined")
