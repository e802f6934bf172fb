"""A Hub on a port of its own: dataset info, and files with etags, ranges, private repositories and broken downloads."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

INFO = re.compile(r"/api/datasets/(?P<repo>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/?]+))?(?:\?.*)?")
FILE = re.compile(r"/datasets/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")


@dataclass
class Repo:
    """A dataset repository: its branch `main`, and earlier commits."""

    files: dict[str, bytes]
    card: dict[str, Any] = field(default_factory=dict)
    token: str | None = None
    """Needed to read it."""
    gated: bool = False
    earlier: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """The files of earlier commits."""

    @property
    def commit(self) -> str:
        return hashlib.sha1(b"".join(self.files.values())).hexdigest()

    def push(self, files: dict[str, bytes]) -> None:
        """Move `main` to a new commit."""
        self.earlier[self.commit] = self.files
        self.files = files

    def at(self, revision: str | None) -> tuple[str, dict[str, bytes]] | None:
        """The commit and files of a revision; None if there is no such revision."""
        if revision in {None, "main", self.commit}:
            return self.commit, self.files
        return (revision, self.earlier[revision]) if revision in self.earlier else None


@dataclass
class LocalHub:
    """A running Hub."""

    url: str
    repos: dict[str, Repo] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    """For the next downloads: after how many bytes the connection breaks."""
    shortfall: int = 0
    """How many bytes fewer than announced a download has."""
    seen: list[str] = field(default_factory=list)
    """Requests, as `METHOD path`, with the range where one was asked for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: LocalHub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Quiet."""

    def _answer(self) -> None:
        path = unquote(self.path)
        wanted_range = self.headers.get("Range")
        self.hub.seen.append(f"{self.command} {path}" + (f" {wanted_range}" if wanted_range else ""))
        found = FILE.fullmatch(path) or INFO.fullmatch(path)
        repo = self.hub.repos.get(found["repo"]) if found else None
        if found is None or repo is None:
            self._refuse(404, "RepoNotFound")
        elif repo.token and self.headers.get("Authorization") != f"Bearer {repo.token}":
            self._refuse(401, "RepoNotFound")
        elif repo.gated:
            self._refuse(403, "GatedRepo")
        elif (version := repo.at(found["revision"])) is None:
            self._refuse(404, "RevisionNotFound")
        elif found.re is INFO:
            self._send_info(found["repo"], version, repo.card)
        elif found["name"] not in version[1]:
            self._refuse(404, "EntryNotFound", {"X-Repo-Commit": version[0]})
        else:
            self._send_file(version[0], version[1][found["name"]])

    def _send_info(self, repo_id: str, version: tuple[str, dict[str, bytes]], card: dict[str, Any]) -> None:
        siblings = [{"rfilename": name} for name in version[1]]
        info = {"id": repo_id, "sha": version[0], "siblings": siblings, "cardData": card, "tags": []}
        self._send(200, {"Content-Type": "application/json"}, json.dumps(info).encode())

    def _send_file(self, commit: str, content: bytes) -> None:
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": commit}
        headers["Accept-Ranges"] = "bytes"
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        body = content[start:]
        if self.command == "GET":
            body = body[: len(body) - self.hub.shortfall]
        self._send(206 if start else 200, headers, body)

    def _refuse(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        self._send(status, {"X-Error-Code": code, "X-Error-Message": code, **(headers or {})}, b"{}")

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if status in {200, 206} and "ETag" in headers and self.hub.breaks:
            body = body[: self.hub.breaks.pop(0)]
            self.close_connection = True
        self.wfile.write(body)


@contextmanager
def running_hub() -> Iterator[LocalHub]:
    """A Hub that listens until the end of the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        hub = LocalHub(f"http://127.0.0.1:{server.server_port}")
        server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": hub})
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # it looks so often whether to end
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
