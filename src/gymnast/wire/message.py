"""Requests and replies of the contract, independent of the transport."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec

from gymnast.types.encoding import encode_json, printable
from gymnast.types.failure import FailureDetail
from gymnast.wire.progress import AttemptProgress

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class PlainText(str):
    """A reply body sent as plain text, not as a JSON string."""

    __slots__ = ()
    content_type: ClassVar[bytes] = b"text/plain; charset=utf-8"


class EventStream(PlainText):
    """A reply body that is a whole stream of server-sent events."""

    __slots__ = ()
    content_type = b"text/event-stream; charset=utf-8"


class Request(msgspec.Struct):
    """A call to a server. `body` is decoded JSON."""

    method: str
    path: str
    body: Any = None
    cookies: Mapping[str, str] = EMPTY
    headers: Mapping[str, str] = EMPTY
    rollout_id: str | None = None
    progress: AttemptProgress | None = None
    """The progress and usage of the attempt. Over HTTP each request has its own."""
    validated: bool = False
    """The body was validated where it entered the process. Never set over HTTP."""
    cookie_name: str = ""
    """The session cookie's name, set by the server that handles the request."""
    new_session_id: str | None = None

    @property
    def session_id(self) -> str:
        """The session of this request: the one in its cookie, or a new one."""
        session_id = self.cookies.get(self.cookie_name) or self.new_session_id
        if session_id is None:
            session_id = self.new_session_id = secrets.token_hex(16)
        return session_id


class Reply(msgspec.Struct):
    """A server's reply. `failure` is the structured form of an error body; `raw` the bytes a transport received."""

    status: int = 200
    body: Any = None
    cookies: Mapping[str, str] = EMPTY
    headers: Mapping[str, str] = EMPTY
    failure: FailureDetail | None = None
    raw: bytes | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def text(self) -> str:
        """The body as sent over the wire, and as a model sees a tool's output."""
        if isinstance(self.body, PlainText):
            return str(self.body)
        if self.raw is not None:
            return self.raw.decode("utf-8", errors="replace")
        return encode_body(self.body).decode()


def error_text(reply: Reply) -> str:
    """The human-readable message of an error reply."""
    if reply.failure is not None:
        return reply.failure.message
    detail = reply.body.get("detail") if isinstance(reply.body, dict) else reply.body
    if isinstance(detail, list) and all(isinstance(entry, dict) and {"loc", "msg"} <= entry.keys() for entry in detail):
        return "; ".join(f"{'.'.join(str(step) for step in entry['loc'])}: {entry['msg']}" for entry in detail)
    return detail if isinstance(detail, str) else reply.text()


def encode_body(body: Any) -> bytes:
    """Encode a body: JSON, except for plain text."""
    if isinstance(body, PlainText):
        return printable(body).encode()
    return encode_json(body)
