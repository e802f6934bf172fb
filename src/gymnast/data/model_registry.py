"""Datasets in a GitLab model registry, over the part of MLflow's REST interface that GitLab answers.

A dataset is a registered model, its version a model version, and its files are artifacts of that version's run. Reads
and writes files in blocks, so their size does not matter. A token goes only to the server that it is for.
"""

from __future__ import annotations

import shutil
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from mimetypes import guess_type
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import orjson

from gymnast.errors import NotFoundError, UserError
from gymnast.store.atomic import atomic_output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_TIMEOUT_S: Final = 120.0
_UPLOAD_TIMEOUT_S: Final = 600.0
_READY_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 3.0
_BLOCK_BYTES: Final = 1 << 20
_PATH_SAFE: Final = "/:@!$&'()*+,;=~-._"
_PROXIED: Final = "mlflow-artifacts:"
_PORTS: Final = {"http": 80, "https": 443}
_TOKEN_STATUS: Final = frozenset({401, 403})
_CREDENTIALS: Final = "set mlflow_tracking_uri and mlflow_tracking_token in env.yaml"


@dataclass(frozen=True, slots=True)
class RegistryFile:
    """A file of a dataset's version."""

    dataset: str
    version: str
    artifact: str

    def __str__(self) -> str:
        return f"{self.dataset} {self.version} ({self.artifact})"


class RefusedError(UserError):
    """The registry answered with an error."""

    def __init__(self, what: str, status: int, *, where: str) -> None:
        denied = status in _TOKEN_STATUS
        super().__init__(what, where=where, next="check mlflow_tracking_token" if denied else None)
        self.is_denied = denied


