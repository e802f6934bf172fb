"""A GitLab model registry on a port of its own: the calls of MLflow's REST interface that it answers, and its files."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

API = "/api/v4/projects/7/ml/mlflow"
FILES = "/api/v4/projects/7/packages/ml_models"
TOKEN = "glpat-secret"


@dataclass
class LocalRegistry:
    """A running registry: versions of datasets, and the files of each by the id of its run."""

    url: str = ""
    root: str = ""
    models: dict[str, dict[str, str]] = field(default_factory=dict)
    """The run of each version, by dataset and version."""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    pending: int = 0
    """How many times a new version is said to be pending."""
    proxied: bool = False
    """Whether files are behind `mlflow-artifacts:`, as a plain MLflow server has them."""
    redirect: str | None = None
    """Where downloads are redirected to."""
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and Authorization of each request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: LocalRegistry

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Quiet."""

    def do_GET(self) -> None:
        self._answer(parse_qs(urlsplit(self.path).query))

    def do_POST(self) -> None:
        self._answer({})

    def do_PUT(self) -> None:
        self._answer({})

    def do_DELETE(self) -> None:
        self._answer({})

    def _answer(self, query: dict[str, list[str]]) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.registry.seen.append((self.command, path, self.headers.get("Authorization")))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._reply(401, {"message": "401 Unauthorized"})
            return
        for prefix in (f"{FILES}/", f"{API}/api/2.0/mlflow-artifacts/artifacts/"):
            if path.startswith(prefix):
                run, _, name = path.removeprefix(prefix).partition("/")
                self._file(run, name, body)
                return
        values = {key: found[0] for key, found in query.items()} or (json.loads(body) if body else {})
        function = path.removeprefix(f"{API}/api/2.0/mlflow/")
        status, reply = self._call(f"{self.command} {function}", values)
        self._reply(status, reply)

    def _file(self, run: str, name: str, body: bytes) -> None:
        files = self.registry.files.get(run)
        if files is None or (self.command == "GET" and name not in files):
            self._reply(404, {"message": "404 Not Found"})
        elif self.command == "PUT":
            files[name] = body
            self._reply(201, {"message": "201 Created"})
        elif self.registry.redirect is not None:
            self.send_response(302)
            self.send_header("Location", self.registry.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._send(200, files[name], "application/octet-stream")

    def _call(self, call: str, values: dict[str, Any]) -> tuple[int, dict[str, Any]]:  # noqa: PLR0911 - one a call
        missing = 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "it does not exist"}
        models, name = self.registry.models, values.get("name", "")
        match call:
            case "POST registered-models/create":
                if name in models:
                    return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": "it exists"}
                models[name] = {}
            case "GET registered-models/get":
                if name not in models:
                    return missing
            case "DELETE registered-models/delete":
                return (200, {}) if models.pop(name, None) is not None else missing
            case "POST model-versions/create":
                version = next(tag["value"] for tag in values["tags"] if tag["key"] == "gitlab.version")
                models[name][version] = run = f"run-{name}-{version}".replace(".", "-")
                self.registry.files[run] = {}
                return 200, {"model_version": self._version(name, version)}
            case "GET model-versions/get":
                if values["version"] not in models.get(name, {}):
                    return missing
                return 200, {"model_version": self._version(name, values["version"])}
            case "GET runs/get":
                return 200, {"run": self._run(values["run_id"])}
            case _:
                return missing
        return 200, {"registered_model": {"name": name, "creation_timestamp": 0, "last_updated_timestamp": 0}}

    def _version(self, name: str, version: str) -> dict[str, Any]:
        self.registry.pending -= 1
        status = "READY" if self.registry.pending < 0 else "PENDING_REGISTRATION"
        run = self.registry.models[name][version]
        return {"name": name, "version": version, "run_id": run, "status": status, "creation_timestamp": 0}

    def _run(self, run: str) -> dict[str, Any]:
        where = f"mlflow-artifacts:/{run}" if self.registry.proxied else f"{self.registry.root}{FILES}/{run}"
        info = {"run_id": run, "run_uuid": run, "experiment_id": "1", "status": "RUNNING", "artifact_uri": where}
        return {"info": {**info, "start_time": 0, "lifecycle_stage": "active"}, "data": {}}

    def _reply(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve_registry() -> Iterator[LocalRegistry]:
    """A registry that takes the token `TOKEN`."""
    registry = LocalRegistry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    registry.root = f"http://127.0.0.1:{server.server_address[1]}"
    registry.url = f"{registry.root}{API}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
