"""A Hub that takes uploads: creates datasets, keeps what is committed, and can refuse a commit."""

from __future__ import annotations

import base64
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

REPO = re.compile(r"/api/datasets/(?P<repo>[^/]+/[^/]+)/(?P<action>preupload|commit|tree)/main.*")
USER = "somebody"
"""Whose token it is: the owner of datasets that are created without an organization."""
BATCH = re.compile(r"/datasets/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch")


@dataclass
class UploadHub:
    """A running Hub."""

    url: str = ""
    token: str | None = None
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    visibility: dict[str, str] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    """Large files by SHA-256."""
    commits: list[str] = field(default_factory=list)
    """The file of each commit."""
    refused: set[str] = field(default_factory=set)
    """Files whose commit is refused."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: UploadHub

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Quiet."""

    def do_GET(self) -> None:
        path = unquote(self.path)
        if (name := path.removeprefix("/api/datasets/")) in self.hub.repos:
            self._reply(200, {"id": name, "private": self.hub.visibility[name] == "private", "siblings": []})
            return
        found = REPO.fullmatch(path)
        if found is None or found["action"] != "tree":
            self._reply(404, {})
            return
        self._reply(200, [_entry(name, data) for name, data in self.hub.repos[found["repo"]].items()])

    def do_PUT(self) -> None:
        body = self._body()
        self.hub.objects[hashlib.sha256(body).hexdigest()] = body
        self._reply(200, {})

    def do_POST(self) -> None:
        body, path = self._body(), unquote(self.path)
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._reply(401, {"error": "Invalid credentials"})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._reply(200, {"warnings": [], "errors": []})
        elif (found := BATCH.fullmatch(path)) is not None:
            self._reply(
                200, {"transfer": "basic", "objects": [self._action(each) for each in json.loads(body)["objects"]]}
            )
        elif (found := REPO.fullmatch(path)) is not None and found["action"] == "preupload":
            files = [
                {"path": each["path"], "uploadMode": _mode(each["path"]), "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            self._reply(200, {"files": files})
        elif found is not None:
            self._commit(found["repo"], [json.loads(line) for line in body.splitlines()])
        else:
            self._reply(404, {})

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization') or USER}/{asked['name']}"
        url = {"url": f"{self.hub.url}/datasets/{name}"}
        if name in self.hub.repos:
            self._reply(409, url)
            return
        self.hub.repos[name] = {}
        private = asked.get("private")
        self.hub.visibility[name] = asked.get("visibility") or ("private" if private else "public")
        self._reply(200, url)

    def _action(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["oid"] in self.hub.objects:
            return asked
        return asked | {"actions": {"upload": {"href": f"{self.hub.url}/objects/{asked['oid']}"}}}

    def _commit(self, repo: str, operations: list[dict[str, Any]]) -> None:
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "header":
                continue
            if value["path"] in self.hub.refused:
                self._reply(403, {"error": "Forbidden"})
                return
            is_large = operation["key"] == "lfsFile"
            data = self.hub.objects[value["oid"]] if is_large else base64.b64decode(value["content"])
            self.hub.repos[repo][value["path"]] = data
            self.hub.commits.append(value["path"])
        oid = hashlib.sha1(repr(self.hub.commits).encode()).hexdigest()
        url = f"{self.hub.url}/datasets/{repo}/commit/{oid}"
        self._reply(200, {"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _reply(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _mode(name: str) -> str:
    return "lfs" if name.endswith(".parquet") else "regular"


def _entry(name: str, data: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": oid}
    if _mode(name) == "lfs":
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


@contextmanager
def running_upload_hub() -> Iterator[UploadHub]:
    """A Hub that listens until the end of the block."""
    hub = UploadHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