@dataclass(frozen=True, slots=True)
class ModelRegistry:
    """How to reach a registry."""

    url: str
    token: str = field(repr=False)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> ModelRegistry:
        """The registry that a configuration names."""
        url, token = values.get("mlflow_tracking_uri"), values.get("mlflow_tracking_token")
        if not (isinstance(url, str) and url) or not (isinstance(token, str) and token):
            raise UserError("a GitLab model registry needs an address and a token", next=_CREDENTIALS)
        if urlsplit(url).scheme not in {"http", "https"}:
            raise UserError(f"expected an http:// or https:// address, got '{url}'", where="mlflow_tracking_uri")
        return cls(url.rstrip("/"), token)

    def has_dataset(self, name: str) -> bool:
        """Whether a dataset of exactly this name exists."""
        try:
            self._call("GET", "registered-models/get", name=name)
        except RefusedError as error:
            if error.is_denied:
                raise
            return False
        return True

    def delete_dataset(self, name: str) -> None:
        """Delete a dataset with all its versions."""
        self._call("DELETE", "registered-models/delete", name=name)

    def upload(self, dataset: str, version: str, path: Path) -> None:
        """Add a file to a version of a dataset; both are created if they do not exist."""
        try:
            self._call("POST", "registered-models/create", name=dataset)
        except RefusedError as error:
            if error.is_denied:
                raise  # any other refusal: it exists
        address = f"{self._artifacts(self._ready_version(dataset, version))}/{_quote(path.name)}"
        with path.open("rb") as stream:
            headers = {
                "Content-Type": guess_type(path.name)[0] or "application/octet-stream",
                "Content-Length": str(path.stat().st_size),
            }
            with self._open("PUT", address, stream, headers, timeout_s=_UPLOAD_TIMEOUT_S):
                pass

    def download(self, file: RegistryFile, target: Path) -> None:
        """Write a file of a version to `target`, complete or not at all."""
        try:
            version = self._version(file.dataset, file.version)
        except RefusedError as error:
            if error.is_denied:
                raise
            what = f"the registry has no version {file.version} of '{file.dataset}': {error.what}"
            raise NotFoundError(what, where=self.url, next="names are case-sensitive") from error
        address = f"{self._artifacts(version)}/{_quote(file.artifact.lstrip('/'))}"
        with self._open("GET", address) as reply, atomic_output(target) as out:
            shutil.copyfileobj(reply, out, _BLOCK_BYTES)

    def _ready_version(self, dataset: str, version: str) -> dict[str, Any]:
        """A version, created if it does not exist; waits until the registry has registered it."""
        try:
            entry = self._version(dataset, version)
        except RefusedError as error:
            if error.is_denied:
                raise
            tags = [{"key": "gitlab.version", "value": version}]
            reply = self._call("POST", "model-versions/create", name=dataset, source=version, tags=tags)
            entry = _part(reply, "model_version", self.url)
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while entry.get("status") == "PENDING_REGISTRATION" and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            entry = self._version(dataset, str(entry.get("version", version)))
        return entry

    def _version(self, dataset: str, version: str) -> dict[str, Any]:
        return _part(self._call("GET", "model-versions/get", name=dataset, version=version), "model_version", self.url)

    def _artifacts(self, version: Mapping[str, Any]) -> str:
        """The address of the folder of a version's files."""
        run = version.get("run_id")
        if not run:
            raise UserError("the registry's version has no run, so it has no files", where=self.url)
        info = _part(_part(self._call("GET", "runs/get", run_uuid=run, run_id=run), "run", self.url), "info", self.url)
        address = str(info.get("artifact_uri") or "")
        if address.startswith(_PROXIED):
            address = f"{self.url}/api/2.0/mlflow-artifacts/artifacts/{urlsplit(address).path.lstrip('/')}"
        if urlsplit(address).scheme not in {"http", "https"}:
            raise UserError(
                f"the registry keeps its files in '{address}', which is not an HTTP address", where=self.url
            )
        return address.rstrip("/")

    def _call(self, method: str, function: str, /, **values: Any) -> dict[str, Any]:
        """Call the REST interface: values in the query of a GET, else as JSON."""
        address = f"{self.url}/api/2.0/mlflow/{function}"
        if method == "GET":
            opened = self._open(method, f"{address}?{urlencode(values)}")
        else:
            opened = self._open(method, address, orjson.dumps(values), {"Content-Type": "application/json"})
        with opened as reply:
            text = reply.read()
        try:
            content = orjson.loads(text or b"{}")
        except orjson.JSONDecodeError as error:
            raise UserError("the server is not a model registry", where=address, next=_CREDENTIALS) from error
        return content if isinstance(content, dict) else {}

    @contextmanager
    def _open(
        self,
        method: str,
        address: str,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> Iterator[IO[bytes]]:
        request = urllib.request.Request(address, body, dict(headers or {}), method=method)  # noqa: S310 - http(s) only
        if may_have_token(address, self.url):
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        where = address.partition("?")[0]
        try:
            with urllib.request.build_opener(_SameOrigin(self.token)).open(request, timeout=timeout_s) as reply:
                yield reply
        except urllib.error.HTTPError as error:
            raise RefusedError(
                f"the registry replied {error.code}: {_message(error)}", error.code, where=where
            ) from error
        except (OSError, urllib.error.URLError) as error:
            reason = getattr(error, "reason", None) or error
            raise UserError(f"cannot reach the registry: {reason}", where=where, next=_CREDENTIALS) from error


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows redirects, with the token only if they stay on the server: files may be in an object store elsewhere."""

    def __init__(self, token: str) -> None:
        self._token = token

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and may_have_token(newurl, req.full_url) and req.has_header("Authorization"):
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return request


def may_have_token(address: str, of: str) -> bool:
    """Whether an address is on the server that the token is for, or the same host's HTTPS."""
    target, origin = urlsplit(address), urlsplit(of)
    places = {(origin.scheme, origin.port or _PORTS[origin.scheme]), ("https", _PORTS["https"])}
    port = target.port or _PORTS.get(target.scheme)
    return target.hostname == origin.hostname and (target.scheme, port) in places


def _quote(path: str) -> str:
    return quote(path, safe=_PATH_SAFE)


def _part(reply: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    part = reply.get(name)
    if not isinstance(part, dict):
        raise UserError(f"the registry's reply has no {name}", where=where)
    return part


def _message(error: urllib.error.HTTPError) -> str:
    """What the registry says, or the status line."""
    text = error.read(2000)
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError:
        return str(error.reason)
    message = values.get("message") or values.get("error_code") if isinstance(values, dict) else None
    return str(message or error.reason)
