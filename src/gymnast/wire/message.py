"""Requests and replies as the contract knows them, before and after any transport."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.types.failure import FailureDetail
    from gymnast.wire.trail import Trail


NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def _nothing() -> Mapping[str, str]:
    return NOTHING


class PlainText(str):
    """A reply body that is sent as text, not as a JSON string."""

    __slots__ = ()
    content_type: ClassVar[bytes] = b"text/plain; charset=utf-8"


class EventStream(PlainText):
    """A reply body that is a whole stream of server-sent events."""

    __slots__ = ()
    content_type = b"text/event-stream; charset=utf-8"


@dataclass(slots=True)
class Request:
    """A call to a server. `body` is decoded JSON; `raw` keeps the bytes a transport received."""

    method: str
    path: str
    body: Any = None
    cookies: Mapping[str, str] = field(default_factory=_nothing)
    headers: Mapping[str, str] = field(default_factory=_nothing)
    rollout_id: str | None = None
    trail: Trail | None = None
    """Where the attempt says how far it is and what it used. Over HTTP each request has its own."""
    validated: bool = False
    """The caller vouches for the body: it was validated where it entered. Never set over HTTP."""
    cookie_name: str = ""
    """The session cookie of the server that handles the request; set by that server."""
    issued_session: str | None = None

    @property
    def session_id(self) -> str:
        """The session this request belongs to: the one its cookie names, or a new one."""
        found = self.cookies.get(self.cookie_name) or self.issued_session
        if found is None:
            found = self.issued_session = secrets.token_hex(16)
        return found


@dataclass(slots=True)
class Reply:
    """An answer. `failure` says in a structured way what an error body says in words."""

    status: int = 200
    body: Any = None
    cookies: Mapping[str, str] = field(default_factory=_nothing)
    headers: Mapping[str, str] = field(default_factory=_nothing)
    failure: FailureDetail | None = None
    raw: bytes | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def text(self) -> str:
        """The body as it goes over the wire: what a model is shown of a tool's answer."""
        if isinstance(self.body, PlainText):
            return str(self.body)
        if self.raw is not None:
            return self.raw.decode("utf-8", errors="replace")
        return encode(self.body).decode()


def error_text(reply: Reply) -> str:
    """What an error reply says, in words for a person."""
    if reply.failure is not None:
        return reply.failure.message
    detail = reply.body.get("detail") if isinstance(reply.body, dict) else reply.body
    if isinstance(detail, list) and all(isinstance(entry, dict) and {"loc", "msg"} <= entry.keys() for entry in detail):
        return "; ".join(f"{'.'.join(str(step) for step in entry['loc'])}: {entry['msg']}" for entry in detail)
    return detail if isinstance(detail, str) else reply.text()


def encode(body: Any) -> bytes:
    """A body as bytes: JSON, or text as it is."""
    if isinstance(body, PlainText):
        return body.encode()
    return orjson.dumps(body, default=_jsonable, option=orjson.OPT_NON_STR_KEYS)


def _jsonable(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")
