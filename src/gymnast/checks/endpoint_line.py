"""Asking an endpoint directly, past our model server: over HTTP where it has a URL, else the instance itself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from gymnast.errors import CallError
from gymnast.runtime.probe import endpoint_urls
from gymnast.types.failure import Stage, bounded
from gymnast.wire.http_client import header_items, target_of
from gymnast.wire.http_connection import TransportError
from gymnast.wire.message import EventStream

if TYPE_CHECKING:
    from gymnast.config import Instance
    from gymnast.runtime.cell import Cell
    from gymnast.types.json import JsonObject
    from gymnast.wire.http_client import HttpClient


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Without a status there was no answer, and `said` has the reason."""

    status: int | None
    body: bytes
    seconds: float
    content_type: str = ""
    said: str = ""
    first_ms: float | None = None
    """When the first part of the body came."""

    @property
    def ok(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        """The endpoint understood the request and does not do it."""
        return self.status in {400, 404, 405, 415, 422, 501}

    def json(self) -> JsonObject:
        """The object in the body, or an empty one."""
        try:
            found: Any = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}
        return found if isinstance(found, dict) else {}

    def told(self) -> str:
        """In words, for a person."""
        if self.status is None:
            return self.said
        return f"status {self.status}: {bounded(self.body.decode(errors='replace'), 300)}"


class Line(Protocol):
    """A way to ask an endpoint."""

    address: str

    async def ask(self, path: str, body: JsonObject | None = None) -> Answer:
        """GET, or POST where there is a body."""
        ...


class HttpLine:
    """An endpoint at a base URL."""

    def __init__(self, client: HttpClient, base_url: str, headers: dict[str, str], timeout_s: float) -> None:
        self.address = base_url.rstrip("/")
        self._client = client
        self._headers = header_items({"content-type": "application/json", **headers})
        self._timeout_s = timeout_s

    async def ask(self, path: str, body: JsonObject | None = None) -> Answer:
        started = time.perf_counter()
        data = None if body is None else orjson.dumps(body)
        method = "GET" if body is None else "POST"
        try:
            async with asyncio.timeout(self._timeout_s):
                target = target_of(self.address + path)
                reply = await self._client.request(method, target, self._headers, data, timed=True)
        except TimeoutError:
            return Answer(None, b"", time.perf_counter() - started, said=f"no answer within {self._timeout_s:g} s")
        except (TransportError, ValueError) as error:
            return Answer(None, b"", time.perf_counter() - started, said=str(error))
        first_ms = reply.arrivals[0][0] * 1000 if reply.arrivals else None
        took = time.perf_counter() - started
        return Answer(reply.status, reply.body, took, reply.header("content-type") or "", first_ms=first_ms)


class InstanceLine:
    """A model server that has no endpoint behind it."""

    def __init__(self, cell: Cell, instance: str, timeout_s: float) -> None:
        self.address = f"{instance} (in this process)"
        self._cell, self._instance, self._timeout_s = cell, instance, timeout_s

    async def ask(self, path: str, body: JsonObject | None = None) -> Answer:
        started = time.perf_counter()
        try:
            reply = await self._cell.calls.call(
                self._instance,
                f"/v1{path}",
                body,
                method="GET" if body is None else "POST",
                stage=Stage.MODEL,
                timeout_s=self._timeout_s,
            )
        except CallError as error:
            return Answer(None, b"", time.perf_counter() - started, said=str(error))
        kind = "text/event-stream" if isinstance(reply.body, EventStream) else "application/json"
        return Answer(reply.status, reply.text().encode(), time.perf_counter() - started, kind)


def line_to(cell: Cell, instance: Instance, timeout_s: float) -> Line:
    """The direct way to what is behind a model instance: its first base URL, or the instance."""
    urls = endpoint_urls([instance])
    if not urls:
        return InstanceLine(cell, instance.name, timeout_s)
    url, (_, key) = next(iter(urls.items()))
    more = next((value for name, value in instance.settings.items() if name.endswith("default_headers")), None)
    headers = {str(name): str(value) for name, value in (more or {}).items()}
    if key:
        headers["authorization"] = f"Bearer {key}"
    return HttpLine(cell.http, url, headers, timeout_s)
