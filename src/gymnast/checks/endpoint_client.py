"""Sends requests to an endpoint directly, bypassing our model server: over HTTP if it has a URL, else in process."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from gymnast.errors import CallError
from gymnast.runtime.probe import endpoint_urls
from gymnast.types.failure import Stage, bounded
from gymnast.wire.endpoint_errors import Diagnosis, diagnose, diagnose_transport
from gymnast.wire.http_client import header_items, parse_target
from gymnast.wire.http_connection import TransportError
from gymnast.wire.message import EventStream

if TYPE_CHECKING:
    from gymnast.config import Instance
    from gymnast.runtime.cell import Cell
    from gymnast.types.json import JsonObject
    from gymnast.wire.http_client import HttpClient


@dataclass(frozen=True, slots=True)
class EndpointReply:
    """An endpoint's reply. Without a status there was none, and `error` says why."""

    status: int | None
    body: bytes
    seconds: float
    content_type: str = ""
    error: str = ""
    first_byte_ms: float | None = None
    """Time to the first part of the body."""
    location: str | None = None
    """Where a redirect leads."""

    @property
    def ok(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        """True if the endpoint understood the request but does not support it."""
        return self.status in {400, 404, 405, 415, 422, 501}

    def diagnose(self) -> Diagnosis:
        """What the reply, or the lack of one, means."""
        if self.status is None:
            return diagnose_transport(self.error)
        return diagnose(self.status, self.body.decode(errors="replace"))

    def json(self) -> JsonObject:
        """The JSON object in the body, or an empty one."""
        try:
            value: Any = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    def describe(self) -> str:
        """The status and body, or the error, for people."""
        if self.status is None:
            return self.error
        if self.location is not None:
            return f"status {self.status}: redirect to {self.location}"
        return f"status {self.status}: {bounded(self.body.decode(errors='replace'), 300)}"


class EndpointClient(Protocol):
    """Sends requests to an endpoint."""

    address: str

    async def request(self, path: str, body: JsonObject | None = None) -> EndpointReply:
        """GET, or POST if there is a body."""
        ...


class HttpEndpointClient:
    """An endpoint at a base URL."""

    def __init__(self, client: HttpClient, base_url: str, headers: dict[str, str], timeout_s: float) -> None:
        self.address = base_url.rstrip("/")
        self._client = client
        self._headers = header_items({"content-type": "application/json", **headers})
        self._timeout_s = timeout_s

    async def request(self, path: str, body: JsonObject | None = None) -> EndpointReply:
        started = time.perf_counter()
        data = None if body is None else orjson.dumps(body)
        method = "GET" if body is None else "POST"
        try:
            async with asyncio.timeout(self._timeout_s):
                target = parse_target(self.address + path, external=True)
                reply = await self._client.request(method, target, self._headers, data, record_arrivals=True)
        except TimeoutError:
            return EndpointReply(
                None, b"", time.perf_counter() - started, error=f"no reply within {self._timeout_s:g} s"
            )
        except (TransportError, ValueError) as error:
            return EndpointReply(None, b"", time.perf_counter() - started, error=str(error))
        first_byte_ms = reply.arrivals[0][0] * 1000 if reply.arrivals else None
        took = time.perf_counter() - started
        return EndpointReply(
            reply.status,
            reply.body,
            took,
            reply.header("content-type") or "",
            first_byte_ms=first_byte_ms,
            location=reply.header("location") if 300 <= reply.status < 400 else None,
        )


class InstanceClient:
    """A model server without an endpoint behind it."""

    def __init__(self, cell: Cell, instance: str, timeout_s: float) -> None:
        self.address = f"{instance} (in this process)"
        self._cell, self._instance, self._timeout_s = cell, instance, timeout_s

    async def request(self, path: str, body: JsonObject | None = None) -> EndpointReply:
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
            return EndpointReply(None, b"", time.perf_counter() - started, error=str(error))
        content_type = "text/event-stream" if isinstance(reply.body, EventStream) else "application/json"
        return EndpointReply(reply.status, reply.text().encode(), time.perf_counter() - started, content_type)


def make_client(cell: Cell, instance: Instance, timeout_s: float) -> EndpointClient:
    """A client for what is behind a model instance: its first base URL, or the instance itself."""
    urls = endpoint_urls([instance])
    if not urls or instance.implementation == "anthropic_model":  # the checks speak OpenAI's dialects
        return InstanceClient(cell, instance.name, timeout_s)
    url, endpoint = next(iter(urls.items()))
    extra = next((value for name, value in instance.settings.items() if name.endswith("default_headers")), None)
    headers = {str(name): str(value) for name, value in (extra or {}).items()}
    headers |= dict(endpoint.headers)
    return HttpEndpointClient(cell.http, url, headers, timeout_s)
