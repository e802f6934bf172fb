"""An OTLP/HTTP collector on loopback, and a reader of its protobuf that shares no code with the encoder."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Collector:
    """What was posted, and how to answer."""

    port: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    """Answers of the next requests; 200 once they are used up."""
    reply: bytes = b""
    delay: threading.Event | None = None
    """If set, answers wait for it."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def spans(self) -> list[Span]:
        """All spans of accepted requests."""
        return [span for _, _, body in self.requests for span in read_spans(body)]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that is running."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if collector.delay is not None:
                collector.delay.wait(120)
            status = collector.statuses.pop(0) if collector.statuses else 200
            if status == 200:
                collector.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            with suppress(BrokenPipeError, ConnectionResetError):  # the exporter may be gone before a late answer
                self.send_response(status)
                self.send_header("content-length", str(len(collector.reply)))
                self.end_headers()
                self.wfile.write(collector.reply)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        if collector.delay is not None:
            collector.delay.set()
        server.shutdown()
        server.server_close()


@dataclass
class Span:
    """A span as it arrived."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    status: int
    message: str
    resource: dict[str, Any]


def read_spans(body: bytes) -> Iterator[Span]:
    """The spans of an `ExportTraceServiceRequest`."""
    for resource_spans in _fields(body).get(1, []):
        parts = _fields(resource_spans)
        resource = _attributes(_fields(parts[1][0]).get(1, []))
        for scope_spans in parts[2]:
            for data in _fields(scope_spans).get(2, []):
                yield _span(_fields(data), resource)


def _span(parts: dict[int, list[Any]], resource: dict[str, Any]) -> Span:
    status = _fields(parts[15][0]) if 15 in parts else {}
    events = [_fields(event) for event in parts.get(11, [])]
    return Span(
        parts[1][0].hex(),
        parts[2][0].hex(),
        parts[4][0].hex() if 4 in parts else "",
        parts[5][0].decode(),
        parts[6][0],
        parts[7][0],
        parts[8][0],
        _attributes(parts.get(9, [])),
        [(event[2][0].decode(), _attributes(event.get(3, []))) for event in events],
        status.get(3, [0])[0],
        status[2][0].decode() if 2 in status else "",
        resource,
    )


def _attributes(pairs: list[bytes]) -> dict[str, Any]:
    return {parts[1][0].decode(): _value(_fields(parts[2][0])) for parts in map(_fields, pairs)}


def _value(parts: dict[int, list[Any]]) -> Any:
    (number, (value, *_)), *_ = parts.items()
    if number == 1:
        return value.decode()
    if number == 2:
        return bool(value)
    if number == 4:
        return struct.unpack("<d", struct.pack("<Q", value))[0]
    if number == 5:
        return [_value(_fields(item)) for item in _fields(value).get(1, [])]
    return value


def _fields(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number: numbers for varints and fixed64, bytes for what has a length."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            fields.setdefault(tag >> 3, []).append(value)
        elif tag & 7 == 1:
            fields.setdefault(tag >> 3, []).append(struct.unpack_from("<Q", data, at)[0])
            at += 8
        else:
            assert tag & 7 == 2
            length, at = _varint(data, at)
            fields.setdefault(tag >> 3, []).append(data[at : at + length])
            at += length
    assert at == len(data)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
